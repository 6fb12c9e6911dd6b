"""Review events, right or wrong, and fit thresholds to the answers.

Answers are rows of a csv beside the events (`events.review.csv`); a later answer to the same event
replaces an earlier one. Only events that a person answered count, and "unsure" counts as no answer.

For a label with n answers at or above a threshold, k of them right, the precision is k / n, with
Wilson's 95 % interval

    (k + z^2 / 2 +- z sqrt(k (n - k) / n + z^2 / 4)) / (n + z^2),    z = 1.96

The threshold that is chosen is the lowest one whose precision reaches the target, with at least
`FEWEST` answers above it: it keeps the most events. Reviewed events lie above the threshold that
found them, so a fit can raise a threshold and never lower it.
"""

import csv
import io
import json
import math
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import FormatError, UsageError
from driftscore.files import writing_to
from driftscore.reading import read_text
from driftscore.watchlist import WatchedLabel, WatchList

RIGHT, WRONG, UNSURE = "right", "wrong", "unsure"
WORDS: Mapping[str, str] = {
    "y": RIGHT, "yes": RIGHT, "right": RIGHT, "1": RIGHT, "true": RIGHT,
    "n": WRONG, "no": WRONG, "wrong": WRONG, "0": WRONG, "false": WRONG,
    "u": UNSURE, "unsure": UNSURE, "?": UNSURE,
}  # fmt: skip
"""What may be written as an answer."""
TARGET = 0.8
"""The precision that a threshold is chosen for."""
FEWEST = 10
"""Answers above a threshold that a fit needs."""
_Z = 1.959963984540054  # 97.5 % quantile of the standard normal distribution
_MOST_BYTES = 200_000_000
_COLUMNS = ("file", "start_s", "end_s", "label", "score", "answer", "answered")
_NEEDED = ("file", "start_s", "end_s", "label", "score")
_FORMULA = ("=", "+", "-", "@", "\t")
Key = tuple[str, str, str]
"""What identifies an event: file, label and start in hundredths of a second."""


@dataclass(frozen=True)
class FoundEvent:
    """An event as a row of csv or jsonl has it."""

    file: str
    start_s: float
    end_s: float
    label: str
    score: float
    threshold: float | None = None

    @property
    def key(self) -> Key:
        """What identifies the event in the file of answers."""
        return self.file, self.label, f"{self.start_s:.2f}"


@dataclass(frozen=True)
class Choice:
    """What one threshold would give, by the answers.

    Attributes:
        threshold: the score that an event must reach.
        answers: reviewed events that reach it.
        right: those of them that are right.
        low, high: 95 % interval of the precision.
        kept: the share of all right events that reach it.

    """

    threshold: float
    answers: int
    right: int
    low: float
    high: float
    kept: float

    @property
    def precision(self) -> float:
        """The share of right events."""
        return self.right / self.answers


@dataclass(frozen=True)
class Fit:
    """The thresholds that answers allow for a label, and the one that is chosen, if any."""

    label: str
    choices: tuple[Choice, ...]
    chosen: Choice | None
    note: str


