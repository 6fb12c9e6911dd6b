"""Compute the sounds of the demo; none of them is a recording.

    python demo/make_sounds.py        writes demo/sounds/*.flac (the speech needs espeak-ng)

Five seconds each, 32 kHz mono. The seed is fixed, so every run gives the same samples.
"""

import subprocess
import tempfile
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

RATE = 32_000
SECONDS = 5.0
HERE = Path(__file__).resolve().parent / "sounds"
SENTENCE = (
    "Good morning. This is a voice that a computer made, reading a few words aloud, "
    "so that there is something to listen for."
)

Signal = NDArray[np.float64]


def time() -> Signal:
    """Return the time of each sample in seconds."""
    return np.arange(round(RATE * SECONDS)) / RATE


def tone(hz: Signal | float, harmonics: tuple[float, ...] = (1.0,)) -> Signal:
    """Return a tone of constant or varying pitch with the given amplitudes of its harmonics."""
    phase = 2 * np.pi * np.cumsum(np.broadcast_to(hz, time().shape)) / RATE
    parts = [a * np.sin((k + 1) * phase) for k, a in enumerate(harmonics)]
    return np.asarray(np.sum(parts, axis=0))


def coloured(
    rng: np.random.Generator, slope: float, low: float = 20, high: float = 15_000
) -> Signal:
    """Return noise whose power falls by `slope` (1 pink, 2 brown) between two frequencies."""
    count = len(time())
    hz = np.fft.rfftfreq(count, 1 / RATE)
    shape = np.where((hz >= low) & (hz <= high), np.maximum(hz, 1.0) ** (-slope / 2), 0)
    spectrum = shape * (rng.standard_normal(len(hz)) + 1j * rng.standard_normal(len(hz)))
    return np.fft.irfft(spectrum, count)


def unit_power(signal: Signal) -> Signal:
    """Return a signal scaled to a standard deviation of 1."""
    return signal / float(signal.std())


def struck(starts: list[float], partials: list[tuple[float, float, float]]) -> Signal:
    """Return decaying partials (Hz, amplitude, time constant in s) that begin at each start."""
    out = np.zeros_like(time())
    for start in starts:
        since = time() - start
        sounding = since >= 0
        for hz, amplitude, fade in partials:
            ring = amplitude * np.sin(2 * np.pi * hz * since) * np.exp(-np.maximum(since, 0) / fade)
            out += np.where(sounding, ring, 0)
    return out


def siren(rng: np.random.Generator) -> Signal:
    """A wailing siren: a rich tone that rises and falls."""
    sweep = 900 + 500 * np.sin(2 * np.pi * 0.35 * time() - np.pi / 2)
    return tone(sweep, (1.0, 0.5, 0.35, 0.2, 0.12, 0.08)) + 0.02 * coloured(rng, 1)


def church_bell(rng: np.random.Generator) -> Signal:
    """A tolling bell: the partials of a minor-third bell with its hum and its strike."""
    base = 440.0
    ratios = [(0.5, 0.6, 2.5), (1.0, 0.8, 1.8), (1.183, 0.6, 1.4), (1.506, 0.35, 1.0)]
    ratios += [(2.0, 1.0, 1.1), (2.514, 0.3, 0.6), (2.662, 0.25, 0.5), (3.011, 0.3, 0.5)]
    ratios += [(4.166, 0.25, 0.3), (5.433, 0.15, 0.2)]
    return struck([0.1, 1.8, 3.5], [(base * r, a, f) for r, a, f in ratios])


def clock(rng: np.random.Generator) -> Signal:
    """A ticking clock: short clicks, tick and tock, with a hollow case."""
    ticks = [0.25 + 0.5 * n for n in range(10)]
    tick = [(2900.0, 1.0, 0.006), (4700.0, 0.7, 0.004), (7300.0, 0.5, 0.002), (850.0, 0.3, 0.012)]
    tock = [(2500.0, 1.0, 0.007), (4100.0, 0.7, 0.004), (6400.0, 0.4, 0.002), (700.0, 0.4, 0.014)]
    return struck(ticks[::2], tick) + struck(ticks[1::2], tock) + 0.002 * coloured(rng, 1)


def alarm(rng: np.random.Generator) -> Signal:
    """An alarm clock: four square beeps and a rest."""
    square = tone(2048.0, (1.0, 0.0, 0.33, 0.0, 0.2, 0.0, 0.14))
    beat = time() % 1.0
    return np.where((beat < 0.5) & (beat % 0.125 < 0.07), square, 0.0)


def rain(rng: np.random.Generator) -> Signal:
    """Rain: a steady hiss and many small drops of all sizes."""
    drops = np.zeros_like(time())
    for start in rng.uniform(0, SECONDS - 0.05, 900):
        length = rng.integers(60, 400)
        first = int(start * RATE)
        burst = rng.standard_normal(length) * np.exp(-np.arange(length) / (length / 5))
        drops[first : first + length] += rng.lognormal(0, 0.7) * burst
    hiss = coloured(rng, 0.6, low=400)
    return unit_power(hiss) + 0.25 * drops


def speech(rng: np.random.Generator) -> Signal:
    """A sentence spoken by espeak-ng."""
    with tempfile.TemporaryDirectory() as folder:
        wav = Path(folder) / "speech.wav"
        subprocess.run(["espeak-ng", "-v", "en-gb", "-s", "150", "-w", wav, SENTENCE], check=True)
        samples, rate = soundfile.read(wav)
    voice = soxr.resample(samples, rate, RATE)[: len(time())]
    return np.pad(voice, (0, len(time()) - len(voice)))


def street(rng: np.random.Generator) -> Signal:
    """The noise of a street: rumble, tyres that come and go, an idling engine."""
    swell = 0.6 + 0.4 * np.sin(2 * np.pi * 0.23 * time() + 1.0)
    rumble, tyres = coloured(rng, 2.0, high=900), coloured(rng, 1.2, low=300, high=5000)
    idle = tone(
        31 + 1.5 * np.sin(2 * np.pi * 0.4 * time()), (0.4, 1.0, 0.6, 0.8, 0.3, 0.5, 0.2, 0.2)
    )
    return unit_power(rumble) + 0.7 * swell * unit_power(tyres) + 0.25 * idle


SOUNDS = {
    "siren": siren,
    "church_bell": church_bell,
    "ticking_clock": clock,
    "alarm_clock": alarm,
    "rain": rain,
    "speech": speech,
    "street": street,
}


def main() -> None:
    """Write every sound as FLAC, at the same peak level."""
    HERE.mkdir(exist_ok=True)
    for name, make in SOUNDS.items():
        samples = make(np.random.default_rng(2026))
        soundfile.write(HERE / f"{name}.flac", 0.7 * samples / np.abs(samples).max(), RATE)
        print(HERE / f"{name}.flac")


if __name__ == "__main__":
    main()
