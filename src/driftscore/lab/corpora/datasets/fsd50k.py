"""FSD50K, eval split: 10,231 clips of 0.3 to 30 s, 200 classes, several labels per clip.

FSD50K.eval_audio/{fname}.wav
FSD50K.ground_truth/eval.csv          fname, labels (comma-separated, parents included), mids
FSD50K.ground_truth/vocabulary.csv    index, label, mid; no header
"""

import csv
from pathlib import Path

from driftscore.errors import FormatError
from driftscore.lab.corpora.about import About, Clip, zenodo
from driftscore.lab.corpora.folders import absent, require, root, rows

ABOUT = About(
    title="FSD50K (eval)",
    page="https://zenodo.org/records/4060432",
    licence="CC BY 4.0 as a collection; single clips CC0, CC BY, CC BY-NC or CC Sampling+",
    citation="E. Fonseca, X. Favory, J. Pons, F. Font and X. Serra. FSD50K: An Open Dataset of "
    "Human-Labeled Sound Events. IEEE/ACM TASLP 30, 2022. doi:10.1109/TASLP.2021.3133208",
    files=zenodo(
        4060432,
        ("FSD50K.eval_audio.z01", "3090670eaeecc013ca1ff84fe4442aeb"),
        ("FSD50K.eval_audio.zip", "6fa47636c3a3ad5c7dfeba99f2637982"),
        ("FSD50K.ground_truth.zip", "ca27382c195e37d2269c4c866dd73485"),
        ("FSD50K.metadata.zip", "b9ea0c829a411c1d42adb9da539ed237"),
        ("FSD50K.doc.zip", "3516162b82dc2945d3e7feba0904e800"),
    ),
    multi_label=True,
)
_TRUTH = "FSD50K.ground_truth/eval.csv"
_VOCABULARY = "FSD50K.ground_truth/vocabulary.csv"
_AUDIO = "FSD50K.eval_audio"


def clips(home: str | Path) -> list[Clip]:
    """Return the clips in the order of the table."""
    require(ABOUT, home, missing(home))
    place = root(home, _TRUTH)
    found = [
        Clip(place / _AUDIO / f"{row['fname']}.wav", _labels(row), None, row["fname"])
        for row in _table(place)
    ]
    known = set(labels(home))
    if unlisted := sorted({label for clip in found for label in clip.labels} - known):
        raise FormatError(
            f"{place / _TRUTH} has labels that are not in the vocabulary: {unlisted[:5]}"
        )
    return found


def labels(home: str | Path) -> tuple[str, ...]:
    """Return the vocabulary in its official order."""
    path = root(home, _TRUTH) / _VOCABULARY
    with open(path, encoding="utf-8", newline="") as handle:
        return tuple(row[1] for row in csv.reader(handle) if row and row[0].isdigit())


def missing(home: str | Path) -> list[str]:
    """Return everything that the folder lacks."""
    place = root(home, _TRUTH)
    if lacking := absent(place, [_TRUTH, _VOCABULARY, _AUDIO]):
        return lacking
    return absent(place, [f"{_AUDIO}/{row['fname']}.wav" for row in _table(place)])


def _labels(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(label for label in row["labels"].split(",") if label)


def _table(place: Path) -> list[dict[str, str]]:
    return rows(place / _TRUTH, ["fname", "labels"])
