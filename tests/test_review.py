"""Review: answers, the thresholds that they give, and the watch list that holds them."""

import csv
import io
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from driftscore.cli.review import playing
from driftscore.decisions import DecisionStore, open_store
from driftscore.decisions.learning import excerpt
from driftscore.decisions.records import RIGHT, UNSURE, WRONG, StoredEvent
from driftscore.decisions.review import (
    MIN_ANSWERS,
    Review,
    fit_threshold,
    fit_thresholds,
    mixed,
    read_answers,
    read_events,
    wilson,
    with_thresholds,
)
from driftscore.engines.examples import names_recordings
from driftscore.errors import AudioError, FormatError, UsageError
from driftscore.events.watchlist import WatchedLabel, WatchList
from driftscore.formats import OutputRow, write_rows

from .conftest import Run

WILSON = [
    (0, 1, 0.0, 0.7934506856227627),
    (8, 10, 0.49016247153664183, 0.9433178485456247),
    (10, 10, 0.7224672001371106, 1.0),
    (45, 50, 0.7863976856252034, 0.9565242350681095),
    (1, 100, 0.001767432064140647, 0.05448619617870533),
]
"""k, n and what proportion_confint(k, n, method="wilson") of statsmodels 0.15.0 returns."""


@pytest.mark.parametrize(("right", "answers", "low", "high"), WILSON)
def test_the_interval_is_that_of_statsmodels(
    right: int, answers: int, low: float, high: float
) -> None:
    assert wilson(right, answers) == pytest.approx((low, high), abs=1e-12)


def test_the_interval_is_that_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed: make setup")
    for answers in (1, 2, 7, 30, 400):
        for right in {0, 1, answers // 3, answers - 1, answers}:
            expected = stats.binomtest(right, answers).proportion_ci(method="wilson")
            assert wilson(right, answers) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_a_share_of_nothing_is_wrong_usage() -> None:
    for right, answers in ((0, 0), (2, 1), (-1, 3)):
        with pytest.raises(UsageError, match="is not a share"):
            wilson(right, answers)


def slow_threshold(scores: Sequence[float], right: Sequence[bool], target: float) -> float | None:
    """Return the lowest score at which the precision reaches the target, by trying each."""
    for score in sorted(scores):
        above = [good for value, good in zip(scores, right, strict=True) if value >= score]
        if len(above) >= MIN_ANSWERS and sum(above) / len(above) >= target:
            return score
    return None


@settings(deadline=None)
@given(
    answers=st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=40),
    target=st.sampled_from([0.3, 0.5, 0.8, 1.0]),
)
def test_the_threshold_is_the_lowest_that_reaches_the_target(
    answers: list[tuple[int, bool]], target: float
) -> None:
    scores, right = [float(s) for s, _ in answers], [good for _, good in answers]
    fit = fit_threshold("x", scores, right, target=target)
    expected = slow_threshold(scores, right, target)
    assert (fit.chosen is None) == (expected is None)
    if fit.chosen is not None and expected is not None:
        above = [good for score, good in answers if score >= fit.chosen.threshold]
        lower = [score for score in scores if score < expected]
        assert max(lower, default=expected - 1) < fit.chosen.threshold <= expected
        assert (fit.chosen.answers, fit.chosen.right) == (len(above), sum(above))
        assert fit.chosen.low <= fit.chosen.precision <= fit.chosen.high
        assert fit.chosen.kept == pytest.approx(sum(above) / max(1, sum(right)))


def test_a_threshold_is_halfway_between_the_last_wrong_and_the_first_right_event() -> None:
    scores = [float(score) for score in range(1, 21)]
    fit = fit_threshold("x", scores, [score > 8 for score in scores], target=1.0)
    assert fit.chosen is not None
    assert fit.chosen.threshold == 8.5
    assert (fit.chosen.answers, fit.chosen.right, fit.chosen.kept) == (12, 12, 1.0)
    assert fit.note == "raised"
    assert [choice.answers for choice in fit.choices] == list(range(20, 0, -1))


