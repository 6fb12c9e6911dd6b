"""Events of a store for `driftscore review`: verdicts, answers, clips, other databases."""

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from driftscore import Event
from driftscore.errors import FormatError
from driftscore.live.records import EventRecord
from driftscore.live.reviews import StoredReviews, is_store
from driftscore.live.store import SqliteEvents
from driftscore.review import fit_thresholds
from tests.conftest import Run

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    store = SqliteEvents(tmp_path / "events.db")
    for number in range(12):
        start = NOON + timedelta(minutes=number)
        event = Event("siren", 0.0, 2.0, 3.0 + number / 10, 2.5)
        clip = "2026-11-16/x.flac" if number == 0 else ""
        store.event(
            EventRecord(number + 1, "yard", event, start, start + timedelta(seconds=2), clip)
        )
        store.review(number + 1, "wrong" if number < 2 else "right")
    store.close()
    return tmp_path / "events.db"


def test_verdicts_are_answers_and_thresholds_follow_from_them(path: Path) -> None:
    reviews = StoredReviews(path)
    assert [event.score for event in reviews.events] == sorted(e.score for e in reviews.events)
    assert reviews.events[0].start_s == NOON.timestamp()
    assert list(reviews.known.values()) == ["wrong"] * 2 + ["right"] * 10
    (fit,) = fit_thresholds(reviews.events, reviews.known, target=1.0)
    assert fit.chosen is not None
    assert fit.chosen.threshold == pytest.approx(3.15)
    assert fit.choices[0].threshold == 2.5  # the one in use


def test_an_answer_is_kept_in_the_store(path: Path) -> None:
    reviews = StoredReviews(path)
    for answer in ("unsure", "right"):
        reviews.add(reviews.events[0], answer)
        assert StoredReviews(path).known[reviews.events[0].key] == answer
        assert SqliteEvents(path).events()[-1].verdict == answer
    assert reviews.when(reviews.events[0]).endswith(":00:00")


def test_a_clip_is_played_from_its_folder(path: Path) -> None:
    assert StoredReviews(path).sound(StoredReviews(path).events[0]) is None
    reviews = StoredReviews(path, clips="clips")
    first, second = reviews.events[:2]
    found = reviews.sound(first)
    assert found is not None
    assert found.path == Path("clips/2026-11-16/x.flac")
    assert reviews.sound(second) is None


def test_a_database_of_something_else_is_refused_and_left_as_it_is(
    tmp_path: Path, run: Run
) -> None:
    other = tmp_path / "places.sqlite"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE places (id INTEGER)")
    db.commit()
    db.close()
    before = other.read_bytes()
    assert is_store(other)
    with pytest.raises(FormatError, match="is no store of `driftscore listen --store`"):
        StoredReviews(other)
    status, _, said = run("review", other)
    assert status == 1
    assert "places.sqlite is no store" in said
    assert other.read_bytes() == before


def test_a_folder_of_clips_belongs_to_a_store(tmp_path: Path, run: Run) -> None:
    events = tmp_path / "events.csv"
    events.write_text("file,start_s,end_s,label,score\na.wav,1,2,siren,3\n")
    status, _, said = run("review", events, "--clips", tmp_path)
    assert status == 2
    assert "--clips belongs to the store of a listener" in said
