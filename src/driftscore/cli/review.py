"""`driftscore review`: answer whether events are right, and fit thresholds to the answers."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from driftscore.answers import (
    RIGHT,
    UNSURE,
    WRONG,
    FileReviews,
    FoundEvent,
    Key,
    Reviews,
    read_answers,
)
from driftscore.cli import options as take
from driftscore.cli.reporting import output, say
from driftscore.errors import AudioError, UsageError
from driftscore.files import replacing, writing_to
from driftscore.formats import DEFAULT_FORMAT, OutputRow, find_format, write_rows
from driftscore.live.reviews import StoredReviews, is_store
from driftscore.playing import excerpt, find_player, playing
from driftscore.review import TARGET, Fit, fit_thresholds, mixed, with_thresholds
from driftscore.watchlist import WatchedLabel, WatchList

EventsFile = Annotated[
    Path,
    typer.Argument(
        help="Events as csv or jsonl (see `classify --timeline`), or the store of a listener "
        "(`listen --store`), whose answers are the verdicts given on the page."
    ),
]
AnswersFile = Annotated[
    Path | None,
    typer.Option(
        "--answers",
        help="Take the answers from this file, ask nothing: a csv with file, start_s, label and "
        "answer (y, n or u), or one answer per line in the order of the events.",
    ),
]
Precision = Annotated[
    str, typer.Option("--precision", help="The precision to choose thresholds for, 0 to 1.")
]
WatchOut = Annotated[
    str | None, typer.Option("--watch-out", help="Write a watch list with the thresholds (TOML).")
]
WatchIn = Annotated[
    Path | None,
    typer.Option("--watch", help="The watch list that --watch-out starts from."),
]
Order = Annotated[
    str, typer.Option("--order", help="Ask by labels in turn (mixed), or by time (time).")
]
ClipsOption = Annotated[
    Path | None, typer.Option("--clips", help="The folder of a listener's clips, to play them.")
]
Play = Annotated[bool, typer.Option("--play/--no-play", help="Play events, if a player is there.")]

PlayEvent = Callable[[FoundEvent], AbstractContextManager[None]]
"""Plays an event as long as the context lasts."""
_AROUND_S = 1.0
_KEYS = {"y": RIGHT, "n": WRONG, "u": UNSURE}
_HELP = "y right, n wrong, u unsure, r play again, b back, q quit"


def review(
    events_file: EventsFile,
    answers: AnswersFile = None,
    precision: Precision = str(TARGET),
    watch: WatchIn = None,
    watch_out: WatchOut = None,
    order: Order = "mixed",
    play: Play = True,
    clips: ClipsOption = None,
    format: take.FormatName = DEFAULT_FORMAT,
    out: take.Out = None,
) -> None:
    """Answer whether events are right, and get thresholds with the precision they give."""
    target, writer = take.number("--precision", precision), find_format(format)
    if order not in ("mixed", "time"):
        raise UsageError(f"--order is mixed or time, not {order!r}")
    base = None if watch is None else WatchList.load(watch)
    stored = is_store(events_file)
    if clips is not None and not stored:
        raise UsageError("--clips belongs to the store of a listener: give an SQLite file")
    reviews: Reviews = StoredReviews(events_file, clips) if stored else FileReviews(events_file)
    if answers is not None:
        _keep(reviews, read_answers(answers, reviews.events))
    elif sys.stdin.isatty():
        left = [event for event in reviews.events if event.key not in reviews.known]
        _ask(mixed(left) if order == "mixed" else left, reviews, _player(play, reviews))
    fits = fit_thresholds(reviews.events, reviews.known, target=target)
    with output(out) as stream:
        title = f"Precision by threshold; * is chosen for {target:.0%}"
        write_rows(_fit_rows(fits), writer, stream, title=title, columns=_COLUMNS)
    _report(reviews, fits)
    if watch_out is not None:
        _write_watch(watch_out, base, fits, reviews.events)
        command = "listen" if stored else "classify ... --timeline"
        say(f"use it: driftscore {command} --watch {watch_out}")


def _keep(reviews: Reviews, given: Mapping[Key, str]) -> None:
    """Add new answers to those that are kept."""
    for event in reviews.events:
        if event.key in given and given[event.key] != reviews.known.get(event.key):
            reviews.add(event, given[event.key])


def _ask(events: Sequence[FoundEvent], reviews: Reviews, play: PlayEvent) -> None:
    """Ask about events one by one; each answer is kept at once."""
    if not events:
        return
    say(f"{len(events)} events to review: {_HELP}")
    number = 0
    while number < len(events):
        event = events[number]
        key = _key(event, f"{number + 1}/{len(events)}", reviews.when(event), play)
        if key in _KEYS:
            reviews.add(event, _KEYS[key])
            number += 1
        elif key == "b":
            number = max(0, number - 1)
        elif key == "q":
            return
        elif key != "r":
            say(_HELP)


def _key(event: FoundEvent, place: str, when: str, play: PlayEvent) -> str:
    """Show and play an event; return the key that is pressed."""
    length = event.end_s - event.start_s
    say(f"{place}  {event.label}  score {event.score:.2f}  {when}, {length:.1f} s  {event.file}")
    with play(event):
        key = typer.getchar().lower()
    if key in ("\x03", "\x04", ""):
        raise KeyboardInterrupt
    return key


def _player(wanted: bool, reviews: Reviews) -> PlayEvent:
    """Return what plays an event; without a player it does nothing."""
    command = find_player() if wanted else None
    if wanted and command is None:
        say("no player is installed (ffplay, aplay, afplay): events are only listed")

    def play(event: FoundEvent) -> AbstractContextManager[None]:
        if command is None:
            return nullcontext()
        sound = reviews.sound(event)
        if sound is None:
            say("no clip of it is at hand; --clips DIR names the folder of clips")
            return nullcontext()
        try:
            audio = excerpt(sound.path, sound.start_s - _AROUND_S, sound.end_s + _AROUND_S)
        except AudioError as error:
            say(f"cannot be played: {error}")
            return nullcontext()
        return playing(audio, command)

    return play


_COLUMNS = ("label", "threshold", "answers", "right", "precision", "low", "high", "kept", "chosen")
_SHOWN = 5


def _fit_rows(fits: Sequence[Fit]) -> Iterator[OutputRow]:
    """Yield what some thresholds of each label give, the chosen one among them."""
    for fit in fits:
        step = max(1, -(-len(fit.choices) // _SHOWN))
        for number, choice in enumerate(fit.choices):
            if number % step and choice is not fit.chosen:
                continue
            yield {
                "label": fit.label,
                "threshold": choice.threshold,
                "answers": choice.answers,
                "right": choice.right,
                "precision": choice.precision,
                "low": choice.low,
                "high": choice.high,
                "kept": choice.kept,
                "chosen": "*" if choice is fit.chosen else "",
            }


def _report(reviews: Reviews, fits: Sequence[Fit]) -> None:
    given = list(reviews.known.values())
    counts = ", ".join(f"{given.count(word)} {word}" for word in (RIGHT, WRONG, UNSURE))
    say(
        f"{len(given)} of {len(reviews.events)} events are reviewed ({counts}); answers are in "
        f"{reviews.where}"
    )
    for fit in fits:
        if fit.chosen is None:
            say(f"{fit.label}: {fit.note}")
            continue
        found = fit.chosen
        say(
            f"{fit.label}: threshold {found.threshold:.2f} ({fit.note}), precision "
            f"{found.precision:.0%} ({found.low:.0%} to {found.high:.0%}), keeps {found.kept:.0%} "
            "of the right events"
        )
    if not given:
        say("review them in a terminal, or give the answers with --answers FILE")


def _write_watch(
    path: str, base: WatchList | None, fits: Sequence[Fit], events: Sequence[FoundEvent]
) -> None:
    names = dict.fromkeys(event.label for event in events)
    if base is None and not names:
        raise UsageError("There is no event and no --watch list, so there is no label to write")
    made = base or WatchList(tuple(WatchedLabel(name) for name in names))
    with replacing(path) as partial, writing_to(path):
        partial.write_text(with_thresholds(made, fits).to_toml(), encoding="utf-8")
    if base is None:
        say(f"{path} has the labels that have events; start from a list of all with --watch FILE")