def test_a_threshold_that_is_good_enough_stays_as_it_is() -> None:
    fit = fit_threshold("x", [5.0] * 6 + [6.0] * 6, [True] * 12, in_use=4.2)
    assert fit.chosen is not None
    assert (fit.chosen.threshold, fit.note) == (4.2, "as it is: all events count")


def test_few_answers_and_hopeless_labels_have_no_threshold_and_say_why() -> None:
    few = fit_threshold("x", [1.0] * 9, [True] * 9)
    assert (few.chosen, few.note) == (None, "9 answers are too few; 10 are needed")
    assert fit_threshold("x", [], []).choices == ()
    hopeless = fit_threshold("x", [float(n) for n in range(30)], [n % 2 == 0 for n in range(30)])
    assert hopeless.chosen is None
    assert "no threshold with 10 answers reaches 80%" in hopeless.note


def found(count: int = 12, label: str = "dog bark") -> list[StoredEvent]:
    return [
        StoredEvent(n, "night.wav", label, 4.0 + n, 3.5, 10.0 * n, 10.0 * n + 2)
        for n in range(count)
    ]


def test_events_without_an_answer_and_unsure_ones_do_not_count() -> None:
    verdicts = [*[UNSURE] * 10, *[""] * 10, *[RIGHT] * 12, *[""] * 8]
    events = [replace(e, verdict=word) for e, word in zip(found(40), verdicts, strict=True)]
    [fit] = fit_thresholds(events)
    assert fit.chosen is not None
    assert (fit.chosen.answers, fit.chosen.right) == (12, 12)
    [none] = fit_thresholds(found(40))
    assert (none.chosen, none.choices) == (None, ())
    with pytest.raises(UsageError, match="a share from 0 to 1"):
        fit_thresholds(events, target=80)


ROWS: list[OutputRow] = [
    {"file": "=a.wav", "start_s": 1.0, "end_s": 2.5, "label": "dog, bark", "score": 4.5,
     "threshold": 3.5, "snr_db": None, "time": "", "unit": "sd", "error": ""},
    {"file": "b\u2028\nc.wav", "start_s": 3.0, "end_s": 4.0, "label": "-siren", "score": 5.0,
     "threshold": None, "snr_db": None, "time": "", "unit": "sd", "error": ""},
    {"file": "bad.wav", "start_s": 0.0, "end_s": 0.0, "label": "", "score": "",
     "threshold": None, "snr_db": None, "time": "", "unit": "sd", "error": "is bad"},
]  # fmt: skip


@pytest.mark.parametrize(("format", "name"), [("csv", "e.csv"), ("excel", "e.csv"),
                                              ("jsonl", "e.jsonl")])  # fmt: skip
def test_events_are_read_as_they_were_written(tmp_path: Path, format: str, name: str) -> None:
    out = io.StringIO()
    write_rows(ROWS, format, out)
    (tmp_path / name).write_bytes(out.getvalue().encode())
    assert read_events(tmp_path / name) == [
        StoredEvent(0, "=a.wav", "dog, bark", 4.5, 3.5, 1.0, 2.5),
        StoredEvent(1, "b\u2028\nc.wav", "-siren", 5.0, None, 3.0, 4.0),
    ]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("e.csv", "file,label\na,b\n", "no column 'start_s'"),
        ("e.csv", "file,start_s,end_s,label,score\na,x,1,b,2\n", "expected a number, got 'x'"),
        ("e.csv", "file,start_s,end_s,label,score\na,nan,1,b,2\n", "expected a number, got 'nan'"),
        ("e.csv", 'file,start_s\n"a', "not a valid csv"),
        ("e.jsonl", "{", "line 1: not a JSON object"),
        ("e.jsonl", "[1]", "line 1: not a JSON object"),
    ],
)
def test_a_damaged_list_of_events_is_one_sentence(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=reason):
        read_events(tmp_path / name)
    with pytest.raises(FormatError, match="no list of events"):
        read_events(tmp_path / "none.csv")


