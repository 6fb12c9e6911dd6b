"""Only what is in a file is decoded, and only as much as a recording may be."""

import io
import os
import shutil
import struct
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from driftscore import AudioError, Backbone, Classifier, Embedder
from driftscore.audio import decoding
from driftscore.audio.recordings import read
from driftscore.backbones import Features
from driftscore.backbones.stored import EmbeddingFile
from driftscore.backbones.vectors import Vector

from .conftest import LABELS, Counting, Run, WriteWav

needs_ffmpeg = pytest.mark.skipif(not shutil.which("ffmpeg"), reason="FFMPEG IS NOT INSTALLED")
ASK = ["--labels", ", ".join(LABELS), "--backbone", "fake", "-f", "csv"]


def ffmpeg(*arguments: str) -> None:
    subprocess.run(["ffmpeg", "-v", "error", "-y", *arguments], check=True)


class Spoiled(Counting):
    """A model that returns NaN for a loud window."""

    def encode(self, features: Features) -> Vector:
        row = super().encode(features)
        return row * np.float32(np.nan) if self.windows == 2 else row


def test_an_embedding_that_is_not_finite_is_the_error_of_that_recording_only(
    wav: WriteWav, fake: Backbone
) -> None:
    files = [wav(f"{n}.wav", seconds=1.0, seed=n) for n in range(4)]
    model = Spoiled(fake)
    with Embedder(model, threads=1, audio_cache=True) as embedder:
        found = list(embedder.embed(files))
    assert sorted("NaN" in one.error for one in found) == [False, False, False, True]
    assert all(np.isfinite(one.rows).all() for one in found)
    model.windows = 10
    with Embedder(model, threads=1, audio_cache=True) as embedder:
        again = list(embedder.embed(files))
    assert [one.error for one in again] == [""] * 4
    assert model.windows == 11, "the NaN was stored, or the others were not"


@pytest.mark.parametrize("peak", [1e18, 1e30, 3e38, np.inf, np.nan])
def test_a_very_loud_file_is_one_row_and_is_never_embedded(
    run: Run, wav: WriteWav, tmp_path: Path, peak: float
) -> None:
    loud = tmp_path / "loud.wav"
    soundfile.write(loud, np.full((16_000, 2), peak, np.float32), 16_000, subtype="FLOAT")
    status, out, _ = run("classify", wav("a.wav"), loud, wav("b.wav"), *ASK)
    rows = out.splitlines()
    assert (status, len(rows)) == (1, 4)
    assert [row.endswith("raw,") for row in rows[1:]] == [True, False, True]
    target = tmp_path / "rows.npz"
    assert run("embed", wav("a.wav"), loud, "-b", "fake", "--out", target)[0] == 1
    content = EmbeddingFile.load(target)
    assert len(content.files) == 1
    assert np.isfinite(content.audio_rows).all()


@needs_ffmpeg
@pytest.mark.parametrize("kind", ["hls", "live", "ffconcat", "dash", "sdp"])
def test_a_playlist_is_not_followed(wav: WriteWav, tmp_path: Path, kind: str) -> None:
    secret = tmp_path / "secret.ts"
    ffmpeg("-i", wav(), "-c:a", "aac", "-f", "mpegts", str(secret))
    content = {
        "hls": f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n{secret}\n#EXT-X-ENDLIST\n",
        "live": f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n{secret}\n",
        "ffconcat": f"ffconcat version 1.0\nfile {secret.name}\n",
        "dash": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
        'mediaPresentationDuration="PT3S"><Period><AdaptationSet mimeType="audio/mp4">'
        f'<Representation id="1" bandwidth="1"><BaseURL>{secret}</BaseURL></Representation>'
        "</AdaptationSet></Period></MPD>",
        "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nm=audio 5004 RTP/AVP 0\n",
    }[kind]
    for name in ("x.mp4", "x.m3u8", "x.mpd", "x.m4a"):
        path = tmp_path / name
        path.write_text(content)
        begun = time.monotonic()
        with pytest.raises(AudioError, match="not a sound file"):
            read(path)
        assert time.monotonic() - begun < 20


