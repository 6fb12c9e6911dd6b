"""A-weighting of IEC 61672-1 as a filter for streams of any rate.

The analogue filter has a double pole at 20.6 Hz, poles at 107.7 and 737.9 Hz, a double pole at
12194 Hz and four zeros at 0 Hz. The four lower poles and the zeros become two sections of the
bilinear transform, which is exact enough there. The bilinear transform of the upper pole would fall
to nothing at half the rate; it becomes two sections with one pole and one zero each that have the
gain of the analogue filter at 0 Hz, at half the rate and between. The gain at 1 kHz is 0 dB.

    y_n = C s_n + D x_n,   s_(n+1) = A s_n + B x_n

is computed for blocks of samples at once, and the states between the blocks of a group as well, so
that no compiled filter is needed; the result does not depend on how the samples are cut.
"""

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Samples

Floats = NDArray[np.float64]

LOW_HZ = (20.598997, 20.598997, 107.65265, 737.86223)
HIGH_HZ = 12194.217
_BLOCK, _GROUP = 64, 14  # samples, blocks; BLAS starts its threads for larger ones
_MIDDLE, _MIDDLE_HZ = 0.35, 13_000.0
"""Where the upper poles have the gain of the standard, besides 0 Hz and half the rate."""


def a_weighting_db(frequency: Floats) -> Floats:
    """Return the A-weighting of the standard at some frequencies in Hz, in dB."""
    return 20 * np.log10(_analogue(frequency) / _analogue(np.array([1000.0])))


def _analogue(frequency: Floats) -> Floats:
    squared = np.asarray(frequency, np.float64) ** 2
    gain = squared**2 / (squared + HIGH_HZ**2)
    for pole in LOW_HZ:
        gain = gain / np.sqrt(squared + pole**2)
    return np.asarray(gain)


def sections(rate: int) -> list[tuple[Floats, Floats]]:
    """Return the numerators and denominators of the filter's sections, in powers of 1/z."""
    cascade = []
    for poles in (LOW_HZ[:2], LOW_HZ[2:]):
        # s / (s + w) by the bilinear transform, with the pole at its frequency.
        one, other = np.tan(np.pi * np.array(poles) / rate)
        zeros = np.array([1.0, -1.0])
        top = np.convolve(zeros / (1 + one), zeros / (1 + other))
        bottom = np.convolve([1.0, (one - 1) / (1 + one)], [1.0, (other - 1) / (1 + other)])
        cascade.append((top, bottom))
    # One pole and one zero with the gain of 1 / (1 + s / w) at three frequencies: with
    # v = sin(pi f / rate)^2 the squared gain is (1 + p v) / (1 + q v); p and q follow from the
    # gains at half the rate and at one frequency between.
    between = min(_MIDDLE, _MIDDLE_HZ / rate)
    middle = np.sin(np.pi * between) ** 2
    outer, inner = (1 / (1 + (share * rate / HIGH_HZ) ** 2) for share in (0.5, between))
    p, q = np.linalg.solve([[1.0, -outer], [middle, -inner * middle]], [outer - 1, inner - 1])
    zero, pole = ((1 - root) / (1 + root) for root in (np.sqrt(1 + p), np.sqrt(1 + q)))
    top, bottom = np.array([1.0, zero]) * (1 + pole) / (1 + zero), np.array([1.0, pole])
    cascade.append((np.convolve(top, top), np.convolve(bottom, bottom)))
    at = np.array([min(1000.0, rate / 4)])
    gain = float((10 ** (a_weighting_db(at) / 20) / response(cascade, at, rate))[0])
    cascade[0] = (cascade[0][0] * gain, cascade[0][1])
    return cascade


def response(parts: list[tuple[Floats, Floats]], frequency: Floats, rate: int) -> Floats:
    """Return the gain of sections at some frequencies."""
    inverse = np.exp(-2j * np.pi * np.asarray(frequency) / rate)
    gain = np.ones(len(inverse))
    for top, bottom in parts:
        gain = gain * np.abs(np.polyval(top[::-1], inverse) / np.polyval(bottom[::-1], inverse))
    return np.asarray(gain)


class AWeighting:
    """The filter of one stream: samples in, weighted samples out, in complete groups of blocks."""

    def __init__(self, rate: int) -> None:
        parts = sections(rate)
        size = 2 * len(parts)
        A, B, C, D = np.zeros((size, size)), np.zeros(size), np.zeros(size), 1.0
        for number, (top, bottom) in enumerate(parts):  # each in the transposed second form
            here, before = slice(2 * number, 2 * number + 2), slice(0, 2 * number)
            inward = top[1:] - bottom[1:] * top[0]
            A[here, here] = [[-bottom[1], 1.0], [-bottom[2], 0.0]]
            A[here, before] = np.outer(inward, C[before])
            B[here] = inward * D
            C = top[0] * C
            C[2 * number] = 1.0
            D = float(top[0] * D)
        self._state = np.zeros(size)
        self._rest = np.zeros(0)
        powers = [np.eye(size)]
        for _ in range(_BLOCK):
            powers.append(A @ powers[-1])
        steps = [np.eye(size)]
        for _ in range(_GROUP):
            steps.append(powers[_BLOCK] @ steps[-1])
        zero = np.zeros((size, size))
        # States at the start of the blocks and after the last, from the first and what is added.
        self._states = np.block([
            [steps[n - m] if m <= n else zero for m in range(_GROUP + 1)]
            for n in range(_GROUP + 1)
        ])  # fmt: skip
        self._from_state = np.stack([C @ power for power in powers[:_BLOCK]])
        impulse = np.array([D, *(C @ power @ B for power in powers[: _BLOCK - 1])])
        index = np.arange(_BLOCK)
        lag = index[:, None] - index[None, :]
        self._from_input = np.where(lag >= 0, impulse[np.maximum(lag, 0)], 0.0)
        self._to_state = np.stack([power @ B for power in reversed(powers[:_BLOCK])], axis=1)

    def feed(self, samples: Samples) -> Floats:
        """Return the weighted samples of the blocks that are complete now."""
        joined = np.concatenate([self._rest, np.asarray(samples, np.float64)])
        count = len(joined) // (_BLOCK * _GROUP)
        blocks = joined[: count * _BLOCK * _GROUP].reshape(-1, _BLOCK)
        self._rest = joined[len(blocks) * _BLOCK :]
        added = (blocks @ self._to_state.T).reshape(count, _GROUP * len(self._state))
        states = np.zeros_like(added)
        for row, inputs in zip(states, added, strict=True):
            following = self._states @ np.concatenate([self._state, inputs])
            row[:], self._state = following[: len(row)], following[len(row) :]
        inner = states.reshape(len(blocks), len(self._state)) @ self._from_state.T
        output: Floats = blocks @ self._from_input.T + inner
        return output.reshape(-1)