def test_verdicts_are_kept_in_a_store_beside_the_events(tmp_path: Path) -> None:
    path = events_file(tmp_path)
    reviewed = Review(path)
    assert reviewed.path == tmp_path / "events.review.db"
    assert not reviewed.path.exists()  # nothing is written before the first answer
    for number, verdict in ((0, RIGHT), (1, UNSURE), (0, WRONG)):
        reviewed.answer(number, verdict)
    assert [event.verdict for event in reviewed.events[:3]] == [WRONG, UNSURE, ""]
    again = Review(path)
    assert again.events == reviewed.events
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *reversed(lines[2:])]))  # other events, another order
    fewer = Review(path)
    assert [event.verdict for event in fewer.events] == [*[""] * 10, UNSURE]
    fewer.answer(0, RIGHT)
    with open_store(reviewed.path) as store:
        assert len(store.events()) == 12
        assert store.after(0, 99) == []  # they are no events of a listener


def test_answers_are_given_as_a_column_or_one_per_line(tmp_path: Path) -> None:
    events = found(3)
    path = tmp_path / "answers"
    path.write_text("y\nNo\n\n?\n")
    assert list(read_answers(path, events).values()) == [RIGHT, WRONG, UNSURE]
    path.write_text("y\n" * 4)
    with pytest.raises(FormatError, match="4 answers for 3 events"):
        read_answers(path, events)
    path.write_text("file,start_s,label,answer\nnight.wav,10,dog bark,y\nnight.wav,0,dog bark,\n")
    assert read_answers(path, events) == {1: RIGHT}
    path.write_text("file,start_s,label,answer\nnight.wav,10,dog bark,maybe\n")
    with pytest.raises(FormatError, match="an answer is y, n or u, not 'maybe'"):
        read_answers(path, events)
    path.write_text("file,start_s\nnight.wav,10\n")
    with pytest.raises(FormatError, match="no column 'label'"):
        read_answers(path, events)


def label_of(event: StoredEvent) -> str:
    return event.label


def test_events_are_asked_with_the_labels_in_turn() -> None:
    events = found(3, "a") + found(5, "b")
    order = mixed(events, label_of)
    assert [event.label for event in order] == ["a", "b", "a", "b", "a", "b", "b", "b"]
    assert sorted(order, key=events.index) == events
    assert mixed(events, label_of) == order
    assert mixed(events, label_of, seed=1) != order
    assert mixed([], label_of) == []


names = st.text(min_size=1, max_size=12).filter(
    lambda text: text.strip() == text and text and not names_recordings(text)
)


@settings(deadline=None)
@given(
    words=st.lists(names, min_size=1, max_size=4, unique_by=lambda text: text.strip().lower()),
    numbers=st.tuples(*[st.none() | st.floats(1e-6, 86_400)] * 3),
    extra=st.lists(names, max_size=3),
    flags=st.tuples(st.booleans(), st.booleans()),
)
def test_a_watch_list_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    words: list[str],
    numbers: tuple[float | None, float | None, float | None],
    extra: list[str],
    flags: tuple[bool, bool],
) -> None:
    try:
        watch = WatchList(
            tuple(
                WatchedLabel(word, tuple(extra) or None, tuple(extra), numbers[0], None, numbers[1],
                             confirm=3, clips=flags[0])
                for word in words
            ),
            tuple(extra), flags[1], numbers[2],
        )  # fmt: skip
    except UsageError:
        return  # a label that is a negative word as well
    path = tmp_path_factory.mktemp("watch") / "city.toml"
    path.write_text(watch.to_toml(), encoding="utf-8")
    assert WatchList.load(path) == watch


