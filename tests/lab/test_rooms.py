"""Reverberation: none, that of sox, and the images of a box room."""

import dataclasses
import itertools

import numpy as np
import pytest

from driftscore.errors import UsageError
from driftscore.lab.mixing.loudness import LoudnessMeter
from driftscore.lab.mixing.mixings import find_mixing
from driftscore.lab.mixing.record import MixRecord, mix
from driftscore.lab.mixing.reverb import reverberated
from driftscore.lab.mixing.rooms import (
    MICROPHONE_M,
    SIZE_M,
    SOURCE_M,
    SPEED_M_S,
    absorption,
    box_response,
)
from driftscore.lab.mixing.sounds import Excerpt
from driftscore.lab.mixing.soundscape import draw_soundscape

from .test_mixing import RATE, noise, reader


def test_no_reverb_is_none_and_an_amount_above_one_is_refused() -> None:
    event, source = noise(1, file="dog", seed=3), noise(10)
    made = {}
    for reverb in (None, 0, 1):
        record = draw_soundscape(
            [event],
            Excerpt(source, 0, 10 * RATE),
            snr_db=0,
            times=[2],
            reverb=reverb,
            meter=LoudnessMeter(),
            rng=np.random.default_rng(0),
        )
        made[reverb] = mix(MixRecord.from_json(record.to_json()), read=reader(event, source))
    dry, least, most = (made[reverb].audio.samples.astype(float) for reverb in (None, 0, 1))
    assert 0 < np.abs(least - dry).mean() < np.abs(most - dry).mean()
    with pytest.raises(UsageError, match=r"None or a number from 0 to 1, got 1\.5"):
        draw_soundscape(
            [event],
            Excerpt(source, 0, 10 * RATE),
            snr_db=0,
            reverb=1.5,
            meter=LoudnessMeter(),
            rng=np.random.default_rng(0),
        )


def test_scaper_with_reverb_is_scaper_with_the_smallest_reverb_of_sox() -> None:
    event, source = noise(1, file="dog", seed=3), noise(10)
    made = {}
    for name in ("scaper", "scaper_reverb"):
        rng, meter = np.random.default_rng(1), LoudnessMeter()
        drawn = Excerpt(source, 0, 10 * RATE)
        made[name] = find_mixing(name).draw(event, drawn, snr_db=0, meter=meter, rng=rng)
    dry, wet = made["scaper"], made["scaper_reverb"]
    assert (dry.reverb, wet.reverb) == (None, 0.0)
    assert dataclasses.replace(wet, mixing="scaper", reverb=None) == dry
    read = reader(event, source)
    expected = reverberated(mix(dry, read).audio.samples.astype(float), RATE, reverb=0.0)
    np.testing.assert_allclose(mix(wet, read).audio.samples, expected, atol=1e-6)


@pytest.mark.parametrize("rt60_s", [0.2, 0.5, 0.8])
def test_the_box_room_decays_in_about_its_reverberation_time(rt60_s: float) -> None:
    response = box_response(16_000, rt60_s)
    assert len(response) == round(rt60_s * 16_000)
    direct = np.linalg.norm(np.subtract(SOURCE_M, MICROPHONE_M))
    first = int(np.flatnonzero(response)[0])
    assert first == pytest.approx(direct / SPEED_M_S * 16_000, abs=1)
    assert response[first] == pytest.approx(1 / (4 * np.pi * direct), rel=1e-6)
    # Schroeder's curve: the energy that is still to come falls by 60 dB per reverberation time.
    # Differences remove the lowest frequencies, at which all pulses add up in phase.
    energy = np.cumsum(np.diff(response)[::-1] ** 2)[::-1]
    level = 10 * np.log10(energy / energy[0])
    span = np.flatnonzero((level < -5) & (level > -25))
    slope = np.polyfit(span / 16_000, level[span], 1)[0]
    assert -60 / slope == pytest.approx(rt60_s, rel=0.2)


def test_the_images_of_the_box_room_are_those_of_a_slow_sum() -> None:
    rate, rt60_s = 8_000, 0.2
    slow = np.zeros(round(rt60_s * rate))
    reflection = np.sqrt(1 - absorption(rt60_s))
    reach = range(-14, 15)
    for n in itertools.product(reach, reach, reach):
        for u in itertools.product((0, 1), repeat=3):
            image = [
                (1 - 2 * flip) * source + 2 * k * side
                for flip, source, k, side in zip(u, SOURCE_M, n, SIZE_M, strict=True)
            ]
            distance = float(np.linalg.norm(np.subtract(image, MICROPHONE_M)))
            frame = round(distance / SPEED_M_S * rate)
            if frame < len(slow):
                bounces = sum(abs(k - flip) + abs(k) for k, flip in zip(n, u, strict=True))
                slow[frame] += reflection**bounces / (4 * np.pi * distance)
    np.testing.assert_allclose(box_response(rate, rt60_s), slow, atol=1e-12)


def test_a_box_room_cannot_be_too_dry() -> None:
    with pytest.raises(UsageError, match=r"reverberation time of at least 0\.12 s, got 0\.05"):
        box_response(8_000, 0.05)
