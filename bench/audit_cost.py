"""What an audit costs: bytes and processor time per decision, with the model `mini`.

    python -m bench.audit_cost

Labels of a recording, whether anything fits, and the events of ten minutes with sounds of the demo.
"""

import sqlite3
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np

from driftscore import Audio, Classifier, Embedder
from driftscore.audio.recordings import read
from driftscore.decisions import (
    Decider,
    DecisionStore,
    audited_events,
    audited_judgements,
    audited_results,
    label_decision,
)

RATE, SECONDS, EVERY_S = 32_000, 600, 19
WORDS = (
    "siren", "alarm clock", "church bell", "rain", "dog bark", "speech", "engine", "wind", "bird",
    "car horn", "footsteps", "laughter", "water", "typing", "door", "cough", "clapping", "train",
    "helicopter", "thunder",
)  # fmt: skip
SOUNDS = Path(__file__).resolve().parent.parent / "demo" / "sounds"


def scene() -> Audio:
    """Return quiet noise with a sound of the demo now and then."""
    samples = 0.01 * np.random.default_rng(0).standard_normal(SECONDS * RATE)
    names = ("siren", "alarm_clock", "church_bell", "speech")
    for number, first_s in enumerate(range(20, SECONDS - 20, EVERY_S)):
        sound = read(SOUNDS / f"{names[number % len(names)]}.flac", rate=RATE, seconds=5).samples
        samples[first_s * RATE : first_s * RATE + len(sound)] += 0.5 * sound
    return Audio(np.clip(samples, -1, 1).astype(np.float32), RATE)


def report(what: str, path: Path) -> None:
    """Print the bytes of the lines of a store, and of what it holds once."""
    with closing(sqlite3.connect(path)) as db:
        lines = [len(line.encode()) for (line,) in db.execute("SELECT line FROM decisions")]
        once = [len(content) for (content,) in db.execute("SELECT content FROM deciders")]
    print(f"{what}: {len(lines)} decisions, median {statistics.median(lines):.0f} bytes; {once}")


def main() -> None:
    """Measure and print."""
    embedder, audio = Embedder("mini", text_cache=False), scene()
    clip = Audio(audio.samples[19 * RATE : 29 * RATE], RATE)
    for count in (3, len(WORDS)):
        classifier = Classifier(WORDS[:count], backbone=embedder).fit()
        detector = classifier.detector()
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            with DecisionStore(home / "labels") as store:
                (result,) = audited_results(store, classifier, [clip])
            with DecisionStore(home / "fits") as store:
                list(audited_judgements(store, detector, [clip], embedder.embed([clip])))
            with DecisionStore(home / "events") as store:
                list(audited_events(store, detector, audio))
            for kind in ("labels", "fits", "events"):
                report(f"{count} labels, {kind}", home / kind)
            with DecisionStore(home / "times") as store:
                decider, reference = Decider.of(classifier), store.refer(clip)
                begun = time.process_time()
                for _ in range(2000):
                    store.record(label_decision(result), decider, reference)
                spent = (time.process_time() - begun) / 2000
            print(f"{count} labels: {1e6 * spent:.0f} microseconds of processor time per label")


if __name__ == "__main__":
    main()
