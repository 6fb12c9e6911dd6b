"""Files as real tools write them: read whole, refused when they are cut, or read as far as they go.

ffmpeg, sox, flac, oggenc, opusenc and arecord write three seconds in every format that recorders,
phones and pipes leave behind. What is not installed is skipped loudly.
"""

import os
import shutil
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile

from driftscore import AudioError
from driftscore.audio.decoding import DecodingBounds, PartialFile, decoded, stated_rate
from driftscore.audio.recordings import expand, read, read_blocks, read_part
from driftscore.errors import LimitError

SECONDS = 3.0
FFMPEG = "ffmpeg -v error -i {wav}"
AMR = "sox {wav} -t amr-nb -r 8000 -c 1"
WRITTEN = {
    "piped.flac": f"{FFMPEG} -f flac - > {{out}}",
    "piped.wav": f"{FFMPEG} -f wav - > {{out}}",
    "sox.wav": "sox {wav} -t wav - > {out}",
    "piped_by_flac.flac": "flac -s -c - < {wav} > {out}",
    "rf64.wav": f"{FFMPEG} -rf64 always {{out}}",
    "sony.w64": f"{FFMPEG} {{out}}",
    "apple.caf": f"{FFMPEG} {{out}}",
    "sox.caf": "sox {wav} {out}",
    "24_bits.wav": f"{FFMPEG} -c:a pcm_s24le {{out}}",
    "32_bits.wav": f"{FFMPEG} -c:a pcm_s32le {{out}}",
    "float.wav": f"{FFMPEG} -c:a pcm_f32le {{out}}",
    "ima_adpcm.wav": f"{FFMPEG} -c:a adpcm_ima_wav {{out}}",
    "ms_adpcm.wav": f"{FFMPEG} -c:a adpcm_ms {{out}}",
    "yamaha_adpcm.wav": f"{FFMPEG} -c:a adpcm_yamaha {{out}}",
    "g726.wav": f"{FFMPEG} -ar 8000 -c:a g726 {{out}}",
    "mulaw.wav": f"{FFMPEG} -ar 8000 -c:a pcm_mulaw {{out}}",
    "phone.3gp": f"{FFMPEG} -c:a aac -movflags +faststart {{out}}",
    "phone.m4a": f"{FFMPEG} -movflags +faststart {{out}}",
    "video.mkv": f"{FFMPEG} {{out}}",
    "web.webm": f"{FFMPEG} {{out}}",
    "radio.aac": f"{FFMPEG} {{out}}",
    "windows.wma": f"{FFMPEG} {{out}}",
    "music.mp3": f"{FFMPEG} -c:a libmp3lame {{out}}",
    "piped.mp3": f"{FFMPEG} -c:a libmp3lame -f mp3 - > {{out}}",
    "piped.caf": f"{FFMPEG} -f caf - > {{out}}",
    "layer2.mp2": f"{FFMPEG} {{out}}",
    "index_at_its_end.m4a": f"{FFMPEG} {{out}}",
    "vorbis.ogg": f"{FFMPEG} -c:a libvorbis {{out}}",
    "oggenc.ogg": "oggenc -Q {wav} -o {out}",
    "flac.oga": "flac -s --ogg -c - < {wav} > {out}",
    "opus.opus": f"{FFMPEG} {{out}}",
    "opusenc.opus": "opusenc --quiet {wav} {out}",
    "pack.wv": f"{FFMPEG} {{out}}",
    "disc.aiff": f"{FFMPEG} {{out}}",
    "sun.au": f"{FFMPEG} {{out}}",
    "memo.amr": f"{AMR} {{out}}",
    "memo.3gp": f"{AMR} {{out}}.amr && ffmpeg -v error -i {{out}}.amr -c copy "
    "-movflags +faststart {out}",
    "arecord.wav": "arecord -q -D null -d 3 -f S16_LE -r 44100 {out}",
    "piped_by_arecord.wav": "arecord -q -D null -d 3 -f S24_3LE -r 48000 -c 2 > {out}",
}
NO_LENGTH = ("piped.wav", "piped.mp3", "piped.caf", "layer2.mp2")
"""Nothing in these says how long they should be: one that is cut is a shorter one."""


@pytest.fixture(scope="module")
def wav(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "noise.wav"
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, round(SECONDS * 44_100))
    soundfile.write(path, noise, 44_100)
    return path


def write(name: str, wav: Path) -> Path:
    """Let a tool write a file."""
    command, out = WRITTEN[name], wav.with_name(name)
    if shutil.which(tool := command.partition(" ")[0]) is None:
        pytest.skip(f"NOT RUN: {tool} is not installed")
    if not out.exists():
        done = subprocess.run(["sh", "-c", command.format(wav=wav, out=out)], check=False)
        if done.returncode and name.startswith("memo"):
            pytest.skip("NOT RUN: this sox was built without AMR")
        assert not done.returncode
    return out


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_of_a_real_tool_is_read_whole(name: str, wav: Path) -> None:
    path = write(name, wav)
    assert read(path).seconds == pytest.approx(SECONDS, abs=0.1)
    with open(path, "rb") as file:
        assert read(file).seconds == pytest.approx(SECONDS, abs=0.1)


