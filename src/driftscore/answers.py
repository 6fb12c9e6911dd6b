"""Events that a person reviews, and the answers: files of both, one interface for all places.

Answers are rows of a csv beside the events (`events.review.csv`); a later answer to the same event
replaces an earlier one. The store of a listener keeps its own (`live/reviews.py`).
"""

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from driftscore.errors import FormatError, UsageError
from driftscore.files import writing_to
from driftscore.reading import read_text
from driftscore.schema import finite_number

RIGHT, WRONG, UNSURE = "right", "wrong", "unsure"
WORDS: Mapping[str, str] = {
    "y": RIGHT, "yes": RIGHT, "right": RIGHT, "1": RIGHT, "true": RIGHT,
    "n": WRONG, "no": WRONG, "wrong": WRONG, "0": WRONG, "false": WRONG,
    "u": UNSURE, "unsure": UNSURE, "?": UNSURE,
}  # fmt: skip
"""What may be written as an answer."""
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
class EventSound:
    """A part of a file, to be played; it lasts until `end_s`, or the end of the file."""

    path: Path
    start_s: float
    end_s: float


class Reviews(Protocol):
    """Events and the answers to them, wherever both are kept."""

    @property
    def events(self) -> Sequence[FoundEvent]:
        """All events."""

    @property
    def known(self) -> Mapping[Key, str]:
        """The answers so far."""

    @property
    def where(self) -> str:
        """Where answers are kept."""

    def add(self, event: FoundEvent, answer: str) -> None:
        """Keep an answer."""

    def when(self, event: FoundEvent) -> str:
        """Return when an event was."""

    def sound(self, event: FoundEvent) -> EventSound | None:
        """Return what to play of an event, None if there is nothing."""


class FileReviews:
    """The events of a csv or jsonl file, and the csv of answers beside it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._home = Path(path).parent
        self._beside = review_path(path)
        self.events = read_events(path)
        self.known: dict[Key, str] = (
            read_answers(self._beside, self.events) if self._beside.exists() else {}
        )
        self.where = str(self._beside)
        """Where answers are kept."""

    def add(self, event: FoundEvent, answer: str) -> None:
        """Keep an answer."""
        add_answer(self._beside, event, answer)
        self.known[event.key] = answer

    def when(self, event: FoundEvent) -> str:
        """Return when an event was: the time from the start of its file."""
        minutes, seconds = divmod(event.start_s, 60)
        return f"{int(minutes) // 60}:{int(minutes) % 60:02d}:{seconds:04.1f}"

    def sound(self, event: FoundEvent) -> EventSound | None:
        """Return the part of the recording; its path may be relative to the file of events."""
        path = Path(event.file)
        return EventSound(
            path if path.exists() else self._home / event.file, event.start_s, event.end_s
        )


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
    value = finite_number(text)
    if value is None:
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
