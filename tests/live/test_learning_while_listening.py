"""Learning from verdicts while a listener runs: what changes, how often, and the way back."""

import threading
from pathlib import Path

import pytest

from driftscore import Classifier
from driftscore.decisions import DecisionStore
from driftscore.errors import UsageError
from driftscore.events.watchlist import WatchList
from driftscore.live.clips import EventClips
from driftscore.live.listener import Listener, ListenSettings
from tests.conftest import Run

from .scenes import LABELS, ScriptedSource, eventually, scene, write

WATCH = WatchList.of(LABELS)


@pytest.fixture
def answered(tmp_path: Path, classifier: Classifier) -> Path:
    """Return a store with verdicts, whose clips are in the folder clips beside it."""
    clips, path = tmp_path / "clips", tmp_path / "events.db"
    sounds = [(12.0 * n, ("siren", "alarm_clock")[n % 2]) for n in range(1, 7)]
    source = ScriptedSource(scene(90, sounds).samples, endless=False)
    store = DecisionStore(path, clips=clips)
    settings = ListenSettings(clips=EventClips(str(clips)))
    with Listener(classifier, WATCH, {"yard": source}, [store], settings) as listener:
        assert listener.wait(120)
    with DecisionStore(path, clips=clips) as store:
        events = store.after(0, 100)
        assert len(events) >= 4
        for event in events[:-1]:
            assert store.review(event.id, "right" if event.label == "siren" else "wrong")
    return path


def listening(
    path: Path, classifier: Classifier, messages: list[str], learn_s: float | None
) -> tuple[Listener, DecisionStore]:
    store = DecisionStore(path, clips=path.parent / "clips")
    source = ScriptedSource(scene(3, []).samples, idles=True)
    settings = ListenSettings(learn_s=learn_s)
    listener = Listener(
        classifier, WATCH, {"yard": source}, [store], settings, notify=messages.append
    )
    return listener, store


def thresholds(listener: Listener) -> dict[str, float]:
    detector = listener._workers["yard"].detector
    values = detector.rules.criteria.thresholds.tolist()
    return dict(zip(detector.watch.names, values, strict=True))


def test_a_listener_learns_from_verdicts_and_without_learning_it_is_as_before(
    answered: Path, classifier: Classifier
) -> None:
    messages: list[str] = []
    plain, _ = listening(answered, classifier, [], None)
    with plain:
        usual = thresholds(plain)
    learning, _ = listening(answered, classifier, messages, 3600)
    with learning:
        eventually(lambda: any("learnt from" in text for text in messages))
        eventually(lambda: thresholds(learning) != usual)
        learnt = thresholds(learning)
    assert learnt["alarm clock"] > usual["alarm clock"]  # every answer to it is "wrong"
    assert any(text.startswith("alarm clock: too few of") for text in messages)
    again, _ = listening(answered, classifier, [], None)
    with again:
        assert thresholds(again) == usual


def test_new_words_of_a_learning_listener_keep_what_was_learnt(
    answered: Path, classifier: Classifier
) -> None:
    messages: list[str] = []
    learning, _ = listening(answered, classifier, messages, 3600)
    with learning:
        eventually(lambda: any("learnt from" in text for text in messages))
        learnt = thresholds(learning)
        learning.change_words("yard", "alarm clock, rain")
        eventually(lambda: "rain" in thresholds(learning))
        changed = thresholds(learning)
    assert changed["alarm clock"] > 1
    assert set(changed) == {"alarm clock", "rain"}
    assert "siren" in learnt


def test_it_learns_again_only_after_the_pause_and_only_from_other_verdicts(
    answered: Path, classifier: Classifier
) -> None:
    messages: list[str] = []

    def times() -> int:
        return sum("learnt from" in text for text in messages)

    learning, store = listening(answered, classifier, messages, 0.2)
    with learning:
        eventually(lambda: times() == 1)
        threading.Event().wait(1.0)  # several pauses without a new verdict
        assert times() == 1
        assert store.review(store.answered()[0].id, "unsure")
        eventually(lambda: times() == 2)


def test_learning_needs_a_store_and_clips(run: Run, tmp_path: Path, classifier: Classifier) -> None:
    source = {"yard": ScriptedSource(scene(3, []).samples)}
    with pytest.raises(UsageError, match="needs a store, and clips"):
        Listener(classifier, WATCH, source, [], ListenSettings(learn_s=1))
    path = write(tmp_path / "quiet.wav", scene(3, []))
    status, _, err = run("listen", str(path), "-l", "siren", "--learn", "--backbone", "fake")
    assert status == 2
    assert "give --store FILE and --clips DIR too" in err
