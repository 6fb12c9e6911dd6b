"""The one store: decisions, events, verdicts, sources and levels in an SQLite file.

    with DecisionStore("decisions.db") as store:
        for result in audited_results(store, classifier, recordings):
            ...

Threads share a store, and processes may use one file at the same time. With the write-ahead log a
row costs no wait for the disk, which spares SD cards; decisions are synchronised at most once per
second. After a power cut the newest rows may be missing; the file stays sound. Copies of audio are
files beside the store (`decisions.db.audio/<sha256>.wav`), and only if asked for. Everything can be
read by its owner only. A later version adds tables to `SCHEMA`, and no second store.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import sqlite3
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import soundfile

from driftscore.audio.recordings import Audio, Recording, describe
from driftscore.classifier import Classifier
from driftscore.decisions.records import (
    FORMAT,
    RIGHT,
    UNSURE,
    WRONG,
    Decider,
    Decision,
    LevelReport,
    LiveReport,
    OutputStatus,
    RecordedDecision,
    RecordingRef,
    SourceStatus,
    Started,
    StoredEvent,
    StoredSource,
    Words,
    content_digest,
    escaped,
    event_decision,
    iso,
    json_line,
    judged_decision,
    label_decision,
    local_now,
)
from driftscore.detector import Detector
from driftscore.embedder import Embedded
from driftscore.engines.window_log import WindowLog
from driftscore.errors import AuditError, FormatError, StoreError, UsageError
from driftscore.events.tracking import Event, Observer
from driftscore.scoring.head import Result
from driftscore.storage.files import check_output, is_file, is_url, regular_size, sha256
from driftscore.storage.sqlite import open_database
from driftscore.version import __version__

APPLICATION = 0x64736372  # "dscr", in the header of the file
SCHEMA_VERSION = 1
SCHEMA = (
    # The line has its own digest; the other columns are for looking up.
    """CREATE TABLE IF NOT EXISTS decisions (
    id INTEGER PRIMARY KEY, time_utc TEXT NOT NULL, head_sha256 TEXT NOT NULL, search_sha256 TEXT,
    audio TEXT, line TEXT NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS decisions_time ON decisions (time_utc)",
    "CREATE TABLE IF NOT EXISTS deciders (sha256 TEXT PRIMARY KEY, content BLOB NOT NULL)",
    # Times are seconds since 1970, or from the start of a file where offset_s is NULL.
    """CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, label TEXT NOT NULL, score REAL NOT NULL,
    threshold REAL, start_s REAL NOT NULL, end_s REAL NOT NULL, offset_s INTEGER, level_db REAL,
    snr_db REAL, clip TEXT NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS events_start ON events (start_s)",
    """CREATE TABLE IF NOT EXISTS verdicts (
    event INTEGER PRIMARY KEY, verdict TEXT NOT NULL, time_utc TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS sources (
    name TEXT PRIMARY KEY, online INTEGER NOT NULL, since TEXT NOT NULL, why TEXT NOT NULL,
    words TEXT NOT NULL DEFAULT '', present TEXT NOT NULL DEFAULT '[]')""",
    """CREATE TABLE IF NOT EXISTS levels (
    source TEXT NOT NULL, laeq REAL NOT NULL, l10 REAL NOT NULL, l90 REAL NOT NULL,
    unit TEXT NOT NULL, seconds REAL NOT NULL, "end" TEXT NOT NULL, end_utc TEXT NOT NULL,
    PRIMARY KEY (source, end_utc)) WITHOUT ROWID""",
    # Messages that an output has not taken yet, oldest first.
    "CREATE TABLE IF NOT EXISTS waiting "
    "(id INTEGER PRIMARY KEY, output TEXT NOT NULL, message TEXT NOT NULL)",
)
VERDICTS = (RIGHT, WRONG, UNSURE, "")
"""What a person may say of an event; empty takes it back."""
LEVEL_DAYS = 2.0
MAX_CLIP_S = 90.0
MAX_UNWRITTEN = 1000
"""Events of a listener that wait for space on the disk."""
_EVENT = (
    "id, source, label, score, threshold, start_s, end_s, offset_s, level_db, snr_db, '', clip, "
    "'', COALESCE(verdict, '') FROM events LEFT JOIN verdicts ON event = id"
)
_CLIP = re.compile(r"\d{4}-\d{2}-\d{2}/driftscore_\d{8}T\d{6}Z_[a-z0-9_-]+__([a-z0-9_]+)_\d+\.flac")
_COPY = re.compile(r"audio/([0-9a-f]{64}\.[A-Za-z0-9]{1,8})")
_MOVING = ("time", "versions", "sha256")  # what differs between two records of a decision
_SYNC_S, _TIDY_S, _TIDY_SHARE = 1.0, 600.0, 0.05
_MAGIC = b"SQLite format 3\0"


class DecisionStore:
    """A store of decisions, events, verdicts, sources and levels.

    Parameters
    ----------
        path: the file; a new one is made.
        clips: the folder with the clips of its events, for those who play them.
        keep_audio: keep the audio of each decision as well.
        once: leave out decisions that the store has already, for a run that is continued.
        days: delete decisions, and events without a verdict, that are older; None for never.
        megabytes: delete the oldest decisions while the store is larger; None for never.

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clips: Path | None = None,
        keep_audio: bool = False,
        once: bool = False,
        days: float | None = None,
        megabytes: float | None = None,
    ) -> None:
        for name, bound in (("days", days), ("megabytes", megabytes)):
            if bound is not None and not 0 < bound < 1e9:
                raise UsageError(f"The {name} that an audit is kept must be positive, got {bound}")
        if not os.fspath(path) or is_url(os.fspath(path)):
            raise UsageError(f"Decisions are kept in a file of this machine, not in {path!r}")
        self.path = Path(path)
        if self.path.is_dir():
            raise UsageError(f"{path} is a folder; name a file, as in {self.path / 'decisions.db'}")
        if not self.path.exists():
            check_output(path)
        self.clips = clips
        self.keep_audio = keep_audio
        self.copies = self.path.with_name(self.path.name + ".audio")
        self._days, self._megabytes = days, megabytes
        self._lock = threading.RLock()
        self._synced = self._tidied = 0.0
        self._since_tidy = 0
        self._unwritten: deque[StoredEvent] = deque(maxlen=MAX_UNWRITTEN)
        self._versions = _versions()
        marks: tuple[str, ...] = ()
        if header := _header(self.path):
            version, application = (int.from_bytes(header[at : at + 4], "big") for at in (60, 68))
            if not header.startswith(_MAGIC) or application != APPLICATION:
                raise FormatError(f"{path} is not a store of decisions; name another file")
            if version > SCHEMA_VERSION:
                raise FormatError(f"{path} was written by a newer version of driftscore")
        else:
            marks = (
                "PRAGMA auto_vacuum=INCREMENTAL",
                f"PRAGMA application_id={APPLICATION}",
                f"PRAGMA user_version={SCHEMA_VERSION}",
            )
        with self._using():
            self._db = open_database(
                self.path,
                *marks,
                "PRAGMA trusted_schema=OFF",  # a store may come from anyone
                "PRAGMA journal_mode=WAL",
                "PRAGMA synchronous=NORMAL",
                *SCHEMA,
            )
            self._db.commit()
        self._recorded: set[str] | None = None
        if once:
            lines = (json.loads(decision.line) for decision in self.decisions())
            self._recorded = {content_digest(fields, _MOVING) for fields in lines}

    def close(self) -> int:
        """Write everything to the disk; return how many events could not be written."""
        with suppress(StoreError):
            self._write_events()
        with self._using():
            self._db.close()
        return len(self._unwritten)

    def __enter__(self) -> "DecisionStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Decisions.

    def record(
        self,
        decision: Decision,
        decider: Decider,
        recording: Recording | RecordingRef | None = None,
    ) -> None:
        """Add a decision; what is not a `RecordingRef` yet is hashed, and copied if asked for."""
        try:
            if not isinstance(recording, RecordingRef):
                recording = RecordingRef() if recording is None else self.refer(recording)
            with self._using():
                for digest, content in decider.contents:
                    # Another process may have deleted it, so this is not remembered.
                    if not self._read("SELECT 1 FROM deciders WHERE sha256 = ?", (digest,)):
                        row = digest, content
                        self._write("INSERT OR IGNORE INTO deciders VALUES (?, ?)", row)
                head, search = (*(digest for digest, _ in decider.contents), None)[:2]
                fields = {
                    "format": FORMAT,
                    "time": iso(datetime.now(UTC)),
                    **vars(decision),
                    **decider.fields,
                    "head_sha256": head,
                    "search_sha256": search,
                    "recording": msgspec.structs.asdict(recording),
                    "versions": self._versions,
                }
                if self._recorded is not None:
                    same = content_digest(fields, _MOVING)
                    if same in self._recorded:
                        return
                    self._recorded.add(same)
                line, synced = json_line(fields), time.monotonic() - self._synced > _SYNC_S
                if synced:
                    self._db.execute("PRAGMA synchronous=FULL")
                self._write(
                    "INSERT INTO decisions (time_utc, head_sha256, search_sha256, audio, line) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (fields["time"], head, search, recording.audio, line),
                )
                if synced:
                    self._synced = time.monotonic()
                    self._db.execute("PRAGMA synchronous=NORMAL")
                self._since_tidy += len(line)
                self._tidy_if_due()
        except StoreError as error:
            raise AuditError(f"The decision cannot be recorded: {error}") from error

    def refer(self, recording: Recording, *, complete: bool = True) -> RecordingRef:
        """Return which recording it is; its audio is copied only if that was asked for.

        `complete` tells whether decisions follow from this recording alone.
        """
        name, at_hand, suffix = None, not hasattr(recording, "read"), ".bin"
        if isinstance(recording, (str, os.PathLike)):
            name, at_hand = describe(recording), is_file(os.fspath(recording))
            if re.fullmatch(r"\.[A-Za-z0-9]{1,8}", Path(recording).suffix):
                suffix = Path(recording).suffix
        if not at_hand:  # a stream or a URL
            return RecordingRef(name, None, None, complete)
        if not self.keep_audio:
            return RecordingRef(name, recording_digest(recording), None, complete)
        with self._using():
            self.copies.mkdir(mode=0o700, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.copies, prefix=".driftscore-") as folder:
                partial = Path(folder) / "copy"
                if isinstance(recording, (str, os.PathLike)):
                    shutil.copyfile(recording, partial)
                    recording = partial  # not the file, which may change meanwhile
                elif isinstance(recording, bytes):
                    partial.write_bytes(recording)
                else:
                    recording, suffix = Audio.of(recording), ".wav"
                    soundfile.write(
                        partial, recording.samples, recording.rate, format="WAV", subtype="FLOAT"
                    )
                digest = recording_digest(recording)
                partial.chmod(0o600)
                self._since_tidy += partial.stat().st_size
                partial.replace(self.copies / f"{digest}{suffix}")
        return RecordingRef(name, digest, f"audio/{digest}{suffix}", complete)

    def copy_of(self, audio: str) -> Path | None:
        """Return the file of a copy by what a decision says of it; None if it was deleted."""
        match = _COPY.fullmatch(audio)
        if match is None:
            raise FormatError(f"{audio!r} is not the name of a copy in a store")
        path = self.copies / match[1]
        return path if path.is_file() and not path.is_symlink() else None

    def decisions(
        self, *, label: str = "", since: datetime | None = None, until: datetime | None = None
    ) -> Iterator[RecordedDecision]:
        """Yield the decisions by time; only those for a label, from a time on, before a time."""
        first, last = ("" if one is None else iso(one.astimezone(UTC)) for one in (since, until))
        number = 0
        while rows := self._read(
            "SELECT id, line FROM decisions WHERE id > ? AND time_utc >= ? AND time_utc < ? "
            "ORDER BY id LIMIT 1000",
            (number, first, last or "~"),
        ):
            for id, line in rows:
                decision = RecordedDecision.of(int(id), str(line))
                if not label or label in decision.labels:
                    yield decision
            number = int(rows[-1][0])

    def decider(self, digest: str) -> bytes | None:
        """Return a head or a search, packed, by its digest; None if it was deleted."""
        query = "SELECT CAST(content AS BLOB) FROM deciders WHERE sha256 = ?"
        for (content,) in self._read(query, (digest,)):
            if hashlib.sha256(content).hexdigest() != digest:
                raise FormatError("What decided is not what was recorded: it has changed")
            return bytes(content)
        return None

    # What a listener reports.

    def send(self, report: LiveReport) -> None:
        """Keep what a listener reports, except rejected events."""
        if isinstance(report, StoredEvent) and not report.rejected:
            self._unwritten.append(report.rounded())
        self._write_events()
        if isinstance(report, (StoredEvent, Started, OutputStatus)):
            return
        if isinstance(report, LevelReport):
            end_utc = iso(datetime.fromisoformat(report.end).astimezone(UTC))
            self._write(
                "INSERT OR REPLACE INTO levels VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*vars(report).values(), end_utc),
            )
            with self._lock:
                self._tidy_if_due()
        else:
            if isinstance(report, SourceStatus):
                values = {"online": report.online, "since": report.since, "why": report.why}
            elif isinstance(report, Words):
                values = {"words": report.text, "present": "[]"}
            else:
                values = {"present": json.dumps(sorted(report.labels))}
            columns = ", ".join(f"{column} = ?" for column in values)
            with self._using():
                self._write(
                    "INSERT OR IGNORE INTO sources (name, online, since, why) "
                    "VALUES (?, 0, ?, 'opening')",
                    (report.source, iso(local_now())),
                )
                self._write(
                    f"UPDATE sources SET {columns} WHERE name = ?",  # noqa: S608
                    (*values.values(), report.source),
                )

    def _write_events(self) -> None:
        """Write the events that are not in the file yet: a full disk is tried again."""
        if self._unwritten:
            with self._using(), self._db:
                for event in self._unwritten:
                    self._add(event)
            self._unwritten.clear()  # only now: a full disk is noticed when a transaction ends

    def wait(self, output: str, message: str) -> int:
        """Keep a message until an output has taken it; return its number."""
        statement = "INSERT INTO waiting (output, message) VALUES (?, ?)"
        return self._write(statement, (output, message)).lastrowid or 0

    def waiting(self, output: str) -> list[tuple[int, str]]:
        """Return the messages that wait for an output, with their numbers, oldest first."""
        query = "SELECT id, message FROM waiting WHERE output = ? ORDER BY id"
        return [(int(id), str(text)) for id, text in self._read(query, (output,))]

    def delivered(self, numbers: Iterable[int]) -> None:
        """Delete messages that were taken."""
        with self._using(), self._db:
            rows = [(number,) for number in numbers]
            self._db.executemany("DELETE FROM waiting WHERE id = ?", rows)

    def add_events(self, events: Iterable[StoredEvent]) -> list[StoredEvent]:
        """Add the events of files, each once; return them with their ids and verdicts."""
        with self._using(), self._db:
            stored = {event.key: event for event in self._events("WHERE offset_s IS NULL")}
            added = []
            for event in events:
                if event.key not in stored:
                    stored[event.key] = replace(event, id=self._add(event))
                match = stored[event.key]
                added.append(replace(event, id=match.id, verdict=match.verdict))
            return added

    def _add(self, event: StoredEvent) -> int:
        # Another listener with the same store may have used the number.
        cursor = self._db.execute(
            "INSERT INTO events VALUES (MAX(:id, (SELECT COALESCE(MAX(id), 0) + 1 FROM events)), "
            ":source, :label, :score, :threshold, :start_s, :end_s, :offset_s, :level_db, :snr_db, "
            ":clip)",
            {**vars(event), "source": escaped(event.source)},
        )
        return cursor.lastrowid or 0

    # What the service, the page and `review` read, and verdicts.

    def newest(self) -> int:
        """Return the id of the newest event, 0 if there is none."""
        return int(self._read("SELECT COALESCE(MAX(id), 0) FROM events")[0][0])

    def after(self, id: int, limit: int) -> list[StoredEvent]:
        """Return up to `limit` events with higher ids, in the order of their ids."""
        return self._events("WHERE id > ? AND offset_s IS NOT NULL ORDER BY id LIMIT ?", id, limit)

    def events(
        self, since: datetime | None = None, limit: int = 1000, *, until: datetime | None = None
    ) -> list[StoredEvent]:
        """Return the newest events that started from a time on and before another, newest first."""
        first = float("-inf") if since is None else since.timestamp()
        last = float("inf") if until is None else until.timestamp()
        newest_first = "WHERE start_s >= ? AND start_s < ? ORDER BY start_s DESC, id DESC LIMIT ?"
        return self._events(newest_first, first, last, limit)

    def answered(self) -> list[StoredEvent]:
        """Return the events with the verdict right or wrong, in the order of their ids."""
        return self._events(f"WHERE verdict IN ('{RIGHT}', '{WRONG}') ORDER BY id")

    def _events(self, chosen: str, *values: float) -> list[StoredEvent]:
        rows = self._read(f"SELECT {_EVENT} {chosen}", values)
        return [StoredEvent(*row) for row in rows]

    def levels(self, since: datetime, until: datetime) -> dict[str, list[tuple[str, float]]]:
        """Return the LAeq of each source between two times, each with the end of its interval."""
        levels: dict[str, list[tuple[str, float]]] = {}
        for source, end, laeq in self._read(
            'SELECT source, "end", laeq FROM levels WHERE end_utc >= ? AND end_utc < ? '
            "ORDER BY end_utc",
            (iso(since.astimezone(UTC)), iso(until.astimezone(UTC))),
        ):
            levels.setdefault(source, []).append((end, laeq))
        return levels

    def clip(self, event_id: int) -> Path | None:
        """Return the clip of an event: a file that a listener has named, in its own folder."""
        rows = self._read("SELECT clip FROM events WHERE id = ?", (event_id,))
        if self.clips is None or not rows or not clip_label(self.clips, str(rows[0][0])):
            return None
        return self.clips / str(rows[0][0])

    def review(self, event_id: int, verdict: str) -> bool:
        """Keep what a person says of an event; return whether there is such an event."""
        if verdict not in VERDICTS:
            raise UsageError(f"A verdict is one of {', '.join(VERDICTS[:3])}, not {verdict!r}")
        changed = self._write(
            "INSERT OR REPLACE INTO verdicts SELECT id, ?, ? FROM events WHERE id = ?",
            (verdict, iso(datetime.now(UTC)), event_id),
        )
        return changed.rowcount > 0

    def sources(self) -> list[StoredSource]:
        """Return the sources by their names."""
        rows = self._read(
            'SELECT name, online, since, why, words, present, laeq, l10, l90, unit, seconds, "end" '
            "FROM sources LEFT JOIN levels ON source = name AND "
            "end_utc = (SELECT MAX(end_utc) FROM levels WHERE source = name) ORDER BY name"
        )
        sources = []
        for name, online, since, why, words, present, *level in rows:
            values = dict(zip(("laeq", "l10", "l90", "unit", "seconds", "end"), level, strict=True))
            labels = tuple(json.loads(present))
            latest = None if level[0] is None else values
            sources.append(StoredSource(name, bool(online), since, why, words, labels, latest))
        return sources

    def counts_by_hour(self, since: datetime, until: datetime) -> dict[str, list[int]]:
        """Return how many events of each label started in each hour of the local day."""
        rows = self._read(
            "SELECT label, CAST(strftime('%H', start_s + offset_s, 'unixepoch') AS INTEGER), "
            "COUNT(*) FROM events WHERE offset_s IS NOT NULL AND start_s >= ? AND start_s < ? "
            "GROUP BY 1, 2 ORDER BY 1",
            (since.timestamp(), until.timestamp()),
        )
        counts: dict[str, list[int]] = {}
        for label, hour, count in rows:
            counts.setdefault(label, [0] * 24)[hour] = count
        return counts

    # Retention.

    def _tidy_if_due(self) -> None:
        bound = self._megabytes
        much = bound is not None and self._since_tidy > _TIDY_SHARE * bound * 1e6
        if much or not self._tidied or time.monotonic() - self._tidied > _TIDY_S:
            self._tidied, self._since_tidy = time.monotonic(), 0
            self.tidy()

    def tidy(self, *, now: datetime | None = None) -> int:
        """Delete what is too old or too much; return how many decisions."""
        now, deleted = now or datetime.now(UTC), 0
        with self._using():
            self._write(
                "DELETE FROM levels WHERE julianday(end_utc) < "
                "(SELECT julianday(MAX(end_utc)) FROM levels) - ?",
                (LEVEL_DAYS,),
            )
            if self._days is not None:
                first = now - timedelta(days=self._days)
                deleted += self._delete_decisions("time_utc < ?", iso(first.astimezone(UTC)))
                self._write(
                    "DELETE FROM events WHERE offset_s IS NOT NULL AND end_s < ? "
                    "AND id NOT IN (SELECT event FROM verdicts WHERE verdict <> '')",
                    (first.timestamp(),),
                )
            if self._megabytes is not None:
                while self.size() > self._megabytes * 1e6:
                    count = self._read("SELECT COUNT(*) FROM decisions")[0][0]
                    if count <= 1:
                        break  # the newest decision is never deleted
                    some = "id IN (SELECT id FROM decisions ORDER BY id LIMIT ?)"
                    deleted += self._delete_decisions(some, max(1, count // 20))
            if deleted:
                self._db.execute("PRAGMA incremental_vacuum").fetchall()
        return deleted

    def _delete_decisions(self, which: str, value: object) -> int:
        """Delete decisions, and the copies and deciders that no other decision needs."""
        copies = self._read(f"SELECT DISTINCT audio FROM decisions WHERE {which}", (value,))  # noqa: S608
        deleted = self._write(f"DELETE FROM decisions WHERE {which}", (value,)).rowcount  # noqa: S608
        if deleted:
            self._write(
                "DELETE FROM deciders WHERE sha256 NOT IN (SELECT head_sha256 FROM decisions) AND "
                "sha256 NOT IN (SELECT search_sha256 FROM decisions WHERE search_sha256 NOT NULL)"
            )
        for (audio,) in copies:
            used = self._read("SELECT 1 FROM decisions WHERE audio = ? LIMIT 1", (audio,))
            with suppress(OSError, FormatError):
                if audio and not used and (path := self.copy_of(audio)) is not None:
                    path.unlink()
        return deleted

    def size(self) -> int:
        """Return the bytes of rows and copies."""
        pages, free, page = (
            self._read(f"PRAGMA {name}")[0][0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        copies = self.copies.iterdir() if self.copies.is_dir() else ()
        return int((pages - free) * page) + sum(path.stat().st_size for path in copies)

    def _write(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        texts = [escaped(value) if isinstance(value, str) else value for value in values]
        with self._using(), self._db:
            return self._db.execute(statement, texts)

    def _read(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with self._using():
            return self._db.execute(statement, values).fetchall()

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Lock the store; errors of the database and of files become a `StoreError`."""
        try:
            with self._lock:
                yield
        except (sqlite3.Error, OSError, soundfile.LibsndfileError) as error:
            why = getattr(error, "strerror", None) or str(error)
            if isinstance(error, PermissionError) or "readonly" in why or "Read-only" in why:
                why = "it cannot be written, which reading needs too; copy it to another folder"
            raise StoreError(f"The store {self.path} cannot be used: {why}") from error


def audited_results(
    audit: DecisionStore,
    classifier: Classifier,
    recordings: Sequence[Recording],
    results: Iterable[Result] | None = None,
) -> Iterator[Result]:
    """Yield the result of each recording, and record the decision; one that failed has none.

    `results` are those of `classifier.classify`, if the caller has them already.
    """
    decider = Decider.of(classifier)
    results = classifier.classify(recordings) if results is None else results
    for recording, result in zip(recordings, results, strict=True):
        if not result.error:
            audit.record(label_decision(result, classifier.threshold), decider, recording)
        yield result


def audited_judgements(
    audit: DecisionStore,
    detector: Detector,
    recordings: Sequence[Recording],
    embedded: Iterable[Embedded],
) -> Iterator[Embedded]:
    """Yield embedded recordings, and record which label fits each, if one does."""
    decider = Decider.of(detector)
    for recording, one in zip(recordings, embedded, strict=True):
        if not one.error:
            audit.record(judged_decision(detector, one.source, one.embedding), decider, recording)
        yield one


def audited_events(
    audit: DecisionStore,
    detector: Detector,
    recording: Recording,
    *,
    source: str = "",
    reference: RecordingRef | None = None,
    seconds: Callable[[float], None] | None = None,
    observer: Observer | None = None,
    store: WindowLog | None = None,
) -> Iterator[Event]:
    """Yield the events of a recording, also rejected ones, and record each before.

    `reference` stands for the recording where this is not what was given, such as the samples of
    an upload. The other options are those of `Detector.events`.
    """
    search = detector.rules_for(recording)
    decider = Decider.of(detector, search)
    for event in detector.events(
        recording, rejected=True, rules=search, seconds=seconds, observer=observer, store=store
    ):
        reference = reference or audit.refer(recording)
        decision = event_decision(source or describe(recording), event, search)
        audit.record(decision, decider, reference)
        yield event


def clip_label(folder: Path, inside: str) -> str:
    """Return the label in the name of a listener's clip; empty for other files, and for links."""
    match, path = _CLIP.fullmatch(inside), folder / inside
    if match is None or not path.is_file() or path.is_symlink() or path.parent.is_symlink():
        return ""
    return match[1]


def is_database(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is an SQLite database."""
    return _header(path).startswith(_MAGIC)


def open_store(path: str | os.PathLike[str], clips: Path | None = None) -> DecisionStore:
    """Open a store that exists."""
    if not is_database(path):
        regular_size(Path(path), "store of decisions")  # says if there is no such file
        raise UsageError(f"{path} is not a store of decisions, as --audit and --store write it")
    return DecisionStore(path, clips=clips)


def _header(path: str | os.PathLike[str]) -> bytes:
    """Return the first bytes of a file; none if there is no file, or if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(72)
    except OSError:
        return b""  # opening it as a database will tell why


def recording_digest(recording: Recording) -> str:
    """Return the sha256 of the content of a recording that can be read again."""
    if isinstance(recording, (str, os.PathLike)):
        return sha256(Path(recording))
    if isinstance(recording, bytes):
        return hashlib.sha256(recording).hexdigest()
    audio = Audio.of(recording)
    return hashlib.sha256(audio.samples.tobytes() + str(audio.rate).encode()).hexdigest()


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version  # not at the top: it is slow

    versions = {"driftscore": __version__, "python": platform.python_version()}
    for name in ("numpy", "onnxruntime", "soxr", "soundfile"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
