"""The queue, the reader that opens sources again, and the sources themselves."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from driftscore.audio.recordings import Samples
from driftscore.errors import UsageError
from driftscore.live.blocks import AudioBlock, BlockQueue, SourceError
from driftscore.live.reader import SourceReader
from driftscore.live.sources import FfmpegInput, Microphone, PlayedFile, find_sources
from driftscore.live.sources.ffmpeg import command, without_password
from driftscore.live.sources.pipes import RawFormat, StandardInput

from .scenes import RATE, ScriptedSource, eventually, scene, write

NEVER = threading.Event()


def block(seconds: float, at: float = 0.0) -> AudioBlock:
    return AudioBlock(np.ones(round(seconds * 1000), np.float32), 1000, at)


@given(st.lists(st.floats(0.1, 3), min_size=1, max_size=40))
def test_a_full_queue_drops_the_oldest_and_accounts_for_all_audio(lengths: list[float]) -> None:
    queue = BlockQueue(5.0)
    for seconds in lengths:
        queue.put(block(seconds), NEVER, wait=False)
        assert queue.waiting_s <= 5.0 + 1e-6
    queue.close()
    taken = gaps = 0.0
    while not queue.ended:
        found = queue.get(0)
        assert found is not None
        taken += found.seconds
        gaps += found.gap_s
    total = sum(block(seconds).seconds for seconds in lengths)
    assert taken + queue.dropped_s == pytest.approx(total)
    assert gaps == pytest.approx(queue.dropped_s)


def test_a_source_that_can_wait_loses_nothing() -> None:
    queue = BlockQueue(1.0)
    queue.put(block(0.8), NEVER, wait=True)
    late = threading.Thread(target=lambda: queue.put(block(0.8), NEVER, wait=True))
    late.start()
    time.sleep(0.1)
    assert late.is_alive()
    assert queue.get(0) is not None
    late.join(60)
    assert queue.dropped_s == 0
    assert queue.waiting_s == pytest.approx(0.8)


def test_blocks_that_wait_are_joined_up_to_a_length_a_gap_or_another_rate() -> None:
    queue = BlockQueue(30.0)
    for one in (
        *(block(1.0, at) for at in range(5)),
        replace(block(1.0, 7.0), gap_s=2.0),
        replace(block(1.0, 8.0), rate=500),
    ):
        queue.put(one, NEVER, wait=False)
    taken = []
    while queue.waiting_s:
        joined = queue.get(0, joined_s=3.0)
        assert joined is not None
        taken.append((joined.at, joined.seconds, joined.gap_s, joined.rate))
    assert taken == [(0, 3, 0, 1000), (3, 2, 0, 1000), (7, 1, 2, 1000), (8, 2, 0, 500)]


class Waits(threading.Event):
    """Keeps how long was waited for it, without waiting, and stops after some waits."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.seconds: list[float | None] = []
        self._count = count

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        if len(self.seconds) == self._count:
            self.set()
        return self.is_set()


def test_the_wait_doubles_and_is_short_again_after_a_healthy_spell() -> None:
    audio = np.ones(29 * RATE, np.float32)
    longer = np.ones(31 * RATE, np.float32)
    runs: list[Samples | str] = [*["unplugged"] * 7, audio, longer, "unplugged"]
    stop = Waits(10)
    reader = SourceReader(
        ScriptedSource(*runs, waits=False), BlockQueue(1.0), on_status=lambda *_: None,
        notify=lambda _: None,
    )  # fmt: skip
    reader.run(stop)
    assert stop.seconds == [1, 2, 4, 8, 16, 32, 60, 60, 1, 2]


def test_a_source_that_fails_is_reported_and_opened_again() -> None:
    audio = np.ones(RATE, np.float32)
    source = ScriptedSource(audio, "it is unplugged", audio)
    queue, stop = BlockQueue(), threading.Event()
    statuses: list[tuple[bool, str]] = []
    messages: list[str] = []
    reader = SourceReader(
        source, queue, on_status=lambda *s: statuses.append(s), notify=messages.append,
        first_wait_s=0.01,
    )  # fmt: skip
    thread = threading.Thread(target=reader.run, args=(stop,))
    thread.start()
    eventually(lambda: source.opened >= 4)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    online = [s[0] for s in statuses]
    assert online[:4] == [True, False, False, True]
    assert statuses[2][1] == "it is unplugged"
    assert any("it is unplugged; opening it again" in text for text in messages)
    gaps = []
    while not queue.ended:
        found = queue.get(0)
        assert found is not None
        gaps.append(found.gap_s)
    assert len([gap for gap in gaps if gap > 0]) <= 1  # the script's clock begins anew


