"""Label a few sounds, clean and in street noise, by plain cosine and by default: `make demo`.

The sounds in `demo/sounds` are computed (see make_sounds.py). If the project's shared recordings
are found (in ../shared, or $DRIFTSCORE_SHARED), a table of real recordings in real noise follows:
the first clips of every class, in the order of the manifest, each in one noise drawn for it.
"""

import argparse
import re
import sys
import time
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from driftscore import (
    Audio,
    Backbone,
    Classifier,
    Head,
    build_bank,
    compile_head,
    load_backbone,
)
from driftscore.backbones.vectors import Matrix, Vector
from driftscore.errors import UsageError
from driftscore.lab.conditions import generator
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.datasets import find_dataset
from driftscore.lab.corpora.folders import load
from driftscore.lab.corpora.noises import find_noise
from driftscore.lab.metrics import accuracy, accuracy_difference
from driftscore.lab.mixing.loudness import LoudnessMeter
from driftscore.lab.mixing.mixings import find_mixing
from driftscore.lab.mixing.record import mix
from driftscore.lab.mixing.sounds import Excerpt, Sound
from driftscore.scoring.head import Result
from driftscore.system.progress import progress_bar
from driftscore.text.cache import TextCache

HERE = Path(__file__).resolve().parent
SOUNDS = {
    "siren": "siren",
    "church_bell": "church bell",
    "ticking_clock": "ticking clock",
    "alarm_clock": "alarm clock",
    "rain": "rain",
    "speech": "speech",
}
OTHERS = ["dog bark", "car engine", "birds singing", "footsteps"]
DEFAULT = "default"
SHOWN = ("cosine", DEFAULT)
RULES = ("cosine", "das", DEFAULT)
SNRS_DB = (None, 10.0, 0.0)
_WIDE = 108  # columns of the table if it spells out every label


def in_noise(event: Sound, noise: Excerpt, snr_db: float | None) -> Audio:
    """Return an event mixed with noise at a power SNR; None leaves it clean."""
    if snr_db is None:
        return event.audio
    record = find_mixing("additive").draw(
        event, noise, snr_db=snr_db, meter=LoudnessMeter(), rng=generator("demo")
    )
    return mix(record, load).audio


def sound(path: Path, rate: int) -> Sound:
    """Return a recording at a sample rate."""
    return Sound(str(path), load(str(path), rate))


def embed(audio: Audio, model: Backbone) -> Vector:
    """Return the embedding of one recording."""
    row: Vector = model.embed_audio([audio])[0]
    return row


