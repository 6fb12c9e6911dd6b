"""FSD50K, eval split: 10,231 clips of 0.3 to 30 s, 200 classes, several labels per clip.

FSD50K.eval_audio/{fname}.wav
FSD50K.ground_truth/eval.csv          fname, labels (comma-separated, parents included), mids
FSD50K.ground_truth/vocabulary.csv    index, label, mid; no header
"""

from pathlib import Path

from driftscore.errors import FormatError
from driftscore.lab.corpora.about import About, Clip, zenodo
from driftscore.lab.corpora.folders import absent, root, rows

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
    clips=10_231,
)
_TRUTH = "FSD50K.ground_truth/eval.csv"
_VOCABULARY = "FSD50K.ground_truth/vocabulary.csv"
_AUDIO = "FSD50K.eval_audio"


def clips(home: Path) -> list[Clip]:
    """Return the clips in the order of the table."""
    folder = root(home, _TRUTH)
    listed = []
    for row in _table(folder):
        names = tuple(label for label in row["labels"].split(",") if label)
        listed.append(Clip(folder / _AUDIO / f"{row['fname']}.wav", names, None, row["fname"]))
    unlisted = {label for clip in listed for label in clip.labels}.difference(labels(home))
    if unlisted:
        raise FormatError(
            f"{folder / _TRUTH} has labels that are not in the vocabulary: {sorted(unlisted)[:5]}"
        )
    return listed


def labels(home: Path) -> tuple[str, ...]:
    """Return the vocabulary in its official order."""
    table = rows(root(home, _TRUTH) / _VOCABULARY, ["index", "label"], header=False)
    return tuple(row["label"] for row in table if row["index"].isdigit())


def missing(home: Path) -> list[str]:
    """Return everything that the folder lacks."""
    folder = root(home, _TRUTH)
    lacking = absent(folder, [_TRUTH, _VOCABULARY, _AUDIO])
    return lacking or absent(folder, [f"{_AUDIO}/{r['fname']}.wav" for r in _table(folder)])


def _table(folder: Path) -> list[dict[str, str]]:
    return rows(folder / _TRUTH, ["fname", "labels"])
