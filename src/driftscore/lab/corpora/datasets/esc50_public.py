"""The clips of ESC-50 that nothing in driftscore was made from: 635 of folds 1 to 4, 50 classes.

`esc50_public.txt` lists them. The folder is that of `esc50`, so one download serves both.
"""

from dataclasses import replace
from pathlib import Path

from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.datasets import esc50
from driftscore.storage.files import chosen_home

ABOUT = replace(esc50.ABOUT, title="ESC-50, clips that driftscore has never used", clips=635)
LIST = Path(__file__).with_suffix(".txt")
labels, missing = esc50.labels, esc50.missing


def listed() -> frozenset[str]:
    """Return the ids of the clips."""
    lines = LIST.read_text(encoding="utf-8").split("\n")
    return frozenset(line for line in lines if line and not line.startswith("#"))


def clips(home: Path) -> list[Clip]:
    """Return the clips in the order of ESC-50's table."""
    tested = listed()
    return [clip for clip in esc50.clips(home) if clip.id in tested]


def default_home() -> Path:
    """Return the folder of `esc50`."""
    return chosen_home("data") / "esc50"