@needs_ffmpeg
@pytest.mark.parametrize("ending", ["m4a", "mka", "wma", "ac3", "mov", "webm", "aac"])
def test_files_that_hold_their_sound_are_decoded(
    wav: WriteWav, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"a.{ending}"
    codec = {"webm": ["-c:a", "libopus"], "mka": ["-c:a", "aac"]}.get(ending, [])
    ffmpeg("-i", wav(seconds=3.0), *codec, str(path))
    assert read(path).seconds == pytest.approx(3.0, abs=0.2)


@needs_ffmpeg
def test_bytes_and_open_files_are_given_to_ffmpeg_as_well(wav: WriteWav, tmp_path: Path) -> None:
    path = tmp_path / "a.m4a"
    ffmpeg("-i", wav(), str(path))
    expected = read(path).samples
    with open(path, "rb") as handle:
        np.testing.assert_array_equal(read(handle).samples, expected)
    np.testing.assert_array_equal(read(path.read_bytes()).samples, expected)


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Put a program in the place of ffmpeg, and return a file that only it can decode."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ffmpeg").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin" / "ffmpeg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "x.m4a").write_bytes(b"no sound that libsndfile knows")
    return tmp_path / "x.m4a"


def test_a_decoder_that_never_answers_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stand_in(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(decoding, "FFMPEG_WAITS_S", 0.3)
    begun = time.monotonic()
    with pytest.raises(AudioError, match="ffmpeg took more than"):
        read(path)
    assert time.monotonic() - begun < 20


def test_a_decoder_that_never_ends_is_bounded_by_the_length_of_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = struct.pack(">4s5I", b".snd", 24, 0xFFFFFFFF, 6, 8000, 1)
    (tmp_path / "header").write_bytes(header)
    path = stand_in(tmp_path, monkeypatch, f"cat {tmp_path}/header; exec cat /dev/zero")
    monkeypatch.setenv("DRIFTSCORE_MAX_HOURS", "0.1")
    with pytest.raises(AudioError, match=r"longer than 0\.1 hours; set DRIFTSCORE_MAX_HOURS"):
        read(path)


@pytest.mark.parametrize(("rate", "channels", "match"), [(1, 1, "1 Hz"), (8000, 600, "channels")])
def test_a_header_beyond_reason_is_refused_at_once(
    tmp_path: Path, rate: int, channels: int, match: str
) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, np.zeros((4, channels)), rate, format="WAV")
    with pytest.raises(AudioError, match=match):
        read(path)


@pytest.mark.parametrize(("rate", "channels"), [(0, 1), (8000, 65_535), (2**32 - 1, 1), (8000, 0)])
def test_an_au_header_that_lies_is_an_error_of_the_recording(
    tmp_path: Path, rate: int, channels: int
) -> None:
    path = tmp_path / "x.au"
    path.write_bytes(struct.pack(">4s5I", b".snd", 24, 0xFFFFFFFF, 3, rate, channels) + bytes(4000))
    with pytest.raises(AudioError):
        read(path)


def test_a_recording_of_days_is_refused_and_the_limit_can_be_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "long.flac"
    soundfile.write(path, np.ones(500 * 60 * 60, np.int16), 1000)
    assert read(path).seconds == 1800
    monkeypatch.setenv("DRIFTSCORE_MAX_HOURS", "0.25")
    with pytest.raises(AudioError, match=r"longer than 0\.25 hours"):
        read(path)


@pytest.mark.parametrize("cached", [False, True])
def test_pipes_and_devices_are_rows_and_nothing_waits_for_them(
    wav: WriteWav, tmp_path: Path, fake: Backbone, cached: bool
) -> None:
    os.mkfifo(tmp_path / "pipe.wav")
    sources = [str(tmp_path / "pipe.wav"), "/dev/zero", wav()]
    with Embedder(fake, audio_cache=cached) as embedder:
        done: list[str] = []
        work = threading.Thread(
            target=lambda: done.extend(one.error for one in embedder.embed(sources)), daemon=True
        )
        work.start()
        work.join(60)
        assert not work.is_alive(), "it waits for a pipe"
    assert ["pipe or a device" in error for error in done] == [True, True, False]


def test_a_source_that_cannot_be_read_is_its_own_error_from_python(
    wav: WriteWav, fake: Backbone, tmp_path: Path
) -> None:
    closed = open(wav("c.wav"), "rb")  # noqa: SIM115
    closed.close()
    text = io.StringIO("no bytes")
    odd = ["a\0b.wav", "x" * 5000, str(tmp_path / "none" / "a.wav"), closed, text, b"", b"RIFF"]
    results = list(Classifier(LABELS, backbone=fake).classify([*odd, wav()]))  # type: ignore[list-item]
    assert [bool(result.error) for result in results] == [True] * len(odd) + [False]
