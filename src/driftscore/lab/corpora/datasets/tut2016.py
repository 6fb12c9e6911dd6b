"""TUT Acoustic Scenes 2016 (DCASE 2016 task 1): binaural scenes of 30 s, 15 classes.

    TUT-acoustic-scenes-2016-development/audio/*.wav, meta.txt, evaluation_setup/fold*_evaluate.txt
    TUT-acoustic-scenes-2016-evaluation/audio/*.wav, meta.txt
    meta.txt    file, scene; tab-separated, no header

Either part or both may be present, or the files of one part in the folder itself. The fold of a
development clip is the one that tests it; that of an evaluation clip is "evaluation".
"""

from pathlib import Path

from driftscore.lab.corpora.about import About, Clip, zenodo
from driftscore.lab.corpora.folders import absent, rows

ABOUT = About(
    title="TUT Acoustic Scenes 2016",
    page="https://zenodo.org/records/45739",
    licence="Tampere University's own: free for non-commercial scientific use",
    citation="A. Mesaros, T. Heittola and T. Virtanen. TUT Database for Acoustic Scene "
    "Classification and Sound Event Detection. EUSIPCO, 2016. doi:10.1109/EUSIPCO.2016.7760424",
    files=(
        *zenodo(45739, ("TUT-acoustic-scenes-2016-development.*.zip", "")),
        *zenodo(165995, ("TUT-acoustic-scenes-2016-evaluation.*.zip", "")),
    ),
    clips=1_560,
)
_META = "meta.txt"


def clips(home: Path) -> list[Clip]:
    """Return the clips, development first, each part in the order of its list."""
    listed = []
    for part in _parts(home):
        folds = {
            file: path.name.removeprefix("fold").removesuffix("_evaluate.txt")
            for path in sorted((part / "evaluation_setup").glob("fold*_evaluate.txt"))
            for file, _ in _pairs(path)
        }
        other = "evaluation" if "evaluation" in part.name else "development"
        listed += [
            Clip(part / file, (scene,), folds.get(file, other), Path(file).stem)
            for file, scene in _pairs(part / _META)
        ]
    return listed


def labels(home: Path) -> tuple[str, ...]:
    """Return the scenes in alphabetical order."""
    return tuple(sorted({scene for part in _parts(home) for _, scene in _pairs(part / _META)}))


def missing(home: Path) -> list[str]:
    """Return everything that the folder lacks."""
    parts = _parts(home)
    if not parts:
        return ["meta.txt", "audio"]
    return [
        str((part / file).relative_to(home))
        for part in parts
        for file in absent(part, [file for file, _ in _pairs(part / _META)])
    ]


def _parts(home: Path) -> list[Path]:
    inside = sorted(p for p in home.glob("*") if p.is_dir()) if home.is_dir() else []
    return [part for part in (home, *inside) if (part / _META).is_file()]


def _pairs(path: Path) -> list[tuple[str, str]]:
    table = rows(path, ["file", "scene"], delimiter="\t", header=False)
    return [(row["file"].strip(), row["scene"].strip()) for row in table]
