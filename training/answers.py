"""What answers are worth: `python -m training.answers --work DIR`.

Two soundscapes with the same 12 words and no common recording, each of `--minutes`: one of split
"train" with four events of the words per minute, and one of split "events" with two. The events
that the default settings find in the first one are answered in order of time, as its truth says,
`driftscore learn` learns from the first 20, 50 and 100 of them, and the second one is searched.
Prints F1 (matches by any overlap) with 95 % intervals over five-minute blocks, and recall per word.
"""

import argparse
from pathlib import Path

import numpy as np

from driftscore import Classifier, Detector, Embedder, Event, WatchList
from driftscore.decisions.learning import answers_of, learn, learnt_detector
from driftscore.decisions.records import RIGHT, WRONG
from driftscore.decisions.review import Review
from driftscore.events.stream import EventTracker
from driftscore.lab import detection
from driftscore.lab.conditions import generator
from driftscore.lab.corpora.soundscapes.truth import Soundscape, SoundscapeRecipe
from driftscore.lab.detection import OVERLAP
from training.corpora.shared_soundscapes import cached_soundscape

ANSWERS = (20, 50, 100)
WORDS = ("brushing teeth", "cat", "clapping", "clock alarm", "clock tick", "crickets",
         "crying baby", "hand saw", "helicopter", "keyboard typing", "rooster",
         "sneezing")  # fmt: skip
"""Those of the first soundscape that detection is reported on."""
Windows = tuple[np.ndarray, np.ndarray]


def windows(path: Path, embedder: Embedder, detector: Detector, work: Path) -> Windows:
    """Return starts and embeddings of all windows of a recording, from `work` if they are there."""
    model = embedder.backbone.fingerprint[:16].replace("/", "-")
    kept = work / f"{path.stem}-{model}-{detector.window_s:g}-{detector.hop_s:g}.npz"
    if not kept.exists():
        slid = list(embedder.slide(path, window_s=detector.window_s, hop_s=detector.hop_s))
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez(kept, starts=[start for start, _, _ in slid], rows=[row for *_, row in slid])
    content = np.load(kept)
    return content["starts"], content["rows"]


def events_of(detector: Detector, embedded: Windows, seconds: float) -> list[Event]:
    """Return the reported events of a recording whose windows are embedded."""
    starts, rows = embedded
    tracker, events = EventTracker(detector.rules), []
    for start, row in zip(starts.tolist(), detector.head.scores(rows), strict=True):
        events += tracker.feed(start, start + detector.window_s, row)
    events += tracker.finish(seconds)
    return sorted((e for e in events if not e.rejected), key=lambda event: event.start_s)


def report(name: str, soundscape: Soundscape, events: list[Event]) -> float:
    """Print what was detected; return F1."""
    truth = [Event(e.label, e.start_s, e.end_s, 0.0) for e in soundscape.wanted]
    counts = detection.count(truth, events, OVERLAP)
    blocks = detection.block_counts(truth, events, OVERLAP, seconds=soundscape.seconds)
    [drawn] = detection.resampled([blocks], rng=generator("answers", name))
    low, high = np.quantile(detection.f1_values(drawn), (0.025, 0.975))
    pairs = detection.match(truth, events, OVERLAP)
    found = [truth[pair.truth].label for pair in pairs]
    words = ", ".join(
        f"{word} {found.count(word)}/{sum(event.label == word for event in truth)}"
        f"-{sum(event.label == word for event in events) - found.count(word)}"
        for word in soundscape.words
    )
    print(
        f"{name}: F1 {counts.f1:.3f} ({low:.3f} to {high:.3f}), precision {counts.precision:.2f}, "
        f"recall {counts.recall:.2f}; found/true-false: {words}",
        flush=True,
    )
    return counts.f1


def main() -> None:
    """Answer, learn and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--backbone", default="mini")
    parser.add_argument("--work", type=Path, required=True, help="folder of embeddings")
    parser.add_argument("--seed", type=int, default=1, help="of the second soundscape; "
                        "settings were chosen with 1 to 5")  # fmt: skip
    parser.add_argument("--minutes", type=int, default=60, help="length of each soundscape")
    options = parser.parse_args()
    seconds, minutes = 60.0 * options.minutes, options.minutes
    tested, source_of_answers = (
        SoundscapeRecipe(
            split, seconds, seed, WORDS, per_minute * minutes, minutes // 2, seconds / 10
        )
        for split, seed, per_minute in (("events", options.seed, 2), ("train", 1, 4))
    )
    path, soundscape = cached_soundscape(tested)
    answered_path, answered = cached_soundscape(source_of_answers)
    with Embedder(options.backbone) as embedder:
        watch = WatchList.of(soundscape.words)
        classifier = Classifier(soundscape.words, backbone=embedder, progress=False)
        detector = classifier.detector(watch)
        test = windows(path, embedder, detector, options.work)
        before = report("before", soundscape, events_of(detector, test, soundscape.seconds))
        source = windows(answered_path, embedder, detector, options.work)
        events = events_of(detector, source, answered.seconds)
        truth = [Event(e.label, e.start_s, e.end_s, 0.0) for e in answered.wanted]
        right = {pair.detected for pair in detection.match(truth, events, OVERLAP)}
        report("the answered soundscape", answered, events)
        for number in ANSWERS:
            review = options.work / f"answers-{number}.csv"
            lines = [f"{answered_path},{e.start_s},{e.end_s},{e.label},{e.score},{e.threshold}"
                     for e in events[:number]]  # fmt: skip
            review.with_suffix(".review.db").unlink(missing_ok=True)
            header = "file,start_s,end_s,label,score,threshold"
            review.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
            reviewed = Review(review)
            for n in range(len(reviewed.events)):
                reviewed.answer(n, RIGHT if n in right else WRONG)
            answers = answers_of(
                reviewed.events, reviewed.sound, embedder,
                window_s=detector.window_s, hop_s=detector.hop_s,
            )  # fmt: skip
            learnt, summaries = learn(classifier, watch, answers)
            for summary in summaries:
                print(f"  {summary}")
            after = learnt_detector(classifier, learnt, answers, lambda _: True)
            name = f"after {len(answers)} answers"
            f1 = report(name, soundscape, events_of(after, test, soundscape.seconds))
            print(f"  gain {f1 - before:+.3f}", flush=True)


if __name__ == "__main__":
    main()
