"""The columns of a spectrogram, against a slow reference and known sounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftscore import Audio
from driftscore.audio.spectrogram import (
    BANDS,
    FLOOR_DB,
    MAX_COLUMNS,
    TOP_DB,
    mel_filters,
    spectrogram,
    to_levels,
)

RATE = 32_000


def sine(hertz: float, seconds: float, amplitude: float = 1.0, rate: int = RATE) -> Audio:
    time = np.arange(round(seconds * rate)) / rate
    return Audio((amplitude * np.sin(2 * np.pi * hertz * time)).astype(np.float32), rate)


def band_of(hertz: float, high_hz: float = 14_000.0) -> int:
    """Return the band whose centre is nearest, by the definition of mel."""
    low, high = (2595 * np.log10(1 + hz / 700) for hz in (50.0, high_hz))
    mels = np.linspace(low, high, BANDS + 2)[1:-1]
    return int(np.abs(700 * (10 ** (mels / 2595) - 1) - hertz).argmin())


@pytest.mark.parametrize("hertz", [250.0, 1000.0, 4000.0, 9000.0])
def test_a_tone_is_brightest_in_its_own_band(hertz: float) -> None:
    found = spectrogram(sine(hertz, 2.0, 0.1))
    inner = found.levels[3:-3]
    assert (np.abs(inner.argmax(axis=1).astype(int) - band_of(hertz)) <= 1).all()


def test_a_sound_ten_times_as_loud_is_20_db_brighter() -> None:
    quiet, loud = (spectrogram(sine(1000, 1.0, a)).levels[5, band_of(1000)] for a in (0.001, 0.01))
    assert int(loud) - int(quiet) == pytest.approx(255 * 20 / (TOP_DB - FLOOR_DB), abs=1)


def test_silence_is_the_floor_and_the_scale_is_fixed() -> None:
    assert not spectrogram(Audio(np.zeros(RATE, np.float32), RATE)).levels.any()
    powers = np.array([10 ** (FLOOR_DB / 10), 10 ** (TOP_DB / 10), 1.0, 0.0], np.float32)
    assert to_levels(powers).tolist() == [0, 255, 255, 0]


def test_the_onset_of_a_sound_is_in_its_column() -> None:
    samples = np.zeros(4 * RATE, np.float32)
    samples[3 * RATE :] = sine(2000, 1.0).samples
    brightness = spectrogram(Audio(samples, RATE)).levels[:, band_of(2000)]
    first = int(np.argmax(brightness > 200))
    assert first / len(brightness) == pytest.approx(0.75, abs=0.01)


def test_a_column_of_a_long_recording_is_the_mean_power_of_its_frames() -> None:
    rng = np.random.default_rng(1)
    audio = Audio((0.1 * rng.standard_normal(20 * RATE)).astype(np.float32), RATE)
    fine = spectrogram(audio, max_columns=1200)
    coarse = spectrogram(audio, max_columns=60)
    decibels = FLOOR_DB + fine.levels.astype(float) / 255 * (TOP_DB - FLOOR_DB)
    expected = 10 * np.log10((10 ** (decibels / 10)).reshape(60, -1, BANDS).mean(axis=1))
    found = FLOOR_DB + coarse.levels.astype(float) / 255 * (TOP_DB - FLOOR_DB)
    assert np.abs(found - expected).mean() < 0.5


@given(st.integers(1, 3 * RATE), st.sampled_from([4_000, 16_000, 32_000, 48_000]))
def test_any_length_has_a_picture_within_bounds(length: int, rate: int) -> None:
    found = spectrogram(Audio(np.full(length, 0.1, np.float32), rate))
    columns, bands = found.levels.shape
    assert 1 <= columns <= MAX_COLUMNS
    assert bands == BANDS
    assert found.seconds == pytest.approx(length / rate)
    assert found.low_hz < found.high_hz <= rate / 2


def test_every_filter_averages() -> None:
    filters = mel_filters(1024, RATE, BANDS, 50.0, 14_000.0)
    assert filters.shape == (513, BANDS)
    np.testing.assert_allclose(filters.sum(axis=0), 1, rtol=1e-5)
    assert (filters >= 0).all()
