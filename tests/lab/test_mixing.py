import csv
import dataclasses
import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from driftscore.audio.recordings import Audio
from driftscore.errors import AudioError, FormatError, MismatchError, UsageError
from driftscore.lab.corpora import folders
from driftscore.lab.corpora.folders import load
from driftscore.lab.mixing.loudness import LoudnessMeter, integrated_loudness
from driftscore.lab.mixing.mixings import KIND, find_mixing
from driftscore.lab.mixing.mixings.additive import active_part
from driftscore.lab.mixing.mixings.additive import draw as draw_additive
from driftscore.lab.mixing.record import MixPart, MixRecord, Reader, mix
from driftscore.lab.mixing.sounds import Excerpt, Sound
from driftscore.lab.mixing.soundscape import draw_soundscape, draw_time
from driftscore.system import plugins
from tests.mutation import replacements

from .small_lab import WriteWav

RATE = 8000


def noise(
    seconds: float, *, rate: int = RATE, level: float = 0.1, seed: int = 0, file: str = "noise"
) -> Sound:
    samples = np.random.default_rng(seed).normal(size=round(seconds * rate)) * level
    return Sound(file, Audio(samples.astype(np.float32), rate), "street")


def reader(*known: Sound) -> Reader:
    by_file = {sound.file: sound.audio for sound in known}
    return lambda file, rate: by_file[file]