def wilson(right: int, answers: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, by Wilson's score."""
    if not 0 <= right <= answers or answers == 0:
        raise UsageError(f"{right} of {answers} is not a share")
    spread = _Z * math.sqrt(right * (answers - right) / answers + _Z**2 / 4)
    middle, total = right + _Z**2 / 2, answers + _Z**2
    return max(0.0, (middle - spread) / total), min(1.0, (middle + spread) / total)


def fit_threshold(
    label: str,
    scores: Sequence[float],
    right: Sequence[bool],
    *,
    in_use: float | None = None,
    target: float = TARGET,
) -> Fit:
    """Return what each threshold gives, and the lowest one that reaches the target.

    `in_use` is the threshold that found the events: where the target is reached by all of them, it
    stays, since nothing is known about lower scores.
    """
    choices = _choices(np.asarray(scores, np.float64), np.asarray(right, np.bool_), in_use)
    able = [choice for choice in choices if choice.answers >= FEWEST]
    if not able:
        count = f"{len(scores)} answer{' is' if len(scores) == 1 else 's are'}"
        return Fit(label, choices, None, f"{count} too few; {FEWEST} are needed")
    good = [choice for choice in able if choice.precision >= target]
    if not good:
        return Fit(
            label, choices, None,
            f"no threshold with {FEWEST} answers reaches {target:.0%}; other wordings or negative "
            "words may help",
        )  # fmt: skip
    lowest = good[0] is choices[0]
    return Fit(label, choices, good[0], "as it is: all events count" if lowest else "raised")


def _choices(
    scores: NDArray[np.float64], right: NDArray[np.bool_], in_use: float | None
) -> tuple[Choice, ...]:
    """Return the choice at each distinct score, by rising threshold.

    A threshold lies halfway between a score and the next lower one; the lowest is the one in use.
    """
    values = np.unique(scores)
    found = []
    for number, value in enumerate(values.tolist()):
        above = scores >= value
        answers, good = int(above.sum()), int(right[above].sum())
        low, high = wilson(good, answers)
        threshold = (float(values[number - 1]) + value) / 2 if number else _lowest(value, in_use)
        kept = good / max(1, int(right.sum()))
        found.append(Choice(threshold, answers, good, low, high, kept))
    return tuple(found)


def _lowest(score: float, in_use: float | None) -> float:
    """Return the lowest threshold: that in use, unless an event was found below it."""
    return score if in_use is None else min(score, in_use)


def fit_thresholds(
    events: Iterable[FoundEvent], answers: Mapping[Key, str], *, target: float = TARGET
) -> list[Fit]:
    """Fit the threshold of each label to the answers; events without an answer do not count."""
    if not 0 < target <= 1:
        raise UsageError(f"The precision to reach is a share from 0 to 1, got {target:g}")
    by_label: dict[str, list[FoundEvent]] = {}
    for event in events:
        by_label.setdefault(event.label, [])
        if answers.get(event.key) in (RIGHT, WRONG):
            by_label[event.label].append(event)
    fits = []
    for label, reviewed in by_label.items():
        known = [event.threshold for event in reviewed if event.threshold is not None]
        fits.append(
            fit_threshold(
                label,
                [event.score for event in reviewed],
                [answers[event.key] == RIGHT for event in reviewed],
                in_use=min(known, default=None),
                target=target,
            )
        )
    return fits


def with_thresholds(watch: WatchList, fits: Iterable[Fit]) -> WatchList:
    """Return a watch list with the chosen thresholds; other labels stay as they are."""
    chosen = {fit.label: fit.chosen.threshold for fit in fits if fit.chosen is not None}
    known = {label.name for label in watch.labels}
    labels = [*watch.labels, *(WatchedLabel(name) for name in chosen if name not in known)]
    return replace(
        watch,
        labels=tuple(
            replace(label, threshold=_rounded_down(chosen[label.name]), false_alarms=None)
            if label.name in chosen
            else label
            for label in labels
        ),
    )


def _rounded_down(threshold: float) -> float:
    """Return a threshold with few decimals that the lowest event above it still reaches."""
    return max(1e-6, math.floor(threshold * 1e5) / 1e5)


def mixed(events: Sequence[FoundEvent], *, seed: int = 0) -> list[FoundEvent]:
    """Return events with the labels in turn, each in random order.

    The answers are then a fair sample whenever a person stops.
    """
    rng = random.Random(seed)  # noqa: S311 (an order, not a secret)
    queues: dict[str, list[FoundEvent]] = {}
    for event in events:
        queues.setdefault(event.label, []).append(event)
    for queue in queues.values():
        rng.shuffle(queue)
    longest = max(map(len, queues.values()), default=0)
    return [queue[n] for n in range(longest) for queue in queues.values() if n < len(queue)]


def review_path(events: str | os.PathLike[str]) -> Path:
    """Return the file of answers that belongs to a file of events."""
    return Path(events).with_suffix(".review.csv")


def read_events(path: str | os.PathLike[str]) -> list[FoundEvent]:
    """Read the events of a csv or jsonl that `driftscore classify --timeline` wrote."""
    events = []
    for number, row in enumerate(_rows(Path(path), "list of events"), start=1):
        missing = [name for name in _NEEDED if name not in row]
        if missing:
            raise FormatError(
                f"{path} has no column {missing[0]!r}; review reads what "
                "`driftscore classify --timeline --format csv` writes"
            )
        if row.get("error") or not row["label"]:
            continue
        events.append(_event(row, f"{path}, event {number}"))
    return events


def read_answers(path: str | os.PathLike[str], events: Sequence[FoundEvent]) -> dict[Key, str]:
    """Read answers: a csv with the columns file, start_s, label and answer, the last one counts.

    A text with one answer per line answers the events in their order. Rows without an answer, or
    about other events, are left out.
    """
    place, lines = Path(path), _lines(Path(path))
    if lines and all(line.lower() in WORDS for line in lines):
        if len(lines) > len(events):
            raise FormatError(f"{path} has {len(lines)} answers for {len(events)} events")
        return {e.key: WORDS[line.lower()] for e, line in zip(events, lines, strict=False)}
    known = {event.key for event in events}
    found: dict[Key, str] = {}
    for number, row in enumerate(_rows(place, "list of answers"), start=1):
        missing = [name for name in ("file", "start_s", "label", "answer") if name not in row]
        if missing:
            raise FormatError(f"{path} has no column {missing[0]!r}, so it holds no answers")
        if not row["answer"].strip():
            continue
        where = f"{path}, row {number}"
        key = (row["file"], row["label"], f"{_number(row['start_s'], where):.2f}")
        answer = WORDS.get(row["answer"].strip().lower())
        if answer is None:
            raise FormatError(f"{where}: an answer is y, n or u, not {row['answer']!r}")
        if key in known:
            found[key] = answer
    return found


def add_answer(path: Path, event: FoundEvent, answer: str) -> None:
    """Append an answer to the file of answers."""
    if answer not in (RIGHT, WRONG, UNSURE):
        raise UsageError(f"An answer is {RIGHT}, {WRONG} or {UNSURE}, not {answer!r}")
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    texts = [_guarded(event.file), f"{event.start_s:.6f}", f"{event.end_s:.6f}"]
    texts += [_guarded(event.label), f"{event.score:.6f}", answer, now]
    with (
        writing_to(path),
        open(path, "a", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(_COLUMNS)
        writer.writerow(texts)


def _guarded(text: str) -> str:
    """Return a text that a spreadsheet does not run as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _event(row: Mapping[str, str], where: str) -> FoundEvent:
    threshold = row.get("threshold") or ""
    start, end, score = (_number(row[name], where) for name in ("start_s", "end_s", "score"))
    known = _number(threshold, where) if threshold else None
    return FoundEvent(row["file"], start, end, row["label"], score, known)


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FormatError(f"{where}: expected a number, got {text!r}")
    return value


def _lines(path: Path) -> list[str]:
    text = read_text(path, "list of answers", most=_MOST_BYTES).removeprefix("\ufeff")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _rows(path: Path, what: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a csv or jsonl as texts, without what `formats` puts before a formula."""
    text = read_text(path, what, most=_MOST_BYTES).removeprefix("\ufeff")
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        yield from _json_rows(path, text)
        return
    try:
        for row in csv.DictReader(io.StringIO(text, newline=""), strict=True):
            yield {name: _plain(value) for name, value in row.items() if isinstance(name, str)}
    except csv.Error as error:
        raise FormatError(f"{path} is not a valid csv: {error}") from error


def _json_rows(path: Path, text: str) -> Iterator[dict[str, str]]:
    for number, line in enumerate(filter(str.strip, text.split("\n")), start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{path}, line {number}: not valid JSON") from error
        if not isinstance(row, dict):
            raise FormatError(
                f"{path}, line {number}: expected an object with the keys of an event"
            )
        yield {name: "" if value is None else str(value) for name, value in row.items()}


def _plain(value: str | None) -> str:
    text = value or ""
    return text[1:] if text.startswith("'") and text[1:].startswith(_FORMULA) else text
