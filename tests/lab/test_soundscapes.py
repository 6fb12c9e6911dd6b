import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from driftscore.cli.app import app
from driftscore.errors import FormatError, MismatchError, UsageError
from driftscore.lab.conditions import canonical
from driftscore.lab.corpora.datasets import find_dataset
from driftscore.lab.corpora.noises import find_noise
from driftscore.lab.corpora.soundscapes.draw import GAP_S, Material, draw
from driftscore.lab.corpora.soundscapes.render import soundscape_blocks, write_soundscape
from driftscore.lab.corpora.soundscapes.truth import Soundscape, SoundscapeRecipe, read_soundscape
from driftscore.lab.mixing.loudness import integrated_loudness
from training.corpora import shared_soundscapes
from training.corpora.recordings import AUDIBLE, material
from training.corpora.shared_soundscapes import cached_soundscape

from .small_lab import RATE, WORDS, build, build_recordings, write

RECIPE = SoundscapeRecipe(
    seconds=400.0, words=3, events=9, others=4, quiet_s=100.0, rate=RATE, snr_db=(0.0, 15.0)
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_recordings(tmp_path_factory.mktemp("recordings")))


@pytest.fixture
def made(home: str) -> Soundscape:
    return draw(RECIPE, material("events", home))


def samples_of(soundscape: Soundscape, home: str) -> NDArray[np.float64]:
    recordings = material("events", home)
    return np.concatenate(list(soundscape_blocks(soundscape, recordings))) / 32_767


def test_a_soundscape_has_the_events_that_its_recipe_asks_for(made: Soundscape) -> None:
    assert made.words == tuple(sorted(WORDS))  # the others are audible in a background
    assert [event.label in made.words for event in made.events] == [e.wanted for e in made.events]
    counts = [sum(event.label == word for event in made.events) for word in made.words]
    assert counts == [3, 3, 3]
    assert sum(not event.wanted for event in made.events) == 4
    assert all(0 <= event.snr_db <= 15 for event in made.events)
    assert len({event.part.file for event in made.wanted}) == 9  # no clip twice
    assert made.quiet_s[1] - made.quiet_s[0] == pytest.approx(100)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 10_000), events=st.integers(0, 12), quiet_s=st.sampled_from([0.0, 90.0]))
def test_events_lie_inside_apart_and_out_of_the_quiet_part(
    home: str, seed: int, events: int, quiet_s: float
) -> None:
    made = draw(
        replace(RECIPE, seed=seed, events=events, quiet_s=quiet_s), material("events", home)
    )
    low, high = made.quiet_s
    by_label: dict[str, float] = {}
    for event in made.events:
        assert 0 <= event.start_s < event.end_s <= made.seconds
        if quiet_s:
            assert event.end_s + GAP_S <= low + 0.001 or event.start_s >= high + GAP_S - 0.001
        assert event.start_s >= by_label.get(event.label, -GAP_S) + GAP_S - 0.001
        by_label[event.label] = event.end_s
        avoid = {noise.file: noise for noise in material("events", home).backgrounds}
        for part in made.backgrounds:
            overlaps = (
                part.start < event.end_s * RATE and event.start_s * RATE < part.start + part.frames
            )
            assert not (overlaps and avoid[part.file].contains([event.label]))


def test_events_are_cut_to_their_sound_and_start_where_the_truth_says(
    made: Soundscape, home: str
) -> None:
    for event in made.events:
        assert event.part.source_start == RATE // 5
        assert event.part.frames == pytest.approx((1 + int(event.part.file[-5])) * RATE, abs=320)
    with_it = samples_of(made, home)
    event = made.wanted[0]
    without = replace(made, events=tuple(e for e in made.events if e != event))
    differs = np.flatnonzero(with_it != samples_of(without, home))
    assert differs[0] / RATE == pytest.approx(event.start_s, abs=0.005)
    assert differs[-1] / RATE == pytest.approx(event.end_s, abs=0.005)


def test_loudness_of_events_and_background_is_that_of_scaper(made: Soundscape, home: str) -> None:
    event = made.wanted[0]
    scale = made.scale_db
    alone = samples_of(replace(made, events=(event,)), home) - samples_of(
        replace(made, events=()), home
    )
    sounding = alone[round(event.start_s * RATE) : round(event.end_s * RATE)].astype(np.float32)
    wanted = made.ref_db + event.snr_db + scale
    assert integrated_loudness(sounding, RATE) == pytest.approx(wanted, abs=0.2)
    behind = samples_of(replace(made, events=()), home).astype(np.float32)
    assert integrated_loudness(behind, RATE) == pytest.approx(made.ref_db + scale, abs=0.3)


