"""SONYC-UST v2: 10 s of New York streets, 8 coarse classes, several labels per clip.

    audio/*.wav (or in any other folder, as the archives unpack)
    annotations.csv    split, sensor_id, audio_filename, annotator_id, {k}_{name}_presence, ...

One row per annotator. Annotator 0 is the verified truth; a clip without it has the labels that
more than half of its annotators reported. An answer of -1 means no answer. The fold is the split.
"""

import re
from collections import defaultdict
from pathlib import Path

from driftscore.errors import FormatError
from driftscore.lab.corpora.about import About, Clip, zenodo
from driftscore.lab.corpora.folders import absent, root, rows

ABOUT = About(
    title="SONYC-UST v2",
    page="https://zenodo.org/records/3966543",
    licence="CC BY 4.0",
    citation="M. Cartwright et al. SONYC-UST-V2: An Urban Sound Tagging Dataset with "
    "Spatiotemporal Context. DCASE Workshop, 2020. arXiv:2009.05188",
    files=(
        *zenodo(3966543, ("annotations.csv", ""), ("dcase-ust-taxonomy.yaml", ""), unpack=False),
        *zenodo(3966543, ("audio*.tar.gz", "")),
    ),
    multi_label=True,
    clips=18_510,
)
_META = "annotations.csv"
_COARSE = re.compile(r"^(\d+)_(.+)_presence$")
_VERIFIED = "0"


def clips(home: Path) -> list[Clip]:
    """Return the clips in the order of their first row in the table."""
    folder = root(home, _META)
    sounds, table = _sounds(folder), _table(folder)
    columns = _columns(folder, table)
    answers: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in table:
        answers[row["audio_filename"]].append(row)
    listed = []
    for name, rows_of_clip in answers.items():
        verified = [row for row in rows_of_clip if row["annotator_id"] == _VERIFIED]
        present = []
        for label, column in columns.items():
            votes = [float(row[column]) for row in verified or rows_of_clip]
            valid = [vote for vote in votes if vote >= 0]
            if 2 * sum(valid) > len(valid):
                present.append(label)
        split, clip_id = rows_of_clip[0]["split"], name.removesuffix(".wav")
        listed.append(Clip(sounds[name], tuple(present), split, clip_id))
    return listed


def labels(home: Path) -> tuple[str, ...]:
    """Return the coarse classes in the order of their numbers."""
    folder = root(home, _META)
    return tuple(_columns(folder, _table(folder)))


def missing(home: Path) -> list[str]:
    """Return everything that the folder lacks."""
    folder = root(home, _META)
    sounds = _sounds(folder)
    if lacking := absent(folder, [_META]) + ([] if sounds else ["audio/*.wav"]):
        return lacking
    names = dict.fromkeys(row["audio_filename"] for row in _table(folder))
    return [f"audio/{name}" for name in names if name not in sounds]


def _columns(folder: Path, table: list[dict[str, str]]) -> dict[str, str]:
    """Return the presence column of each coarse class; fine ones are numbered `1-2_...`."""
    header = table[0] if table else {}
    coarse = [match for column in header if (match := _COARSE.match(column))]
    if not coarse:
        raise FormatError(f"{folder / _META} has no coarse class: no column like 1_engine_presence")
    return {match[2]: match[0] for match in sorted(coarse, key=lambda match: int(match[1]))}


def _sounds(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in sorted(folder.rglob("*.wav"))}


def _table(folder: Path) -> list[dict[str, str]]:
    return rows(folder / _META, ["split", "audio_filename", "annotator_id"])