def test_dropped_audio_is_reported() -> None:
    messages: list[str] = []
    source = ScriptedSource(np.ones(4 * RATE, np.float32), waits=False, endless=False)
    reader = SourceReader(
        source, BlockQueue(1.0), on_status=lambda *_: None, notify=messages.append
    )
    reader.run(threading.Event())
    assert "falling behind" in messages[0]
    assert sum(float(m.split(" s of audio")[0].split()[-1]) for m in messages) == pytest.approx(3.0)


def samples_of(source: StandardInput | FfmpegInput | PlayedFile) -> tuple[int, np.ndarray]:
    blocks = list(source.blocks(threading.Event()))
    return blocks[0].rate, np.concatenate([one.samples for one in blocks])


def piped(data: bytes, raw: RawFormat | None = None) -> tuple[int, np.ndarray]:
    reading, writing = os.pipe()

    def feed() -> None:
        for first in range(0, len(data), 777):  # a pipe gives any number of bytes
            os.write(writing, data[first : first + 777])
        os.close(writing)

    writer = threading.Thread(target=feed)
    writer.start()
    try:
        return samples_of(StandardInput(raw, descriptor=reading))
    finally:
        os.close(reading) if not writer.is_alive() else None
        writer.join(60)


@pytest.mark.parametrize(("name", "dtype", "full"), [
    ("s16le", "<i2", 32768), ("s32le", "<i4", 2**31), ("f32le", "<f4", 1)
])  # fmt: skip
def test_raw_samples_of_two_channels_are_mixed(name: str, dtype: str, full: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.uniform(-0.5, 0.5, (5000, 2))
    data = (values * full).astype(dtype).tobytes()
    rate, found = piped(data, RawFormat(name, 16_000, 2))
    assert rate == 16_000
    np.testing.assert_allclose(found, values.mean(axis=1), atol=1e-4)


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_32", "FLOAT", "PCM_U8"])
def test_a_wav_stream_says_itself_what_it_is(tmp_path: Path, subtype: str) -> None:
    values = np.random.default_rng(0).uniform(-0.5, 0.5, 4000)
    soundfile.write(tmp_path / "a.wav", values, 22_050, subtype=subtype)
    data = bytearray((tmp_path / "a.wav").read_bytes())
    where = data.find(b"data")
    data[where + 4 : where + 8] = b"\xff\xff\xff\xff"  # recorders do not know the length
    rate, found = piped(bytes(data))
    assert rate == 22_050
    np.testing.assert_allclose(found[:4000], values, atol=0.01)


def test_what_is_no_wav_stream_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(SourceError, match="--pcm s16le"):
        piped(b"\0" * 4000)
    with pytest.raises(SourceError, match="ends before"):
        piped(b"RIFF\0\0\0\0WAVEdat")


def test_a_file_is_played_at_its_speed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", scene(2.0, []))
    begun = time.monotonic()
    rate, found = samples_of(PlayedFile(path, speed=4))
    assert time.monotonic() - begun > 0.45
    assert (rate, len(found)) == (RATE, 2 * RATE)
    np.testing.assert_allclose(found, soundfile.read(path, dtype="float32")[0])


def test_sources_are_found_by_what_they_look_like() -> None:
    found = find_sources(["yard=mic:usb", "-", "rtsp://cam/1", "night.wav", "day.wav"])
    assert list(found) == ["yard", "stdin", "stream", "file", "file2"]
    assert [type(source) for source in found.values()] == [
        Microphone, StandardInput, FfmpegInput, PlayedFile, PlayedFile
    ]  # fmt: skip
    with pytest.raises(UsageError, match="Two sources"):
        find_sources(["a=mic", "a=mic"])
    with pytest.raises(UsageError, match="one source only"):
        find_sources(["a=-", "b=-"])


def test_rtsp_is_asked_for_over_tcp_with_the_timeout_of_the_version() -> None:
    new = command("rtsp://cam/1", audio_only=True, major=5)
    old = command("rtsp://cam/1", audio_only=False, major=4)
    assert new[new.index("-rtsp_transport") + 1] == "tcp"
    assert new[new.index("-timeout") + 1] == "5000000"
    assert new[new.index("-allowed_media_types") + 1] == "audio"
    assert "-stimeout" in old
    assert "-timeout" not in old
    assert "-allowed_media_types" not in old
    assert all(args.index("-rtsp_transport") < args.index("-i") for args in (new, old))


def test_a_password_is_in_no_message() -> None:
    url = "rtsp://me:secret@camera:554/live"
    assert without_password(url) == "rtsp://camera:554/live"
    assert "secret" not in FfmpegInput(url).describe()


needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="FFMPEG IS MISSING")


