"""`driftscore lab soundscape`: write a long recording with known events, and its truth."""

from pathlib import Path
from typing import Annotated

import typer

from driftscore.cli.reporting import say
from driftscore.errors import UsageError
from driftscore.lab.corpora.soundscapes.drawing import draw
from driftscore.lab.corpora.soundscapes.rendering import truth_path, write_soundscape
from driftscore.lab.corpora.soundscapes.truth import SoundscapeRecipe, read_soundscape

DEFAULT = SoundscapeRecipe()


def soundscape(
    out: Annotated[Path, typer.Argument(help="The .flac or .wav file to write.")],
    split: Annotated[
        str, typer.Option("--split", help="events (to report) | train (to choose settings).")
    ] = DEFAULT.split,
    seconds: Annotated[float, typer.Option("--seconds", help="Its length.")] = DEFAULT.seconds,
    seed: Annotated[int, typer.Option("--seed", help="Determines all draws.")] = DEFAULT.seed,
    words: Annotated[
        str, typer.Option("--words", help="Labels of the events, or how many to draw.")
    ] = str(DEFAULT.words),
    events: Annotated[int, typer.Option("--events", help="Events of the words.")] = DEFAULT.events,
    others: Annotated[int, typer.Option("--others", help="Events of no word.")] = DEFAULT.others,
    quiet_s: Annotated[
        float, typer.Option("--quiet", help="Seconds of one stretch without any event.")
    ] = DEFAULT.quiet_s,
    snr_db: Annotated[
        tuple[float, float], typer.Option("--snr", help="Lowest and highest SNR in dB.")
    ] = DEFAULT.snr_db,
    rate: Annotated[int, typer.Option("--rate", help="Sample rate in Hz.")] = DEFAULT.rate,
    home: Annotated[
        Path | None,
        typer.Option("--home", help="Folder of recordings with a manifest.csv; default: shared."),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option("--from", help="Build the soundscape of this truth again; nothing is drawn."),
    ] = None,
) -> None:
    """Write a long recording with known events, and beside it the truth as JSON."""
    place = None if home is None else str(home)
    if truth is not None:
        made = read_soundscape(truth)
    else:
        wanted = _words(words)
        recipe = SoundscapeRecipe(
            split, seconds, seed, wanted, events, others, quiet_s, snr_db, rate
        )
        made = draw(recipe, home=place)
    write_soundscape(made, out, home=place)
    start, end = made.quiet_s
    say(
        f"{made.seconds:g} s with {len(made.wanted)} events of {len(made.words)} words and "
        f"{len(made.events) - len(made.wanted)} others; nothing from {start:.0f} to {end:.0f} s\n"
        f"words: {', '.join(made.words)}\ntruth: {truth_path(out)}"
    )


def _words(given: str) -> tuple[str, ...] | int:
    """Return how many words to draw, or the labels of a list with commas."""
    if given.strip().lstrip("-").isdecimal():
        return int(given)
    named = tuple(part.strip() for part in given.split(",") if part.strip())
    if not named:
        raise UsageError("--words needs labels, such as 'dog, siren', or a number")
    return named