def test_thresholds_replace_a_budget_and_leave_the_rest() -> None:
    watch = WatchList((WatchedLabel("dog bark", ("barking",), false_alarms=0.2),
                       WatchedLabel("siren", threshold=9.0)))  # fmt: skip
    scores = [1.0 + n / 7 for n in range(20)]
    fits = [fit_threshold("dog bark", scores, [n > 6 for n in range(20)], target=1.0),
            fit_threshold("siren", [1.0], [True]),
            fit_threshold("owl", [2.0] * 10, [True] * 10)]  # fmt: skip
    made = with_thresholds(watch, fits)
    assert [label.name for label in made.labels] == ["dog bark", "siren", "owl"]
    dog, siren, owl = made.labels
    assert (dog.wordings, dog.false_alarms) == (("barking",), None)
    assert dog.threshold is not None
    assert scores[6] < dog.threshold < scores[7]
    assert (siren, owl.threshold) == (watch.labels[1], 2.0)


def events_file(tmp_path: Path, count: int = 12) -> Path:
    """Write events whose scores rise, on a recording of noise."""
    noise = np.random.default_rng(0).normal(0, 0.1, 130 * 800)
    soundfile.write(tmp_path / "night.wav", noise, 800)
    rows: list[OutputRow] = [
        {"file": "night.wav", "start_s": event.start_s, "end_s": event.end_s,
         "label": event.label, "score": event.score, "threshold": 3.5, "error": ""}
        for event in found(count)
    ]  # fmt: skip
    path = tmp_path / "events.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        write_rows(rows, "csv", file)
    return path


def test_the_command_takes_answers_from_a_file_and_writes_a_watch_list(
    tmp_path: Path, run: Run
) -> None:
    path, answers = events_file(tmp_path, 30), tmp_path / "answers.txt"
    answers.write_text("n\n" * 10 + "y\n" * 20)
    watch = tmp_path / "city.toml"
    ask = ["review", path, "--answers", answers, "--precision", "1", "--watch-out", watch]
    status, out, err = run(*ask, "-f", "csv")
    assert status == 0, err
    [chosen] = [row for row in csv.DictReader(io.StringIO(out)) if row["chosen"] == "*"]
    assert (float(chosen["threshold"]), chosen["answers"], chosen["right"]) == (13.5, "20", "20")
    assert "dog bark: threshold 13.50 (raised), precision 100% (84% to 100%)" in err
    assert WatchList.load(watch).labels == (WatchedLabel("dog bark", threshold=13.5),)
    assert run(*ask, "-f", "csv")[1] == out
    assert [event.verdict for event in Review(path).events] == [WRONG] * 10 + [RIGHT] * 20


def press(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    """Press keys one after another, on what looks like a terminal."""
    given = iter(keys)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "getchar", lambda: next(given))


def test_events_are_answered_by_keys_and_a_review_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    path = events_file(tmp_path)
    press(monkeypatch, "ynbxyuq")
    err = run("review", path, "--order", "time", "--no-play")[2]
    assert [event.verdict for event in Review(path).events[:4]] == [RIGHT, RIGHT, UNSURE, ""]
    assert "3 of 12 events are reviewed (2 right, 0 wrong, 1 unsure)" in err
    assert "dog bark: 2 answers are too few; 10 are needed" in err
    press(monkeypatch, "y" * 9)
    assert "precision 100%" in run("review", path, "--no-play")[2]
    assert all(event.verdict for event in Review(path).events)
    press(monkeypatch, "")  # nothing is left to ask
    assert run("review", path, "--no-play")[0] == 0


def test_ctrl_c_keeps_the_answers_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    path = events_file(tmp_path)
    press(monkeypatch, "y\x03")
    assert run("review", path, "--order", "time", "--no-play")[0] == 130
    assert [event.verdict for event in Review(path).events[:2]] == [RIGHT, ""]


