"""A microphone, through sounddevice (extra `live`), chosen by its name.

Sound cards change their number when they are plugged in again, so devices are found by a part of
their name. Unplugging one raises no error: when the callback has not been called for a while, the
device is given up, and opened again by the reader.
"""

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from driftscore.errors import MissingExtraError
from driftscore.live.blocks import AudioBlock
from driftscore.live.sources.protocol import BLOCK_S, STALL_S, SourceError

_QUEUE = 100  # blocks between the callback and the reader
_STOP_S = 0.2


class Microphone:
    """An input device; an empty name is the default device."""

    waits = False
    endless = True

    def __init__(self, name: str = "", *, stall_s: float = STALL_S) -> None:
        self._name = name
        self._stall_s = stall_s

    def describe(self) -> str:
        """Return what it is called in messages."""
        return f"microphone {self._name!r}" if self._name else "the default microphone"

    def blocks(self, stop: threading.Event) -> Iterator[AudioBlock]:
        """Open the device and yield its audio; raise when the callback is not called any more."""
        sound = _library()
        taken: queue.Queue[AudioBlock] = queue.Queue(_QUEUE)
        try:
            number, rate = self._device(sound)
            with sound.InputStream(
                device=number, samplerate=rate, channels=1, dtype="float32",
                blocksize=round(rate * BLOCK_S), callback=_callback(taken, rate),
            ):  # fmt: skip
                yield from self._taken(taken, stop)
        except sound.PortAudioError as error:
            raise SourceError(f"{self.describe()} cannot be used: {error}") from error

    def _taken(
        self, taken: "queue.Queue[AudioBlock]", stop: threading.Event
    ) -> Iterator[AudioBlock]:
        last = time.monotonic()
        while not stop.is_set():
            try:
                block = taken.get(timeout=_STOP_S)
            except queue.Empty:
                if time.monotonic() - last > self._stall_s:
                    raise SourceError(
                        f"{self.describe()} gives no audio for {self._stall_s:g} s; "
                        "is it unplugged?"
                    ) from None
                continue
            last = time.monotonic()
            yield block

    def _device(self, sound: Any) -> tuple[int, int]:
        """Return the number of the device now, and its own rate."""
        # PortAudio lists devices once; a card that was plugged in again is found after a restart.
        sound._terminate()
        sound._initialize()
        devices = [
            (number, device)
            for number, device in enumerate(sound.query_devices())
            if device["max_input_channels"] > 0
        ]
        if not self._name:
            number = sound.default.device[0]
            fitting = [(n, d) for n, d in devices if n == number] or devices[:1]
        else:
            wanted = self._name.lower()
            fitting = [(n, d) for n, d in devices if wanted in d["name"].lower()]
        if not fitting:
            names = ", ".join(repr(d["name"]) for _, d in devices) or "none at all"
            raise SourceError(f"{self.describe()} is not there; devices: {names}")
        number, device = fitting[0]
        return number, round(device["default_samplerate"])


def _library() -> Any:
    try:
        import sounddevice
    except ImportError as error:
        raise MissingExtraError("A microphone", "live") from error
    except OSError as error:  # PortAudio is a library of the system
        raise MissingExtraError(
            "A microphone", command="apt install libportaudio2 (PortAudio)"
        ) from error
    return sounddevice


def _callback(taken: "queue.Queue[AudioBlock]", rate: int) -> Any:
    """Return the function that PortAudio calls with each block; it must not wait."""

    def callback(data: Any, frames: int, when: object, status: object) -> None:
        samples = np.array(data[:, 0], np.float32)
        block = AudioBlock(samples, rate, time.monotonic() - frames / rate)
        while True:
            try:
                taken.put_nowait(block)
                return
            except queue.Full:
                with suppress(queue.Empty):
                    taken.get_nowait()

    return callback
