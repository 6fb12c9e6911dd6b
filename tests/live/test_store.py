"""The SQLite store: what the service reads, times with their zone, reviews, several processes."""

import os
import sqlite3
import stat
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from driftscore import Event
from driftscore.errors import StoreError, UsageError
from driftscore.live.records import EventIds, EventRecord, LevelRecord, SourceStatus
from driftscore.live.store import LEVELS_KEPT, SqliteEvents, StoredLevel
from driftscore.watchlist import WatchList

BERLIN = timezone(timedelta(hours=1))
START = datetime(2026, 11, 16, 0, 10, 3, 250_000, tzinfo=BERLIN)


def record(
    id: int = 1, label: str = "dog bark", start: datetime = START, why: str = ""
) -> EventRecord:
    event = Event(label, 10.0, 14.5, 4.1234, 3.0, -30.04, 3.21, rejected=why)
    return EventRecord(id, "mic1", event, start, start + timedelta(seconds=4.5))


@pytest.fixture
def store(tmp_path: Path) -> SqliteEvents:
    return SqliteEvents(tmp_path / "events.db")


def test_an_event_comes_back_with_the_zone_of_its_place(
    store: SqliteEvents, tmp_path: Path
) -> None:
    store.event(record(7))
    (found,) = store.events()
    assert (found.id, found.source, found.label) == (7, "mic1", "dog bark")
    assert found.start == "2026-11-16T00:10:03.250+01:00"
    assert found.end == "2026-11-16T00:10:07.750+01:00"
    assert (found.score, found.duration_s, found.snr_db) == (4.123, 4.5, 3.2)
    raw = sqlite3.connect(tmp_path / "events.db").execute("SELECT start_utc, offset_s FROM events")
    assert raw.fetchone() == ("2026-11-15T23:10:03.250+00:00", 3600)


def test_rejected_events_are_not_stored(store: SqliteEvents) -> None:
    store.event(record(why="shorter than asked for"))
    assert store.events() == []


def test_the_file_has_a_write_ahead_log_and_is_private(store: SqliteEvents, tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "events.db")
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert stat.S_IMODE((tmp_path / "events.db").stat().st_mode) == 0o600


def test_a_client_continues_after_the_last_id(store: SqliteEvents) -> None:
    assert store.newest() == 0
    for id in (5, 9, 12):
        store.event(record(id))
    assert store.newest() == 12
    assert [event.id for event in store.after(5, 10)] == [9, 12]
    assert [event.id for event in store.after(0, 2)] == [5, 9]


def test_two_listeners_never_share_an_id(tmp_path: Path) -> None:
    one, other = (SqliteEvents(tmp_path / "events.db") for _ in range(2))
    one.event(record(100))
    other.event(record(100))
    assert [event.id for event in one.after(0, 10)] == [100, 101]


def test_events_are_newest_first_and_since_a_time(store: SqliteEvents) -> None:
    for id, hours in ((1, 0), (2, 2), (3, 1)):
        store.event(record(id, start=START + timedelta(hours=hours)))
    assert [event.id for event in store.events()] == [2, 3, 1]
    since = (START + timedelta(hours=1)).astimezone(UTC)
    assert [event.id for event in store.events(since)] == [2, 3]
    assert [event.id for event in store.events(limit=1)] == [2]


def test_hours_are_those_of_the_local_day(store: SqliteEvents) -> None:
    store.event(record(1))  # 00:10 there, 23:10 UTC the day before
    store.event(record(2, start=START + timedelta(hours=13)))
    store.event(record(3, "siren", START + timedelta(hours=13)))
    counts = store.counts_by_hour()
    assert {hour: n for hour, n in enumerate(counts["dog bark"]) if n} == {0: 1, 13: 1}
    assert {hour: n for hour, n in enumerate(counts["siren"]) if n} == {13: 1}


