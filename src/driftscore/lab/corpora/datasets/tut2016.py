"""TUT Acoustic Scenes 2016 (DCASE 2016 task 1): binaural scenes of 30 s, 15 classes.

    TUT-acoustic-scenes-2016-development/audio/*.wav, meta.txt, evaluation_setup/fold*_evaluate.txt
    TUT-acoustic-scenes-2016-evaluation/audio/*.wav, meta.txt
    meta.txt    file, scene; tab-separated, no header

Either part or both may be present, or the files of one part in the folder itself. The fold of a
development clip is the one that tests it; that of an evaluation clip is "evaluation".
"""

from pathlib import Path

from driftscore.errors import FormatError
from driftscore.lab.corpora.about import About, Clip, zenodo
from driftscore.lab.corpora.folders import absent, require

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
)
_META = "meta.txt"


def clips(home: str | Path) -> list[Clip]:
    """Return the clips, development first, each part in the order of its list."""
    require(ABOUT, home, missing(home))
    found = []
    for part in _parts(home):
        folds = _folds(part)
        other = "evaluation" if "evaluation" in part.name else "development"
        found += [
            Clip(part / file, (scene,), folds.get(file, other), Path(file).stem)
            for file, scene in _pairs(part / _META)
        ]
    return found


def labels(home: str | Path) -> tuple[str, ...]:
    """Return the scenes in alphabetical order."""
    return tuple(sorted({scene for part in _parts(home) for _, scene in _pairs(part / _META)}))


def missing(home: str | Path) -> list[str]:
    """Return everything that the folder lacks."""
    parts = _parts(home)
    if not parts:
        return ["meta.txt", "audio"]
    return [
        str((part / file).relative_to(Path(home).expanduser()))
        for part in parts
        for file in absent(part, [file for file, _ in _pairs(part / _META)])
    ]


def _parts(home: str | Path) -> list[Path]:
    folder = Path(home).expanduser()
    inside = sorted(p for p in folder.glob("*") if p.is_dir()) if folder.is_dir() else []
    return [place for place in (folder, *inside) if (place / _META).is_file()]


def _folds(part: Path) -> dict[str, str]:
    """Return the fold that tests each file, from the lists fold{1..4}_evaluate.txt."""
    lists = sorted((part / "evaluation_setup").glob("fold*_evaluate.txt"))
    return {
        file: path.name.removeprefix("fold").removesuffix("_evaluate.txt")
        for path in lists
        for file, _ in _pairs(path)
    }


def _pairs(path: Path) -> list[tuple[str, str]]:
    pairs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.split("\t")
        if line.strip() and len(fields) < 2:
            raise FormatError(f"{path}, line {number}: expected a file, a tab and a scene")
        if line.strip():
            pairs.append((fields[0].strip(), fields[1].strip()))
    return pairs