@settings(max_examples=150, deadline=None)
@given(
    length=st.integers(1, 30_000),
    silent=st.floats(0, 0.9),
    level_db=st.floats(-80, 20),
    noise_db=st.floats(-80, 20),
    snr_db=st.floats(-30, 60),
    noise_length=st.integers(1, 40_000),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_measured_snr_of_an_additive_mix_is_the_requested_one(
    length: int,
    silent: float,
    level_db: float,
    noise_db: float,
    snr_db: float,
    noise_length: int,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    samples = rng.normal(size=length) * 10 ** (level_db / 20)
    samples[length - int(silent * length) :] = 0  # padded, as ESC-50's clips are
    event = Sound("event", Audio(samples.astype(np.float32), RATE))
    source = noise(noise_length / RATE, level=10 ** (noise_db / 20), seed=seed ^ 1)
    record = draw_additive(event, Excerpt(source, 0, length), snr_db=snr_db)
    made = mix(record, read=reader(event, source))
    signal = event.audio.samples.astype(float)
    added = made.audio.samples.astype(float) - signal
    active = slow_active(signal, RATE)
    measured = 10 * np.log10((signal[active] ** 2).sum() / (added[active] ** 2).sum())
    # The rounding of the float32 sum is allowed for: 24 bits below the louder part.
    rounding = 2.0**-24 * np.abs(made.audio.samples[active]).max()
    allowed = 0.001 + 10 * np.log10(1 + 4 * rounding / np.sqrt((added[active] ** 2).mean()))
    assert abs(measured - snr_db) < allowed
    background = made.background.samples.astype(float)[active]
    exact = 10 * np.log10((signal[active] ** 2).sum() / (background**2).sum())
    assert abs(exact - snr_db) < 0.001


def slow_active(samples: NDArray[np.float64], rate: int) -> NDArray[np.bool_]:
    """Blocks of 20 ms within 50 dB of the loudest, one by one."""
    size = rate // 50
    blocks = [samples[first : first + size] for first in range(0, len(samples), size)]
    rms = [np.sqrt(np.mean(block**2)) for block in blocks]
    return np.concatenate(
        [
            np.full(len(block), level > max(rms) * 10**-2.5)
            for block, level in zip(blocks, rms, strict=True)
        ]
    )


def test_the_noise_of_an_additive_mix_is_as_long_as_the_clip() -> None:
    samples = np.zeros(RATE, np.float32)
    samples[: RATE // 10] = 0.5
    event, source = Sound("event", Audio(samples, RATE)), noise(3)
    record = draw_additive(event, Excerpt(source, 100, RATE), snr_db=0)
    made = mix(record, read=reader(event, source))
    gain = 10 ** (record.parts[0].gain_db / 20)
    np.testing.assert_allclose(
        made.background.samples, gain * source.audio.samples[100 : 100 + RATE], rtol=1e-6
    )
    np.testing.assert_allclose(
        made.audio.samples[RATE // 10 :], made.background.samples[RATE // 10 :]
    )


def test_every_shared_event_is_mixed_within_a_thousandth_of_a_decibel(shared: Path) -> None:
    rows = list(csv.DictReader((shared / "audio" / "manifest.csv").open()))
    files = [shared / "audio" / row["file"] for row in rows if row["split"] == "events"]
    places = [shared / "audio" / row["file"] for row in rows if row["split"] == "noise"]
    rng = np.random.default_rng(0)
    for index, path in enumerate(files[::5]):
        event = Sound(str(path), load(str(path), 32_000))
        place = str(places[index % len(places)])
        source = Sound(place, load(place, 32_000))
        length = len(event.audio.samples)
        start = int(rng.integers(max(1, len(source.audio.samples) - length)))
        snr_db = (20, 10, 8, 6, 0)[index % 5]
        made = mix(draw_additive(event, Excerpt(source, start, length), snr_db=snr_db), load)
        active = slow_active(event.audio.samples.astype(float), 32_000)
        signal = event.audio.samples.astype(float)[active]
        added = made.audio.samples.astype(float)[active] - signal
        assert abs(10 * np.log10((signal**2).sum() / (added**2).sum()) - snr_db) < 0.001


def test_the_active_part_is_that_of_the_manifest(shared: Path) -> None:
    rows = [
        row
        for row in csv.DictReader((shared / "audio" / "manifest.csv").open())
        if row["split"] == "events"
    ]
    for row in rows[::10]:
        audio = load(str(shared / "audio" / row["file"]), 44_100)
        seconds = active_part(audio.samples, audio.rate).sum() / audio.rate
        assert seconds == pytest.approx(float(row["active_s"]), abs=0.03)


@pytest.mark.parametrize("name", plugins.names(KIND))
def test_a_mix_of_every_method_is_rebuilt_from_the_json_of_its_record(name: str) -> None:
    event, source = noise(2, level=0.3, seed=5, file="dog"), noise(12)
    mixing = find_mixing(name)
    frames = round(mixing.background_s(2.0) * RATE)
    drawn = Excerpt(source, 7, frames)
    rng, meter = np.random.default_rng(0), LoudnessMeter()
    record = mixing.draw(event, drawn, snr_db=6.25, meter=meter, seed="a 1", rng=rng)
    assert (record.mixing, record.snr_db, record.seed) == (name, 6.25, "a 1")
    assert record.environment == "street"
    again = MixRecord.from_json(record.to_json())
    assert again == record
    assert {part.label for part in again.parts} == {"street"}
    first, second = (mix(r, read=reader(event, source)) for r in (record, again))
    np.testing.assert_array_equal(first.audio.samples, second.audio.samples)
    np.testing.assert_array_equal(first.background.samples, second.background.samples)


def test_a_mix_is_rebuilt_from_files_on_disk(tmp_path: Path, write_wav: WriteWav) -> None:
    dog = str(write_wav(tmp_path / "dog.wav", seconds=1, seed=1))
    street = str(write_wav(tmp_path / "street.wav", seconds=3, seed=2))
    event, source = (Sound(file, load(file, RATE)) for file in (dog, street))
    record = draw_additive(event, Excerpt(source, 50, RATE), snr_db=3)
    before = mix(record, load).audio.samples
    folders._recent.clear()
    np.testing.assert_array_equal(mix(record, load).audio.samples, before)
    folders._recent.clear()
    write_wav(tmp_path / "street.wav", seconds=3, seed=3)
    with pytest.raises(MismatchError, match=r"street\.wav is not what the mix was made from"):
        mix(record, load)


def test_events_are_placed_where_given_with_their_loudness_and_fades() -> None:
    event, source = noise(2, level=0.3, seed=5, file="dog"), noise(10)
    record = draw_soundscape(
        [event],
        Excerpt(source, 0, 10 * RATE),
        snr_db=12,
        times=[4.5],
        meter=LoudnessMeter(),
        rng=np.random.default_rng(0),
    )
    made = mix(record, read=reader(event, source))
    assert integrated_loudness(made.background.samples, RATE) == pytest.approx(-36, abs=1e-3)
    alone = made.audio.samples.astype(float) - made.background.samples
    audible = np.flatnonzero(np.abs(alone) > 1e-6)
    assert audible[0] == pytest.approx(4.5 * RATE, abs=3)
    assert audible[-1] == pytest.approx(6.5 * RATE, abs=3)
    inside = alone[4 * RATE + RATE // 2 : 6 * RATE + RATE // 2].astype(np.float32)
    assert integrated_loudness(inside, RATE) == pytest.approx(-24, abs=0.05)  # fades cost a little
    middle = slice(4 * RATE + RATE // 2 + 200, 4 * RATE + RATE // 2 + 300)
    gain = 10 ** (record.parts[1].gain_db / 20)
    np.testing.assert_allclose(alone[middle], gain * event.audio.samples[200:300], atol=1e-7)


def placed(event: Sound, time_s: float) -> tuple[MixPart, NDArray[np.float64]]:
    source = noise(10)
    record = draw_soundscape(
        [event],
        Excerpt(source, 0, 10 * RATE),
        snr_db=0,
        times=[time_s],
        meter=LoudnessMeter(),
        rng=np.random.default_rng(0),
    )
    made = mix(record, read=reader(event, source))
    return record.parts[1], made.audio.samples.astype(float) - made.background.samples


def test_an_event_that_would_end_too_late_is_moved_forward_and_a_longer_one_cut() -> None:
    late, _ = placed(noise(5, file="dog", seed=2), 5.9)
    assert (late.start, late.frames) == (5 * RATE, 5 * RATE)
    long, alone = placed(noise(13, file="dog", seed=2), 4)
    assert (long.start, long.frames) == (0, 10 * RATE)
    assert len(alone) == 10 * RATE


def test_events_begin_and_end_with_a_quarter_sine_of_ten_milliseconds() -> None:
    event = noise(1, file="dog", seed=2)
    part, alone = placed(event, 2)
    fade = RATE // 100
    faded = alone[2 * RATE : 3 * RATE] / 10 ** (part.gain_db / 20)
    rise = np.sin(np.pi / 2 * np.arange(fade) / (fade - 1))
    np.testing.assert_allclose(faded[:fade], rise * event.audio.samples[:fade], atol=1e-6)
    np.testing.assert_allclose(faded[-fade:], rise[::-1] * event.audio.samples[-fade:], atol=1e-6)


def test_drawn_times_follow_the_truncated_normal() -> None:
    rng = np.random.default_rng(0)
    times = np.array([draw_time(rng) for _ in range(20_000)])
    assert times.min() >= 0
    assert times.max() <= 6
    assert times.mean() == pytest.approx(3, abs=0.03)
    # Variance of N(3, 1.5) cut at two deviations on either side: 0.7737 of the full one.
    assert times.std() == pytest.approx(1.5 * np.sqrt(0.7737), abs=0.02)


def test_the_same_generator_draws_the_same_soundscape() -> None:
    event, source = noise(1, file="dog", seed=3), noise(10)

    def drawn(seed: int) -> MixRecord:
        rng, meter = np.random.default_rng(seed), LoudnessMeter()
        return draw_soundscape(
            [event], Excerpt(source, 0, 10 * RATE), snr_db=0, meter=meter, rng=rng
        )

    assert drawn(1) == drawn(1)
    assert drawn(1).placement == "truncnorm(3, 1.5, 0, 6)"
    assert drawn(1).parts[1].start != drawn(2).parts[1].start


def test_what_cannot_be_mixed_is_an_error_with_a_reason() -> None:
    event, source = noise(1, file="dog"), noise(10)
    second = Excerpt(source, 0, RATE)
    silent = Sound("nothing", Audio(np.zeros(RATE, np.float32), RATE))
    meter, rng = LoudnessMeter(), np.random.default_rng(0)
    ten = Excerpt(source, 0, 10 * RATE)
    for snr_db in (float("nan"), float("inf")):
        with pytest.raises(UsageError, match="snr_db must be a finite number of dB"):
            draw_additive(event, second, snr_db=snr_db)
    with pytest.raises(AudioError, match="nothing is silent"):
        draw_additive(silent, second, snr_db=0)
    with pytest.raises(AudioError, match="nothing is silent in the active part of dog"):
        draw_additive(event, Excerpt(silent, 0, RATE), snr_db=0)
    with pytest.raises(UsageError, match="8000 frames, its background 7"):
        draw_additive(event, Excerpt(source, 0, 7), snr_db=0)
    with pytest.raises(UsageError, match="one rate"):
        draw_additive(event, Excerpt(noise(10, rate=16_000), 0, RATE), snr_db=0)
    with pytest.raises(AudioError, match="too quiet to be a background"):
        draw_soundscape([event], Excerpt(silent, 0, 10 * RATE), snr_db=0, meter=meter, rng=rng)
    with pytest.raises(UsageError, match="1 events need as many times"):
        draw_soundscape([event], ten, snr_db=0, times=[1, 2], meter=meter, rng=rng)
    with pytest.raises(UsageError, match="at least one event"):
        draw_soundscape([], ten, snr_db=0, meter=meter, rng=rng)
    with pytest.raises(AudioError, match="shorter than its fade"):
        draw_soundscape([noise(0.005, file="tick")], ten, snr_db=0, meter=meter, rng=rng)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "parts": [{}]}'])
def test_a_text_that_is_not_a_record_is_reported(text: str) -> None:
    with pytest.raises(FormatError, match="not the record of a mix"):
        MixRecord.from_json(text)


def test_a_record_with_any_value_replaced_is_refused_or_can_be_mixed() -> None:
    event, street = noise(1, file="dog"), noise(2, seed=2, file="street")
    record = draw_additive(event, Excerpt(street, 50, RATE), snr_db=3)
    refused = 0
    for other in replacements(json.loads(record.to_json())):
        try:
            found = MixRecord.from_json(json.dumps(other))
        except FormatError:
            refused += 1
            continue
        with suppress(AudioError, MismatchError, UsageError, KeyError):  # no such file here
            mix(found, reader(event, street))
    assert refused > 300


def test_a_record_of_a_later_version_is_refused() -> None:
    record = draw_additive(noise(1, file="dog"), Excerpt(noise(1), 0, RATE), snr_db=0)
    later = json.dumps(json.loads(record.to_json()) | {"version": 2})
    with pytest.raises(FormatError, match="version 2; this driftscore reads 1"):
        MixRecord.from_json(later)


def test_records_are_frozen() -> None:
    record = draw_additive(noise(1, file="dog"), Excerpt(noise(1), 0, RATE), snr_db=0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.snr_db = 3  # type: ignore[misc]


def test_a_mixing_from_outside_is_found_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside_mixing.py").write_text(
        "from driftscore.lab.mixing.mixings.additive import background_s, draw\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_mixing.py").write_text("class half:\n    draw = None\n")
    (tmp_path / "outside_mixings.py").write_text("import outside_mixing as under\n")
    assert find_mixing("outside_mixings:under").background_s(2.0) == 2.0
    with pytest.raises(UsageError, match=r"must define draw\(event, background, ...\)"):
        find_mixing("broken_mixing:half")
    with pytest.raises(UsageError, match="No mixing called 'scapper'; did you mean 'scaper'"):
        find_mixing("scapper")
