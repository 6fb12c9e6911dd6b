"""How often other sounds reach a multiple of a label's spread: `thresholds.RATES`.

    python -m training.false_alarms

Measured on the soundscapes of part "choose" (`training.corpora.event_families`): their words and
those that never occur are searched for with each multiple as the threshold of all labels, moved by
their reach, and an event counts unless it is matched with a true one. Nothing here looks at the
part "report". Prints the lines of `RATES` and what else belongs to the weights of the model: put
them into `driftscore/events/thresholds.py` after an exchange. The
embeddings of windows are kept in the folder of the soundscapes.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from driftscore import Classifier, Detector, Embedder, Event
from driftscore.events import thresholds
from driftscore.events.thresholds import reach_shift, spread_of
from driftscore.lab import detection
from driftscore.lab.corpora.soundscapes.truth import Soundscape
from driftscore.lab.detection import OVERLAP
from training.answers import Windows, events_of, windows
from training.corpora.event_families import FAMILIES, FOLDER, Family, soundscape

MULTIPLES = (2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0)
Searched = tuple[Family, Soundscape, Detector, Windows]


def searched(part: str, embedder: Embedder) -> Iterator[Searched]:
    """Yield each family of a part with its detector and the embeddings of its windows."""
    for family in FAMILIES:
        if family.part == part:
            path, truth = soundscape(family)
            detector = Classifier(truth.words, backbone=embedder, progress=False).detector()
            print(f"{part}: {family.name}", file=sys.stderr)
            yield family, truth, detector, windows(path, embedder, detector, FOLDER / "windows")


def true_events(truth: Soundscape) -> list[Event]:
    """Return the events of the words of a soundscape."""
    return [Event(e.label, e.start_s, e.end_s, 0.0) for e in truth.wanted]


def false_alarms(
    multiple: float, families: Sequence[Searched], typical: float, *, moving: bool = True
) -> float:
    """Return the false alarms per hour and label with a multiple as the threshold of all labels.

    It is moved by the reach of each label; `typical` is the reach of the median word. Unless it is
    `moving`, low peaks of the recording do not raise it.
    """
    alarms = hours = 0.0
    for _, truth, detector, embedded in families:
        reaches = np.array([*detector.reaches.values()])
        shifts = reach_shift(reaches - typical + thresholds.TYPICAL_REACH)
        low = MULTIPLES[0] + shifts if moving else np.zeros(0)
        criteria = replace(detector.rules.criteria, thresholds=multiple + shifts, low=low)
        detector.rules = replace(detector.rules, criteria=criteria)
        events = events_of(detector, embedded, truth.seconds)
        alarms += detection.count(true_events(truth), events, OVERLAP).false_alarms
        hours += truth.seconds / detection.HOUR_S * len(truth.words)
    return alarms / hours


def main() -> None:
    """Print the rate per hour and label at each multiple."""
    with Embedder() as embedder:
        families = list(searched("choose", embedder))
    reaches, tails = dict[str, float](), list[float]()
    for _, _, detector, _ in families:
        calibration = detector.calibration
        assert calibration is not None
        scores = detector.head.scores(np.concatenate([calibration.clean, calibration.noisy]))
        high = np.quantile(scores, 0.99, axis=0) - np.median(scores, axis=0)
        tails += (high / spread_of(scores))[: len(detector.reaches)].tolist()
        reaches |= detector.reaches
    typical = round(float(np.median([*reaches.values()])), 1)
    print(f"TYPICAL_REACH {typical}, TYPICAL_TAIL {np.median(tails):.1f}")
    # Thresholds move by this rate, so it comes first, and the others are measured with it.
    thresholds.LOW_RATE = false_alarms(MULTIPLES[0], families, typical, moving=False)
    print(f"LOW_RATE {thresholds.LOW_RATE:.3g}", flush=True)
    for multiple in MULTIPLES:
        print(f"({multiple}, {false_alarms(multiple, families, typical):.3g}),", flush=True)


if __name__ == "__main__":
    main()
