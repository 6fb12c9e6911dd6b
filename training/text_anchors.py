"""Compute the tag anchors: AudioSet's names and descriptions in MiniLM's space.

    anchor_k = unit(unit(mean over parts and templates of S(template(part))) + 0.5 S(description))

A tag's name is a list of synonyms ("Gull, seagull"); each synonym is encoded by itself. Settings
were chosen by clean zero-shot accuracy on `train/esc50`, see `training.text_evaluate space`. The
ontology's descriptions (CC BY-SA 4.0) are not part of the package: only numbers computed from them
and the tag names are.

Writes `anchors.npz` in the work folder and `models/tagspace.safetensors` in the package. The latter
includes mn04's statistics if `training/work/mn04_stats.npz` exists.

    python -m training.text_anchors
"""

import argparse
import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from driftscore.backbones.mn04.minilm import load_encoder
from driftscore.backbones.mn04.tagspace import KIND
from driftscore.backbones.protocol import TAG_SPACE
from driftscore.backbones.vectors import Matrix
from driftscore.storage.tensors import write_tensors
from training.text_corpus import SHARED, WORK

TEMPLATES = ("{}", "the sound of {}", "{} sound")
Encode = Callable[[Sequence[str]], Matrix]


@dataclass(frozen=True)
class Tag:
    """One of AudioSet's 527 classes."""

    name: str
    description: str


@dataclass(frozen=True)
class Settings:
    """Settings of the text side of tag space."""

    tau: float = 50.0
    description_weight: float = 0.5
    split_names: bool = True


def read_tags(folder: Path) -> list[Tag]:
    """Return the 527 tags in the order of the tagger's logits."""
    ontology = json.loads((folder / "audioset_ontology.json").read_text("utf-8"))
    descriptions = {entry["id"]: entry["description"] for entry in ontology}
    with (folder / "audioset_class_labels.csv").open(encoding="utf-8") as rows:
        return [
            Tag(row["display_name"], descriptions[row["mid"]] or row["display_name"])
            for row in csv.DictReader(rows)
        ]


def make_anchors(tags: Sequence[Tag], encode: Encode, settings: Settings) -> Matrix:
    """Return one unit row per tag."""
    rows = []
    for tag in tags:
        parts = tag.name.split(",") if settings.split_names else [tag.name]
        texts = [t.format(part.strip()) for part in parts for t in TEMPLATES]
        name = _unit(encode(texts).mean(0))
        rows.append(_unit(name + settings.description_weight * encode([tag.description])[0]))
    return np.stack(rows)


def write_space(
    path: Path, tags: Sequence[Tag], anchors: Matrix, settings: Settings, statistics: Path
) -> bool:
    """Write the model file; return whether it includes the tagger's statistics."""
    tensors = {"anchors": anchors.astype(np.float16)}
    about = {
        "names": [tag.name for tag in tags],
        "encoder": "all-MiniLM-L6-v2",
        "templates": TEMPLATES,
        **asdict(settings),
    }
    if statistics.exists():
        stored = np.load(statistics)
        tensors |= {name: stored[name].astype(np.float32) for name in ("mu", "sigma")}
        about["tagger"] = "mn04"
    write_tensors(path, tensors, kind=KIND, about=about)
    return "mu" in tensors


def _unit(row: np.ndarray) -> np.ndarray:
    """Return the row scaled to unit norm."""
    unit: np.ndarray = row / np.linalg.norm(row)
    return unit


def main() -> None:
    """Compute the anchors and write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--work", type=Path, default=WORK)
    options = parser.parse_args()
    settings = Settings()
    tags = read_tags(options.shared / "text")
    stored = options.work / "anchors.npz"
    anchors = make_anchors(tags, load_encoder().encode, settings)
    np.savez(stored, anchors=anchors.astype(np.float16), tau=settings.tau)
    complete = write_space(
        TAG_SPACE, tags, anchors, settings, options.work.parent / "mn04_stats.npz"
    )
    statistics = "with" if complete else "WITHOUT"
    print(f"{len(tags)} anchors; {TAG_SPACE.name} {statistics} mn04's statistics")


if __name__ == "__main__":
    main()
