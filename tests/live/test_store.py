"""The SQLite store: what the service reads, times with their zone, reviews, several processes."""

import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from driftscore.decisions import DecisionStore
from driftscore.decisions.records import LevelReport, Present, SourceStatus, StoredEvent, Words, iso
from driftscore.decisions.store import LEVEL_DAYS
from driftscore.errors import UsageError
from driftscore.events.watchlist import WatchList
from driftscore.live.policy import Policy

from .scenes import stored

BERLIN = timezone(timedelta(hours=1))
START = datetime(2026, 11, 16, 0, 10, 3, 250_000, tzinfo=BERLIN)


def record(
    id: int = 1, label: str = "dog bark", start: datetime = START, why: str = ""
) -> StoredEvent:
    return stored(id, label, start=start, rejected=why)


@pytest.fixture
def store(tmp_path: Path) -> DecisionStore:
    return DecisionStore(tmp_path / "events.db")


def test_an_event_comes_back_with_the_zone_of_its_site(store: DecisionStore) -> None:
    store.send(record(7))
    (event,) = store.events()
    assert event.summary() == {
        "id": 7, "source": "mic1", "label": "dog bark", "score": 4.123,
        "start": "2026-11-16T00:10:03.250+01:00", "end": "2026-11-16T00:10:07.750+01:00",
        "duration_s": 4.5, "snr_db": 3.2, "clip": "", "verdict": "", "threshold": 3.0,
    }  # fmt: skip


def test_rejected_events_are_not_stored(store: DecisionStore) -> None:
    store.send(record(why="shorter than asked for"))
    assert store.events() == []


def test_the_file_has_a_write_ahead_log_and_is_private(
    store: DecisionStore, tmp_path: Path
) -> None:
    db = sqlite3.connect(tmp_path / "events.db")
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert stat.S_IMODE((tmp_path / "events.db").stat().st_mode) == 0o600


def test_a_client_continues_after_the_last_id(store: DecisionStore) -> None:
    assert store.newest() == 0
    for id in (5, 9, 12):
        store.send(record(id))
    assert store.newest() == 12
    assert [event.id for event in store.after(5, 10)] == [9, 12]
    assert [event.id for event in store.after(0, 2)] == [5, 9]


def test_two_listeners_never_share_an_id(tmp_path: Path) -> None:
    one, other = (DecisionStore(tmp_path / "events.db") for _ in range(2))
    one.send(record(100))
    other.send(record(100))
    assert [event.id for event in one.after(0, 10)] == [100, 101]


def test_events_are_newest_first_and_since_a_time(store: DecisionStore) -> None:
    for id, hours in ((1, 0), (2, 2), (3, 1)):
        store.send(record(id, start=START + timedelta(hours=hours)))
    assert [event.id for event in store.events()] == [2, 3, 1]
    since = (START + timedelta(hours=1)).astimezone(UTC)
    assert [event.id for event in store.events(since)] == [2, 3]
    assert [event.id for event in store.events(limit=1)] == [2]


def test_hours_are_those_of_the_local_day(store: DecisionStore) -> None:
    store.send(record(1))  # 00:10 there, 23:10 UTC the day before
    store.send(record(2, start=START + timedelta(hours=13)))
    store.send(record(3, "siren", START + timedelta(hours=13)))
    counts = store.counts_by_hour(START - timedelta(days=1), START + timedelta(days=1))
    assert {hour: n for hour, n in enumerate(counts["dog bark"]) if n} == {0: 1, 13: 1}
    assert {hour: n for hour, n in enumerate(counts["siren"]) if n} == {13: 1}


def test_a_review_is_kept_and_can_be_taken_back(store: DecisionStore) -> None:
    store.send(record(3))
    assert store.review(3, "wrong")
    assert store.events()[0].verdict == "wrong"
    assert store.review(3, "")
    assert store.events()[0].verdict == ""
    assert not store.review(4, "right")
    with pytest.raises(UsageError, match="'maybe'"):
        store.review(3, "maybe")


def test_sources_have_their_words_and_their_state(store: DecisionStore) -> None:
    store.send(Words("mic1", WatchList.of(["dog bark", "siren"])))
    store.send(SourceStatus("mic1", True, iso(START)))
    (source,) = store.sources()
    assert (source.name, source.online, source.words) == ("mic1", True, "dog bark, siren")
    store.send(SourceStatus("mic1", False, iso(START), "unplugged"))
    assert (store.sources()[0].online, store.sources()[0].why) == (False, "unplugged")


def level(end: datetime, laeq: float = -40.0) -> LevelReport:
    return LevelReport("mic1", laeq, -35.0, -51.0, "dBFS", 60.0, iso(end))


def test_the_last_level_and_the_labels_that_are_present_belong_to_a_source(
    store: DecisionStore,
) -> None:
    store.send(Words("mic1", WatchList.of(["dog bark", "siren"])))
    assert (store.sources()[0].level, store.sources()[0].present) == (None, ())
    for minutes in (0, 2, 1):
        store.send(level(START + timedelta(minutes=minutes), laeq=-40 - minutes))
    store.send(Present("mic1", {"siren", "dog bark"}))
    (source,) = store.sources()
    assert source.present == ("dog bark", "siren")
    assert source.level == {
        "laeq": -42.0, "l10": -35.0, "l90": -51.0, "unit": "dBFS", "seconds": 60.0,
        "end": "2026-11-16T00:12:03.250+01:00",
    }  # fmt: skip
    store.send(Words("mic1", WatchList.of(["wind"])))  # a new start, after a crash as well
    assert store.sources()[0].present == ()


def test_levels_are_kept_for_two_days_and_events_for_ever(store: DecisionStore) -> None:
    store.send(record(7))
    for hours in range(0, 200, 5):
        store.send(level(START + timedelta(hours=hours)))
    store.tidy()
    with closing(sqlite3.connect(store.path)) as db:
        rows = db.execute('SELECT "end" FROM levels ORDER BY end_utc').fetchall()
    ends = [datetime.fromisoformat(end) for (end,) in rows]
    assert ends[0] >= ends[-1] - timedelta(days=LEVEL_DAYS)
    assert len(ends) == 10
    assert len(store.events()) == 1


def test_with_a_bound_of_days_events_without_a_verdict_are_deleted(tmp_path: Path) -> None:
    store = DecisionStore(tmp_path / "events.db", days=1)
    for number in (1, 2, 3):
        store.send(record(number, start=START + timedelta(hours=20 * number)))
    store.review(1, "right")
    store.tidy(now=START + timedelta(hours=70))
    assert [event.id for event in store.after(0, 10)] == [1, 3]


def test_the_service_can_read_the_store(store: DecisionStore) -> None:
    pytest.importorskip("fastapi", reason="THE EXTRA serve IS MISSING")
    from driftscore.service.page import live_view

    store.send(Words("mic1", WatchList.of(["dog bark", "siren"])))
    store.send(record(7))
    view = live_view(store, START + timedelta(minutes=1))
    assert view["available"] is True
    assert [event["id"] for event in view["events"]] == [7]  # type: ignore[attr-defined]


def test_ids_rise_also_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy()
    first = policy.number()
    monkeypatch.setattr("time.time_ns", lambda: 0)
    assert policy.number() == first + 1
