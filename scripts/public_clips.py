"""List the clips that `driftscore lab run public` tests: `python scripts/public_clips.py`.

Needs ESC-50 (`driftscore data get esc50`) and the manifest of the recordings beside the project,
which says what the weights, the calibrations and the choices of `mini` were made from. A clip is
tested if it is in folds 1 to 4 (fold 5 is kept for later checks), is not among them and shares no
source with one that is.
"""

import csv
import os
import sys
from pathlib import Path

from driftscore.lab.corpora.datasets import esc50_public, find_dataset
from driftscore.lab.corpora.folders import root, rows

PROJECT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("DRIFTSCORE_SHARED", PROJECT.parent / "shared"))


def tested() -> list[str]:
    """Return the ids of the clips, in the order of their names."""
    with open(SHARED / "audio" / "manifest.csv", encoding="utf-8", newline="") as file:
        used = {
            row["source"].removeprefix("ESC-50 ")
            for row in csv.DictReader(file)
            if row["split"] == "train" and row["source"].startswith("ESC-50 ")
        }
    home = root(find_dataset("esc50").folder, "meta/esc50.csv")
    clips = rows(home / "meta/esc50.csv", ["filename", "fold", "src_file"])
    sources = {clip["src_file"] for clip in clips if clip["filename"] in used}
    return sorted(
        clip["filename"].removesuffix(".wav")
        for clip in clips
        if clip["fold"] != "5" and clip["filename"] not in used and clip["src_file"] not in sources
    )


def main() -> None:
    """Write the list, or compare it."""
    written = esc50_public.LIST.read_text(encoding="utf-8")
    comments = [line for line in written.splitlines() if line.startswith("#")]
    expected = "\n".join([*comments, *tested()]) + "\n"
    if "--check" in sys.argv:
        sys.exit(
            None if expected == written else f"{esc50_public.LIST.name} is not what it should be"
        )
    esc50_public.LIST.write_text(expected, encoding="utf-8")


if __name__ == "__main__":
    main()
