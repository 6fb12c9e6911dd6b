"""How often other sounds reach a multiple of a label's upper spread: `thresholds.RATES`.

    python -m training.false_alarms train_1.flac train_2.flac ...

Each recording is a soundscape (`python -m training.corpora.shared_soundscapes OUT --split train`)
with its truth beside it. Every class of the dataset is searched for as a label, and an event counts
unless a true event of that class overlaps it. Settings are chosen on `train`; nothing here looks at
`events`. With `--examples 5` every label is learnt from so many other clips of `train` as well:
what `thresholds.TYPICAL_TAIL` is for. The folder `--work` keeps the embeddings of windows.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from driftscore import Classifier, Detection, Embedder, Event
from driftscore.events.thresholds import LOWEST
from training.answers import events_of, windows
from training.corpora.recordings import shared_audio
from training.corpora.sets import esc50_train

MULTIPLES = (2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 8.0)


def main() -> None:
    """Print the rate per hour and label at each multiple, and that of the quiet part alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, metavar="SOUNDSCAPE")
    parser.add_argument("--examples", type=int, default=0, help="examples per label")
    parser.add_argument("--work", type=Path, required=True, help="folder of embeddings")
    options = parser.parse_args()
    paths = options.paths
    truths = [json.loads(path.with_suffix(".json").read_text()) for path in paths]
    labels = sorted({event["label"] for truth in truths for event in truth["events"]})
    used = {Path(event["part"]["file"]).name for truth in truths for event in truth["events"]}
    embedder = Embedder()
    classifier = Classifier(labels, backbone=embedder)
    if options.examples:
        found = {label: list[str]() for label in labels}
        for clip in esc50_train.clips(shared_audio()):
            (label,) = clip.labels
            own = found.get(label.replace(" ", "_"), found.get(label))
            if clip.path.name not in used and own is not None:
                own.append(str(clip.path))
        pairs = [(f, label) for label, own in found.items() for f in own[: options.examples]]
        classifier.fit(*zip(*pairs, strict=True))
        print(f"{len(pairs)} examples")
    search = classifier.detector(settings=Detection(threshold=1.0)).rules
    spreads = dict(zip(labels, search.spreads[: len(labels)].tolist(), strict=True))
    low = Detection(threshold=LOWEST * min(spreads.values()))
    detector = classifier.detector(settings=low)
    peaks, quiet_peaks, hours, quiet_hours = [], [], 0.0, 0.0
    for path, truth in zip(paths, truths, strict=True):
        begin_s, end_s = truth["quiet_s"]
        hours += truth["recipe"]["seconds"] / 3600
        quiet_hours += (end_s - begin_s) / 3600
        embedded = windows(path, embedder, detector, options.work)
        events = events_of(detector, embedded, truth["recipe"]["seconds"])
        for event in _false(iter(events), truth["events"]):
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
    main()
