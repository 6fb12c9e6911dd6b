from typing import Any

import numpy as np
import pytest

from driftscore import Event
from driftscore.lab.corpora.soundscapes.truth import Soundscape, SoundscapeRecipe, TrueEvent
from driftscore.lab.mixing.record import MixPart
from training.event_report import near_and_none, place_at, sounding

RATE = 8000


def part(file: str, start_s: float, seconds: float) -> MixPart:
    start, frames = round(start_s * RATE), round(seconds * RATE)
    return MixPart("background", file, file, "0" * 64, 0, frames, start, 0.0)


def soundscape() -> Soundscape:
    """Return a street that goes on for 200 s, then a park, with a word and another sound."""
    events = [
        TrueEvent(label, start_s, start_s + 5, label == "dog", 10.0, part(label, start_s, 5))
        for label, start_s in (("dog", 20.0), ("frog", 40.0))
    ]
    places = (part("street", 0, 100), part("street", 100, 100), part("park", 200, 200))
    recipe = SoundscapeRecipe(seconds=400.0, words=("dog", "cat"), quiet_s=100.0, rate=RATE)
    shared: dict[str, Any] = {"ref_db": -36.0, "scale_db": 0.0, "fade_s": 0.01, "crossfade_s": 2.0}
    return Soundscape(
        recipe, ("dog", "cat"), 400 * RATE, (60.0, 160.0), places, tuple(events), **shared
    )


@pytest.mark.parametrize(
    ("start_s", "end_s", "what"),
    [
        (22.0, 24.0, "another word of the list"),
        (22.0, 42.0, "another word of the list"),
        (41.0, 43.0, "another sound"),
        (202.0, 270.0, "a change of place"),
        (101.0, 103.0, "the place alone"),  # the street goes on
        (300.0, 303.0, "the place alone"),
    ],
)
def test_a_false_alarm_is_attributed_to_what_sounds(
    start_s: float, end_s: float, what: str
) -> None:
    assert sounding(Event("cat", start_s, end_s, 1.0), soundscape()) == what


def test_the_same_sound_of_a_place_that_is_repeated_has_the_same_second() -> None:
    assert [place_at(s, soundscape()) for s in (0.0, 62.0, 162.0, 199.0, 200.0, 390.0)] == [
        "street at 0 s", "street at 60 s", "street at 60 s", "street at 100 s", "park at 0 s",
        "park at 190 s",
    ]  # fmt: skip


def test_words_near_the_rate_asked_for_are_counted_and_averaged_over_draws() -> None:
    hours = np.array([1.5, 1.5, 3.0])
    # At 2 per hour 1.33 to 3 per hour are near: 2 to 4 in 1.5 hours, 4 to 9 in 3 hours.
    assert near_and_none(np.array([1.0, 4.0, 9.0]), hours, 2.0) == (2, 0)
    assert near_and_none(np.array([[0.0, 5.0, 10.0], [2.0, 3.0, 4.0]]), hours, 2.0) == (1.5, 0.5)


def test_chance_alone_moves_most_words_of_an_hour_and_a_half_away_from_half_an_event_per_hour() -> (
    None
):
    hours = np.full(54, 1.5)
    drawn = np.random.default_rng(1).poisson(0.5 * hours, (2000, 54)).astype(np.float64)
    near, none = near_and_none(drawn, hours, 0.5)
    assert near == pytest.approx(54 * 0.75 * np.exp(-0.75), abs=0.5)  # only one event is near
    assert none == pytest.approx(54 * np.exp(-0.75), abs=0.5)
