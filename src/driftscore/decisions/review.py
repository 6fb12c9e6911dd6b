"""Review events, right or wrong, and fit thresholds to the answers.

Events are those of a store, or of a csv or jsonl; the verdicts on the events of `events.csv` are
kept in the store `events.review.db` beside it. Only the verdicts right and wrong count.

For a label with n answers at or above a threshold, k of them right, the precision is k / n, with
Wilson's 95 % interval

    (k + z^2 / 2 +- z sqrt(k (n - k) / n + z^2 / 4)) / (n + z^2),    z = 1.96

The threshold that is chosen is the lowest one whose precision reaches the target, with at least
`MIN_ANSWERS` answers above it: it keeps the most events. Reviewed events lie above the threshold
that found them, so a fit can raise a threshold and never lower it.
"""

import csv
import io
import json
import math
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from driftscore.backbones.vectors import Scores
from driftscore.decisions.records import RIGHT, UNSURE, WRONG, StoredEvent
from driftscore.decisions.store import MAX_CLIP_S, DecisionStore, is_database, open_store
from driftscore.errors import FormatError, UsageError
from driftscore.events.watchlist import WatchedLabel, WatchList
from driftscore.storage.checked import finite_number
from driftscore.storage.files import read_text

TARGET = 0.8
"""The precision that a threshold is chosen for."""
MIN_ANSWERS = 10
"""Answers above a threshold that a fit needs."""
_Z = 1.959963984540054  # 97.5 % quantile of the standard normal distribution
WORDS: Mapping[str, str] = {
    "y": RIGHT, "yes": RIGHT, "right": RIGHT, "1": RIGHT, "true": RIGHT,
    "n": WRONG, "no": WRONG, "wrong": WRONG, "0": WRONG, "false": WRONG,
    "u": UNSURE, "unsure": UNSURE, "?": UNSURE,
}  # fmt: skip
"""What may be written as an answer."""
MAX_BYTES = 200_000_000
MAX_EVENTS = 10_000_000
_FORMULA = re.compile(r"^'(?=[=+@\t-])")
Item = TypeVar("Item")


class Review:
    """Events, oldest first, and the verdicts on them.

    Parameters
    ----------
        path: a store, or a csv or jsonl of events.
        clips: the folder of a listener's clips; None to play none.

    """

    def __init__(self, path: str | os.PathLike[str], clips: Path | None = None) -> None:
        self._home = Path(path).parent
        self._store: DecisionStore | None = None
        self.live = is_database(path)
        """Whether the events are those of a listener."""
        self.path = Path(path)
        """The store that keeps the verdicts."""
        if self.live:
            self._store = open_store(path, clips)
            self.events = self._store.events(limit=MAX_EVENTS)[::-1]
        elif clips is not None:
            raise UsageError("--clips belongs to the store of a listener: give an SQLite file")
        else:
            self.events = read_events(path)
            self.path = Path(path).with_suffix(".review.db")
            if self.path.exists():
                self._store = open_store(self.path)
                self.events = self._store.add_events(self.events)

    def answer(self, number: int, verdict: str) -> None:
        """Keep a verdict on an event, given by its number in `events`."""
        if self._store is None:  # nothing is written before the first answer
            self._store = DecisionStore(self.path)
            self.events = self._store.add_events(self.events)
        self._store.review(self.events[number].id, verdict)
        self.events[number] = replace(self.events[number], verdict=verdict)

    def when(self, event: StoredEvent) -> str:
        """Return when an event was: the time of day, or from the start of its file."""
        if event.offset_s is not None:
            return f"{event.start:%Y-%m-%d %H:%M:%S}"
        minutes, seconds = divmod(event.start_s, 60)
        return f"{int(minutes) // 60}:{int(minutes) % 60:02d}:{seconds:04.1f}"

    def sound(self, event: StoredEvent) -> tuple[Path, float, float] | None:
        """Return a file and from when to when it has an event; None if there is none.

        The path of a recording may be relative to the file of events.
        """
        if event.offset_s is None:
            path = Path(event.source)
            return path if path.exists() else self._home / path, event.start_s, event.end_s
        clip = None if self._store is None else self._store.clip(event.id)
        return None if clip is None else (clip, 0.0, MAX_CLIP_S)


