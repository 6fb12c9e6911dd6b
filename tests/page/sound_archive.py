"""A small archive of computed sounds, for tests and pictures of the page."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import PROJECT

SOUNDS = PROJECT / "demo" / "sounds"
NAMES = ("siren", "rain", "church_bell", "speech")


def make_archive(folder: Path, names: tuple[str, ...] = NAMES) -> Path:
    """Copy a few sounds, and embed them as a user would."""
    (folder / "sounds").mkdir(parents=True)
    for name in names:
        shutil.copy(SOUNDS / f"{name}.flac", folder / "sounds")
    arguments = ["embed", str(folder / "sounds"), "--out", f"{folder}/archive/"]
    subprocess.run([sys.executable, "-m", "driftscore", *arguments], check=True)
    return folder / "archive"
