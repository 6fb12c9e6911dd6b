"""The events of a store for `driftscore review`: verdicts of the page are its answers.

    reviews = StoredReviews("events.db", clips="clips")
    fits = fit_thresholds(reviews.events, reviews.known)

An event starts at seconds since 1970, in place of seconds of a file.
"""

import sqlite3
from contextlib import closing
from datetime import datetime
from os import PathLike
from pathlib import Path

from driftscore.answers import EventSound, FoundEvent, Key
from driftscore.errors import FormatError
from driftscore.live.clips import KEPT_S
from driftscore.live.store import SqliteEvents, StoredEvent

_MAGIC = b"SQLite format 3\0"
_MOST = 10_000_000  # events


def is_store(path: str | PathLike[str]) -> bool:
    """Return whether a file is an SQLite database."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


class StoredReviews:
    """The events of a store, oldest first, and the answers to them.

    Parameters
    ----------
        path: the store.
        clips: the folder of its clips; None to play nothing.

    """

    def __init__(self, path: str | PathLike[str], clips: str | PathLike[str] | None = None) -> None:
        _check(Path(path))
        self._store = SqliteEvents(path)
        self._clips = None if clips is None else Path(clips)
        stored = self._store.events(limit=_MOST)[::-1]
        self._stored = {_found(event).key: event for event in stored}
        self.where = f"the store {path}"
        """Where answers are kept."""
        self.events = [_found(event) for event in stored]
        self.known: dict[Key, str] = {
            _found(event).key: event.verdict for event in stored if event.verdict
        }

    def add(self, event: FoundEvent, answer: str) -> None:
        """Keep an answer."""
        self._store.review(self._stored[event.key].id, answer)
        self.known[event.key] = answer

    def when(self, event: FoundEvent) -> str:
        """Return when an event was."""
        start = datetime.fromisoformat(self._stored[event.key].start)
        return f"{start:%Y-%m-%d %H:%M:%S}"

    def sound(self, event: FoundEvent) -> EventSound | None:
        """Return the clip of an event, None if there is none."""
        clip = self._stored[event.key].clip
        if self._clips is None or not clip:
            return None
        return EventSound(self._clips / clip, 0.0, KEPT_S)


def _found(event: StoredEvent) -> FoundEvent:
    start, end = (datetime.fromisoformat(text).timestamp() for text in (event.start, event.end))
    return FoundEvent(event.source, start, end, event.label, event.score, event.threshold)


def _check(path: Path) -> None:
    """Refuse a database of something else before anything is written into it."""
    try:
        with closing(sqlite3.connect(f"file:{path.resolve().as_posix()}?mode=ro", uri=True)) as db:
            db.execute("SELECT verdict, start_utc FROM events LIMIT 0")
    except sqlite3.Error as error:
        raise FormatError(f"{path} is no store of `driftscore listen --store`: {error}") from error
