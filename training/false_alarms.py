"""How often other sounds reach a multiple of a label's upper spread: `thresholds.RATES`.

    python -m training.false_alarms train_1.flac train_2.flac ...

Each recording is a soundscape (`python -m training.corpora.shared_soundscapes OUT --split train`)
with its truth beside it. Every class of the dataset is searched for as a label, and an event counts
unless a true event of that class overlaps it. Settings are chosen on `train`; nothing here looks at
`events`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from driftscore import Classifier, Detection, Event
from driftscore.events.thresholds import LOWEST

MULTIPLES = (2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 8.0)


def main(paths: list[Path]) -> None:
    """Print the rate per hour and label at each multiple, and that of the quiet part alone."""
    truths = [json.loads(path.with_suffix(".json").read_text()) for path in paths]
    labels = sorted({event["label"] for truth in truths for event in truth["events"]})
    detector = Classifier(labels).detector(settings=Detection(threshold=1.0))
    search = detector.rules
    spreads = dict(zip(labels, search.spreads[: len(labels)].tolist(), strict=True))
    low = Detection(threshold=LOWEST * min(spreads.values()))
    detector = Classifier(labels).detector(settings=low)
    peaks, quiet_peaks, hours, quiet_hours = [], [], 0.0, 0.0
    for path, truth in zip(paths, truths, strict=True):
        begin_s, end_s = truth["quiet_s"]
        hours += truth["recipe"]["seconds"] / 3600
        quiet_hours += (end_s - begin_s) / 3600
        for event in _false(detector.events(path), truth["events"]):
            multiple = event.score / spreads[event.label]
            peaks.append(multiple)
            if begin_s <= event.start_s < end_s:
                quiet_peaks.append(multiple)
    print(f"{len(labels)} labels, {hours:g} hours, of these {quiet_hours:g} without events")
    for multiple in MULTIPLES:
        rate = sum(peak >= multiple for peak in peaks) / hours / len(labels)
        calm = sum(peak >= multiple for peak in quiet_peaks) / quiet_hours / len(labels)
        print(f"({multiple}, {rate:.3g})  quiet {calm:.3g}")


def _false(events: Iterator[Event], truth: list[dict[str, object]]) -> Iterator[Event]:
    for event in events:
        if not any(
            true["label"] == event.label
            and event.start_s < float(str(true["end_s"]))
            and event.end_s > float(str(true["start_s"]))
            for true in truth
        ):
            yield event


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