def test_a_review_is_kept_and_can_be_taken_back(store: SqliteEvents) -> None:
    store.event(record(3))
    assert store.review(3, "wrong")
    assert store.events()[0].verdict == "wrong"
    assert store.review(3, "")
    assert store.events()[0].verdict == ""
    assert not store.review(4, "right")
    with pytest.raises(UsageError, match="'maybe'"):
        store.review(3, "maybe")


def test_sources_have_their_words_and_their_state(store: SqliteEvents) -> None:
    store.words("mic1", WatchList.of(["dog bark", "siren"]))
    store.status(SourceStatus("mic1", True, START))
    (source,) = store.sources()
    assert (source.name, source.online, source.words) == ("mic1", True, "dog bark, siren")
    store.status(SourceStatus("mic1", False, START, "unplugged"))
    assert (store.sources()[0].online, store.sources()[0].why) == (False, "unplugged")


def level(end: datetime, laeq: float = -40.04) -> LevelRecord:
    return LevelRecord("mic1", laeq, -35.0, -51.0, 60.0, end, False)


def test_the_last_level_and_the_labels_that_are_present_belong_to_a_source(
    store: SqliteEvents,
) -> None:
    store.words("mic1", WatchList.of(["dog bark", "siren"]))
    assert (store.sources()[0].level, store.sources()[0].present) == (None, ())
    for minutes in (0, 2, 1):
        store.level(level(START + timedelta(minutes=minutes), laeq=-40 - minutes))
    store.active("mic1", {"siren", "dog bark"})
    (source,) = store.sources()
    assert source.present == ("dog bark", "siren")
    assert source.level == StoredLevel(
        -42.0, -35.0, -51.0, "dBFS", 60.0, "2026-11-16T00:12:03.250+01:00"
    )
    assert [one.laeq for one in store.levels("mic1", START + timedelta(minutes=1))] == [-42, -41]
    store.words("mic1", WatchList.of(["wind"]))  # a new start, after a crash as well
    assert store.sources()[0].present == ()


def test_levels_are_kept_for_two_days_and_events_for_ever(store: SqliteEvents) -> None:
    store.event(record(7))
    for hours in range(0, 200, 5):
        store.level(level(START + timedelta(hours=hours)))
    kept = [datetime.fromisoformat(one.end) for one in store.levels("mic1")]
    assert kept[-1] >= kept[0] - LEVELS_KEPT
    assert len(kept) == 10
    assert len(store.events()) == 1


def test_a_store_of_an_earlier_version_is_taken_up(tmp_path: Path) -> None:
    store = SqliteEvents(tmp_path / "events.db")
    store.words("mic1", WatchList.of(["dog bark"]))
    store.close()
    db = sqlite3.connect(tmp_path / "events.db")
    for table in ("levels", "present"):  # tables that it did not have
        db.execute(f"DROP TABLE {table}")
    db.close()
    (source,) = SqliteEvents(tmp_path / "events.db").sources()
    assert (source.name, source.words, source.level, source.present) == (
        "mic1",
        "dog bark",
        None,
        (),
    )


def test_the_service_can_read_the_store(store: SqliteEvents) -> None:
    pytest.importorskip("fastapi", reason="THE EXTRA serve IS MISSING")
    from driftscore.service.live import EventStore
    from driftscore.service.page_live import live_view

    read: EventStore = store
    store.words("mic1", WatchList.of(["dog bark", "siren"]))
    store.event(record(7))
    assert [event.id for event in read.after(0, 10)] == [7]
    view = live_view(store, START + timedelta(minutes=1))
    assert view["available"] is True
    assert [event["id"] for event in view["events"]] == [7]  # type: ignore[attr-defined]


def test_a_file_that_is_no_database_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("this is no database at all, but long enough to be one" * 20)
    with pytest.raises(StoreError, match=r"x\.db cannot be used"):
        SqliteEvents(tmp_path / "x.db")


def test_ids_rise_also_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = EventIds()
    first = ids.next()
    monkeypatch.setattr("time.time_ns", lambda: 0)
    assert ids.next() == first + 1
    assert os.getpid()  # the clock of others is untouched
