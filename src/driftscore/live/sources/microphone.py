"""A microphone, through sounddevice (extra `live`), chosen by its name.

Sound cards change their number when they are plugged in again, so devices are found by a part of
their name. Unplugging one raises no error: when the callback has not been called for a while, the
device is given up, and opened again by the reader.
"""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from driftscore.errors import MissingExtraError
from driftscore.live.blocks import BLOCK_S, STALL_S, AudioBlock, BlockQueue, SourceError

_QUEUE_S = 10.0  # audio between the callback and the reader
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
        try:
            import sounddevice as sound
        except ImportError as error:
            raise MissingExtraError("A microphone", "live") from error
        except OSError as error:  # PortAudio is a library of the system
            command = "apt install libportaudio2 (PortAudio)"
            raise MissingExtraError("A microphone", command=command) from error
        recorded = BlockQueue(_QUEUE_S)

        def callback(data: Any, frames: int, when: object, status: object) -> None:
            """Take a block from PortAudio; this must not wait."""
            samples = np.array(data[:, 0], np.float32)
            block = AudioBlock(samples, rate, time.monotonic() - frames / rate)
            recorded.put(block, stop, wait=False)

        try:
            number, rate = self._device(sound)
            with sound.InputStream(
                device=number, samplerate=rate, channels=1, dtype="float32",
                blocksize=round(rate * BLOCK_S), callback=callback,
            ):  # fmt: skip
                last = time.monotonic()
                while not stop.is_set():
                    block = recorded.get(min(_STOP_S, self._stall_s))
                    if block is not None:
                        last = time.monotonic()
                        yield block
                    elif time.monotonic() - last > self._stall_s:
                        raise SourceError(
                            f"{self.describe()} gives no audio for {self._stall_s:g} s; "
                            "is it unplugged?"
                        )
        except sound.PortAudioError as error:
            raise SourceError(f"{self.describe()} cannot be used: {error}") from error

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
            part = self._name.lower()
            fitting = [(n, d) for n, d in devices if part in d["name"].lower()]
        if not fitting:
            names = ", ".join(repr(d["name"]) for _, d in devices) or "none at all"
            raise SourceError(f"{self.describe()} is not there; devices: {names}")
        number, device = fitting[0]
        return number, round(device["default_samplerate"])
