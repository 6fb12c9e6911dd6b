"""Recordings of every form -> samples -> windows."""

import io
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from driftscore import Audio, AudioError, Backbone, Embedder, UsageError
from driftscore.audio.decoding import PartialFile
from driftscore.audio.recordings import Recording, expand, read, sounding_windows, windows

from .conftest import WriteWav, noise_clip

needs_ffmpeg = pytest.mark.skipif(not shutil.which("ffmpeg"), reason="FFMPEG IS NOT INSTALLED")


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg", "mp3"])
def test_every_format_of_libsndfile_is_read(tmp_path: Path, ending: str) -> None:
    clip = noise_clip(2.0, rate=44_100)
    path = tmp_path / f"clip.{ending}"
    soundfile.write(path, clip.samples, clip.rate)
    found = read(path)
    assert found.rate == 44_100
    assert found.seconds == pytest.approx(2.0, abs=0.06)  # mp3 pads to whole frames
    expected, _ = soundfile.read(path, dtype="float32")
    np.testing.assert_array_equal(found.samples, expected)


def test_opus_is_read(tmp_path: Path) -> None:
    path = tmp_path / "clip.opus"
    clip = noise_clip(1.0, rate=48_000)
    soundfile.write(path, clip.samples, clip.rate, format="OGG", subtype="OPUS")
    assert read(path).seconds == pytest.approx(1.0, abs=0.01)


def test_a_path_a_file_bytes_and_an_array_give_the_same_samples(wav: WriteWav) -> None:
    path = wav()
    samples, rate = soundfile.read(path, dtype="float32")
    with open(path, "rb") as file:
        content = file.read()
        file.seek(0)
        recordings: list[Recording] = [
            path, Path(path), file, content, io.BytesIO(content), (samples, rate),
            Audio(samples, rate), {"raw": samples, "sampling_rate": rate},
            {"array": samples, "sampling_rate": rate},
        ]  # fmt: skip
        found = [read(recording, rate=32_000).samples for recording in recordings]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_resampling_as_a_stream_equals_soxr_in_one_go(wav: WriteWav) -> None:
    path = wav(seconds=13.7)
    samples, rate = soundfile.read(path, dtype="float32")
    np.testing.assert_array_equal(
        read(path, rate=48_000).samples, soxr.resample(samples, rate, 48_000)
    )


def test_channels_are_averaged_on_either_axis() -> None:
    stereo = np.stack([np.full(100, 0.5), np.full(100, -0.1)], axis=1)
    for samples in (stereo, stereo.T):
        np.testing.assert_allclose(Audio(samples, 8000).samples, 0.2, atol=1e-7)


def test_integer_samples_are_scaled_by_their_range() -> None:
    assert Audio(np.array([-(2**15), 2**14], np.int16), 8000).samples.tolist() == [-1.0, 0.5]
    assert Audio(np.array([0, 192], np.uint8), 8000).samples.tolist() == [-1.0, 0.5]


