"""Label a few sounds, clean and in street noise, by plain cosine and by DAS: `make demo`.

The sounds in `demo/sounds` are computed (see make_sounds.py). Where the project's shared
recordings lie beside it (../shared, or $DRIFTSCORE_SHARED), a panel of real recordings in
real noise follows.
"""

import argparse
import re
import time
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from driftscore import Audio, Head, build_bank, compile_head, load_backbone
from driftscore.backbones import Backbone, embed_recording
from driftscore.errors import UsageError
from driftscore.lab.datasets import shared_events
from driftscore.lab.metrics import accuracy, accuracy_difference
from driftscore.lab.mixing import draw_additive, mix
from driftscore.lab.noises import recorded
from driftscore.lab.seeds import generator
from driftscore.lab.sounds import Sound, Stretch, load
from driftscore.progress import progress_bar
from driftscore.result import Result
from driftscore.textcache import TextCache

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
RULES = ("cosine", "das")
_ROOM = 108  # columns that the table takes with every label spelt out
SNRS_DB = (None, 10.0, 0.0)


def in_noise(event: Sound, noise: Stretch, snr_db: float | None) -> Audio:
    """Return an event with noise under it, at a power SNR; None is clean."""
    if snr_db is None:
        return event.audio
    return mix(draw_additive(event, noise, snr_db=snr_db)).audio


def sound(path: Path, rate: int) -> Sound:
    """Return a recording at a rate."""
    return Sound(str(path), load(str(path), rate))


def synthetic_table(model: Backbone, heads: dict[str, Head], *, room: bool) -> Table:
    """Return the table of the demo's own sounds."""
    table = Table(
        title="Our own sounds, clean and in street noise at 0 dB (numbers: the label's lead)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("sound", no_wrap=True)
    for condition in ("clean", "0 dB"):
        for rule in RULES:
            table.add_column(f"{condition}, {rule}", no_wrap=True)
    street = sound(HERE / "sounds" / "street.flac", model.rate)
    noise = Stretch(street, 0, len(street.audio.samples))
    for name, truth in SOUNDS.items():
        row = [Text(truth, style="bold")]
        event = sound(HERE / "sounds" / f"{name}.flac", model.rate)
        for snr_db in (None, 0.0):
            z = embed_recording(in_noise(event, noise, snr_db), model)
            row += [answer(heads[rule], z, truth, room=room) for rule in RULES]
        table.add_row(*row)
    return table


def answer(head: Head, z: np.ndarray, truth: str, *, room: bool) -> Text:
    """Return a rule's label for an embedding, right or wrong, and its lead.

    Without much room a right label is only ticked: its name stands in the first column.
    """
    result = Result("", head.labels, head.scores(z)[0])
    right = result.label == truth
    name = f" {result.label}" if room or not right else ""
    return Text(
        f"{'✓' if right else '✗'}{name} {result.margin:.2f}", style="green" if right else "red"
    )


def real_table(model: Backbone, per_class: int) -> Table:
    """Return the panel of real recordings: accuracy by rule and SNR, with what DAS gains."""
    home = shared_events.default_home()
    labels = list(shared_events.labels(home))
    every = shared_events.clips(home)
    of_class = [[clip for clip in every if clip.labels == (label,)] for label in labels]
    clips = [clip for few in of_class for clip in few[:per_class]]
    heads = compiled(model, labels)
    truth = np.array([labels.index(clip.labels[0]) for clip in clips])
    table = Table(
        title=f"{len(clips)} real recordings of {len(labels)} classes in real noise: accuracy in %",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for column in ("SNR", *RULES, "DAS gains (95 % interval)"):
        table.add_column(column, justify="right")
    with progress_bar("Listening to real recordings", len(clips) * len(SNRS_DB)) as advance:
        for snr_db in SNRS_DB:
            rows = []
            for clip in clips:
                event = sound(clip.path, model.rate)
                rng = generator("demo", clip.id)
                noise = recorded.sample(event.audio.seconds, model.rate, rng, avoid=clip.labels)
                rows.append(embed_recording(in_noise(event, noise, snr_db), model))
                advance(1)
            scores = {rule: heads[rule].scores(np.stack(rows)) for rule in RULES}
            shares = [f"{100 * accuracy(truth, scores[rule]):.1f}" for rule in RULES]
            gain = accuracy_difference(
                truth, scores["das"], scores["cosine"], rng=generator("boot")
            )
            low, high = 100 * gain.low, 100 * gain.high
            interval = f"{100 * gain.difference:+.1f} ({low:+.1f} to {high:+.1f})"
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
    console = Console(record=arguments.svg is not None, width=112 if arguments.svg else None)
    started = time.perf_counter()
    model = load_backbone(arguments.backbone)
    labels = [*SOUNDS.values(), *OTHERS]
    words = Text(f"\nListening for: {', '.join(labels)}   (model: {model.name})\n")
    table = synthetic_table(model, compiled(model, labels), room=console.width >= _ROOM)
    console.print(Group(words, table))
    if arguments.svg:
        picture = console.export_svg(title="make demo")
        # The viewer's own fixed-width font does; a picture fetches nothing.
        arguments.svg.write_text(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL))
    try:
        console.print(real_table(model, arguments.per_class))
    except UsageError:  # they come with the project's workshop, not with the project
        console.print("(No real recordings beside this project; the real panel is left out.)")
    console.print(f"Done in {time.perf_counter() - started:.0f} s. Next, with your own words:\n")
    command = '.venv/bin/driftscore classify demo/sounds --labels "siren, rain, a clock ticking"'
    lines = f"  {command}\n  {command} --compare cosine\n  .venv/bin/driftscore --help\n"
    console.print(lines, soft_wrap=True, highlight=False)


if __name__ == "__main__":
    main()