def read_events(path: str | os.PathLike[str]) -> list[StoredEvent]:
    """Read the events of a csv or jsonl that `driftscore detect` wrote."""
    events: list[StoredEvent] = []
    columns = ("file", "start_s", "end_s", "label", "score")
    hint = "; review reads what `driftscore detect --format csv` writes"
    for number, row in enumerate(_rows(Path(path), "list of events", columns, hint), start=1):
        if row.get("error") or not row["label"]:
            continue
        where = f"{path}, event {number}"
        start, end, score = (_number(row[name], where) for name in ("start_s", "end_s", "score"))
        threshold = _number(row["threshold"], where) if row.get("threshold") else None
        events.append(
            StoredEvent(len(events), row["file"], row["label"], score, threshold, start, end)
        )
    return events


def read_answers(path: str | os.PathLike[str], events: Sequence[StoredEvent]) -> dict[int, str]:
    """Return verdicts by the number of the event: of a csv with file, start_s, label and answer.

    A text with one answer per line answers the events in their order. The last answer counts; rows
    without an answer, or about other events, are left out.
    """
    text = read_text(Path(path), "list of answers", most=MAX_BYTES).removeprefix("\ufeff")
    lines = [line.strip().lower() for line in text.splitlines() if line.strip()]
    if lines and all(line in WORDS for line in lines):
        if len(lines) > len(events):
            raise FormatError(f"{path} has {len(lines)} answers for {len(events)} events")
        return {number: WORDS[line] for number, line in enumerate(lines)}
    numbers = {event.key: number for number, event in enumerate(events)}
    answers: dict[int, str] = {}
    columns, hint = ("file", "start_s", "label", "answer"), ", so it holds no answers"
    for count, row in enumerate(_rows(Path(path), "list of answers", columns, hint), start=1):
        word = row["answer"].strip().lower()
        if not word:
            continue
        where = f"{path}, row {count}"
        if word not in WORDS:
            raise FormatError(f"{where}: an answer is y, n or u, not {row['answer']!r}")
        key = (row["file"], row["label"], f"{_number(row['start_s'], where):.2f}")
        if key in numbers:
            answers[numbers[key]] = WORDS[word]
    return answers


def _number(text: str, where: str) -> float:
    value = finite_number(text)
    if value is None:
        raise FormatError(f"{where}: expected a number, got {text!r}")
    return value


