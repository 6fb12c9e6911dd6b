"""The SQLite store of events: written by a listener, read by the service, also at the same time.

Times are UTC, beside them the offset of the local zone at that time. One row is written per event
that is reported and per change of a source; with the write-ahead log the disk is synchronised only
now and then, which spares SD cards. After a power cut the newest rows may be missing; the file
stays sound.
"""

import sqlite3
import threading
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from os import PathLike
from pathlib import Path

from driftscore.databases import open_database
from driftscore.errors import StoreError, UsageError
from driftscore.live.records import EventRecord, LevelRecord, SourceStatus, iso, local_now, rounded
from driftscore.watchlist import WatchList

RIGHT, WRONG = "right", "wrong"
VERDICTS = (RIGHT, WRONG, "")
"""What a review may say of an event; empty takes it back."""
_EVENTS = """CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, label TEXT NOT NULL, score REAL NOT NULL,
    threshold REAL, start_utc TEXT NOT NULL, end_utc TEXT NOT NULL, offset_s INTEGER NOT NULL,
    duration_s REAL NOT NULL, snr_db REAL, level_db REAL, clip TEXT NOT NULL,
    verdict TEXT NOT NULL DEFAULT '', reviewed_utc TEXT)"""
_SOURCES = """CREATE TABLE IF NOT EXISTS sources (
    name TEXT PRIMARY KEY, online INTEGER NOT NULL, since_utc TEXT NOT NULL, why TEXT NOT NULL,
    words TEXT NOT NULL DEFAULT '')"""
_COLUMNS = (
    "id, source, label, score, start_utc, end_utc, offset_s, duration_s, snr_db, clip, verdict"
)


@dataclass(frozen=True)
class StoredEvent:
    """An event of the store. Times are ISO 8601 with the zone of the place at that time."""

    id: int
    source: str
    label: str
    score: float
    start: str
    end: str
    duration_s: float
    snr_db: float | None = None
    clip: str = ""
    verdict: str = ""


@dataclass(frozen=True)
class StoredSource:
    """A source of the store: whether it gave audio, since when, and what it is searched for."""

    name: str
    online: bool
    since: str
    why: str = ""
    words: str = ""


