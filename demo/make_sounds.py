"""Compute the sounds of the demo and of the page; none of them is a recording.

    python demo/make_sounds.py    writes demo/sounds/*.flac and demo/street.ogg (needs espeak-ng)

Five seconds each, 32 kHz mono, and one minute of a street with four of them in it. The seed is
fixed, so every run gives the same samples. `python demo/check_sounds.py` asks a tagger what they
are; figures with three digits below were chosen by its answers.
"""

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from driftscore.audio.noise import synthetic

RATE = 32_000
SECONDS = 5.0
STREET_S = 60.0
HERE = Path(__file__).resolve().parent / "sounds"
PAGE = HERE.parent.parent / "src" / "driftscore" / "service" / "static" / "sounds"
SENTENCE = (
    "Good morning. This is a voice that a computer made, reading a few words aloud, "
    "so that there is something to listen for."
)
STREET = (("church_bell", 7.0, 0.8), ("siren", 21.0, 0.35), ("alarm_clock", 36.0, 0.35),
          ("speech", 50.0, 0.8))  # fmt: skip
"""What is in the street: a sound, when it begins in seconds, and how loud it is."""
_TRAFFIC = 0.02  # the level of the street itself; the sounds peak at 0.7 times their loudness

Signal = NDArray[np.float64]
Generator = np.random.Generator
Make = Callable[[Generator], Signal]
Partials = Iterable[tuple[float, float, float]]
"""Frequency in Hz, amplitude, and time constant in seconds of each."""


def time(seconds: float = SECONDS) -> Signal:
    """Return the time of each sample in seconds."""
    return np.arange(round(RATE * seconds)) / RATE


def silence() -> Signal:
    """Return a signal to which parts are added."""
    return np.zeros_like(time())


def unit_power(signal: Signal) -> Signal:
    """Return a signal scaled to a standard deviation of 1."""
    return signal / float(signal.std())


def tone(
    hz: Signal | float, harmonics: Sequence[float] = (1.0,), seconds: float = SECONDS
) -> Signal:
    """Return a tone of constant or varying pitch with the given amplitudes of its harmonics."""
    phase = 2 * np.pi * np.cumsum(np.broadcast_to(hz, time(seconds).shape)) / RATE
    parts = [a * np.sin((k + 1) * phase) for k, a in enumerate(harmonics)]
    return np.asarray(np.sum(parts, axis=0))


def noise(
    rng: Generator, fall: float = 0.5, low: float = 20, high: float = 15_000, seconds: float = 5.0
) -> Signal:
    """Return noise of unit power between two frequencies, whose amplitude falls as 1 / f**fall."""
    count = len(time(seconds))
    hz = np.maximum(np.fft.rfftfreq(count, 1 / RATE), 1.0)
    shape = hz**-fall / (1 + (low / hz) ** 4) / (1 + (hz / high) ** 4)
    return unit_power(np.fft.irfft(np.fft.rfft(rng.standard_normal(count)) * shape, count))


def ringing(partials: Partials, seconds: float, pitch: float = 1.0) -> Signal:
    """Return decaying partials."""
    t = time(seconds)
    rings = [a * np.sin(2 * np.pi * hz * pitch * t) * np.exp(-t / fade) for hz, a, fade in partials]
    return np.asarray(np.sum(rings, axis=0))


def add(out: Signal, part: Signal, start_s: float) -> None:
    """Add a part to a signal from a time on, as far as there is room."""
    first = round(start_s * RATE)
    length = max(0, min(len(part), len(out) - first))
    out[first : first + length] += part[:length]


def in_room(rng: Generator, dry: Signal, fade_s: float, wet: float, high: float) -> Signal:
    """Return a sound of unit power with the reverberation of a room."""
    echo = noise(rng, 0.3, 100, high, 4 * fade_s) * np.exp(-time(4 * fade_s) / fade_s)
    length = len(dry) + len(echo)
    spectrum = np.fft.rfft(dry, length) * np.fft.rfft(echo, length)
    return unit_power(dry) + wet * unit_power(np.fft.irfft(spectrum, length)[: len(dry)])


