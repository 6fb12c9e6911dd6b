"""`driftscore review`: answer whether events are right, and fit thresholds to the answers.

Events are played through a player that is installed; none is required.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
import soundfile

from driftscore.audio.recordings import Audio
from driftscore.cli import options as take
from driftscore.cli.app import app
from driftscore.cli.output import output, save, say
from driftscore.decisions.learning import NO_ANSWERS, answers_of, excerpt, learn, write_examples
from driftscore.decisions.records import RIGHT, UNSURE, WRONG
from driftscore.decisions.review import (
    TARGET,
    Review,
    fit_thresholds,
    mixed,
    read_answers,
    with_thresholds,
)
from driftscore.detector import window_and_hop
from driftscore.errors import AudioError, UsageError
from driftscore.events.tracking import Detection
from driftscore.events.watchlist import WatchedLabel, WatchList
from driftscore.formats import Format, OutputRow, write_rows
from driftscore.scoring.head import HEAD_ENDINGS
from driftscore.storage.files import check_output, replacing

PLAYERS: tuple[tuple[str, ...], ...] = (
    ("ffplay", "-nodisp", "-autoexit", "-loglevel", "quiet"),
    ("afplay",),
    ("pw-play",),
    ("paplay",),
    ("aplay", "--quiet"),
    ("play", "-q"),
)
"""Programs that play a wav, with their arguments; the first one that is installed is used."""
_AROUND_S = 1.0
_KEYS = {"y": RIGHT, "n": WRONG, "u": UNSURE}
_HELP = "y right, n wrong, u unsure, r play again, b back, q quit"
_COLUMNS = ("label", "threshold", "answers", "right", "precision", "low", "high", "kept", "chosen")
_SHOWN_CHOICES = 5


@app.command()
@click.argument("events_file", type=take.FILE, metavar="EVENTS")
@take.output_options
@click.option("--answers", type=take.FILE,
              help="Take the answers from this file, ask nothing: a csv with file, start_s, label "
              "and answer (y, n or u), or one answer per line in the order of the events."
              )  # fmt: skip
@click.option("--precision", "target", type=take.Number(), default=TARGET,
              help="The precision to choose thresholds for, 0 to 1.")  # fmt: skip
@click.option("--watch", type=take.FILE, help="The watch list that --watch-out starts from.")
@click.option("--watch-out", help="Write a watch list with the thresholds (TOML).")
@click.option("--order", type=take.OneOf(("mixed", "time")), default="mixed",
              help="Ask by labels in turn, or by time.")  # fmt: skip
@click.option("--play/--no-play", default=True, help="Play events, if a player is there.")
@click.option("--clips", type=take.FILE, help="The folder of a listener's clips, to play them.")
def review(
    events_file: Path,
    format: Format,
    out: str | None,
    answers: Path | None,
    target: float,
    watch: Path | None,
    watch_out: str | None,
    order: str,
    play: bool,
    clips: Path | None,
) -> None:
    """Answer whether events are right, and get thresholds.

    EVENTS are a csv or jsonl (see `detect`), or the store of a listener (`listen --store`), whose
    answers are the verdicts given on the page. A threshold has the precision that it gives.

    $ driftscore review events.csv --watch-out watch.toml
    $ driftscore review events.db --clips clips/ --precision 0.95
    """
    if watch_out is not None:
        check_output(watch_out, ".toml")
    base = None if watch is None else WatchList.load(watch)
    reviewed = Review(events_file, clips)
    if answers is not None:
        for number, verdict in read_answers(answers, reviewed.events).items():
            if verdict != reviewed.events[number].verdict:
                reviewed.answer(number, verdict)
    elif sys.stdin.isatty():
        left = [n for n, event in enumerate(reviewed.events) if not event.verdict]
        if order == "mixed":
            left = mixed(left, lambda number: reviewed.events[number].label)
        player = find_player() if play else None
        if play and player is None:
            say("no player is installed (ffplay, aplay, afplay): events are only listed")
        if left:
            _ask(left, reviewed, player)
    fits = fit_thresholds(reviewed.events, target=target)
    rows: list[OutputRow] = []
    for fit in fits:
        step = max(1, -(-len(fit.choices) // _SHOWN_CHOICES))
        for number, choice in enumerate(fit.choices):
            if number % step == 0 or choice is fit.chosen:
                values = {name: getattr(choice, name) for name in _COLUMNS[1:-1]}
                mark = "*" if choice is fit.chosen else ""
                rows.append({"label": fit.label, **values, "chosen": mark})
    with output(out) as stream:
        title = f"Precision by threshold; * is chosen for {target:.0%}"
        write_rows(rows, format, stream, title=title, columns=_COLUMNS)
    verdicts = [event.verdict for event in reviewed.events if event.verdict]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in (RIGHT, WRONG, UNSURE))
    say(
        f"{len(verdicts)} of {len(reviewed.events)} events are reviewed ({counts}); answers are in "
        f"{reviewed.path}"
    )
    for fit in fits:
        if (chosen := fit.chosen) is None:
            say(f"{fit.label}: {fit.note}")
        else:
            say(
                f"{fit.label}: threshold {chosen.threshold:.2f} ({fit.note}), precision "
                f"{chosen.precision:.0%} ({chosen.low:.0%} to {chosen.high:.0%}), keeps "
                f"{chosen.kept:.0%} of the right events"
            )
    if not verdicts:
        say("review them in a terminal, or give the answers with --answers FILE")
    if watch_out is not None:
        if base is None and not reviewed.events:
            raise UsageError("There is no event and no --watch list, so there is no label to write")
        names = dict.fromkeys(event.label for event in reviewed.events)
        words = base or WatchList(tuple(WatchedLabel(name) for name in names))
        with replacing(watch_out) as partial:
            partial.write_text(with_thresholds(words, fits).to_toml(), encoding="utf-8")
        if base is None:
            say(f"{watch_out} has the labels that have events; start from a list of all with "
                "--watch FILE")  # fmt: skip
        command = "listen" if reviewed.live else "detect ..."
        say(f"use it: driftscore {command} --watch {watch_out}")


@app.command("learn")
@click.argument("events_file", type=take.FILE, metavar="STORE")
@click.option("--out", "-o", required=True,
              help="The watch list (.toml, with a folder of examples beside it) or head to write."
              )  # fmt: skip
@click.option("--watch", type=take.FILE, help="The watch list to start from.")
@click.option("--precision", "target", type=take.Number(), default=TARGET,
              help="The precision to choose thresholds for, 0 to 1.")  # fmt: skip
@click.option("--clips", type=take.FILE, help="The folder of a listener's clips.")
@take.calibration_option
@take.backbone_options
def learn_command(
    events_file: Path,
    out: str,
    watch: Path | None,
    target: float,
    clips: Path | None,
    **options: Any,
) -> None:
    """Make a better watch list, or a head, of the answers to events.

    STORE is what was reviewed: a csv or jsonl of events, or the store of a listener. Right events
    become examples of their label, wrong ones negative examples, and thresholds follow from all
    answers. To go back, use the list from before.

    $ driftscore learn events.csv --out better.toml
    $ driftscore learn events.db --clips clips/ --watch watch.toml --out better.toml
    """
    check_output(out, ".toml", *HEAD_ENDINGS)
    examples_folder = Path(out).with_name(f"{Path(out).stem}-examples")
    if is_list := Path(out).suffix.lower() == ".toml":
        check_output(examples_folder / "example.wav")
    reviewed = Review(events_file, clips)
    names = dict.fromkeys(event.label for event in reviewed.events if event.verdict)
    if not names:
        raise UsageError(NO_ANSWERS)
    base = WatchList(tuple(WatchedLabel(name) for name in names))
    if watch is not None:
        base = WatchList.load(watch)
    with take.make_embedder(**options) as embedder:
        classifier = take.make_classifier(embedder, base.names, **options)
        window_s, hop_s = window_and_hop(Detection(), embedder.backbone)
        answers = answers_of(
            reviewed.events, reviewed.sound, embedder, window_s=window_s, hop_s=hop_s
        )
        learnt, summaries = learn(classifier, base, answers, target=target)
        if is_list:
            listed = write_examples(examples_folder, learnt, answers)
            with replacing(out) as partial:
                partial.write_text(listed.to_toml(), encoding="utf-8")
        else:
            examples = classifier.examples_
            classifier.set_params(labels=learnt.names)
            classifier.examples_ = examples
            classifier.scores(embeddings=answers[0].rows[:1])
            save(classifier.head_.save, out)
    for summary in summaries:
        say(str(summary))
    use = f"--watch {out}" if is_list else f"--head {out}"
    say(f"{len(answers)} answers learnt; use it: driftscore detect ... {use}")


def _ask(numbers: Sequence[int], reviewed: Review, player: tuple[str, ...] | None) -> None:
    """Ask about events one by one; each answer is kept at once."""
    say(f"{len(numbers)} events to review: {_HELP}")
    position = 0
    while position < len(numbers):
        event = reviewed.events[numbers[position]]
        say(
            f"{position + 1}/{len(numbers)}  {event.label}  score {event.score:.2f}  "
            f"{reviewed.when(event)}, {event.end_s - event.start_s:.1f} s  {event.source}"
        )
        with ExitStack() as stack:
            if player is not None and (sound := reviewed.sound(event)):
                path, start_s, end_s = sound
                try:
                    audio = excerpt(path, start_s - _AROUND_S, end_s + _AROUND_S)
                    stack.enter_context(playing(audio, player))
                except AudioError as error:
                    say(f"cannot be played: {error}")
            elif player is not None:
                say("no clip of it is at hand; --clips DIR names the folder of clips")
            key = click.getchar().lower()
        if key in ("\x03", "\x04", ""):
            raise KeyboardInterrupt
        if key in _KEYS:
            reviewed.answer(numbers[position], _KEYS[key])
            position += 1
        elif key == "b":
            position = max(0, position - 1)
        elif key == "q":
            return
        elif key != "r":
            say(_HELP)


def find_player() -> tuple[str, ...] | None:
    """Return the command of an installed player, None if there is none."""
    return next((command for command in PLAYERS if shutil.which(command[0])), None)


@contextmanager
def playing(audio: Audio, player: tuple[str, ...]) -> Iterator[None]:
    """Play samples while the block runs; what is not over by then is cut short."""
    with tempfile.TemporaryDirectory(prefix="driftscore-") as folder:
        path = Path(folder) / "event.wav"
        soundfile.write(path, audio.samples, audio.rate, subtype="PCM_16")
        nowhere = subprocess.DEVNULL
        command = [*player, str(path)]
        with subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere) as process:
            try:
                yield
            finally:
                process.kill()
