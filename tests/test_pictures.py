"""Pictures: what is kept of a recording, and what is drawn of it."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftscore import Classifier
from driftscore.audio.clock import GIVEN, Start
from driftscore.audio.recordings import Audio
from driftscore.errors import UsageError
from driftscore.events.tracking import Detection, Event
from driftscore.events.watchlist import WatchList
from driftscore.pictures import (
    HourCounts,
    PictureTrack,
    check_picture,
    plot_hours,
    plot_recording,
)
from driftscore.pictures.tracks import BANDS, MAX_COLUMNS, ColumnTrack, Spectrum

pytest.importorskip("matplotlib", reason="matplotlib is not installed: make setup")
LABELS = ("dog bark", "price in $ or $", "<b>siren</b>")
START = Start(datetime(2026, 11, 16, 23, 59, 30, tzinfo=UTC), GIVEN)
RATE = 16000


def tracked(seconds: float = 20.0) -> PictureTrack:
    """Return the track of a tone of 1 kHz with a peak of the first label in the middle."""
    track = PictureTrack(LABELS)
    times = np.arange(round(seconds * RATE)) / RATE
    tone = np.sin(2 * np.pi * 1000 * times).astype(np.float32)
    for part in np.array_split(tone, 7):
        track.samples(part, RATE)
    for now in np.arange(0.0, seconds, 0.5):
        peak = np.exp(-((now - seconds / 2) ** 2))
        track.scores(float(now), np.array([2 * peak, 0.5, 0.1]))
    return track


EVENTS = [
    Event("dog bark", 9.0, 11.0, 5.0, 2.5, level_db=-30.0, snr_db=6.25),
    Event("<b>siren</b>", 12.0, 13.0, 2.4, 2.5, rejected="below the threshold"),
]


@settings(deadline=None)
@given(
    times=st.lists(st.floats(0, 1e6), min_size=1, max_size=50),
    step=st.floats(0.01, 10),
)
def test_a_track_keeps_the_highest_score_at_its_time_whatever_the_length(
    times: list[float], step: float
) -> None:
    track = ColumnTrack(1, step, mean=False)
    for number, now in enumerate(times):
        track.add(now, np.array([float(number)]))
    columns = track.columns()
    assert len(columns) <= MAX_COLUMNS
    for now in times:
        column = int(now / track.step_s)
        inside = [n for n, other in enumerate(times) if int(other / track.step_s) == column]
        assert columns[column, 0] == max(inside)


def test_a_mean_track_averages_the_rows_of_a_column() -> None:
    track = ColumnTrack(2, 1.0, mean=True)
    for second in range(2 * MAX_COLUMNS):
        track.add(second + 0.5, np.array([second, -second], np.float64))
    assert track.step_s == 2.0
    expected = np.arange(MAX_COLUMNS) * 2 + 0.5
    np.testing.assert_allclose(track.columns(), np.stack([expected, -expected], axis=1))


def test_a_tone_is_the_loudest_band_of_every_column() -> None:
    for hertz in (200.0, 1000.0, 5000.0):
        spectrum = Spectrum(RATE)
        tone = np.sin(2 * np.pi * hertz * np.arange(5 * RATE) / RATE).astype(np.float32)
        for part in np.array_split(tone, 11):
            spectrum.feed(part)
        loudest = spectrum.decibels().argmax(axis=1)
        [expected] = spectrum.bands_of([hertz])
        assert 0 < expected < BANDS
        assert np.all(np.abs(loudest + 0.5 - expected) <= 1)
        assert len(loudest) * spectrum.track.step_s == pytest.approx(5.0, abs=0.1)


def test_memory_of_a_long_recording_is_that_of_a_short_one() -> None:
    spectrum = Spectrum(RATE)
    noise = np.random.default_rng(0).normal(size=600 * RATE).astype(np.float32)
    spectrum.feed(noise)
    assert len(spectrum.decibels()) <= MAX_COLUMNS
    assert len(spectrum.decibels()) * spectrum.track.step_s == pytest.approx(600, rel=0.01)


@pytest.mark.parametrize("start", [None, START])
def test_a_recording_is_drawn_as_png_and_svg(tmp_path: Path, start: Start | None) -> None:
    for kind in ("png", "svg"):
        path = tmp_path / f"night.{kind}"
        plot_recording(path, tracked(), EVENTS, name="$x$ <i>.wav", start=start)
        again = path.read_bytes()
        plot_recording(path, tracked(), EVENTS, name="$x$ <i>.wav", start=start)
        assert path.read_bytes() == again
    assert (tmp_path / "night.png").read_bytes().startswith(b"\x89PNG")
    ET.fromstring((tmp_path / "night.svg").read_text("utf-8"))


def test_a_recording_without_samples_scores_or_events_is_drawn(tmp_path: Path) -> None:
    plot_recording(tmp_path / "a.svg", PictureTrack(()), [], name="a.wav")
    plot_recording(tmp_path / "b.svg", PictureTrack(LABELS), [], name="b.wav", start=START)
    assert (tmp_path / "b.svg").stat().st_size > 1000


def test_hours_are_counted_by_the_clock_and_hours_without_a_recording_are_known() -> None:
    hours = HourCounts(("dog bark", "siren"))
    events = [Event("dog bark", 10.0, 12.0, 5.0), Event("dog bark", 40.0, 42.0, 5.0),
              Event("siren", 3640.0, 3650.0, 5.0), Event("other", 1.0, 2.0, 5.0)]  # fmt: skip
    hours.add(START, 5400.0, events)
    hours.add(START, 30.0, events[:1])
    hours.add(None, 5400.0, events)
    assert hours.counts[0].tolist() == [1, *[0] * 22, 2]
    assert hours.counts[1].tolist() == [0, 1, *[0] * 22]
    expected = np.zeros(24)
    expected[[23, 0, 1]] = [60 / 3600, 1.0, 1770 / 3600 + 0.0]
    expected[1] = (5400 - 30 - 3600) / 3600
    np.testing.assert_allclose(hours.recorded_h, expected)
    assert (hours.recordings, hours.undated) == (3, 1)


@settings(deadline=None)
@given(minute=st.integers(0, 1439), seconds=st.floats(0, 3e5), offsets=st.lists(st.floats(0, 3e5)))
def test_recorded_hours_and_counts_add_up(
    minute: int, seconds: float, offsets: list[float]
) -> None:
    hours = HourCounts(("x",))
    start = Start(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute), GIVEN)
    hours.add(start, seconds, [Event("x", offset, offset + 1, 1.0) for offset in offsets])
    assert hours.recorded_h.sum() * 3600 == pytest.approx(seconds, abs=1e-3)
    assert hours.counts.sum() == len(offsets)


def test_the_heatmap_is_drawn_or_says_what_it_lacks(tmp_path: Path) -> None:
    hours = HourCounts(LABELS)
    hours.add(START, 7200.0, EVENTS)
    for kind in ("png", "svg"):
        plot_hours(tmp_path / f"day.{kind}", hours)
        assert (tmp_path / f"day.{kind}").stat().st_size > 1000
    unknown = HourCounts(LABELS)
    unknown.add(None, 7200.0, EVENTS)
    with pytest.raises(UsageError, match="No recording says when it starts"):
        plot_hours(tmp_path / "none.png", unknown)


@pytest.mark.parametrize("name", ["night", "night.jpg", "night.html", "night.png.txt"])
def test_another_kind_of_picture_is_wrong_usage(name: str) -> None:
    with pytest.raises(UsageError, match=r"A picture is \.png or \.svg"):
        check_picture(name)


def test_an_observer_sees_every_sample_and_score_and_changes_no_event() -> None:
    samples = np.random.default_rng(1).normal(0, 0.1, 30 * RATE).astype(np.float32)
    samples[20 * RATE : 23 * RATE] = np.sin(0.3 * np.arange(3 * RATE))
    recording = Audio(samples, RATE)
    watch = WatchList.of(("dog bark", "siren"), ("none",))
    detector = Classifier(watch.names, backbone="fake").detector(watch, Detection(threshold=0.05))
    track = PictureTrack(detector.watch.names, hop_s=detector.hop_s)
    plain, watched = (
        list(detector.events(recording)),
        list(detector.events(recording, observer=track)),
    )
    assert plain == watched
    assert {event.label for event in watched} == {"dog bark", "siren"}
    assert track.seconds == pytest.approx(30.0, abs=0.01)
    columns = track.shares.columns()
    for event in watched:
        assert event.threshold is not None
        peak = columns[:, track.labels.index(event.label)].argmax() * track.shares.step_s
        assert event.start_s - 1 <= peak <= event.end_s
        share = columns[:, track.labels.index(event.label)].max()
        assert share == pytest.approx(event.score / event.threshold)


def test_matplotlib_is_imported_when_a_picture_is_drawn() -> None:
    code = "import sys, driftscore.pictures; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