@pytest.mark.parametrize("name", [name for name in WRITTEN if name not in NO_LENGTH])
def test_a_cut_file_is_refused_with_its_reason_or_read_as_far_as_it_goes(
    name: str, wav: Path, tmp_path: Path
) -> None:
    content = write(name, wav).read_bytes()
    cut = tmp_path / f"cut_{name}"
    cut.write_bytes(content[: len(content) * 6 // 10])
    with pytest.raises(AudioError, match=rf"cut_{name} is truncated"):
        read(cut)
    if name == "index_at_its_end.m4a":  # without it nothing can be found in the file
        return
    with pytest.warns(UserWarning, match=rf"cut_{name} is truncated.*its first [\d.]+ s are used"):
        part = read(PartialFile(cut))
    assert 0.25 * SECONDS < part.seconds < 0.75 * SECONDS


def test_segments_of_a_flac_are_read_although_their_headers_are_those_of_the_stream(
    wav: Path, tmp_path: Path
) -> None:
    if shutil.which("ffmpeg") is None:
        pytest.skip("NOT RUN: ffmpeg is not installed")
    command = ["ffmpeg", "-v", "error", "-i", str(wav), "-f", "segment", "-segment_time", "1.1"]
    subprocess.run([*command, str(tmp_path / "part%d.flac")], check=True)
    parts = [read(path) for path in expand([tmp_path])]
    assert len(parts) >= 3
    whole = np.concatenate([part.samples for part in parts])
    np.testing.assert_array_equal(whole, read(wav).samples)


def test_the_bytes_of_a_stranger_are_read_like_a_file(wav: Path) -> None:
    content = write("piped.flac", wav).read_bytes()
    with decoded(content, name="The recording", bounds=DecodingBounds(60, 10**8)) as opened:
        assert read_blocks(opened, name="The recording").seconds == pytest.approx(SECONDS)
    with (
        pytest.raises(LimitError, match="The recording is longer than 1 s"),
        decoded(content, name="The recording", bounds=DecodingBounds(1, 10**8)) as opened,
    ):
        read_blocks(opened, name="The recording")


@pytest.mark.parametrize("ending", ["ogg", "opus", "mp3", "m4a", "wav"])
def test_segments_of_other_formats_are_read_too(ending: str, wav: Path, tmp_path: Path) -> None:
    if shutil.which("ffmpeg") is None:
        pytest.skip("NOT RUN: ffmpeg is not installed")
    command = ["ffmpeg", "-v", "error", "-i", str(wav), "-f", "segment", "-segment_time", "1.1"]
    subprocess.run([*command, str(tmp_path / f"part%d.{ending}")], check=True)
    parts = [read(path).seconds for path in expand([tmp_path])]
    assert len(parts) >= 3
    assert sum(parts) == pytest.approx(SECONDS, abs=0.15)


def test_an_mp3_with_a_large_tag_and_no_length_is_read(wav: Path, tmp_path: Path) -> None:
    plain = write("piped.mp3", wav).read_bytes()
    tagged = tmp_path / "tagged.mp3"
    tagged.write_bytes(b"ID3\x04\x00\x00\x00\x00\x40\x00" + bytes(64 * 128) + plain)
    assert read(tagged).seconds == pytest.approx(SECONDS, abs=0.1)


@pytest.mark.parametrize("length", [0, 0xFFFFFFFF])
def test_a_wav_that_was_streamed_is_read_whatever_length_it_states(
    length: int, wav: Path, tmp_path: Path
) -> None:
    if shutil.which("ffmpeg") is None:
        pytest.skip("NOT RUN: ffmpeg is not installed")
    content = bytearray(wav.read_bytes())
    for at in (4, content.index(b"data") + 4):
        struct.pack_into("<I", content, at, length)
    (tmp_path / "streamed.wav").write_bytes(content)
    np.testing.assert_array_equal(read(tmp_path / "streamed.wav").samples, read(wav).samples)


def test_files_of_a_folder_that_are_left_out_are_counted_by_their_endings(tmp_path: Path) -> None:
    for name in ("a.wav", "b.txt", "c.TXT", "README", ".hidden", "._a.wav"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "elsewhere").symlink_to("/", target_is_directory=True)
    left_out: Counter[str] = Counter()
    assert expand([tmp_path], left_out) == [str(tmp_path / "a.wav")]
    assert left_out == {".txt": 2, "no extension": 1, "link to a folder": 1}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_part_and_the_rate_of_a_file_whose_name_is_not_utf_8_are_read(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.wav")
    with open(path, "wb") as file:
        soundfile.write(file, np.full(16_000, 0.1), 8_000, format="WAV")
    assert stated_rate(path) == 8_000
    part = read_part(path, 0.5, 1.0)
    assert (part.rate, len(part.samples)) == (8_000, 4_000)