def synthetic_table(model: Backbone, heads: dict[str, Head], *, wide: bool) -> Table:
    """Return the table of the demo's own sounds."""
    table = Table(
        title="Computed sounds, clean and in street noise at 0 dB (number: margin)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("sound", no_wrap=True)
    for condition in ("clean", "0 dB"):
        for rule in SHOWN:
            table.add_column(f"{condition}\n{rule}", no_wrap=True)
    noise = sound(HERE / "sounds" / "street.flac", model.rate).full
    for name, truth in SOUNDS.items():
        row = [Text(truth, style="bold")]
        event = sound(HERE / "sounds" / f"{name}.flac", model.rate)
        for snr_db in (None, 0.0):
            z = embed(in_noise(event, noise, snr_db), model)
            row += [answer(heads[rule], z, truth, wide=wide) for rule in SHOWN]
        table.add_row(*row)
    return table


def answer(head: Head, z: Vector, truth: str, *, wide: bool) -> Text:
    """Return the label that a head gives to an embedding, marked right or wrong, and its margin.

    In a narrow table a right label is not spelled out: it is the name in the first column.
    """
    result = Result("", head.labels, head.scores(z)[0])
    right = result.label == truth
    name = f" {result.label}" if wide or not right else ""
    return Text(
        f"{'✓' if right else '✗'}{name} {result.margin:.2f}", style="green" if right else "red"
    )


def real_table(model: Backbone, per_class: int) -> Table:
    """Return the table of real recordings: accuracy by rule and SNR, and the default's gain."""
    labels, clips = real_clips(per_class)
    heads = compile_heads(model, labels)
    truth = np.array([labels.index(clip.labels[0]) for clip in clips])
    table = Table(
        title=f"{len(clips)} real recordings of {len(labels)} classes in real noise: accuracy in %",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for column in ("SNR", *RULES, "default over cosine (95 % interval)"):
        table.add_column(column, justify="right")
    with progress_bar("Embedding real recordings", len(clips) * len(SNRS_DB)) as advance:
        for snr_db in SNRS_DB:
            rows = []
            for clip in clips:
                rows.append(embed_in_noise(clip, model, snr_db))
                advance(1)
            name = "clean" if snr_db is None else f"{snr_db:.0f} dB"
            table.add_row(name, *accuracies(truth, heads, np.stack(rows)))
    return table


def real_clips(per_class: int) -> tuple[list[str], list[Clip]]:
    """Return the labels of the shared recordings, and the first clips of each."""
    sys.path.append(str(HERE.parent))  # where `training` is
    events = find_dataset("training.corpora:shared_events")
    labels, every = list(events.labels()), events.clips()
    of_class = [[clip for clip in every if clip.labels == (label,)] for label in labels]
    return labels, [clip for few in of_class for clip in few[:per_class]]


def embed_in_noise(clip: Clip, model: Backbone, snr_db: float | None) -> Vector:
    """Return the embedding of a clip in recorded noise, the same noise at every SNR."""
    event = sound(clip.path, model.rate)
    rng = generator("demo", clip.id)
    noise = find_noise("training.corpora:recorded").sample(
        event.audio.seconds, model.rate, rng, avoid=clip.labels
    )
    return embed(in_noise(event, noise, snr_db), model)


def accuracies(truth: np.ndarray, heads: dict[str, Head], rows: Matrix) -> list[str]:
    """Return the accuracy of each rule, and the gain of the default with its interval, in %."""
    scores = {rule: heads[rule].scores(rows) for rule in RULES}
    gain = accuracy_difference(truth, scores[DEFAULT], scores["cosine"], rng=generator("boot"))
    return [
        *(f"{100 * accuracy(truth, scores[rule]):.1f}" for rule in RULES),
        f"{100 * gain.difference:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})",
    ]


def compile_heads(model: Backbone, labels: list[str]) -> dict[str, Head]:
    """Return the head of plain cosine, of DAS as in the paper, and of the default."""
    bank = build_bank(labels, model, cache=TextCache())
    heads = {rule: compile_head(bank, rule) for rule in RULES if rule != DEFAULT}
    return {**heads, DEFAULT: Classifier(labels, backbone=model).fit().head_}


def main() -> None:
    """Show the demo, and save its tables as a picture if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--backbone", default="mini")
    parser.add_argument("--svg", type=Path, help="write the tables as SVG")
    parser.add_argument("--per-class", type=int, default=2, help="real recordings per class")
    arguments = parser.parse_args()
    console = Console(record=arguments.svg is not None, width=112 if arguments.svg else None)
    started = time.perf_counter()
    model = load_backbone(arguments.backbone)
    labels = [*SOUNDS.values(), *OTHERS]
    words = Text(f"\nLabels: {', '.join(labels)}   (model: {model.name})\n")
    table = synthetic_table(model, compile_heads(model, labels), wide=console.width >= _WIDE)
    console.print(Group(words, table))
    try:
        console.print(real_table(model, arguments.per_class))
    except UsageError:  # the shared recordings are not part of the repository
        console.print("(The shared recordings were not found; the table of them is left out.)")
    if arguments.svg:
        picture = console.export_svg(title="make demo")
        # Without the web font: the viewer uses its own fixed-width font and downloads nothing.
        arguments.svg.write_text(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL))
    console.print(f"Done in {time.perf_counter() - started:.0f} s. Next, with your own labels:\n")
    command = '.venv/bin/driftscore classify demo/sounds --labels "siren, rain, a clock ticking"'
    lines = f"  {command}\n  {command} --compare cosine\n  .venv/bin/driftscore --help\n"
    console.print(lines, soft_wrap=True, highlight=False)


if __name__ == "__main__":
    main()
