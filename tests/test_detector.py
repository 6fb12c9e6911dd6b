"""The detector with the embedded model: sounds in noise, quiet places, negative words, nothing."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from driftscore import Audio, Classifier, Detection, Embedder, Event, UsageError
from driftscore.audio.noise import add_at_snr, synthetic
from driftscore.audio.recordings import read
from driftscore.calibrate import add_quiet
from driftscore.errors import AudioError
from driftscore.events.thresholds import DEFAULT_FALSE_ALARMS, multiple_for
from driftscore.events.watchlist import WatchedLabel, WatchList
from driftscore.scoring.calibration import Calibration

RATE = 32_000
SOUNDS = Path(__file__).resolve().parent.parent / "demo" / "sounds"
WORDS = ("siren", "alarm clock", "dog bark")


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder("mini") as made:
        yield made


@pytest.fixture(scope="module")
def street() -> Audio:
    """A minute and a half of noise with a siren from 30 s and an alarm clock from 60 s."""
    rng = np.random.default_rng(7)
    samples = 0.05 * synthetic("pink", 90 * RATE, RATE, rng)
    for name, start_s in (("siren", 30), ("alarm_clock", 60)):
        sound = read(SOUNDS / f"{name}.flac", rate=RATE, seconds=4.0).samples
        part = slice(start_s * RATE, start_s * RATE + len(sound))
        samples[part] = add_at_snr(sound, samples[part], 10.0) * 0.05
    return Audio(samples.astype(np.float32), RATE)


def noise_only(seconds: float = 400.0, seed: int = 1) -> Audio:
    rng = np.random.default_rng(seed)
    return Audio((0.05 * synthetic("pink", int(seconds * RATE), RATE, rng)).astype("f4"), RATE)


def test_sounds_in_noise_are_found_where_they_are(embedder: Embedder, street: Audio) -> None:
    found = list(Classifier(WORDS, backbone=embedder).events(street))
    assert [event.label for event in found] == ["siren", "alarm clock"]
    for event, start_s in zip(found, (30.0, 60.0), strict=True):
        assert event.start_s == pytest.approx(start_s, abs=1.0)
        assert event.threshold is not None
        assert event.score >= event.threshold
        assert event.snr_db is not None
        assert event.level_db is not None


def test_a_stream_in_blocks_of_any_size_gives_the_events_of_the_file(
    embedder: Embedder, street: Audio
) -> None:
    detector = Classifier(WORDS, backbone=embedder).detector()
    expected = list(detector.events(street, rejected=True))
    assert expected
    for seconds in (0.1, 3.7):
        stream, found = detector.stream(RATE), list[Event]()
        for part in np.array_split(street.samples, int(90 / seconds)):
            found += stream.feed(part)
        found += stream.finish()
        assert sorted(found, key=lambda event: (event.start_s, event.end_s)) == expected


def test_in_noise_alone_nothing_is_reported(embedder: Embedder) -> None:
    assert list(Classifier(WORDS, backbone=embedder).events(noise_only(120.0))) == []


def test_one_label_is_enough(embedder: Embedder, street: Audio) -> None:
    [event] = Classifier(["siren"], backbone=embedder).events(street)
    assert event.label == "siren"


def test_a_negative_word_takes_the_place_of_a_label(embedder: Embedder, street: Audio) -> None:
    def found(*negatives: str) -> list[str]:
        watch = WatchList.of(["beeping"], negatives)
        detector = Classifier(["beeping"], backbone=embedder).detector(
            watch, Detection(false_alarms=2.0)
        )
        return [event.rejected for event in detector.events(street, rejected=True)]

    assert "" in found("none")
    assert "more like 'alarm clock'" in found("alarm clock")


def test_fewer_false_alarms_mean_higher_thresholds(embedder: Embedder) -> None:
    classifier = Classifier(WORDS, backbone=embedder)
    few = classifier.detector(settings=Detection(false_alarms=0.1)).thresholds
    many = classifier.detector(settings=Detection(false_alarms=2.0)).thresholds
    assert all(few[word] > many[word] for word in WORDS)


def test_each_label_of_a_watch_list_has_its_own_threshold(embedder: Embedder) -> None:
    watch = WatchList(
        (WatchedLabel("siren", threshold=4.5), WatchedLabel("dog bark", false_alarms=0.1))
    )
    detector = Classifier(WORDS, backbone=embedder).detector(watch)
    assert detector.thresholds["siren"] == pytest.approx(4.5)
    usual = Classifier(WORDS, backbone=embedder).detector().thresholds["dog bark"]
    assert detector.rules.spreads is not None
    further = multiple_for(0.1) - multiple_for(DEFAULT_FALSE_ALARMS)
    expected = usual + further * detector.rules.spreads[1]
    assert detector.thresholds["dog bark"] == pytest.approx(expected, rel=1e-6)
    assert detector.false_alarms == f"0.1 to {DEFAULT_FALSE_ALARMS:g}"


def test_a_word_that_sounds_reach_further_for_has_a_higher_threshold_and_a_better_promise(
    embedder: Embedder,
) -> None:
    detector = Classifier(["rooster", "street music"], backbone=embedder).detector()
    assert detector.reaches["rooster"] > detector.reaches["street music"]
    high, low = detector.rules.criteria.thresholds
    assert high > low
    assert detector.promises == {"rooster": "good", "street music": "poor, it resembles 'music'"}


def test_false_alarms_are_expected_in_proportion_to_labels_and_hours(embedder: Embedder) -> None:
    detector = Classifier(WORDS, backbone=embedder).detector(settings=Detection(false_alarms=0.5))
    assert detector.expected_alarms(7200.0) == pytest.approx(0.5 * 2 * len(WORDS))


def test_a_quiet_recording_of_the_place_sets_thresholds(
    embedder: Embedder, street: Audio, tmp_path: Path
) -> None:
    own = embedder.backbone.calibration_file
    assert own is not None
    made, problems = add_quiet(Calibration.load(own), embedder, [noise_only()])
    assert problems == []
    made.save(tmp_path / "place.safetensors")
    classifier = Classifier(WORDS, backbone=embedder, calibration=tmp_path / "place.safetensors")
    detector = classifier.detector()
    assert detector.source == "quiet"
    usual = Classifier(WORDS, backbone=embedder).detector().thresholds
    assert detector.thresholds != usual
    assert {event.label for event in detector.events(street)} >= {"siren"}


def test_a_quiet_recording_must_be_long_enough(embedder: Embedder) -> None:
    own = embedder.backbone.calibration_file
    assert own is not None
    with pytest.raises(AudioError, match="at least 5 minutes"):
        add_quiet(Calibration.load(own), embedder, [noise_only(20.0)])


def test_without_a_quiet_recording_thresholds_cannot_come_from_it(embedder: Embedder) -> None:
    with pytest.raises(UsageError, match="calibrate --quiet"):
        Classifier(WORDS, backbone=embedder).detector(settings=Detection(thresholds_from="quiet"))


def test_thresholds_may_follow_from_the_recording_itself(embedder: Embedder, street: Audio) -> None:
    found = Classifier(WORDS, backbone=embedder).events(
        street, settings=Detection(thresholds_from="recording")
    )
    assert {event.label for event in found} >= {"siren"}


def test_a_clip_where_nothing_fits_has_no_label(embedder: Embedder) -> None:
    detector = Classifier(["siren", "dog bark"], backbone=embedder).detector()
    for name, expected in (("siren", "siren"), ("ticking_clock", ""), ("speech", "")):
        [embedded] = embedder.embed([SOUNDS / f"{name}.flac"])
        result = detector.label_or_none(embedded.source, embedded.embedding)
        assert result.label == expected
        assert len(result.ranking) == 2


def test_whether_anything_fits_needs_a_calibration(embedder: Embedder) -> None:
    detector = Classifier(WORDS, backbone=embedder, calibration=None).detector()
    [embedded] = embedder.embed([SOUNDS / "siren.flac"])
    with pytest.raises(UsageError, match="driftscore calibrate"):
        detector.label_or_none("siren", embedded.embedding)


def test_without_a_calibration_loud_changes_are_still_found(
    embedder: Embedder, street: Audio
) -> None:
    found = Classifier(WORDS, backbone=embedder, calibration=None).events(street)
    assert "siren" in {event.label for event in found}