def siren(rng: Generator) -> Signal:
    """A wailing siren: a rich tone that rises and falls between houses."""
    sweep = 950 + 450 * np.sin(2 * np.pi * 0.35 * time() - np.pi / 2)
    horn = tone(sweep, [1 / (k + 1) for k in range(10)])
    return in_room(rng, horn, 0.25, 0.3, 6000) + 0.01 * noise(rng)


def church_bell(rng: Generator) -> Signal:
    """A tolling bell: hum, prime, tierce, quint, nominal and higher partials, each in two halves.

    A cast bell is never quite round, so that the halves of a partial beat.
    """
    partials = [(0.5, 0.7, 3.5), (1.0, 0.8, 2.5), (1.2, 0.9, 2.0), (1.5, 0.3, 1.2), (2.0, 1.0, 1.6)]
    partials += [(2.52, 0.4, 0.9), (2.68, 0.35, 0.8), (3.0, 0.5, 0.8), (4.1, 0.4, 0.5)]
    partials += [(5.4, 0.25, 0.35), (6.8, 0.2, 0.25), (8.2, 0.15, 0.15)]
    out = silence()
    for start in (0.05, 1.7, 3.35):
        for detune in (-0.4, 0.4):
            halves = [(330 * ratio + detune, a, fade) for ratio, a, fade in partials]
            add(out, ringing(halves, SECONDS - start), start)
        add(out, noise(rng, 0, 1000, 8000, 0.05) * np.exp(-time(0.05) / 0.008), start)
    return in_room(rng, out, 0.8, 0.3, 6000)


def alarm_clock(rng: Generator) -> Signal:
    """An alarm clock: four beeps of a small buzzer and a rest."""
    square = tone(2048.0, (1.0, 0.0, 0.33, 0.0, 0.2, 0.0, 0.14))
    beat = time() % 1.0
    beeps = np.where((beat < 0.5) & (beat % 0.125 < 0.07), square, 0.0)
    return in_room(rng, beeps, 0.06, 0.15, 6000) + 0.003 * noise(rng, 0)


def ticking_clock(rng: Generator) -> Signal:
    """A ticking clock: short clicks, tick and tock, in a room."""
    case = [(2900, 0.22, 0.009), (4700, 0.176, 0.0068), (7300, 0.132, 0.0045), (900, 0.088, 0.0226)]
    out = silence()
    for number, start in enumerate(np.arange(0.1, SECONDS - 0.1, 0.838)):
        click = ringing(case, 0.1, 1.63 * (1.0 if number % 2 else 0.883))
        hit = noise(rng, 0.2, 814, 12_000, 0.1) * np.exp(-time(0.1) / 0.00825)
        add(out, click + hit, start)
    return in_room(rng, out, 0.305, 0.632, 3550) + 0.0857 * noise(rng, 0.404, 60, 9000)


def rain(rng: Generator) -> Signal:
    """Rain: a thousand near drops, each a splash and a bubble; the far ones together are a hiss."""
    out = silence()
    for start in rng.uniform(0, SECONDS, 997):
        loudness, length = rng.pareto(4.14) + 1, rng.uniform(0.5, 1.5) * 0.00701
        t = time(4 * length)
        splash = rng.standard_normal(len(t))
        bubble = np.sin(2 * np.pi * rng.uniform(854, 3416) * t * (1 + 0.738 * t / length))
        drop = (0.37 * splash + 1.89 * bubble) * np.exp(-t / length)
        add(out, loudness * drop, start)
    hz = np.fft.rfftfreq(len(out), 1 / RATE)
    out = np.fft.irfft(np.fft.rfft(out) / (1 + (hz / 8380) ** 2), len(out))
    return in_room(rng, out, 0.0472, 0.785, 8000) + 1.24 * noise(rng, 0.296, 386, 8340)


def thunder(rng: Generator) -> Signal:
    """Thunder: many rolls from all parts of the lightning, the far ones later and duller; rain."""
    out = silence()
    for _ in range(14):
        start, fade = min(rng.exponential(0.23), 4.5), rng.uniform(0.3, 1) * 1.05
        t = time(SECONDS - start)
        roll = noise(rng, 0.678, 25, 1160 * np.exp(-start / 3.91) + 60, len(t) / RATE)
        swell = np.exp(-t / fade) * (1 - np.exp(-t / 0.0373))
        add(out, rng.uniform(0.2, 1) * np.exp(-start / 1.89) * roll * swell, start)
    return unit_power(in_room(rng, out, 0.282, 0.244, 1480)) + 0.33 * noise(rng, 0.08, 200, 10_000)


