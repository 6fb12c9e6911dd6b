"""Learning from answers: examples, negative examples, thresholds and the list that holds them."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from driftscore import Head, WatchList
from driftscore.decisions.learning import PRIOR_ANSWERS, fitted_multiple
from driftscore.events.thresholds import LOWEST

from .conftest import Run
from .test_few_examples import RATE, tone

HEADER = "file,start_s,end_s,label,score,threshold\n"


def test_few_answers_move_a_threshold_a_little_and_many_to_where_they_want_it() -> None:
    right, wrong = [8.0, 7.0], [6.0, 5.5]
    moved = []
    for times in (1, 10, 100):
        multiples = (right + wrong) * times
        answers = [True, True, False, False] * times
        moved.append(fitted_multiple(multiples, answers, usual=5.0))
    assert moved == sorted(moved)
    assert moved[0] == pytest.approx(5.0 + 4 / (4 + PRIOR_ANSWERS) * 1.5)
    assert 6.3 < moved[-1] < 6.5


def test_a_threshold_falls_where_right_answers_are_below_it() -> None:
    assert fitted_multiple([9.0, 4.0, 3.5], [True] * 3, usual=5.0) < 5.0
    assert fitted_multiple([9.0, 8.0], [True, True], usual=5.0) == 5.0  # nothing asks for more
    assert fitted_multiple([4.0, 3.0], [False, False], usual=5.0) < 5.0  # none of them is reported


@settings(deadline=None)
@given(
    answers=st.lists(st.tuples(st.floats(-5, 30), st.booleans()), min_size=1, max_size=60),
    usual=st.floats(3, 8),
)
def test_a_threshold_stays_between_the_usual_one_and_what_answers_want(
    answers: list[tuple[float, bool]], usual: float
) -> None:
    values, right = zip(*answers, strict=True)
    multiple = fitted_multiple(values, right, usual=usual)
    assert min(LOWEST, usual) <= multiple <= max(usual, 1.05 * max(values))


@pytest.fixture
def night(tmp_path: Path) -> Path:
    """Write a recording with eight bells and eight bursts of noise, and answers to its events."""
    rng = np.random.default_rng(0)
    samples = 0.003 * rng.standard_normal(100 * RATE)
    lines, answers = [], []
    for number in range(16):
        start = (3 + 6 * number) * RATE
        is_bell = number % 2 == 0
        sound = tone(640 + number, seed=number).samples
        if not is_bell:
            sound = 0.1 * rng.standard_normal(len(sound)).astype(np.float32)
        samples[start : start + len(sound)] += sound
        lines.append(f"night.wav,{start / RATE},{start / RATE + 1.5},doorbell,6.0,5.0")
        answers.append("y" if is_bell else "n")
    soundfile.write(tmp_path / "night.wav", samples, RATE)
    (tmp_path / "events.csv").write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "answers.txt").write_text("\n".join(answers), encoding="utf-8")
    return tmp_path


def test_answers_become_a_watch_list_with_examples(
    night: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(night)
    status, _, err = run("learn", "events.csv", "--out", "better.toml")
    assert status == 2
    assert "no answer with audio" in err
    assert run("review", "events.csv", "--answers", "answers.txt")[0] == 0
    status, _, err = run("learn", "events.csv", "--out", "better.toml")
    assert status == 0, err
    assert "doorbell: 8 examples, 8 negative examples" in err
    assert "8 of 8 right and 0 of 8 wrong ones would be reported" in err
    watch = WatchList.load("better.toml")
    [label] = watch.labels
    assert label.threshold is not None
    own, negative = watch.example_files()
    assert (len(own["doorbell"]), len(negative["doorbell"])) == (8, 8)
    status, _, err = run("learn", "events.csv", "--watch", "better.toml", "--out", "again.toml")
    assert status == 0, err
    _, out, _ = run("detect", "night.wav", "--watch", "better.toml", "-f", "csv")
    starts = [float(line.split(",")[1]) for line in out.splitlines()[1:]]
    bells = [3 + 12 * n for n in range(8)]
    assert sum(any(abs(start - bell) < 3 for start in starts) for bell in bells) >= 7


def test_one_or_two_right_answers_are_no_examples(
    night: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(night)
    (night / "answers.txt").write_text("y\nn\ny\nn\n", encoding="utf-8")
    run("review", "events.csv", "--answers", "answers.txt")
    status, _, err = run("learn", "events.csv", "--out", "better.toml")
    assert status == 0, err
    assert "doorbell: too few of 4 answers are right for examples; the threshold" in err
    [label] = WatchList.load("better.toml").labels
    assert (label.examples, label.negatives) == ((), ())
    assert not (night / "better-examples").exists()


def test_answers_become_a_head(night: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(night)
    run("review", "events.csv", "--answers", "answers.txt")
    status, _, err = run("learn", "events.csv", "--out", "better.safetensors")
    assert status == 0, err
    head = Head.load("better.safetensors")
    assert head.labels == ("doorbell",)
    assert len(head.made_by["bank"]["examples"]["doorbell"]) == 8