def reference_starts(total: int, length: int) -> list[int]:
    """Return where windows start, by the definition in method.md."""
    if total <= length:
        return [0]
    starts = list(range(0, total - length + 1, length // 2))
    return starts if starts[-1] + length == total else [*starts, total - length]


@settings(max_examples=60, deadline=None)
@given(total=st.integers(1, 30_000), half=st.integers(1, 2_000))
def test_windows_are_the_models_length_half_overlapping_and_the_last_right_aligned(
    total: int, half: int
) -> None:
    samples = np.arange(1, total + 1, dtype=np.float32) / total
    found = list(windows((samples, 1000), rate=1000, seconds=2 * half / 1000))
    starts = reference_starts(total, 2 * half)
    assert [round(window.start_s * 1000) for window in found] == starts
    for start, window in zip(starts, found, strict=True):
        np.testing.assert_array_equal(window.samples, samples[start : start + 2 * half])
        assert window.end_s == pytest.approx(min(start + 2 * half, total) / 1000)


def test_windows_of_a_file_do_not_depend_on_the_size_of_the_blocks(
    wav: WriteWav, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = wav(seconds=23.3)
    first = [w.samples for w in windows(path, rate=24_000, seconds=5)]
    monkeypatch.setattr("driftscore.audio.decoding.BLOCK_SECONDS", 1)
    second = [w.samples for w in windows(path, rate=24_000, seconds=5)]
    assert len(first) == len(second)
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, two)


def test_memory_does_not_grow_with_the_length_of_a_recording(tmp_path: Path) -> None:
    import tracemalloc

    def peak(minutes: float) -> int:
        path = tmp_path / f"{minutes}.flac"
        with soundfile.SoundFile(path, "w", 8000, 1) as file:
            for second in range(round(60 * minutes)):
                file.write(noise_clip(1.0, rate=8000, seed=second % 5).samples)
        tracemalloc.start()
        for _ in windows(path, rate=16_000, seconds=10):
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    short, long = peak(1), peak(10)
    assert long < 1.1 * short


def test_silent_windows_are_left_out_and_a_silent_recording_is_refused() -> None:
    half = np.concatenate([np.zeros(4000), np.ones(2000)]).astype(np.float32)
    assert [w.start_s for w in sounding_windows((half, 1000), rate=1000, seconds=2)] == [3.0, 4.0]
    with pytest.raises(AudioError, match="is silent"):
        list(sounding_windows((np.zeros(5000, np.float32), 1000), rate=1000, seconds=2))


def damaged(tmp_path: Path, kind: str) -> str:
    clip = noise_clip(4.0)
    path = tmp_path / f"{kind}.wav"
    if kind == "text":
        path.write_text("this is not sound\n" * 100)
    elif kind == "empty":
        path.touch()
    elif kind == "no samples":
        soundfile.write(path, np.zeros(0), 16_000)
    elif kind == "NaN":
        samples = clip.samples.copy()
        samples[100] = np.nan
        soundfile.write(path, samples, clip.rate, subtype="FLOAT")
    elif kind == "truncated":
        soundfile.write(path, clip.samples, clip.rate)
        path.write_bytes(path.read_bytes()[:40_000])
    elif kind == "truncated flac":
        path = path.with_suffix(".flac")
        soundfile.write(path, clip.samples, clip.rate)
        path.write_bytes(path.read_bytes()[:40_000])
    elif kind == "folder":
        path.mkdir()
    return str(path)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "cannot be opened: No such file"),
        ("empty", "has no bytes"),
        ("no samples", "has no samples"),
        ("text", "is not a sound file"),
        ("NaN", "NaN or infinite"),
        ("truncated", "is truncated"),
        ("truncated flac", "is damaged|is truncated"),
        ("folder", "is a folder"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_the_reason(
    tmp_path: Path, kind: str, message: str
) -> None:
    path = damaged(tmp_path, kind)
    with pytest.raises(AudioError, match=message) as caught:
        list(windows(path, rate=16_000, seconds=2))
    assert path in str(caught.value)


@pytest.mark.parametrize("format", ["WAV", "AIFF", "AU", "W64", "RF64"])
def test_a_file_that_ends_too_early_is_refused_in_every_format(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"clip.{format.lower()}"
    soundfile.write(path, noise_clip(2.0).samples, 16_000, format=format)
    assert read(path).seconds == 2.0
    path.write_bytes(path.read_bytes()[:40_000])
    with pytest.raises(AudioError, match="is truncated"):
        read(path)


def test_a_wav_that_was_streamed_with_an_unknown_length_is_read(
    tmp_path: Path, wav: WriteWav
) -> None:
    content = bytearray(Path(wav()).read_bytes())
    content[4:8] = content[40:44] = b"\xff\xff\xff\xff"
    path = tmp_path / "streamed.wav"
    path.write_bytes(content)
    assert read(path).seconds == pytest.approx(3.0)


def test_without_ffmpeg_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(AudioError, match="install ffmpeg"):
        read(damaged(tmp_path, "text"))


@needs_ffmpeg
def test_other_formats_are_read_through_ffmpeg(tmp_path: Path, wav: WriteWav) -> None:
    path = tmp_path / "clip.m4a"
    subprocess.run(["ffmpeg", "-v", "error", "-i", wav(), str(path)], check=True)
    found = read(path)
    assert found.rate == 16_000
    assert found.seconds == pytest.approx(3.0, abs=0.15)  # aac pads to whole frames
    assert len(list(windows(path, rate=8000, seconds=1))) >= 5


@needs_ffmpeg
def test_a_damaged_file_that_only_ffmpeg_knows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "noise.m4a"
    path.write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(AudioError, match="libsndfile or ffmpeg"):
        read(path)


@pytest.mark.parametrize(
    ("samples", "rate", "message"),
    [
        (np.zeros(5), 0, "positive integer"),
        (np.zeros(5), 8000.5, "positive integer"),
        (np.zeros((2, 2, 2)), 8000, "one or two axes"),
        (np.array(["a"]), 8000, "numbers"),
    ],
)
def test_what_is_not_sound_is_refused(samples: Any, rate: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Audio(samples, rate)


def test_an_array_without_its_rate_is_refused() -> None:
    array: Any = np.zeros(10, np.float32)
    with pytest.raises(AudioError, match="needs its sample rate"):
        read(array)


@pytest.mark.parametrize("scale", [32_767.0, 2.0**31 - 1])
def test_floats_on_the_scale_of_integers_are_refused(scale: float) -> None:
    """They are 16-bit samples that were converted and not divided: no embedding has a meaning."""
    samples = noise_clip(1.0).samples * np.float32(scale)
    with pytest.raises(AudioError, match=r"must lie within \[-1, 1\]; divide them"):
        Audio(samples, 16_000)
    integers: Any = (noise_clip(1.0).samples * 32_767).astype(np.int16)
    assert np.abs(Audio(integers, 16_000).samples).max() < 1


def test_a_little_too_loud_is_allowed() -> None:
    assert Audio(np.array([1.5, -30.0]), 8000).samples.tolist() == [1.5, -30.0]


def test_a_file_of_floats_on_the_scale_of_integers_is_an_error_of_that_file(
    tmp_path: Path, wav: WriteWav, fake: Backbone
) -> None:
    clip = noise_clip(1.0)
    loud = tmp_path / "loud.wav"
    soundfile.write(loud, clip.samples * 32_767, clip.rate, subtype="FLOAT")
    unscaled = (clip.samples * 32_767, clip.rate)
    with Embedder(fake) as embedder:
        good, bad, pair = embedder.embed([wav(), loud, unscaled])
    assert not good.error
    assert str(loud) in bad.error
    assert "must lie within [-1, 1]" in bad.error
    assert "must lie within [-1, 1]" in pair.error


def test_folders_and_globs_are_expanded_in_a_fixed_order(tmp_path: Path, wav: WriteWav) -> None:
    names = [wav("b.wav"), wav("a.flac"), wav("C.WAV", format="WAV")]
    (tmp_path / "notes.txt").write_text("no sound")
    assert expand([tmp_path]) == sorted(names)
    assert expand([f"{tmp_path}/*.wav"]) == [names[0]]
    assert expand([names[0], tmp_path, names[0]]) == [names[0], *sorted(set(names) - {names[0]})]
    assert expand(["absent.wav"]) == ["absent.wav"]
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match="has no sound files"):
        expand([tmp_path / "none"])
    with pytest.raises(UsageError, match="No file matches"):
        expand([f"{tmp_path}/*.aiff"])


@pytest.mark.parametrize(("format", "subtype"), [("NIST", "PCM_16"), ("VOC", "PCM_16")])
def test_a_file_shorter_than_its_header_states_is_refused_and_partially_used(
    tmp_path: Path, format: str, subtype: str
) -> None:
    path = tmp_path / "clip.sound"
    soundfile.write(path, noise_clip(2.0).samples, 16_000, format=format, subtype=subtype)
    assert read(path).seconds == 2.0
    path.write_bytes(path.read_bytes()[:40_000])
    with pytest.raises(AudioError, match="is truncated"):
        read(path)
    file = PartialFile(path)
    with pytest.warns(UserWarning, match=r"its first 1\.2. s are used"):
        assert read(file).seconds == pytest.approx(1.23, abs=0.03)
    assert "is truncated" in file.cut


def test_a_voc_of_several_blocks_that_is_cut_in_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "clip.voc"
    soundfile.write(path, noise_clip(1.0).samples, 16_000, format="VOC")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + content[26:])
    assert read(path).seconds > 1.9
    path.write_bytes(content[:-1] + content[26:-500])
    with pytest.raises(AudioError, match="is truncated: its last block is cut"):
        read(path)


@needs_ffmpeg
@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", bytes(4)])
@pytest.mark.parametrize(("subtype", "block"), [("PCM_16", 2), ("PCM_24", 3), ("FLOAT", 4)])
def test_a_wav_of_unknown_length_that_ends_inside_a_sample_is_refused(
    tmp_path: Path, length: bytes, subtype: str, block: int
) -> None:
    path = tmp_path / "clip.wav"
    soundfile.write(path, noise_clip(1.0).samples, 16_000, subtype=subtype)
    content = bytearray(path.read_bytes())
    data = content.index(b"data") + 8
    content[data - 4 : data] = length
    path.write_bytes(content[: data + 9_001 * block])
    assert len(read(path).samples) == 9_001
    for rest in range(1, block):
        path.write_bytes(content[: data + 9_000 * block + rest])
        if (9_000 * block + rest) % 2 == 0 and rest == 1:
            continue  # a byte that makes the length even
        with pytest.raises(AudioError, match="is truncated"):
            read(path)
        with pytest.warns(UserWarning, match="are used"):
            assert len(read(PartialFile(path)).samples) == 9_000
    if block == 3 and any(length):
        path.write_bytes(bytes(content[: data + 9_001 * block]) + bytes(1))  # padded
        assert len(read(path).samples) == 9_001
