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
from driftscore.lab.corpora.folders import require, root, rows

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
)
_META = "annotations.csv"
_COARSE = re.compile(r"^(\d+)_(.+)_presence$")
_VERIFIED = "0"


def clips(home: str | Path) -> list[Clip]:
    """Return the clips in the order of their first row in the table."""
    require(ABOUT, home, missing(home))
    place = root(home, _META)
    sounds = _sounds(place)
    answers: dict[str, list[dict[str, str]]] = defaultdict(list)
    table = _table(place)
    for row in table:
        answers[row["audio_filename"]].append(row)
    columns = _columns(place, table)
    return [
        Clip(sounds[name], _present(given, columns), given[0]["split"], name.removesuffix(".wav"))
        for name, given in answers.items()
    ]


def labels(home: str | Path) -> tuple[str, ...]:
    """Return the coarse classes in the order of their numbers."""
    place = root(home, _META)
    return tuple(_columns(place, _table(place)))


def missing(home: str | Path) -> list[str]:
    """Return everything that the folder lacks."""
    place = root(home, _META)
    sounds = _sounds(place)
    lacking = [] if (place / _META).is_file() else [_META]
    lacking += [] if sounds else ["audio/*.wav"]
    if lacking:
        return lacking
    names = dict.fromkeys(row["audio_filename"] for row in _table(place))
    return [f"audio/{name}" for name in names if name not in sounds]


def _present(given: list[dict[str, str]], columns: dict[str, str]) -> tuple[str, ...]:
    """Return the labels of one clip from the rows of its annotators."""
    deciding = [row for row in given if row["annotator_id"] == _VERIFIED] or given
    return tuple(label for label, column in columns.items() if _is_present(deciding, column))


def _is_present(deciding: list[dict[str, str]], column: str) -> bool:
    answers = [float(row[column]) for row in deciding]
    valid = [answer for answer in answers if answer >= 0]
    return 2 * sum(valid) > len(valid)


def _columns(place: Path, table: list[dict[str, str]]) -> dict[str, str]:
    """Return the presence column of each coarse class; fine ones are numbered `1-2_...`."""
    header = table[0] if table else {}
    found = [match for column in header if (match := _COARSE.match(column))]
    if not found:
        raise FormatError(f"{place / _META} has no coarse class: no column like 1_engine_presence")
    return {match[2]: match[0] for match in sorted(found, key=lambda match: int(match[1]))}


def _sounds(place: Path) -> dict[str, Path]:
    return {path.name: path for path in sorted(place.rglob("*.wav"))}


def _table(place: Path) -> list[dict[str, str]]:
    return rows(place / _META, ["split", "audio_filename", "annotator_id"])
