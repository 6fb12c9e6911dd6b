"""A-weighting against the table of the standard, and levels of known signals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftscore.audio.levels import SoundMeter
from driftscore.audio.weighting import AWeighting, a_weighting_db, response, sections

# IEC 61672-1, table of design goals: nominal frequency, A-weighting, and the limits of class 1.
TABLE = [
    (31.5, -39.4, 1.5), (63, -26.2, 1.0), (125, -16.1, 1.0), (250, -8.6, 1.0), (500, -3.2, 1.0),
    (1000, 0.0, 0.7), (2000, 1.2, 1.0), (4000, 1.0, 1.0), (8000, -1.1, 1.5), (16000, -6.6, 2.5),
]  # fmt: skip
RATES = (16_000, 22_050, 32_000, 44_100, 48_000, 96_000)


def exact(nominal: float) -> float:
    """Return the exact frequency of a nominal one: 10 to the power of tenths."""
    return float(10 ** (round(10 * np.log10(nominal)) / 10))


@pytest.mark.parametrize(("nominal", "weight", "limit"), TABLE)
def test_the_formula_has_the_values_of_the_standard(
    nominal: float, weight: float, limit: float
) -> None:
    assert a_weighting_db(np.array([exact(nominal)]))[0] == pytest.approx(weight, abs=0.06)


@pytest.mark.parametrize("rate", RATES)
def test_the_filter_is_within_class_1_at_every_rate(rate: int) -> None:
    parts = sections(rate)
    for nominal, weight, limit in TABLE:
        frequency = exact(nominal)
        if frequency < 0.48 * rate:
            gain = 20 * np.log10(response(parts, np.array([frequency]), rate)[0])
            assert gain == pytest.approx(weight, abs=limit), nominal


@pytest.mark.parametrize("rate", RATES)
def test_the_filter_is_within_0_7_db_of_the_formula_up_to_nearly_half_the_rate(rate: int) -> None:
    frequency = np.geomspace(20, min(16_000, 0.48 * rate), 200)
    gain = 20 * np.log10(response(sections(rate), frequency, rate))
    assert np.abs(gain - a_weighting_db(frequency)).max() < 0.7


def test_the_blocks_give_what_scipy_gives_sample_by_sample(rng: np.random.Generator) -> None:
    signal = pytest.importorskip("scipy.signal")
    samples = rng.standard_normal(20_000).astype(np.float32)
    expected = samples.astype(np.float64)
    for top, bottom in sections(48_000):
        expected = signal.lfilter(top, bottom, expected)
    found = AWeighting(48_000).feed(samples)
    assert len(found) > 19_000
    np.testing.assert_allclose(found, expected[: len(found)], atol=1e-10)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 700), max_size=12))
def test_the_result_does_not_depend_on_how_samples_are_cut(sizes: list[int]) -> None:
    samples = np.random.default_rng(1).standard_normal(4000).astype(np.float32)
    whole = AWeighting(16_000).feed(samples)
    filtered, parts, first = AWeighting(16_000), [], 0
    for size in sizes:
        parts.append(filtered.feed(samples[first : first + size]))
        first += size
    parts.append(filtered.feed(samples[first:]))
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-12)


def sine(frequency: float, seconds: float, rate: int = 48_000) -> np.ndarray[
    tuple[int], np.dtype[np.float32]
]:  # fmt: skip
    return np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate).astype("f4")


@pytest.mark.parametrize(("frequency", "expected"), [(1000, -3.01), (125.89, -19.1), (8000, -4.1)])
def test_a_sine_at_full_scale_has_its_weight(frequency: float, expected: float) -> None:
    meter = SoundMeter(48_000, interval_s=4)
    meter.feed(sine(frequency, 1))
    levels = SoundMeter(48_000, interval_s=4).feed(sine(frequency, 4.1))
    assert len(levels) == 1
    assert levels[0].laeq == pytest.approx(expected, abs=0.4)


def test_l10_and_l90_are_exceeded_for_10_and_90_percent_of_the_time() -> None:
    loud, quiet = sine(1000, 2), 0.01 * sine(1000, 8)
    (levels,) = SoundMeter(48_000, interval_s=10).feed(np.concatenate([loud, quiet, quiet[:9600]]))
    assert levels.l10 == pytest.approx(-3.01, abs=0.1)
    assert levels.l90 == pytest.approx(-43.01, abs=0.2)
    assert levels.laeq == pytest.approx(-3.01 + 10 * np.log10(0.2), abs=0.1)


def test_the_offset_is_added_to_every_level() -> None:
    plain, offset = (SoundMeter(48_000, offset_db=o, interval_s=2) for o in (0.0, 94.0))
    before, after = plain.feed(sine(1000, 2.1))[0], offset.feed(sine(1000, 2.1))[0]
    assert after.laeq - before.laeq == pytest.approx(94)
    assert after.l90 - before.l90 == pytest.approx(94)
    assert offset.now_db == pytest.approx(91, abs=0.1)


def test_digital_silence_has_a_level_and_no_warning() -> None:
    (levels,) = SoundMeter(16_000, interval_s=1).feed(np.zeros(17_000, np.float32))
    assert levels.laeq <= -120
