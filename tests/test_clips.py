"""Clips of events: what they hold, what they are called, and what they never overwrite."""

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from driftscore.errors import AudioError, UsageError, WriteError
from driftscore.events.clips import ClipFolder, clip_name
from driftscore.events.tracking import Event

RATE = 8000


def ramp(path: Path, seconds: float = 60.0) -> Path:
    """Write a recording whose samples tell their own position."""
    samples = (np.arange(round(seconds * RATE)) % 30_000 - 15_000).astype(np.int16)
    soundfile.write(path, samples, RATE, subtype="PCM_16")
    return path


def event(start_s: float, end_s: float, label: str = "dog bark") -> Event:
    return Event(label, start_s, end_s, 5.0, 4.0)


def test_a_clip_holds_the_samples_of_its_event_and_the_seconds_around_it(tmp_path: Path) -> None:
    night = ramp(tmp_path / "night.wav")
    events = [event(3.0, 4.0), event(20.25, 22.5, "siren"), event(21.0, 23.0), event(58.0, 60.0)]
    paths = ClipFolder(tmp_path / "clips", around_s=1.5).cut(night, events)
    recording = soundfile.read(night, dtype="int16")[0]
    for found, path in zip(events, paths, strict=True):
        assert path is not None
        samples, rate = soundfile.read(path, dtype="int16")
        first, last = round((found.start_s - 1.5) * RATE), round((found.end_s + 1.5) * RATE)
        assert rate == RATE
        np.testing.assert_array_equal(samples, recording[first:last])
    assert [path.name for path in paths if path] == [
        "night_00-00-03.0_dog-bark.flac", "night_00-00-20.2_siren.flac",
        "night_00-00-21.0_dog-bark.flac", "night_00-00-58.0_dog-bark.flac",
    ]  # fmt: skip
    assert len(list((tmp_path / "clips").iterdir())) == 4


def test_a_clip_at_the_beginning_is_shorter(tmp_path: Path) -> None:
    night = ramp(tmp_path / "night.wav", 5.0)
    [path] = ClipFolder(tmp_path, around_s=2).cut(night, [event(0.5, 1.0)])
    assert path is not None
    assert (path.suffix, soundfile.info(path).frames) == (".flac", 3 * RATE)


def test_a_second_run_replaces_its_own_clips_and_no_other_file(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        ramp(tmp_path / folder / "night.wav", 5.0)
    clips = tmp_path / "clips"
    clips.mkdir()
    foreign = clips / "night_00-00-03.0_dog-bark.flac"
    foreign.write_bytes(b"not ours")
    runs = []
    for end in (4.0, 4.5):
        written = ClipFolder(clips, around_s=0)
        runs.append([written.cut(tmp_path / name / "night.wav", [event(3.0, end)])[0]
                     for name in ("a", "b")])  # fmt: skip
    names = [path.name for path in runs[0] if path]
    assert names == ["night_00-00-03.0_dog-bark-2.flac", "night_00-00-03.0_dog-bark-3.flac"]
    assert runs[1] == runs[0]
    assert foreign.read_bytes() == b"not ours"
    assert len(list(clips.iterdir())) == 3
    assert runs[1][0] is not None
    assert soundfile.info(runs[1][0]).frames == 1.5 * RATE


def test_names_that_differ_only_in_case_get_numbers(tmp_path: Path) -> None:
    night = ramp(tmp_path / "night.wav", 5.0)
    paths = ClipFolder(tmp_path / "c").cut(night, [event(1, 2, "Siren"), event(1, 2, "siren")])
    assert [path.name for path in paths if path] == [
        "night_00-00-01.0_Siren.flac", "night_00-00-01.0_siren-2.flac",
    ]  # fmt: skip


def test_labels_of_which_no_audio_is_kept_have_no_clip(tmp_path: Path) -> None:
    night = ramp(tmp_path / "night.wav", 5.0)
    folder = ClipFolder(tmp_path / "clips", without=["speech"])
    assert folder.cut(night, [event(1, 2, "speech")]) == [None]
    assert not (tmp_path / "clips").exists()
    paths = folder.cut(night, [event(1, 2, "speech"), event(1, 2), event(9, 10)])
    assert [path is None for path in paths] == [True, False, True]


def test_a_damaged_recording_leaves_no_part_of_a_clip(tmp_path: Path) -> None:
    night = ramp(tmp_path / "night.wav", 20.0)
    night.write_bytes(night.read_bytes()[: 44 + 15 * 2 * RATE])
    with pytest.raises(AudioError, match="truncated"):
        ClipFolder(tmp_path / "clips").cut(night, [event(1, 19)])
    broken = ramp(tmp_path / "night.flac", 20.0)
    content = bytearray(broken.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    broken.write_bytes(content)
    with pytest.raises(AudioError):
        ClipFolder(tmp_path / "clips").cut(broken, [event(1, 19)])
    assert list((tmp_path / "clips").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error_of_writing(tmp_path: Path) -> None:
    night = ramp(tmp_path / "night.wav", 5.0)
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="Cannot write"):
        ClipFolder(tmp_path / "file" / "clips").cut(night, [event(1, 2)])


@pytest.mark.parametrize("wrong", [-1.0, float("nan")])
def test_wrong_settings_are_wrong_usage(tmp_path: Path, wrong: float) -> None:
    with pytest.raises(UsageError):
        ClipFolder(tmp_path, around_s=wrong)
    with pytest.raises(UsageError, match="folder of this machine"):
        ClipFolder("s3://bucket/clips")


@settings(deadline=None)
@given(st.text(), st.text(), st.floats(0, 4e5))
def test_every_system_takes_the_name_of_a_clip(stem: str, label: str, start_s: float) -> None:
    name = clip_name(stem.replace("/", "") + ".wav", event(start_s, start_s + 1, label))
    assert re.fullmatch(r"[\w-]+_\d{2,}-\d\d-\d\d\.\d_[\w-]+", name)
    assert len(name.encode()) < 200


@settings(max_examples=20, deadline=None)
@given(spans=st.lists(st.tuples(st.floats(0, 30), st.floats(0.01, 9)), min_size=1, max_size=8))
def test_any_set_of_events_is_cut_as_slices_would_cut_it(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[float, float]]
) -> None:
    home = tmp_path_factory.mktemp("any")
    night = ramp(home / "night.wav", 30.0)
    events = [event(start, start + length, f"label {n}") for n, (start, length) in enumerate(spans)]
    paths = ClipFolder(home / "clips", around_s=0.5).cut(night, events)
    recording = soundfile.read(night, dtype="int16")[0]
    for found, path in zip(events, paths, strict=True):
        first = round(max(0.0, found.start_s - 0.5) * RATE)
        expected = recording[first : round((found.end_s + 0.5) * RATE)]
        if path is None:
            assert not len(expected)
        else:
            np.testing.assert_array_equal(soundfile.read(path, dtype="int16")[0], expected)


def test_memory_does_not_grow_with_the_recording(tmp_path: Path) -> None:
    night = ramp(tmp_path / "night.wav", 1800.0)
    folder = ClipFolder(tmp_path / "clips")
    folder.cut(night, [event(1, 2)])
    tracemalloc.start()
    ClipFolder(tmp_path / "clips").cut(night, [event(5, 1795), event(1700, 1710)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000  # the recording has 57 MB as float32
