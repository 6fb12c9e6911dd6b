"""What an audit costs: bytes and processor time per decision, with the model `mini`.

    python -m bench.audit_cost

Labels of a recording, whether anything fits, and the events of ten minutes with sounds of the demo.
"""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from driftscore import Audio, Classifier, Embedder
from driftscore.audio import read
from driftscore.audit import (
    AuditLog,
    DecidedBy,
    EventAudit,
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


def report(what: str, home: Path) -> None:
    """Print the bytes of the lines of a log, and of what it stores once."""
    lines = [len(line) for file in home.glob("*.jsonl") for line in file.read_bytes().splitlines()]
    once = {
        name: [path.stat().st_size for path in (home / name).iterdir()]
        for name in ("heads", "searches")
    }
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
            with AuditLog(home / "labels") as log:
                (result,) = audited_results(log, classifier, [clip])
            with AuditLog(home / "fits") as log:
                list(audited_judgements(log, detector, [clip], embedder.embed([clip])))
            with AuditLog(home / "events") as log:
                list(EventAudit(log, detector).events(audio))
            for kind in ("labels", "fits", "events"):
                report(f"{count} labels, {kind}", home / kind)
            with AuditLog(home / "times") as log:
                by, kept, begun = DecidedBy.of(classifier), log.keep(clip), time.process_time()
                for _ in range(2000):
                    log.record(label_decision(result), by, kept)
                spent = (time.process_time() - begun) / 2000
            print(f"{count} labels: {1e6 * spent:.0f} microseconds of processor time per label")


if __name__ == "__main__":
    main()