def test_the_background_has_no_gap_and_no_jump_in_level(made: Soundscape, home: str) -> None:
    white = replace(made, events=(), scale_db=0.0)
    parts = tuple(
        replace(part, file="noise/park.wav", sha256=_sha256(made, "noise/park.wav"), gain_db=0.0)
        for part in white.backgrounds
    )
    samples = samples_of(replace(white, backgrounds=parts), home)
    blocks = samples[: len(samples) // RATE * RATE].reshape(-1, RATE)
    levels = 10 * np.log10((blocks**2).mean(axis=1))
    assert np.ptp(levels) < 1.0  # a cross-fade of equal power


def _sha256(made: Soundscape, file: str) -> str:
    return next(part.sha256 for part in made.backgrounds if part.file == file)


def test_the_same_recipe_gives_the_same_bytes_and_the_truth_rebuilds_them(
    home: str, tmp_path: Path
) -> None:
    recordings = material("events", home)
    for name in ("first", "second"):
        write_soundscape(draw(RECIPE, recordings), tmp_path / f"{name}.flac", recordings)
    write_soundscape(read_soundscape(tmp_path / "first.json"), tmp_path / "third.flac", recordings)
    for suffix in (".flac", ".json"):
        first, second, third = (
            (tmp_path / f"{name}{suffix}").read_bytes() for name in ("first", "second", "third")
        )
        assert first == second == third
    info = soundfile.info(tmp_path / "first.flac")
    assert (info.frames, info.samplerate, info.subtype) == (400 * RATE, RATE, "PCM_16")


def test_blocks_of_any_length_give_the_same_samples(made: Soundscape, home: str) -> None:
    short = replace(made, frames=130 * RATE)
    expected, recordings = samples_of(short, home), material("events", home)
    for block_s in (0.37, 7.0, 1000.0):
        blocks = list(soundscape_blocks(short, recordings, block_s=block_s))
        assert np.array_equal(np.concatenate(blocks) / 32_767, expected)


def test_a_cached_soundscape_is_made_once_and_is_the_same_when_it_is_made_again(
    home: str,
) -> None:
    path, made = cached_soundscape(RECIPE, home=home)
    content, stamp = path.read_bytes(), path.stat().st_mtime_ns
    assert cached_soundscape(RECIPE, home=home) == (path, made)
    assert path.stat().st_mtime_ns == stamp
    path.unlink()
    assert cached_soundscape(RECIPE, home=home)[0].read_bytes() == content
    assert cached_soundscape(replace(RECIPE, seed=2), home=home)[0] != path


def test_the_dataset_of_soundscapes_has_one_clip_per_recipe(
    home: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared_soundscapes, "RECIPES", (RECIPE, replace(RECIPE, words=("dog",))))
    dataset = find_dataset("training.corpora:shared_soundscapes", home)
    clips = dataset.clips()
    assert [clip.labels for clip in clips] == [tuple(sorted(WORDS)), ("dog",)]
    assert len({clip.id for clip in clips}) == 2
    assert dataset.labels() == tuple(sorted(WORDS))
    assert dataset.about.timed
    absent = find_dataset("training.corpora:shared_soundscapes", tmp_path)
    assert absent.missing() == ["manifest.csv"]
    with pytest.raises(UsageError, match="incomplete; missing:"):
        absent.clips()


def test_another_seed_gives_another_soundscape(made: Soundscape, home: str) -> None:
    other = draw(replace(RECIPE, seed=2), material("events", home))
    assert other.digest != made.digest
    assert {e.start_s for e in other.events}.isdisjoint(e.start_s for e in made.events)


def test_the_truth_is_read_as_it_was_written(made: Soundscape, tmp_path: Path) -> None:
    made.save(tmp_path / "truth.json")
    assert read_soundscape(tmp_path / "truth.json") == made


def test_nothing_is_clipped(home: str) -> None:
    made = draw(replace(RECIPE, snr_db=(60.0, 60.0)), material("events", home))
    assert made.scale_db < 0
    assert 0.1 < np.abs(samples_of(made, home)).max() < 1


def test_given_words_exclude_backgrounds_that_contain_them(home: str) -> None:
    made = draw(replace(RECIPE, words=("rain", "sea_waves"), others=0), material("events", home))
    assert {part.file for part in made.backgrounds} == {"noise/road.wav"}
    assert made.words == ("rain", "sea waves")
    with pytest.raises(UsageError, match="Every background"):
        draw(replace(RECIPE, words=("rain", "engine")), material("events", home))


def test_split_train_uses_only_recordings_of_train(home: str) -> None:
    assert "road" in AUDIBLE
    assert "park" not in AUDIBLE
    made = draw(replace(RECIPE, split="train", words=("dog", "rain")), material("train", home))
    files = {e.part.file for e in made.events} | {part.file for part in made.backgrounds}
    assert all(file.startswith("train/") for file in files)
    assert {part.file for part in made.backgrounds} == {"train/ambient/road.wav"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seconds": 5}, "60 to 86400 seconds, got 5"),
        ({"quiet_s": 300}, "at most half of the 400 s, got 300"),
        ({"events": -1}, "counted from 0, got -1 and 4"),
        ({"snr_db": (5.0, 0.0)}, "low and high"),
        ({"rate": 10}, "rate must be 8000 to 192000 Hz, got 10"),
        ({"words": ()}, "Words are labels"),
        ({"words": -1}, "Words are labels"),
        ({"words": ("dog", "dog")}, "Words are labels"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_an_error_with_the_reason(
    wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        replace(RECIPE, **wrong)  # type: ignore[arg-type]


def test_what_the_recordings_cannot_give_is_an_error_with_the_reason(home: str) -> None:
    with pytest.raises(UsageError, match="3 labels are in no background, but 4 words"):
        draw(replace(RECIPE, words=4), material("events", home))
    with pytest.raises(UsageError, match="No label called 'dgo'; did you mean 'dog'"):
        draw(replace(RECIPE, words=("dgo",)), material("events", home))
    with pytest.raises(UsageError, match="No room for another"):
        draw(replace(RECIPE, seconds=60, quiet_s=20, events=60), material("events", home))


def test_a_changed_recording_and_a_damaged_truth_are_errors(
    made: Soundscape, home: str, tmp_path: Path
) -> None:
    changed = replace(made.backgrounds[0], sha256="0" * 64)
    with pytest.raises(MismatchError, match="is not what the soundscape was made from"):
        samples_of(replace(made, backgrounds=(changed,)), home)
    for content, message in (
        ("{}", "missing required field `recipe`"),
        ("[]", "Expected `object`, got `array`"),
        ("{", "not the truth"),
        ('{"version": 99}', "version 99"),
        (made.to_json().replace('"ref_db"', '"red_fb"'), "missing required field `ref_db`"),
        (made.to_json().replace('"wanted":true', '"wanted":1'), r"Expected `bool`, got `int`"),
        (made.to_json().replace('"source_start":', '"source_start":-'), "Expected `int` >= 0"),
    ):
        (tmp_path / "truth.json").write_text(content, encoding="utf-8")
        with pytest.raises(FormatError, match=message):
            read_soundscape(tmp_path / "truth.json")
    with pytest.raises(UsageError, match=r"Unsupported format '\.mp3'"):
        write_soundscape(made, tmp_path / "scape.mp3", material("events", home))


def test_the_command_writes_a_soundscape_and_builds_it_again(tmp_path: Path) -> None:
    home = build(tmp_path / "own")
    noise = np.random.default_rng(1).standard_normal(20 * RATE) * 0.1
    write(home / "noise" / "street.wav", noise)
    write(home / "noise" / "cafe.wav", noise.cumsum() / 50)
    corpora = ["--home", str(home / "clips"), "--noise-home", str(home / "noise")]
    out = tmp_path / "night.flac"
    options = ["--seconds", "120", "--words", "dog bark", "--events", "4", "--others", "1"]
    options += ["--quiet", "20", "--snr", "5", "6", "--rate", "16000"]
    done = CliRunner().invoke(app, ["lab", "soundscape", str(out), *options, *corpora])
    assert done.exit_code == 0, done.output
    assert "120 s with 4 events of 1 words and 1 others" in done.stderr
    assert done.stdout == ""
    truth = out.with_suffix(".json")
    files = {event.part.file for event in read_soundscape(truth).events}
    assert "clips/dog bark-0.wav" in files
    again = tmp_path / "again.flac"
    command = ["lab", "soundscape", str(again), "--from", str(truth), *corpora]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert again.read_bytes() == out.read_bytes()
    other = find_dataset("folder", build_other(tmp_path / "other"))
    missing = Material.of(other, find_noise("recorded", home / "noise"))
    with pytest.raises(UsageError, match="is not among the recordings"):
        list(soundscape_blocks(read_soundscape(truth), missing))


def build_other(home: Path) -> Path:
    write(home / "cat" / "a.wav", np.ones(RATE))
    return home


def test_the_shared_recordings_make_the_soundscape_of_the_bar(shared: Path) -> None:
    made = draw(SoundscapeRecipe(), material("events", shared / "audio"))
    assert (len(made.wanted), len(made.events), len(made.words)) == (80, 120, 12)
    assert made.quiet_s[1] - made.quiet_s[0] == pytest.approx(1200)
    # Not `made.digest`: the last bits of loudness and of resampled sounds depend on the processor.
    content = canonical(rounded(json.loads(made.to_json())))
    assert hashlib.sha256(content.encode()).hexdigest()[:8] == "ed5b9ef3"


def rounded(value: Any) -> Any:
    """Return JSON content with numbers of six decimals, and without digests of samples."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items() if key != "sha256"}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value