@needs_ffmpeg
def test_ffmpeg_is_started_again_when_the_stream_has_ended(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", scene(3.0, []))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/a.wav"

    def serve() -> "subprocess.Popen[bytes]":
        arguments = ["ffmpeg", "-loglevel", "quiet", "-i", path, "-f", "wav", "-listen", "1", url]
        return subprocess.Popen(arguments, stdin=subprocess.DEVNULL)

    queue, stop = BlockQueue(), threading.Event()
    statuses: list[bool] = []
    reader = SourceReader(
        FfmpegInput(url), queue, on_status=lambda on, _: statuses.append(on),
        notify=lambda _: None, first_wait_s=0.05,
    )  # fmt: skip
    server = serve()
    thread = threading.Thread(target=reader.run, args=(stop,))
    thread.start()
    try:
        eventually(lambda: queue.waiting_s >= 2.9)
        eventually(lambda: server.poll() is not None)
        server = serve()
        eventually(lambda: queue.waiting_s >= 5.8)
    finally:
        stop.set()
        thread.join(60)
        server.kill()
        server.wait()
    assert not thread.is_alive()
    assert statuses.count(True) >= 2
    assert False in statuses


@needs_ffmpeg
def test_a_stream_that_stalls_is_noticed() -> None:
    with socket.socket() as silent:  # it accepts and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.wav"
        with pytest.raises(SourceError, match=r"127\.0\.0\.1"):
            list(FfmpegInput(url, open_s=0.2).blocks(threading.Event()))


class FakeSound:
    """Stands for sounddevice: a card that calls back a few times, and is then unplugged."""

    class PortAudioError(Exception):
        pass

    default = type("Default", (), {"device": (1, 1)})

    def __init__(self) -> None:
        self.devices = [
            {"name": "HDMI", "max_input_channels": 0, "default_samplerate": 48000.0},
            {"name": "Built-in Audio", "max_input_channels": 2, "default_samplerate": 44100.0},
            {"name": "USB PnP Sound Device", "max_input_channels": 1, "default_samplerate": 48e3},
        ]
        self.opened: list[tuple[int, int]] = []

    def _terminate(self) -> None: ...

    def _initialize(self) -> None: ...

    def query_devices(self) -> list[dict[str, object]]:
        return list(self.devices)

    def InputStream(self, *, device: int, samplerate: int, callback: object, **_: object) -> object:
        self.opened.append((device, samplerate))

        class Stream:
            def __enter__(self) -> None:
                for _ in range(3):
                    callback(np.full((480, 1), 0.5, np.float32), 480, None, None)  # type: ignore[operator]

            def __exit__(self, *_: object) -> None: ...

        return Stream()


def test_an_unplugged_microphone_is_noticed_although_nothing_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = FakeSound()
    monkeypatch.setitem(sys.modules, "sounddevice", sound)
    taken: list[AudioBlock] = []
    blocks = Microphone("usb pnp", stall_s=0.3).blocks(threading.Event())
    with pytest.raises(SourceError, match="unplugged"):
        taken.extend(iter(lambda: next(blocks), None))
    assert sound.opened == [(2, 48_000)]
    assert [len(one.samples) for one in taken] == [480] * 3


def test_a_microphone_is_found_by_its_name_whatever_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = FakeSound()
    monkeypatch.setitem(sys.modules, "sounddevice", sound)
    sound.devices.insert(0, sound.devices.pop())
    with pytest.raises(SourceError):
        list(Microphone("usb", stall_s=0.1).blocks(threading.Event()))
    assert sound.opened == [(0, 48_000)]
    with pytest.raises(SourceError, match="devices: 'USB PnP Sound Device', 'Built-in Audio'"):
        list(Microphone("behringer").blocks(threading.Event()))
