"""How soon after its onset an event is reported: the `start` message, and the `end` message.

Recorded sounds of ten labels (`../shared/audio/events`, none of which `mini` was trained on) begin
at known times in recorded places, at 10 dB over the power of the place, one every 20 s. The scene
goes through a stream of `mini` at default settings in blocks of 0.1 s, as a microphone gives them.
An event is known when the block has come from which it follows; the time to compute this block is
added. Sounds without an event are counted, and so are starts that no event follows.
"""

import csv
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.figures import Figure, NotHereError, Spread
from driftscore import Classifier, Embedder
from driftscore.audio.recordings import Samples, read
from driftscore.events.watchlist import WatchList

RATE, BLOCK_S, EVERY_S, SNR_DB, MAX_MEDIAN_S = 32_000, 0.1, 20.0, 10.0, 2.5
LEVEL = 0.02  # of the places, root mean square
LABELS = {
    "dog": "dog bark", "siren": "siren", "crying baby": "crying baby", "car horn": "car horn",
    "glass breaking": "glass breaking", "clock alarm": "alarm clock", "coughing": "coughing",
    "door wood knock": "knock on a door", "rooster": "rooster", "church bells": "church bells",
}  # fmt: skip
Onset = tuple[float, float, str]
"""When a sound begins and ends, in seconds, and its label."""


def measure(*, quick: bool) -> list[Figure]:
    """Measure the start, the end, and the start as complete windows alone would give it."""
    shared = Path(os.environ.get("DRIFTSCORE_SHARED") or Path(__file__).parents[2] / "shared")
    if not (shared / "audio" / "manifest.csv").is_file():
        raise NotHereError("../shared/audio was not found (set DRIFTSCORE_SHARED)")
    samples, onsets = scene(shared / "audio", 6 if quick else None)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["DRIFTSCORE_CACHE"] = cache
        starts, ends, without = reported(samples, onsets, early=True)
        complete, _, _ = reported(samples, onsets, early=False)
    found = f"{len(starts)} of {len(onsets)} sounds are reported"
    spread = Spread.of(starts)
    return [
        Figure("mini: from the onset to the start of an event", spread, "s",
               bar=f"median at most {MAX_MEDIAN_S:g} s", met=spread.median <= MAX_MEDIAN_S,
               note=f"{found}; {without} starts were withdrawn"),
        Figure("mini: the same by complete windows only", Spread.of(complete), "s"),
        Figure("mini: from the onset to the end message", Spread.of(ends), "s",
               note="sounds last up to 5 s, and two that are less than 3 s apart are one"),
    ]  # fmt: skip


def scene(audio: Path, count: int | None) -> tuple[Samples, list[Onset]]:
    """Return recorded places with sounds in them, and when these begin."""
    rng = np.random.default_rng(23)
    with open(audio / "manifest.csv", newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    sounds = [r for r in rows if r["file"].startswith("events/") and r["label"] in LABELS]
    sounds = [sounds[n] for n in rng.permutation(len(sounds))[:count]]
    places = [r["file"] for r in rows if r["file"].startswith("noise/")]
    samples = np.zeros(round((len(sounds) + 1) * EVERY_S * RATE))
    first = 0
    while first < len(samples):
        place = read(audio / places[int(rng.integers(len(places)))], rate=RATE, seconds=120).samples
        part = place[: len(samples) - first].astype(np.float64)
        samples[first : first + len(part)] = LEVEL * part / max(1e-9, float(part.std()))
        first += len(part)
    onsets = []
    for number, row in enumerate(sounds):
        sound = read(audio / row["file"], rate=RATE).samples.astype(np.float64)
        loud = np.flatnonzero(np.abs(sound) > 0.1 * np.abs(sound).max())
        sound = sound[loud[0] : loud[-1] + 1]
        at_s = (number + 0.7) * EVERY_S + float(rng.uniform(0, 3))
        first = round(at_s * RATE)
        scale = LEVEL * 10 ** (SNR_DB / 20) / float(np.sqrt(np.mean(sound**2)))
        samples[first : first + len(sound)] += scale * sound
        onsets.append((at_s, at_s + len(sound) / RATE, LABELS[row["label"]]))
    return (samples / max(1.0, float(np.abs(samples).max()))).astype(np.float32), onsets


def reported(
    samples: Samples, onsets: list[Onset], *, early: bool
) -> tuple[list[float], list[float], int]:
    """Return the seconds to the start and to the end of each sound, and starts without an event."""
    labels = list(LABELS.values())
    classifier = Classifier(labels, backbone=Embedder("mini"))
    stream = classifier.detector(WatchList.of(labels)).stream(RATE, early=early)
    starts: list[tuple[float, str]] = []
    ends: list[tuple[float, float, float, str]] = []
    present: frozenset[str] = frozenset()
    step = round(BLOCK_S * RATE)
    for first in range(0, len(samples), step):
        begun = time.perf_counter()
        events = stream.feed(samples[first : first + step])
        labels_now = frozenset(event.label for event in stream.open)
        now_s = stream.seconds + time.perf_counter() - begun
        starts += [(now_s, label) for label in labels_now - present]
        ends += [(now_s, e.start_s, e.end_s, e.label) for e in events if not e.rejected]
        present = labels_now
    ends += [(stream.seconds, e.start_s, e.end_s, e.label)
             for e in stream.finish() if not e.rejected]  # fmt: skip
    without = sum(
        not any(label == name and from_s - 2 <= at_s <= to_s + 4 for _, from_s, to_s, name in ends)
        for at_s, label in starts
    )
    first_starts, last_ends = [], []
    for begin_s, end_s, label in onsets:
        at = [t for t, name in starts if name == label and begin_s <= t <= end_s + 4]
        over = [t for t, from_s, to_s, name in ends
                if name == label and from_s <= end_s + 1 and to_s >= begin_s - 1]  # fmt: skip
        if at and over:
            first_starts.append(at[0] - begin_s)
            last_ends.append(over[0] - begin_s)
    return first_starts, last_ends, without
