"""Where corpora lie: one folder each in the data home, and the recordings beside the project."""

import os
from pathlib import Path

from driftscore.errors import UsageError
from driftscore.files import cache_home


def data_home() -> Path:
    """Return the folder of all corpora: `$DRIFTSCORE_DATA`, or `data` in the cache folder."""
    if given := os.environ.get("DRIFTSCORE_DATA"):
        return Path(given).expanduser()
    return cache_home() / "data"


def shared_audio() -> Path:
    """Return the folder of shared recordings: in `$DRIFTSCORE_SHARED`, or beside the project."""
    if given := os.environ.get("DRIFTSCORE_SHARED"):
        candidates = [Path(given).expanduser()]
    else:
        projects = (Path(__file__).parents[3], Path.cwd())
        candidates = [project.resolve().parent / "shared" for project in projects]
    for folder in candidates:
        for place in (folder / "audio", folder):
            if (place / "manifest.csv").is_file():
                return place
    looked = ", ".join(str(folder) for folder in dict.fromkeys(candidates))
    raise UsageError(
        f"The shared recordings (audio/manifest.csv) are not in {looked}; "
        "set DRIFTSCORE_SHARED to their folder"
    )
