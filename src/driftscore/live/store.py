"""The SQLite store of events: written by a listener, read by the service, also at the same time.

Times are UTC, beside them the offset of the local zone at that time. One row is written per event
that is reported, per level and per change of a source; with the write-ahead log the disk is
synchronised only now and then, which spares SD cards. After a power cut the newest rows may be
missing; the file stays sound. Levels are kept for `LEVELS_KEPT`; events are never deleted.
"""

import json
import sqlite3
import threading
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from os import PathLike
from pathlib import Path

from driftscore.answers import RIGHT, UNSURE, WRONG
from driftscore.databases import open_database
from driftscore.errors import StoreError, UsageError
from driftscore.live.clips import find_clip
from driftscore.live.records import (
    EventRecord,
    LevelRecord,
    LiveEvent,
    SourceStatus,
    iso,
    local_now,
    rounded,
)
from driftscore.watchlist import WatchList

VERDICTS = (RIGHT, WRONG, UNSURE, "")
"""What a review may say of an event; empty takes it back."""
_EVENTS = """CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, label TEXT NOT NULL, score REAL NOT NULL,
    threshold REAL, start_utc TEXT NOT NULL, end_utc TEXT NOT NULL, offset_s INTEGER NOT NULL,
    duration_s REAL NOT NULL, snr_db REAL, level_db REAL, clip TEXT NOT NULL,
    verdict TEXT NOT NULL DEFAULT '', reviewed_utc TEXT)"""
_SOURCES = """CREATE TABLE IF NOT EXISTS sources (
    name TEXT PRIMARY KEY, online INTEGER NOT NULL, since_utc TEXT NOT NULL, why TEXT NOT NULL,
    words TEXT NOT NULL DEFAULT '')"""
_LEVELS = """CREATE TABLE IF NOT EXISTS levels (
    source TEXT NOT NULL, end_utc TEXT NOT NULL, offset_s INTEGER NOT NULL, seconds REAL NOT NULL,
    laeq REAL NOT NULL, l10 REAL NOT NULL, l90 REAL NOT NULL, unit TEXT NOT NULL,
    PRIMARY KEY (source, end_utc)) WITHOUT ROWID"""
_PRESENT = """CREATE TABLE IF NOT EXISTS present (
    source TEXT PRIMARY KEY, labels TEXT NOT NULL) WITHOUT ROWID"""
LEVELS_KEPT = timedelta(days=2)
_COLUMNS = (
    "id, source, label, score, start_utc, end_utc, offset_s, duration_s, snr_db, clip, verdict, "
    "threshold"
)


@dataclass(frozen=True)
class StoredEvent(LiveEvent):
    """An event of the store, with its clip, what a person said of it, and its threshold."""

    clip: str = ""
    verdict: str = ""
    threshold: float | None = None


@dataclass(frozen=True)
class StoredLevel:
    """The A-weighted level of a source over some seconds; `unit` is dBA or dBFS."""

    laeq: float
    l10: float
    l90: float
    unit: str
    seconds: float
    end: str


@dataclass(frozen=True)
class StoredSource:
    """A source of the store.

    Attributes:
        name: its name.
        online: whether it gave audio.
        since: since when.
        why: why it gave none.
        words: what it is searched for.
        present: the labels that are present.
        level: its last level, None if there is none yet.

    """

    name: str
    online: bool
    since: str
    why: str = ""
    words: str = ""
    present: tuple[str, ...] = ()
    level: StoredLevel | None = None


class SqliteEvents:
    """Events in an SQLite file; its methods may be called from any thread, and by processes.

    Parameters
    ----------
        path: the file; a new one is made.
        clips: the folder with the clips of its events, for those who play them.

    """

    def __init__(self, path: str | PathLike[str], clips: Path | None = None) -> None:
        self._path = Path(path)
        self.clips = clips
        self._lock = threading.Lock()
        with self._failing():
            self._db = open_database(
                self._path,
                "PRAGMA journal_mode=WAL",
                "PRAGMA synchronous=NORMAL",
                _EVENTS,
                "CREATE INDEX IF NOT EXISTS events_start ON events (start_utc)",
                _SOURCES,
                _LEVELS,
                _PRESENT,
            )
            self._db.commit()

    # An output of a listener.

    def words(self, source: str, watch: WatchList) -> None:
        """Keep the labels that a source is searched for; none of them is present yet."""
        self.active(source, frozenset())
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
        """Keep the labels that are present."""
        self._write(
            "INSERT OR REPLACE INTO present VALUES (?, ?)",
            (source, json.dumps(sorted(labels), ensure_ascii=False)),
        )

    def level(self, record: LevelRecord) -> None:
        """Keep a level, and delete those of the source that are too old."""
        offset = record.end.utcoffset() or timedelta()
        values = (
            record.source, _utc(record.end), round(offset.total_seconds()), record.seconds,
            *(rounded(value, 1) for value in (record.laeq, record.l10, record.l90)), record.unit,
        )  # fmt: skip
        self._write("INSERT OR REPLACE INTO levels VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        oldest = _utc(record.end - LEVELS_KEPT)
        self._write("DELETE FROM levels WHERE source = ? AND end_utc < ?", (record.source, oldest))

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

    def clip(self, event_id: int) -> Path | None:
        """Return the clip of an event: a file that a listener has named, in its own folder."""
        rows = self._read("SELECT clip FROM events WHERE id = ?", (event_id,))
        if self.clips is None or not rows:
            return None
        return find_clip(self.clips, str(rows[0][0]))

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
        rows = self._read(
            "SELECT name, online, since_utc, why, words, labels FROM sources "
            "LEFT JOIN present ON source = name ORDER BY name"
        )
        return [
            StoredSource(
                str(name), bool(online), _here(since), str(why), str(words), _present(labels),
                next(iter(self.levels(str(name), limit=1)), None),
            )
            for name, online, since, why, words, labels in rows
        ]  # fmt: skip

    def levels(
        self, source: str, since: datetime | None = None, limit: int = 1440
    ) -> list[StoredLevel]:
        """Return the newest levels of a source that ended at or after a time, newest first."""
        rows = self._read(
            "SELECT laeq, l10, l90, unit, seconds, end_utc, offset_s FROM levels "
            "WHERE source = ? AND end_utc >= ? ORDER BY end_utc DESC LIMIT ?",
            (source, "" if since is None else _utc(since), limit),
        )
        return [
            StoredLevel(
                _number(a), _number(h), _number(q), str(unit), _number(s), _local(end, zone)
            )
            for a, h, q, unit, s, end, zone in rows
        ]

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
    id, source, label, score, start, end, offset, duration, snr, clip, verdict, threshold = row
    return StoredEvent(
        int(str(id)), str(source), str(label), _number(score), _local(start, offset),
        _local(end, offset), _number(duration), None if snr is None else _number(snr), str(clip),
        str(verdict), None if threshold is None else _number(threshold),
    )  # fmt: skip


def _present(labels: object) -> tuple[str, ...]:
    return () if labels is None else tuple(map(str, json.loads(str(labels))))


def _number(value: object) -> float:
    return float(str(value))


def _local(utc: object, offset: object) -> str:
    """Return a time of the store in the zone that it was recorded in."""
    zone = timezone(timedelta(seconds=int(str(offset))))
    return iso(datetime.fromisoformat(str(utc)).astimezone(zone))


def _here(utc: object) -> str:
    """Return a time of the store in the zone of this machine."""
    return iso(datetime.fromisoformat(str(utc)).astimezone())


def _utc(time: datetime) -> str:
    return iso(time.astimezone(UTC))
