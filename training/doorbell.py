"""Find your own doorbell: `python -m training.doorbell`.

Three sounds are synthesised: a doorbell, one bird's call, a machine. Five takes of each are the
examples; 14 other takes (pitch, tempo, length, room and level differ) are put into 20 minutes of
the real backgrounds of `../shared/audio/noise` at 0, 5, 10 and 15 dB. Prints how many are found and
how many events are false, at default settings: by words, by words and examples, by examples alone.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from driftscore import Audio, Classifier, Embedder, Event, WatchedLabel, WatchList
from driftscore.lab.conditions import generator
from driftscore.lab.corpora.folders import load
from training.answers import events_of
from training.corpora import recorded

RATE = 32_000
SECONDS = 1200.0
SNRS_DB = (15.0, 10.0, 5.0, 0.0)
SOUNDS = {"my doorbell": "doorbell", "that bird": "bird chirping", "our machine": "sewing machine"}
"""The labels as they are reported, and their words."""
EXAMPLES, EVENTS = 5, 14
Samples = NDArray[np.float64]


def tone(frequency: float | Samples, seconds: float, harmonics: tuple[float, ...]) -> Samples:
    """Return a tone with harmonics; its frequency may change over time."""
    time = np.arange(round(seconds * RATE)) / RATE
    phase = 2 * np.pi * np.cumsum(np.broadcast_to(frequency, time.shape)) / RATE
    return np.sum([a * np.sin((k + 1) * phase) for k, a in enumerate(harmonics)], axis=0)


def doorbell(rng: np.random.Generator) -> Samples:
    """Return two struck notes, a major third apart."""
    pitch, notes = 659.0 * rng.uniform(0.98, 1.02), []
    for ratio in (1.0, 0.794):
        note = tone(pitch * ratio, rng.uniform(0.7, 1.0), (1.0, 0.1, 0.4, 0.05, 0.2))
        notes.append(note * np.exp(-np.arange(len(note)) / RATE * rng.uniform(2.5, 4.0)))
    return np.concatenate(notes)


def bird(rng: np.random.Generator) -> Samples:
    """Return a call: two to four falling whistles and a trill."""
    parts, pitch, tempo = [], 3900.0 * rng.uniform(0.97, 1.03), rng.uniform(0.9, 1.1)
    for _ in range(int(rng.integers(2, 5))):
        seconds = 0.16 * tempo
        fall = np.linspace(1.15, 0.85, round(seconds * RATE)) * pitch
        parts += [tone(fall, seconds, (1.0, 0.15)) * np.hanning(len(fall)), gap(0.06 * tempo)]
    seconds = 0.5 * tempo
    time = np.arange(round(seconds * RATE)) / RATE
    trill = pitch * (0.9 + 0.08 * np.sin(2 * np.pi * 28 / tempo * time))
    return np.concatenate([*parts, tone(trill, seconds, (1.0, 0.1)) * np.hanning(len(time))])


def machine(rng: np.random.Generator) -> Samples:
    """Return a stamping machine: a buzz, then a thump, three to five times."""
    parts, pitch, tempo = [], 118.0 * rng.uniform(0.97, 1.03), rng.uniform(0.92, 1.08)
    for _ in range(int(rng.integers(3, 6))):
        buzz = tone(pitch, 0.28 * tempo, tuple(1 / (k + 1) for k in range(12)))
        thump = rng.standard_normal(round(0.12 * RATE))
        thump *= np.exp(-np.arange(len(thump)) / 700)
        parts += [0.4 * buzz, thump, gap(0.18 * tempo)]
    return np.concatenate(parts)


def gap(seconds: float) -> Samples:
    """Return silence."""
    return np.zeros(round(seconds * RATE))


MAKERS = {"my doorbell": doorbell, "that bird": bird, "our machine": machine}


def take(label: str, number: int) -> Samples:
    """Return a take of a sound, in a small room of its own, at full scale."""
    rng = generator("doorbell", label, number)
    dry = MAKERS[label](rng)
    tail = rng.standard_normal(round(0.4 * RATE))
    tail *= np.exp(-np.arange(len(tail)) / RATE * 18)
    room = np.concatenate([[1.0], rng.uniform(0.05, 0.15) * tail / np.linalg.norm(tail) * 3])
    wet = np.fft.irfft(np.fft.rfft(dry, 2**18) * np.fft.rfft(room, 2**18))
    wet = wet[: len(dry) + len(room)]
    return np.asarray(0.5 * wet / np.abs(wet).max())


def soundscape(seed: int) -> tuple[Audio, list[tuple[str, float, float]]]:
    """Return 20 minutes of backgrounds with the events, and where these are."""
    noises = [n for n in recorded.recordings(recorded.default_home()) if n.id.startswith("noise/")]
    rng = generator("doorbell soundscape", seed)
    length = round(SECONDS / len(noises) * RATE)
    parts = []
    for noise in noises:
        samples = load(noise.file, RATE).samples.astype(np.float64)
        samples = np.resize(samples, length)
        parts.append(samples / np.sqrt(np.mean(samples**2)) * 10 ** (-32 / 20))
    audio, truth = np.concatenate(parts), []
    slots = np.linspace(20, SECONDS - 20, EVENTS + 1)[:-1]
    for number, slot in enumerate(slots):
        label = list(SOUNDS)[number % len(SOUNDS)]
        event = take(label, 100 * seed + EXAMPLES + number)
        first = round((slot + rng.uniform(0, 50)) * RATE)
        under = audio[first : first + len(event)]
        active = event[np.abs(event) > 0.02]
        snr_db = SNRS_DB[(number + number // len(SNRS_DB)) % len(SNRS_DB)]
        gain = np.sqrt(np.mean(under**2) / np.mean(active**2)) * 10 ** (snr_db / 20)
        audio[first : first + len(event)] += gain * event
        truth.append((label, first / RATE, (first + len(event)) / RATE))
    return Audio(audio.astype(np.float32), RATE), truth


def same(event: Event, true: tuple[str, float, float]) -> bool:
    """Return whether an event is a true one: the same label, at most a second apart."""
    label, start_s, end_s = true
    return event.label == label and event.start_s < end_s + 1 and event.end_s > start_s - 1


def measure(embedder: Embedder, ways: tuple[str, ...], seeds: list[int]) -> None:
    """Print found and false events of each way and soundscape."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label in SOUNDS:
            for number in range(EXAMPLES):
                rng = generator("doorbell floor", label, number)
                sound = np.concatenate([gap(1.0), take(label, number), gap(1.5)])
                sound += 0.002 * rng.standard_normal(len(sound))  # a quiet room
                soundfile.write(folder / f"{label} {number}.wav", sound, RATE)
        detectors = {}
        for way in ways:
            labels = tuple(
                WatchedLabel(
                    label,
                    () if way == "examples" else (words,),
                    examples=() if way == "words" else (str(folder / f"{label} *.wav"),),
                )
                for label, words in SOUNDS.items()
            )
            detectors[way] = Classifier(backbone=embedder).detector(WatchList(labels))
    for seed in seeds:
        audio, truth = soundscape(seed)
        first = next(iter(detectors.values()))
        slid = list(embedder.slide(audio, window_s=first.window_s, hop_s=first.hop_s))
        embedded = np.array([start for start, _, _ in slid]), np.stack([row for *_, row in slid])
        for way, detector in detectors.items():
            events = events_of(detector, embedded, SECONDS)
            found = [true for true in truth if any(same(event, true) for event in events)]
            false = [event for event in events if not any(same(event, true) for true in truth)]
            by_label = ", ".join(
                f"{label} {sum(true[0] == label for true in found)} of "
                f"{sum(true[0] == label for true in truth)}, "
                f"{sum(event.label == label for event in false)} false"
                for label in SOUNDS
            )
            print(f"soundscape {seed}, {way}: {len(found)} of {len(truth)} found, {len(false)} "
                  f"false ({by_label})", flush=True)  # fmt: skip


def main() -> None:
    """Synthesise, search and count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--backbone", default="mini")
    parser.add_argument("--soundscapes", type=int, nargs="*", default=[4, 5, 6], help="seeds; "
                        "settings were chosen with 0, 1 and 2")  # fmt: skip
    parser.add_argument("--ways", nargs="*", default=["words", "words and examples", "examples"])
    options = parser.parse_args()
    with Embedder(options.backbone) as embedder:
        measure(embedder, tuple(options.ways), options.soundscapes)


if __name__ == "__main__":
    main()