def helicopter(rng: Generator) -> Signal:
    """A helicopter: blades that beat the air twenty times per second, and the tail rotor."""
    turns = np.cumsum(20.3 * (1 + 0.01 * np.sin(2 * np.pi * 0.3 * time()))) / RATE
    beat = 0.133 + 0.867 * np.exp(-((turns % 1.0 - 0.5) ** 2) / 0.0559)
    blades = unit_power(beat * noise(rng, 0.5, 30, 1670))
    thump = unit_power(
        np.sum([np.sin(2 * np.pi * k * turns + k) / k for k in range(1, 12)], axis=0)
    )
    tail = unit_power(np.sin(2 * np.pi * 13.2 * turns) + 0.5 * np.sin(4 * np.pi * 13.2 * turns))
    sound = blades + 0.914 * thump + 0.374 * noise(rng, 0.5, 50, 9000) + 0.197 * tail
    return in_room(rng, sound, 0.294, 0.56, 3000)


def engine(rng: Generator) -> Signal:
    """An idling engine: combustion in four cylinders, none quite like another."""
    thump = [(65, 1.0, 0.0357), (130, 0.7, 0.025), (310, 0.182, 0.01), (720, 0.091, 0.006)]
    out, start, number = silence(), 0.0, 0
    while start < SECONDS:
        knock = 0.685 * noise(rng, 0.3, 600, 8000, 0.12) * np.exp(-time(0.12) / 0.014)
        strength = (1.0, 0.791, 0.95, 0.502)[number % 4] * rng.uniform(0.85, 1.15)
        add(out, strength * (ringing(thump, 0.12, 2.0) + knock), start)
        start, number = start + rng.normal(1 / 26.6, 0.03 / 26.6), number + 1
    hz = np.fft.rfftfreq(len(out), 1 / RATE)
    out = np.fft.irfft(np.fft.rfft(out) / (1 + (hz / 2730) ** 2), len(out))
    return in_room(rng, out, 0.297, 0.104, 3000) + 0.132 * noise(rng, 0.974, 60, 8000)


def knocking(rng: Generator) -> Signal:
    """Knuckles on a wooden door, twice four times."""
    wood = [(115, 1.0, 0.063), (190, 0.9, 0.047), (330, 0.6, 0.032), (560, 0.4, 0.019)]
    wood += [(1100, 0.25, 0.0095), (1900, 0.15, 0.0063)]
    out = silence()
    for start in (0.4 + 0.143 * n + 2.2 * part for part in range(2) for n in range(4)):
        t = time(0.25)
        panel = 0.681 * noise(rng, 0.8, 80, 1200, 0.25) * np.exp(-t / 0.0474)
        tap = 0.889 * noise(rng, 0.5, 200, 2980, 0.25) * np.exp(-t / 0.0101)
        ring = 0.319 * ringing(wood, 0.25, 2.21 * rng.uniform(0.97, 1.03))
        add(out, rng.uniform(0.6, 1) * (ring + tap + panel), start)
    return in_room(rng, out, 0.135, 0.05, 5700) + 0.111 * noise(rng, 0.619, 60, 8000)


def footsteps(rng: Generator) -> Signal:
    """Steps on a path: heel, then sole, with a little grit."""
    out, start = silence(), 0.2
    while start < SECONDS - 0.2:
        heel = noise(rng, 0.627, 106, 4490, 0.15) * np.exp(-time(0.15) / 0.0157)
        thud = np.sin(2 * np.pi * 101 * time(0.15)) * np.exp(-time(0.15) / 0.03)
        sole = noise(rng, 0.3, 1370, 9000, 0.25) * np.sin(np.pi * time(0.25) / 0.25) ** 2
        grit = np.zeros_like(time(0.25))
        for at in rng.uniform(0, 0.2, 24):
            grain = rng.standard_normal(64) * np.exp(-np.arange(64) / 15)
            add(grit, rng.exponential(1) * grain, at)
        strength = rng.uniform(0.7, 1)
        add(out, strength * (heel + 0.381 * thud), start)
        add(out, strength * 0.328 * sole, start + 0.0929)
        add(out, strength * 0.338 * grit, start)
        start += 0.617 * rng.uniform(0.95, 1.05)
    return in_room(rng, out, 0.0914, 0.162, 8220) + 0.0822 * noise(rng, 0.907, 60, 8000)