def _rows(path: Path, what: str, columns: Sequence[str], hint: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a csv or jsonl as texts, without what `formats` puts before a formula."""
    text = read_text(path, what, most=MAX_BYTES).removeprefix("\ufeff")
    rows: Iterable[str | dict[str, str]] = [line for line in text.split("\n") if line.strip()]
    if path.suffix.lower() not in (".jsonl", ".ndjson"):
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for number, row in enumerate(rows, start=1):
            if isinstance(row, str):
                try:
                    values = dict(json.loads(row).items())
                except (ValueError, AttributeError, RecursionError) as error:
                    raise FormatError(f"{path}, line {number}: not a JSON object") from error
                texts = {
                    name: "" if value is None else str(value) for name, value in values.items()
                }
            else:
                cells = [(name, value) for name, value in row.items() if isinstance(name, str)]
                texts = {name: _FORMULA.sub("", value or "") for name, value in cells}
            for name in columns:
                if name not in texts:
                    raise FormatError(f"{path} has no column {name!r}{hint}")
            yield texts
    except csv.Error as error:
        raise FormatError(f"{path} is not a valid csv: {error}") from error


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
    scores: Sequence[float] | Scores,
    right: Sequence[bool] | NDArray[np.bool_],
    *,
    in_use: float | None = None,
    target: float = TARGET,
) -> Fit:
    """Return what each threshold gives, and the lowest one that reaches the target.

    `in_use` is the threshold that found the events: where the target is reached by all of them, it
    stays, since nothing is known about lower scores.
    """
    values, hits = np.asarray(scores, np.float64), np.asarray(right, np.bool_)
    levels = np.unique(values).tolist()
    rising = []
    for number, level in enumerate(levels):
        # Halfway to the next lower score; the lowest is the one in use, unless an event was below.
        threshold = (levels[max(0, number - 1)] + level) / 2
        if not number and in_use is not None:
            threshold = min(level, in_use)
        above = values >= level
        answers, good = int(above.sum()), int(hits[above].sum())
        low, high = wilson(good, answers)
        share = good / max(1, int(hits.sum()))
        rising.append(Choice(threshold, answers, good, low, high, share))
    choices = tuple(rising)
    able = [choice for choice in choices if choice.answers >= MIN_ANSWERS]
    if not able:
        count = f"{len(scores)} answer{' is' if len(scores) == 1 else 's are'}"
        return Fit(label, choices, None, f"{count} too few; {MIN_ANSWERS} are needed")
    reaching = [choice for choice in able if choice.precision >= target]
    if not reaching:
        return Fit(
            label, choices, None,
            f"no threshold with {MIN_ANSWERS} answers reaches {target:.0%}; other wordings or "
            "negative words may help",
        )  # fmt: skip
    lowest = reaching[0] is choices[0]
    return Fit(label, choices, reaching[0], "as it is: all events count" if lowest else "raised")


def fit_thresholds(events: Iterable[StoredEvent], *, target: float = TARGET) -> list[Fit]:
    """Fit the threshold of each label to the verdicts."""
    if not 0 < target <= 1:
        raise UsageError(f"The precision to reach is a share from 0 to 1, got {target:g}")
    by_label: dict[str, list[StoredEvent]] = {}
    for event in events:
        reviewed = by_label.setdefault(event.label, [])
        if event.verdict in (RIGHT, WRONG):
            reviewed.append(event)
    return [
        fit_threshold(
            label,
            [event.score for event in reviewed],
            [event.verdict == RIGHT for event in reviewed],
            in_use=min((one.threshold for one in reviewed if one.threshold is not None),
                       default=None),
            target=target,
        )
        for label, reviewed in by_label.items()
    ]  # fmt: skip


def with_thresholds(watch: WatchList, fits: Iterable[Fit]) -> WatchList:
    """Return a watch list with the chosen thresholds; other labels stay as they are."""
    chosen = {fit.label: fit.chosen.threshold for fit in fits if fit.chosen is not None}
    labels = [*watch.labels, *(WatchedLabel(name) for name in chosen if name not in watch.names)]
    for number, label in enumerate(labels):
        if label.name in chosen:
            # Few decimals, rounded down: the lowest event above it still reaches it.
            threshold = max(1e-6, math.floor(chosen[label.name] * 1e5) / 1e5)
            labels[number] = structs.replace(label, threshold=threshold, false_alarms=None)
    return structs.replace(watch, labels=tuple(labels))


def mixed(events: Sequence[Item], label_of: Callable[[Item], str], *, seed: int = 0) -> list[Item]:
    """Return events with the labels in turn, each in random order.

    The answers are then a fair sample whenever a person stops.
    """
    rng = random.Random(seed)  # noqa: S311 (an order, not a secret)
    queues: dict[str, list[Item]] = {}
    for event in events:
        queues.setdefault(label_of(event), []).append(event)
    for queue in queues.values():
        rng.shuffle(queue)
    longest = max(map(len, queues.values()), default=0)
    return [queue[n] for n in range(longest) for queue in queues.values() if n < len(queue)]
