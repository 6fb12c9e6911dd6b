"""Synthetic noise: white, pink, brown and mains hum, with reverberation.

White noise has equal power in each Hz, pink falls by 3 dB an octave, brown by 6; hum is 50
or 60 Hz with its harmonics. Each is then heard in a room: convolved with a response that
falls by 60 dB in a drawn reverberation time,

    h(t) = delta(t) + g(t) 10^(-3 t / rt60),    g Gaussian, as much energy as the direct sound

or, if asked for by `response="room"`, with the response of a box room by pyroomacoustics.
The level is 0.1 (root mean square). A sound is named `synthetic:{kind},{seed},{frames},
{rt60 in ms},{response}` and made again from that name.
"""

import importlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Audio
from driftscore.errors import FormatError, UsageError, unknown
from driftscore.lab.corpora import About
from driftscore.lab.noises import Recording, usable
from driftscore.lab.seeds import generator
from driftscore.lab.sounds import Sound, Stretch

Floats = NDArray[np.float64]

ABOUT = About(
    title="Synthetic noise",
    page="",
    licence="none needed: made by driftscore",
    citation="driftscore",
)
KINDS = {"white": 0.0, "pink": 0.5, "brown": 1.0, "hum": 0.0}
"""Kind -> the power of 1 / f by which its amplitude falls."""

RESPONSES = ("decay", "room")
_RT60_MS = (200, 800)
_LEVEL = 0.1
_LOWEST_HZ = 20.0  # below it the spectrum is flat: 1 / f has no end at 0
_HARMONICS = 12


def sample(
    seconds: float,
    rate: int,
    rng: np.random.Generator,
    *,
    home: str | Path | None = None,
    avoid: Iterable[str] = (),
    response: str = "decay",
) -> Stretch:
    """Draw a kind, a reverberation time and the noise itself."""
    if response not in RESPONSES:
        raise unknown("response", response, RESPONSES)
    kept = usable(recordings(home), avoid)
    kind = kept[int(rng.integers(len(kept)))]
    seed, rt60_ms = int(rng.integers(2**53)), int(rng.integers(_RT60_MS[0], _RT60_MS[1] + 1))
    frames = round(seconds * rate)
    if frames < 1:
        raise UsageError(f"Noise is drawn for more than no time, not for {seconds!r} s")
    what = f"{kind.id},{seed},{frames},{rt60_ms},{response}"
    sound = Sound(f"synthetic:{what}", make(what, rate), kind.environment)
    return Stretch(sound, 0, frames)


def recordings(home: str | Path | None = None) -> list[Recording]:
    """Return the kinds of noise; there is no folder."""
    names = {"hum": "mains hum"}
    return [
        Recording(f"synthetic:{kind}", kind, names.get(kind, f"{kind} noise")) for kind in KINDS
    ]


def missing(home: str | Path | None = None) -> list[str]:
    """Return nothing: synthetic noise is always there."""
    return []


def make(what: str, rate: int) -> Audio:
    """Make the noise that a name describes, at `rate`."""
    try:
        kind, seed, frames, rt60_ms, response = what.split(",")
        rng = generator("synthetic", int(seed), rate)
        length, rt60_s = int(frames), int(rt60_ms) / 1000
        fall = KINDS[kind]
    except (ValueError, KeyError) as error:
        raise FormatError(f"synthetic:{what} does not describe a noise ({error})") from error
    tail = _room(rate, rt60_s) if response == "room" else _decay(rate, rt60_s, rng)
    total = length + len(tail)
    dry = _hum(total, rate, rng) if kind == "hum" else _coloured(total, rate, fall, rng)
    wet = _convolved(dry, tail)[len(tail) : total]  # from where the room is full
    return Audio((wet * (_LEVEL / np.sqrt(np.mean(wet**2)))).astype(np.float32), rate)


def _coloured(length: int, rate: int, fall: float, rng: np.random.Generator) -> Floats:
    """Return Gaussian noise whose amplitude falls as 1 / f ** fall."""
    white = rng.standard_normal(length)
    hertz = np.maximum(np.fft.rfftfreq(length, 1 / rate), _LOWEST_HZ)
    return np.fft.irfft(np.fft.rfft(white) * hertz**-fall, length)


def _hum(length: int, rate: int, rng: np.random.Generator) -> Floats:
    """Return the mains' harmonics with drawn strengths and phases, each weaker than the last."""
    mains = float(rng.choice([50.0, 60.0]))
    orders = np.arange(1, _HARMONICS + 1)
    strengths = rng.uniform(0.3, 1, _HARMONICS) / orders
    phases = rng.uniform(0, 2 * np.pi, _HARMONICS)
    time = np.arange(length) / rate
    hum = np.zeros(length)
    for order, strength, phase in zip(orders, strengths, phases, strict=True):
        if order * mains < rate / 2:
            hum += strength * np.sin(2 * np.pi * order * mains * time + phase)
    return hum


def _decay(rate: int, rt60_s: float, rng: np.random.Generator) -> Floats:
    """Return an exponentially decaying response with its direct sound."""
    time = np.arange(round(rt60_s * rate)) / rate
    tail: Floats = rng.standard_normal(len(time)) * 10 ** (-3 * time / rt60_s)
    tail /= np.sqrt(np.sum(tail**2))
    tail[0] += 1
    return tail


def _room(rate: int, rt60_s: float) -> Floats:
    """Return the response of a room of 6 x 5 x 3 m with this reverberation time."""
    try:
        pra = importlib.import_module("pyroomacoustics")
    except ImportError as error:
        raise UsageError(
            "response='room' needs pyroomacoustics: pip install pyroomacoustics, "
            "or use response='decay'"
        ) from error
    size = [6.0, 5.0, 3.0]
    absorption, order = pra.inverse_sabine(rt60_s, size)
    room = pra.ShoeBox(size, fs=rate, materials=pra.Material(absorption), max_order=order)
    room.add_source([1.5, 1.2, 1.6])
    room.add_microphone([4.2, 3.6, 1.2])
    room.compute_rir()
    return np.asarray(room.rir[0][0], np.float64)


def _convolved(samples: Floats, response: Floats) -> Floats:
    length = len(samples) + len(response) - 1
    size = 1 << (length - 1).bit_length()
    return np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(response, size), size)[:length]
