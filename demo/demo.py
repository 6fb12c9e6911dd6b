"""Find sounds by plain words in recordings, with the model of the package: `make demo`.

The recordings are computed (make_sounds.py), and another model takes them for what they are
(check_sounds.py). `make demo SOUNDS=folder` does the same with recordings of your own, and
`LABELS="siren, dog bark"` with other words.
"""

import argparse
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from driftscore import Audio, Classifier, Detector, load_backbone
from driftscore.audio.noise import add_at_snr, synthetic
from driftscore.audio.recordings import expand, read
from driftscore.errors import DriftscoreError, MissingExtraError
from driftscore.events.tracking import Event
from driftscore.lab.conditions import generator
from driftscore.pictures import PictureTrack, plot_recording

HERE = Path(__file__).resolve().parent
STREET = HERE / "street.ogg"
NOISE, SNR_DB = "traffic", 6.0
WORDS = {
    "engine": "engine idling",
    "birds": "birds singing",
    "knocking": "knocking on a door",
}
"""Words for the computed sounds, where the name of the file is not the best one."""
STREET_WORDS = ("siren", "church bell", "alarm clock", "speech", "dog bark", "rain")
"""Four of them are in the street."""
SHORT_S = 30.0
"""Recordings up to this length get one label; events are looked for in longer ones."""


def word_of(path: Path) -> str:
    """Return the words for a computed sound."""
    return WORDS.get(path.stem, path.stem.replace("_", " "))


def in_noise(audio: Audio) -> Audio:
    """Return a recording in the noise of traffic."""
    noise = synthetic(NOISE, len(audio.samples), audio.rate, generator("demo"))
    return Audio(add_at_snr(audio.samples, noise, SNR_DB), audio.rate)


def answer(labels: Sequence[str], detector: Detector, audio: Audio, truth: str | None) -> Text:
    """Return the label of a recording, or that none fits; green or red where the truth is known."""
    [embedded] = detector.embedder.embed([audio])
    result = detector.label_or_none("", embedded.embedding)
    fits = dict(zip(result.labels, result.fits or (), strict=True))
    best = next((label for label, _ in result.ranking if fits[label]), None)
    shown = f"{best} {dict(result.ranking)[best]:.1f}" if best else "none of these"
    if truth is None:
        return Text(shown)
    return Text(f"{'✓' if best == truth else '✗'} {shown}", "green" if best == truth else "red")


def label_table(paths: Sequence[Path], labels: Sequence[str], *, computed: bool) -> Table:
    """Return the labels of short recordings, as they are and in noise."""
    detector = Classifier(labels).detector()
    conditions = {"as it is": lambda audio: audio, f"in {NOISE} at {SNR_DB:.0f} dB": in_noise}
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("recording", *conditions):
        table.add_column(column, no_wrap=True)
    right = dict.fromkeys(conditions, 0)
    for path in paths:
        audio = read(path, rate=detector.embedder.backbone.rate)
        truth = word_of(path) if computed else None
        cells = [answer(labels, detector, mix(audio), truth) for mix in conditions.values()]
        for condition, cell in zip(conditions, cells, strict=True):
            right[condition] += cell.plain.startswith("✓")
        table.add_row(Text(path.name, "bold"), *cells)
    if computed:
        table.add_section()
        table.add_row("right", *(f"{count} of {len(paths)}" for count in right.values()))
    return table


def event_lines(events: Sequence[Event], labels: Sequence[str], seconds: float) -> Iterator[str]:
    """Yield one line per word, drawn where it is present, and the axis of time below."""
    width, margin = 60, max(map(len, labels)) + 2
    for label in labels:
        line = ["·"] * width
        for event in events:
            if event.label == label:
                first = int(width * event.start_s / seconds)
                last = max(first + 1, round(width * event.end_s / seconds))
                line[first:last] = "█" * (min(last, width) - first)
        yield f"  {label:<{margin}}{''.join(line)}"
    middle, end = (f"{share * seconds:.0f} s" for share in (0.5, 1.0))
    yield f"  {'':<{margin}}{'0 s':<{width // 2}}{middle:<{width // 2 - len(end)}}{end}"


def show_events(console: Console, path: Path, labels: Sequence[str], picture: Path) -> None:
    """Draw the events of a long recording in the terminal, and as a picture."""
    detector = Classifier(labels).detector()
    track = PictureTrack(detector.watch.names, hop_s=detector.hop_s)
    events = list(detector.events(str(path), observer=track))
    seconds = f"{track.seconds:.0f} s"
    console.print(f"When is each word in {path.name} ({seconds})? {len(events)} events:\n")
    for line in event_lines(events, labels, track.seconds):
        console.print(line, highlight=False, soft_wrap=True)
    try:
        plot_recording(picture, track, events, name=path.name, start=None)
        console.print(f"\nThe same with its spectrogram: {picture.name} in {picture.parent.name}/")
    except MissingExtraError as error:
        console.print(f"\nNo picture: {error}")


def main() -> int:
    """Show the demo, and save its text as a picture if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sounds", nargs="?", help="a folder of recordings in place of ours")
    parser.add_argument("--labels", default="", help="words to look for, separated by commas")
    parser.add_argument("--svg", type=Path, help="write the text as SVG")
    arguments = parser.parse_args()
    console = Console(record=arguments.svg is not None, width=100 if arguments.svg else None)
    begun, computed = time.perf_counter(), not arguments.sounds
    words = [word.strip() for word in arguments.labels.split(",") if word.strip()]
    model = load_backbone("mini")
    paths = [Path(path) for path in expand([arguments.sounds or HERE / "sounds"])]
    lengths = {path: read(path).seconds for path in paths}
    short = [path for path in paths if lengths[path] <= SHORT_S]
    longest = STREET if computed else max(lengths, key=lambda path: lengths[path])
    labels = words or [word_of(path) for path in sorted((HERE / "sounds").glob("*.flac"))]
    console.print(
        "This demo labels short recordings by plain words, as they are and in noise, and finds the "
        f"words in a long one. The model ({model.name}) is in the package: nothing is trained, "
        f"nothing is downloaded.{' The sounds are computed.' if computed else ''} Scores are "
        "standard deviations above what a word scores on other sounds."
    )
    if short:
        console.print(label_table(short, labels, computed=computed))
    if computed or lengths[longest] > SHORT_S:
        shown = words or (list(STREET_WORDS) if computed else labels)
        show_events(console, longest, shown, HERE / "street.png")
    if arguments.svg:
        picture = console.export_svg(title="make demo")
        # Without the web font: the viewer uses its own fixed-width font and downloads nothing.
        arguments.svg.write_text(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL))
    console.print(f"\nDone in {time.perf_counter() - begun:.0f} s. To copy, with your own words:\n")
    program = Path(sys.executable).with_name("driftscore")
    program = program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program
    folder = shlex.quote(arguments.sounds or "demo/sounds")
    for line in (
        f'{program} detect {shlex.quote(os.path.relpath(longest))} --labels "siren, alarm clock"',
        f'{program} classify {folder} --labels "siren, thunder, a door knock" --or-none',
        f"make demo SOUNDS={folder}",
    ):
        console.print(f"  {line}", soft_wrap=True, highlight=False)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DriftscoreError as error:
        sys.exit(f"error: {error}")
