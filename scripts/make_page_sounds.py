"""Make the example sounds of the page from those of the demo: `python scripts/make_page_sounds.py`.

The demo's sounds are computed (demo/make_sounds.py). The street is 48 s long: traffic, in which a
bell, a siren, a voice and an alarm clock come and go. Both are written as ogg, 32 kHz mono.
"""

from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from driftscore.audio.noise import synthetic

PROJECT = Path(__file__).resolve().parent.parent
DEMO = PROJECT / "demo" / "sounds"
TARGET = PROJECT / "src" / "driftscore" / "service" / "static" / "sounds"
RATE = 32_000
STREET_S = 48.0
TRAFFIC = 0.05  # level of the traffic; the sounds peak at 0.7
SCENE = (("church_bell", 4.0, 0.5), ("siren", 15.0, 0.35), ("speech", 27.0, 0.5),
         ("alarm_clock", 38.0, 0.3))  # fmt: skip
"""What comes when, in seconds, and how loud."""
FADE_S = 0.5

Signal = NDArray[np.float64]


def sound(name: str) -> Signal:
    """Return a sound of the demo."""
    samples, rate = soundfile.read(DEMO / f"{name}.flac")
    if rate != RATE:
        raise SystemExit(f"{name}.flac has a rate of {rate} Hz, expected {RATE}")
    return np.asarray(samples)


def faded(samples: Signal) -> Signal:
    """Return a sound that comes and goes softly."""
    ramp = np.minimum(1, np.arange(len(samples)) / (FADE_S * RATE))
    return samples * ramp * ramp[::-1]


def street() -> Signal:
    """Return the scene."""
    length = round(STREET_S * RATE)
    traffic = synthetic("traffic", length, RATE, np.random.default_rng(2026))
    scene = TRAFFIC * traffic.astype(np.float64) / float(traffic.std())
    for name, start_s, gain in SCENE:
        samples, first = gain * faded(sound(name)), round(start_s * RATE)
        scene[first : first + len(samples)] += samples
    return scene


def main() -> None:
    """Write both sounds."""
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, samples in {"siren": sound("siren"), "street": street()}.items():
        path = TARGET / f"{name}.ogg"
        soundfile.write(path, samples, RATE, format="OGG", subtype="VORBIS")
        print(f"{path.relative_to(PROJECT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