class SqliteEvents:
    """Events in an SQLite file; its methods may be called from any thread, and by processes."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()
        with self._failing():
            self._db = open_database(
                self._path,
                "PRAGMA journal_mode=WAL",
                "PRAGMA synchronous=NORMAL",
                _EVENTS,
                "CREATE INDEX IF NOT EXISTS events_start ON events (start_utc)",
                _SOURCES,
            )
            self._db.commit()

    # An output of a listener.

    def words(self, source: str, watch: WatchList) -> None:
        """Keep the labels that a source is searched for."""
        words = ", ".join(watch.names)
        self._write(
            "INSERT INTO sources VALUES (?, 0, ?, 'opening', ?) "
            "ON CONFLICT (name) DO UPDATE SET words = excluded.words",
            (source, iso(datetime.now(UTC)), words),
        )

    def event(self, record: EventRecord) -> None:
        """Keep an event, unless it was rejected."""
        event = record.event
        if event.rejected:
            return
        offset = record.start.utcoffset() or timedelta()
        values = (
            record.source, event.label, rounded(event.score), rounded(event.threshold),
            _utc(record.start), _utc(record.end), round(offset.total_seconds()),
            record.duration_s, rounded(event.snr_db, 1), rounded(event.level_db, 1), record.clip,
        )  # fmt: skip
        # Another listener with the same store may have used the number.
        self._write(
            "INSERT INTO events (id, source, label, score, threshold, start_utc, end_utc, "
            "offset_s, duration_s, snr_db, level_db, clip) VALUES "
            "(MAX(?, (SELECT COALESCE(MAX(id), 0) + 1 FROM events)), ?,?,?,?,?,?,?,?,?,?,?)",
            (record.id, *values),
        )

    def active(self, source: str, labels: Set[str]) -> None:
        """Keep nothing: the event follows."""

    def level(self, record: LevelRecord) -> None:
        """Keep nothing: levels would be a write per minute."""

    def status(self, status: SourceStatus) -> None:
        """Keep whether a source gives audio."""
        self._write(
            "INSERT INTO sources (name, online, since_utc, why) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET online = excluded.online, "
            "since_utc = excluded.since_utc, why = excluded.why",
            (status.source, int(status.online), _utc(status.since), status.why),
        )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    # What the service reads.

    def newest(self) -> int:
        """Return the id of the newest event, 0 if there is none."""
        rows = self._read("SELECT COALESCE(MAX(id), 0) FROM events")
        return int(str(rows[0][0]))

    def after(self, id: int, most: int) -> list[StoredEvent]:
        """Return up to `most` events with higher ids, in the order of their ids."""
        rows = self._read(
            f"SELECT {_COLUMNS} FROM events WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608
            (id, most),
        )
        return [_event(row) for row in rows]

    def events(self, since: datetime | None = None, limit: int = 1000) -> list[StoredEvent]:
        """Return the newest events that started at or after a time, newest first."""
        rows = self._read(
            f"SELECT {_COLUMNS} FROM events WHERE start_utc >= ? "  # noqa: S608
            "ORDER BY start_utc DESC, id DESC LIMIT ?",
            ("" if since is None else _utc(since), limit),
        )
        return [_event(row) for row in rows]

    def review(self, event_id: int, verdict: str) -> bool:
        """Say whether an event is right or wrong; return whether there is such an event."""
        if verdict not in VERDICTS:
            raise UsageError(f"A verdict is {RIGHT!r}, {WRONG!r} or empty; got {verdict!r}")
        changed = self._write(
            "UPDATE events SET verdict = ?, reviewed_utc = ? WHERE id = ?",
            (verdict, _utc(local_now()), event_id),
        )
        return changed > 0

    def sources(self) -> list[StoredSource]:
        """Return the sources by their names."""
        rows = self._read("SELECT name, online, since_utc, why, words FROM sources ORDER BY name")
        return [StoredSource(str(n), bool(o), str(s), str(w), str(t)) for n, o, s, w, t in rows]

    def counts_by_hour(self, since: datetime | None = None) -> dict[str, list[int]]:
        """Return how many events of each label started in each hour of the local day."""
        rows = self._read(
            "SELECT label, CAST(strftime('%H', start_utc, offset_s || ' seconds') AS INTEGER), "
            "COUNT(*) FROM events WHERE start_utc >= ? GROUP BY 1, 2 ORDER BY 1",
            ("" if since is None else _utc(since),),
        )
        counts: dict[str, list[int]] = {}
        for label, hour, count in rows:
            counts.setdefault(str(label), [0] * 24)[int(str(hour))] = int(str(count))
        return counts

    def _write(self, statement: str, values: tuple[object, ...]) -> int:
        with self._lock, self._failing():
            changed = self._db.execute(statement, values).rowcount
            self._db.commit()
            return changed

    def _read(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        with self._lock, self._failing():
            return self._db.execute(statement, values).fetchall()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"The store of events {self._path} cannot be used: {error}") from error


def _event(row: tuple[object, ...]) -> StoredEvent:
    id, source, label, score, start, end, offset, duration, snr, clip, verdict = row
    zone = timezone(timedelta(seconds=int(str(offset))))
    first, last = (iso(datetime.fromisoformat(str(text)).astimezone(zone)) for text in (start, end))
    return StoredEvent(
        int(str(id)), str(source), str(label), float(str(score)), first, last,
        float(str(duration)), None if snr is None else float(str(snr)), str(clip), str(verdict),
    )  # fmt: skip


def _utc(time: datetime) -> str:
    return iso(time.astimezone(UTC))
