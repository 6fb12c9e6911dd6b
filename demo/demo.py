"""Label a few sounds, clean and in street noise, by plain cosine and by DAS: `make demo`.

The sounds in `demo/sounds` are computed (see make_sounds.py). Where the project's shared
recordings lie beside it (../shared, or $DRIFTSCORE_SHARED), a panel of real recordings in
real noise follows.
"""

import argparse
import csv
import os
import time
from pathlib import Path

import numpy as np
from rich.console import Console, Group
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from driftscore import Audio, Head, build_bank, compile_head, load_backbone
from driftscore.backbones import Backbone, embed_recording
from driftscore.lab.metrics import accuracy_difference
from driftscore.lab.mixing import draw_additive, mix
from driftscore.lab.seeds import generator
from driftscore.lab.sounds import Sound, Stretch, load
from driftscore.textcache import TextCache

HERE = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("DRIFTSCORE_SHARED", HERE.parent.parent / "shared"))
SOUNDS = {
    "siren": "siren",
    "church_bell": "church bell",
    "ticking_clock": "ticking clock",
    "alarm_clock": "alarm clock",
    "rain": "rain",
    "speech": "speech",
}
OTHERS = ["dog bark", "car engine", "birds singing", "footsteps"]
RULES = ("cosine", "das")


def in_noise(event: Sound, noise: Sound, snr_db: float | None) -> Audio:
    """Return an event with a stretch of noise under it, at a power SNR; None is clean."""
    if snr_db is None:
        return event.audio
    start = int(generator(event.file, noise.file).integers(len(noise.audio.samples)))
    background = Stretch(noise, start, len(event.audio.samples))
    record = draw_additive(event, background, snr_db=snr_db)
    sounds = {event.file: event.audio, noise.file: noise.audio}
    return mix(record, read=lambda file, rate: sounds[file]).audio


def sound(path: Path, rate: int) -> Sound:
    """Return a recording at a rate."""
    return Sound(str(path), load(str(path), rate))


def synthetic_table(model: Backbone, heads: dict[str, Head]) -> Table:
    """Return the table of the demo's own sounds."""
    table = Table(title="Our own sounds, clean and in street noise at 0 dB", title_justify="left")
    table.add_column("sound")
    for condition in ("clean", "0 dB"):
        for rule in RULES:
            table.add_column(f"{condition}\n{rule}")
    street = sound(HERE / "sounds" / "street.flac", model.rate)
    for name, truth in SOUNDS.items():
        row = [Text(truth, style="bold")]
        event = sound(HERE / "sounds" / f"{name}.flac", model.rate)
        for snr_db in (None, 0.0):
            z = embed_recording(in_noise(event, street, snr_db), model)
            row += [answer(heads[rule], z, truth) for rule in RULES]
        table.add_row(*row)
    return table


def answer(head: Head, z: np.ndarray, truth: str) -> Text:
    """Return a rule's label for an embedding, marked right or wrong."""
    found = head.labels[int(head.scores(z)[0].argmax())]
    return Text(
        f"{'✓' if found == truth else '✗'} {found}", style="green" if found == truth else "red"
    )


def real_table(model: Backbone, per_class: int) -> Table:
    """Return the panel of real recordings: accuracy by rule and SNR, with what DAS gains."""
    with open(SHARED / "audio" / "manifest.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    noises = [(sound(SHARED / "audio" / r["file"], model.rate), r["avoid_classes"].split())
              for r in rows if r["split"] == "noise"]  # fmt: skip
    events = [r for r in rows if r["split"] == "events"]
    labels = sorted({r["label"] for r in events})
    events = [r for label in labels for r in [e for e in events if e["label"] == label][:per_class]]
    heads = compiled(model, labels)
    truth = np.array([labels.index(r["label"]) for r in events])
    table = Table(
        title=f"{len(events)} real recordings of {len(labels)} classes, {len(noises)} real noises: "
        "accuracy in %",
        title_justify="left",
    )
    for column in ("SNR", *RULES, "DAS gains (95 % interval)"):
        table.add_column(column, justify="right")
    conditions: list[float | None] = [None, 10.0, 0.0]
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Listening to real recordings", total=len(events) * len(conditions))
        for snr_db in conditions:
            z = []
            for r in events:
                fit = [noise for noise, avoid in noises if r["label"] not in avoid]
                noise = fit[int(generator("demo", r["file"]).integers(len(fit)))]
                event = sound(SHARED / "audio" / r["file"], model.rate)
                z.append(embed_recording(in_noise(event, noise, snr_db), model))
                bar.advance(task)
            scores = {rule: heads[rule].scores(np.stack(z)) for rule in RULES}
            shares = [f"{100 * np.mean(scores[rule].argmax(1) == truth):.1f}" for rule in RULES]
            gain = accuracy_difference(
                truth, scores["das"], scores["cosine"], rng=generator("boot")
            )
            interval = (
                f"{100 * gain.difference:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
            )
            table.add_row("clean" if snr_db is None else f"{snr_db:.0f} dB", *shares, interval)
    return table


def compiled(model: Backbone, labels: list[str]) -> dict[str, Head]:
    """Return the head of each rule."""
    bank = build_bank(labels, model, cache=TextCache())
    return {rule: compile_head(bank, rule) for rule in RULES}


def main() -> None:
    """Show the demo, and write its first table as a picture if asked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backbone", default="mini")
    parser.add_argument("--svg", type=Path, help="write the table of our own sounds as a picture")
    parser.add_argument("--per-class", type=int, default=2, help="real recordings a class")
    arguments = parser.parse_args()
    console = Console(record=arguments.svg is not None, width=96 if arguments.svg else None)
    started = time.perf_counter()
    model = load_backbone(arguments.backbone)
    labels = [*SOUNDS.values(), *OTHERS]
    words = Text(f"\nListening for: {', '.join(labels)}   (model: {model.name})\n")
    console.print(Group(words, synthetic_table(model, compiled(model, labels))))
    if arguments.svg:
        arguments.svg.parent.mkdir(exist_ok=True)
        console.save_svg(str(arguments.svg), title="make demo")
    if (SHARED / "audio" / "manifest.csv").is_file():
        console.print(real_table(model, arguments.per_class))
    else:
        console.print("(No real recordings beside this project; the real panel is left out.)")
    console.print(f"Done in {time.perf_counter() - started:.0f} s. Next, with your own words:\n")
    command = '.venv/bin/driftscore classify demo/sounds --labels "siren, rain, a clock ticking"'
    console.print(
        Text(f"  {command}\n  {command} --compare cosine\n  .venv/bin/driftscore --help\n")
    )


if __name__ == "__main__":
    main()
