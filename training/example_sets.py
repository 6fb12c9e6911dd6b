"""Label sets in noise, embedded once per model: what `training.examples` measures on.

    set      choosing part             reporting part         examples come from
    esc50    audio/train/esc50 (965)   audio/events (400)     the choosing part
    urban    fold3 (387)               fold2 (888)            the choosing part
    kitchen  choose (320)              report (744)           the choosing part

`esc50` is in `../shared/audio`; the other two are folders that `../shared/tools/urban.py` and
`kitchen.py` write. Every clip is embedded clean and at each SNR in one recorded noise that does not
contain its label, additive mixing. The two parts share no source recording.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore import Audio, Embedder
from driftscore.backbones.vectors import Matrix
from driftscore.lab.conditions import generator
from driftscore.lab.corpora.folders import load
from driftscore.lab.mixing.mixings.additive import draw as draw_additive
from driftscore.lab.mixing.record import mix
from driftscore.lab.mixing.sounds import Excerpt, Sound
from training.corpora import recorded
from training.corpora.recordings import shared_audio

SETS = ("esc50", "urban", "kitchen")
PARTS = ("choose", "report")
SNRS_DB = (None, 20.0, 10.0, 0.0)
_PART_OF = {"train": "choose", "events": "report", "fold3": "choose", "fold2": "report"}
Condition = float | None


@dataclass(frozen=True, eq=False)
class Part:
    """One part of a label set: labels and source recordings of its clips, and their embeddings."""

    labels: NDArray[np.str_]
    sources: NDArray[np.str_]
    files: tuple[str, ...]
    rows: dict[Condition, Matrix]
    """Embeddings by SNR in dB; None is clean."""


def clips(name: str, home: Path) -> list[tuple[Path, str, str, str]]:
    """Return file, part, label and source of every clip of a set."""
    folder = shared_audio() if name == "esc50" else home / name
    with (folder / "manifest.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if name == "esc50":
        rows = [row for row in rows if row["split"] == "events" or "train/esc50" in row["file"]]
    found = []
    for row in rows:
        part = row.get("split") or row.get("fold") or row["part"]
        source = row["source"]
        if name == "esc50":
            source = "-".join(Path(row["file"]).stem.split("-")[:2])
        label = row["label"].replace("_", " ")
        found.append((folder / row["file"], _PART_OF.get(part, part), label, source))
    return found


def load_part(name: str, part: str, embedder: Embedder, home: Path, work: Path) -> Part:
    """Return a part of a set; what is not in the folder `work` yet is embedded."""
    chosen = [clip for clip in clips(name, home) if clip[1] == part]
    rows = {}
    for snr_db in SNRS_DB:
        key = embedder.backbone.fingerprint[:16].replace("/", "-")
        path = work / f"{name}-{part}-{'clean' if snr_db is None else f'{snr_db:g}'}-{key}.npy"
        if not path.exists():
            mixes = (_mixed(file, label, snr_db, embedder.backbone.rate)
                     for file, _, label, _ in chosen)  # fmt: skip
            embedded = np.stack([one.embedding for one in embedder.embed(mixes)])
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, embedded)
            print(path.name, embedded.shape, flush=True)
        rows[snr_db] = np.load(path)
    return Part(
        np.array([label for _, _, label, _ in chosen]),
        np.array([source for *_, source in chosen]),
        tuple(str(file) for file, *_ in chosen),
        rows,
    )


def _mixed(file: Path, label: str, snr_db: Condition, rate: int) -> Audio:
    """Return a clip in a noise without its label; the same part of the noise at every SNR."""
    event = Sound(str(file), load(str(file), rate))
    if snr_db is None:
        return event.audio
    rng = generator("examples", file.name)
    name = label.replace(" ", "_")
    noises = [n for n in recorded.recordings(recorded.default_home()) if not n.contains([name])]
    noise = noises[int(rng.integers(len(noises)))]
    under = Sound(noise.file, load(noise.file, rate))
    start = int(rng.integers(len(under.audio.samples)))
    excerpt = Excerpt(under, start, len(event.audio.samples))
    return mix(draw_additive(event, excerpt, snr_db=snr_db), load).audio


def main() -> None:
    """Embed every set with the models that are named."""
    import argparse

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("backbones", nargs="*", default=["mini"])
    parser.add_argument("--sets", type=Path, required=True, help="folder of urban and kitchen")
    parser.add_argument("--work", type=Path, required=True, help="folder of embeddings")
    options = parser.parse_args()
    for backbone in options.backbones:
        with Embedder(backbone) as embedder:
            for name in SETS:
                for part in PARTS:
                    load_part(name, part, embedder, options.sets, options.work)


if __name__ == "__main__":
    main()