def test_an_event_is_played_with_what_is_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    path = events_file(tmp_path, 2)
    played: list[str] = []
    script = tmp_path / "player"
    script.write_text(f"#!/bin/sh\ncp \"$1\" '{tmp_path}/played.wav'\nsleep 5\n")
    script.chmod(0o755)
    monkeypatch.setattr("driftscore.cli.review.find_player", lambda: (str(script),))

    def wait() -> str:
        for _ in range(6000):
            copy = tmp_path / "played.wav"
            if copy.exists() and copy.stat().st_size >= 44 + 2 * 800 * 3:
                played.append(str(soundfile.info(copy).duration))
                copy.unlink()
                return "y"
            time.sleep(0.01)
        return "q"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "getchar", wait)
    run("review", path, "--order", "time")
    assert played == ["3.0", "4.0"]


def test_an_excerpt_is_that_part_of_the_recording(tmp_path: Path) -> None:
    events_file(tmp_path)
    samples, rate = soundfile.read(tmp_path / "night.wav", dtype="float32")
    part = excerpt(tmp_path / "night.wav", 10.0, 13.0)
    assert part.rate == rate
    np.testing.assert_array_equal(part.samples, samples[10 * rate : 13 * rate])
    assert excerpt(tmp_path / "night.wav", 500.0, 501.0).seconds == 0
    assert excerpt(tmp_path / "night.wav", -1.0, 500.0).seconds <= 60
    with pytest.raises(AudioError):
        excerpt(tmp_path / "none.wav", 0, 1)
    with playing(part, ("false",)):
        pass


def test_without_a_terminal_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    path = events_file(tmp_path)
    assert "or give the answers with --answers FILE" in run("review", path)[2]
    assert not Review(path).path.exists()


# The store of a listener.

NOON_S = 1_794_830_400.0


@pytest.fixture
def events_db(tmp_path: Path) -> Path:
    clips = tmp_path / "clips" / "2026-11-16"
    clips.mkdir(parents=True)
    name = "driftscore_20261116T120000Z_yard__siren_1.flac"
    (clips / name).write_bytes(b"flac")
    with DecisionStore(tmp_path / "events.db") as store:
        for number in range(12):
            start_s = NOON_S + 60 * number
            event = StoredEvent(number + 1, "yard", "siren", 3.0 + number / 10, 2.5, start_s,
                                start_s + 2, 0)  # fmt: skip
            store.send(event if number else replace(event, clip=f"2026-11-16/{name}"))
            store.review(number + 1, WRONG if number < 2 else RIGHT)
    return tmp_path / "events.db"


def test_verdicts_of_the_page_are_answers_and_thresholds_follow_from_them(events_db: Path) -> None:
    events = Review(events_db).events
    assert [event.start_s for event in events] == [NOON_S + 60 * n for n in range(12)]
    (fit,) = fit_thresholds(events, target=1.0)
    assert fit.chosen is not None
    assert fit.chosen.threshold == pytest.approx(3.15)
    assert fit.choices[0].threshold == 2.5  # the one in use


def test_an_answer_is_kept_in_the_store_of_the_listener(events_db: Path) -> None:
    reviewed = Review(events_db)
    for verdict in (UNSURE, RIGHT):
        reviewed.answer(0, verdict)
        assert Review(events_db).events[0].verdict == verdict
    assert reviewed.when(reviewed.events[0]) == "2026-11-16 12:00:00"


def test_a_clip_is_played_from_its_folder(events_db: Path, run: Run) -> None:
    reviewed = Review(events_db)
    assert reviewed.sound(reviewed.events[0]) is None
    reviewed = Review(events_db, clips=events_db.parent / "clips")
    sound = reviewed.sound(reviewed.events[0])
    assert sound is not None
    assert sound[0].read_bytes() == b"flac"
    assert reviewed.sound(reviewed.events[1]) is None
    status, _, err = run("review", events_file(events_db.parent), "--clips", events_db.parent)
    assert status == 2
    assert "--clips belongs to the store of a listener" in err
