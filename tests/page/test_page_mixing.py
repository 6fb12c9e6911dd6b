"""Noise at a chosen SNR, and the point at which a rule fails."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftscore import Audio, Head
from driftscore.audio.noise import SYNTHETIC
from driftscore.backbones.vectors import Matrix
from driftscore.errors import UsageError
from driftscore.service.page_mixing import (
    down_to,
    in_noise,
    loudest_start_s,
    part,
    shipped_noise,
    sweep,
)

RATE = 8000


def tone() -> Audio:
    time = np.arange(2 * RATE) / RATE
    return Audio((0.3 * np.sin(2 * np.pi * 500 * time)).astype(np.float32), RATE)


def embed(recordings: Sequence[Audio]) -> Matrix:
    """Return the share of the tone and of the rest in the power: an embedding that is known."""
    rows = []
    for audio in recordings:
        power = np.abs(np.fft.rfft(audio.samples)) ** 2
        share = power[1000] / power.sum()
        rows.append([share, 1 - share])
    return np.array(rows, np.float32)


def head(weight: float) -> Head:
    """Return a head to which the tone wins while its share of the power is above 1 / (1 + w)."""
    return Head(
        ("tone", "hiss"), np.array([[weight, 0], [0, 1]], np.float32), np.zeros(2, np.float32)
    )


@given(st.sampled_from(sorted(SYNTHETIC)), st.integers(-20, 20))
def test_the_mixture_has_the_snr_that_was_asked_for(name: str, snr_db: int) -> None:
    audio = tone()
    mixed = in_noise(audio, shipped_noise(name, 3 * RATE, RATE), snr_db)
    rest = mixed.samples.astype(np.float64) - audio.samples
    found = 10 * np.log10(np.mean(audio.samples.astype(np.float64) ** 2) / np.mean(rest**2))
    assert found == pytest.approx(snr_db, abs=0.02)


def test_without_an_snr_nothing_is_added() -> None:
    audio = tone()
    assert in_noise(audio, shipped_noise("white", RATE, RATE), None) is audio


def test_a_shipped_noise_is_always_the_same_and_cannot_be_changed() -> None:
    first = shipped_noise("rain", RATE, RATE).copy()
    shipped_noise.cache_clear()
    np.testing.assert_array_equal(first, shipped_noise("rain", RATE, RATE))
    with pytest.raises(ValueError, match="read-only"):
        shipped_noise("rain", RATE, RATE)[0] = 1


def test_an_unknown_noise_is_named_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'traffic'"):
        shipped_noise("trafic", RATE, RATE)


def test_a_short_noise_is_repeated() -> None:
    audio = Audio(np.full(7, 0.5, np.float32), RATE)
    added = in_noise(audio, np.array([1, -2, 3], np.float32), 0).samples - audio.samples
    np.testing.assert_allclose(added[:6], np.tile(added[:3], 2), rtol=1e-6)
    assert added[6] == added[0]


@pytest.mark.parametrize(
    ("right", "expected"),
    [((1, 1, 0, 1), 0.0), ((0, 1, 1, 1), None), ((1, 1, 1, 1), -20.0), ((1, 0, 0, 0), 10.0)],
)
def test_a_rule_recognises_down_to_the_last_snr_before_its_first_error(
    right: tuple[int, ...], expected: float | None
) -> None:
    assert down_to((10.0, 0.0, -10.0, -20.0), [bool(r) for r in right]) == expected


@pytest.mark.parametrize("border_db", [9.5, -0.5, -3.5, -8.5, -13.5])
def test_the_border_of_a_rule_is_found_to_1_db(border_db: float) -> None:
    """White noise at x dB leaves the tone its share 1 / (1 + 10^(-x/10)) of the power."""
    heads = {"rule": head(10 ** (-border_db / 10))}
    found = sweep(tone(), shipped_noise("white", 2 * RATE, RATE), heads, embed, right="tone")
    assert found.down_to_db["rule"] == np.ceil(border_db)


def test_a_rule_that_never_or_always_recognises_says_so() -> None:
    heads = {"never": head(0.001), "always": head(1e6)}
    found = sweep(tone(), shipped_noise("white", RATE, RATE), heads, embed)
    assert found.right == "tone"
    assert found.down_to_db == {"never": None, "always": -20.0}


def test_the_first_row_is_without_noise_and_the_last_rule_names_the_right_label() -> None:
    heads = {"one": head(1e6), "other": head(0.001)}
    found = sweep(tone(), shipped_noise("white", RATE, RATE), heads, embed)
    assert found.right == "tone"
    clean = heads["one"].scores(embed([tone()]))
    np.testing.assert_allclose(found.scores["one"][:1], clean)
    assert found.scores["one"][0, 0] > found.scores["one"][-1, 0]
    assert (
        sweep(tone(), shipped_noise("white", RATE, RATE), heads, embed, right="hiss").right
        == "hiss"
    )


@given(st.integers(1, 5000), st.floats(-10, 100), st.integers(1, 40))
def test_a_part_lies_within_the_recording(length: int, start_s: float, tenths: int) -> None:
    audio = Audio((np.arange(length) / 5000).astype(np.float32), 1000)
    found = part(audio, start_s, tenths / 10)
    assert len(found.samples) == min(length, tenths * 100)
    np.testing.assert_array_equal(np.diff(found.samples).round(5), np.float32(0.0002))


def test_the_loudest_part_is_found() -> None:
    samples = np.full(30_000, 0.01, np.float32)
    samples[17_000:21_000] = 0.5
    assert loudest_start_s(Audio(samples, 1000), 4.0) == pytest.approx(17.0)
    assert loudest_start_s(Audio(samples, 1000), 30.0) == 0.0