def crickets(rng: Generator) -> Signal:
    """A cricket at night: chirps of eight pulses."""
    out = silence()
    hz, period = 4180 * rng.uniform(0.9, 1.12), 0.523 * rng.uniform(0.85, 1.2)
    start = rng.uniform(0, period)
    while start < SECONDS:
        for pulse in range(8):
            t = time(0.0216)
            wing = np.sin(2 * np.pi * (hz - 2770 * t) * t) + 0.107 * np.sin(4 * np.pi * hz * t)
            strength = (0.6 + 0.1 * pulse) * np.sin(np.pi * t / 0.0216)
            add(out, strength * wing, start + 0.0378 * pulse)
        start += period * rng.uniform(0.97, 1.03)
    return in_room(rng, out, 0.424, 0.519, 9000) + 0.003 * noise(rng, 0.281, 100, 9000)


def birds(rng: Generator) -> Signal:
    """Birds: whistles that rise, fall and trill, from several trees."""
    out = silence()
    for gain in (1.0, 0.6, 0.4, 0.25):
        base, start = rng.uniform(2600, 5200), rng.uniform(0, 0.8)
        while start < SECONDS - 0.6:
            for _ in range(rng.integers(3, 7)):
                length = rng.uniform(0.05, 0.16)
                t = time(length)
                sweep = base * (1 + rng.uniform(-0.3, 0.3) * t / length + 0.1 * rng.uniform(-1, 1))
                trill = base * 0.06 * np.sin(2 * np.pi * rng.uniform(15, 45) * t)
                note = tone(sweep + trill, (1.0, 0.12), length) * np.sin(np.pi * t / length)
                add(out, gain * note, start)
                start += length + rng.uniform(0.03, 0.09)
            start += rng.uniform(0.3, 1.0)
    return in_room(rng, out, 0.3, 0.25, 9000) + 0.02 * noise(rng, 0.5, 100, 6000)


def speech(_: Generator) -> Signal:
    """A sentence spoken by espeak-ng."""
    with tempfile.TemporaryDirectory() as folder:
        wav = Path(folder) / "speech.wav"
        subprocess.run(["espeak-ng", "-v", "en-gb", "-s", "150", "-w", wav, SENTENCE], check=True)
        samples, rate = soundfile.read(wav)
    voice = soxr.resample(samples, rate, RATE)[: len(time())]
    return np.pad(voice, (0, len(time()) - len(voice)))


SOUNDS: dict[str, Make] = {
    make.__name__: make
    for make in (siren, church_bell, alarm_clock, ticking_clock, rain, thunder, helicopter, engine,
                 knocking, footsteps, crickets, birds, speech)
}  # fmt: skip


def street(sounds: dict[str, Signal]) -> Signal:
    """Return one minute of traffic in which four sounds come and go."""
    length = round(STREET_S * RATE)
    traffic = synthetic("traffic", length, RATE, np.random.default_rng(2026)).astype(np.float64)
    scene = _TRAFFIC * unit_power(traffic)
    for name, start_s, gain in STREET:
        ramp = np.minimum(1, np.arange(len(sounds[name])) / (0.3 * RATE))
        add(scene, gain * sounds[name] * ramp * ramp[::-1], start_s)
    return scene


def main() -> None:
    """Write every sound as FLAC at the same peak level, and those of street and page as ogg."""
    sounds = {}
    for name, make in SOUNDS.items():
        samples = make(np.random.default_rng(2026))
        sounds[name] = 0.7 * samples / np.abs(samples).max()
    scene = street(sounds)
    HERE.mkdir(exist_ok=True)
    for name, samples in sounds.items():
        soundfile.write(HERE / f"{name}.flac", samples, RATE)
        print(HERE / f"{name}.flac")
    for path, samples in (
        (PAGE / "siren.ogg", sounds["siren"]),
        (PAGE / "street.ogg", scene),
        (HERE.parent / "street.ogg", scene),
    ):
        soundfile.write(path, samples, RATE, subtype="VORBIS", compression_level=0.7)
        print(path)


if __name__ == "__main__":
    main()
