"""How well events are found, word by word: `python -m training.event_report`.

Searches the soundscapes of part "report" (`training.corpora.event_families`) with default settings
for their words and for words that never occur, and writes the tables of docs/detection.md between
its marks: all families, every word (sorted by recall, with what the detector promised), and false
alarms as asked for and as measured. `--birds` adds real field recordings with known calls
(UCSD-E4E/passive-acoustic-biodiversity, read from its snapshot; the column that names its labellers
is never read). The embeddings of windows are kept, so that a second run takes half a minute.
Another part or `--backbone` is only printed.
"""

import argparse
import csv
import io
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore import Classifier, Detection, Embedder, Event
from driftscore.errors import DriftscoreError
from driftscore.events.thresholds import DEFAULT_FALSE_ALARMS, PROMISES, promise
from driftscore.lab import detection
from driftscore.lab.conditions import generator
from driftscore.lab.corpora.soundscapes.truth import Soundscape
from driftscore.lab.detection import OVERLAP
from training.answers import events_of
from training.collect import repository
from training.corpora.event_families import FOLDER
from training.false_alarms import searched, true_events

PAGE = Path(__file__).parents[1] / "docs" / "detection.md"
BEGIN, END = "<!-- words -->", "<!-- /words -->"
ASKED = (0.5, 2.0)
WITHIN = 1.5
SOUNDING = (
    "another word of the list", "another sound", "a change of place", "the place alone",
)  # fmt: skip
NEAR_S = 5.0
"""A false alarm that begins so close to the start of another place is due to the change."""
ROUNDED_S = 5
DRAWS = 10_000
"""How often the false alarms of a detector with exact rates are drawn."""
BIRDS, COMMIT = "UCSD-E4E/passive-acoustic-biodiversity", "2cb89170"
CALLS = "COSMOS_Labeling_Experiment/COSMOS_Manual_Labels_Anonymized_SRS.csv"
RECORDINGS = "TweetyNET/cosmos_data/cosmos_random_sample_processing"


@dataclass
class Word:
    """What was found of one word, over all families."""

    promised: str
    true: int = 0
    hits: int = 0
    alarms: int = 0
    hours: float = 0.0
    onset_errors_s: list[float] = field(default_factory=list)

    @property
    def recall(self) -> float:
        """The share of its events that were found."""
        return self.hits / self.true if self.true else float("nan")


def median(values: Iterable[float]) -> str:
    """Return a median in seconds as text; empty for no values."""
    listed = list(values)
    return f"{np.median(listed):.2f}" if listed else ""


def sounding(event: Event, truth: Soundscape) -> str:
    """Return what sounds during a false alarm, one of `SOUNDING`."""
    overlapping = [e for e in truth.events if e.start_s < event.end_s and event.start_s < e.end_s]
    if overlapping:
        return SOUNDING[0 if any(e.wanted for e in overlapping) else 1]
    changes = (b for a, b in pairwise(truth.backgrounds) if a.file != b.file)
    near = any(abs(event.start_s - b.start / truth.recipe.rate) <= NEAR_S for b in changes)
    return SOUNDING[2 if near else 3]


def place_at(seconds: float, truth: Soundscape) -> str:
    """Return the place at a time, with the second of its recording: short ones are repeated."""
    rate = truth.recipe.rate
    place = [b for b in truth.backgrounds if b.start <= seconds * rate][-1]
    position_s = seconds + (place.source_start - place.start) / rate
    return f"{place.label} at {ROUNDED_S * round(position_s / ROUNDED_S)} s"


def near_and_none(
    alarms: NDArray[np.float64], hours: NDArray[np.float64], budget: float
) -> tuple[float, float]:
    """Return how many words have about the rate asked for, and how many have no false alarm.

    The last axis of `alarms` is that of the words; the numbers are means over any other one.
    """
    rates = alarms / hours
    near = (rates >= budget / WITHIN) & (rates <= budget * WITHIN)
    return float(near.sum(axis=-1).mean()), float((alarms == 0).sum(axis=-1).mean())


def tables(part: str, embedder: Embedder) -> str:
    """Return the tables of a part as Markdown."""
    words: dict[str, Word] = {}
    budgets: dict[float, dict[str, list[float]]] = {b: defaultdict(lambda: [0, 0]) for b in ASKED}
    rows, blocks, short = [], [], [0, 0]
    total, quiet, quiet_h = detection.DetectionCounts(0, 0, 0), 0, 0.0
    errors_s: list[float] = []
    during, in_quiet = dict.fromkeys(SOUNDING, 0), Counter[str]()
    for family, truth, detector, embedded in searched(part, embedder):
        expected, hours = true_events(truth), truth.seconds / detection.HOUR_S
        events = events_of(detector, embedded, truth.seconds)
        counts = detection.count(expected, events, OVERLAP)
        pairs = detection.match(expected, events, OVERLAP)
        own_errors = [abs(expected[a].start_s - events[b].start_s) for a, b in pairs]
        errors_s += own_errors
        inside = detection.count_within(events, *truth.quiet_s)
        quiet, quiet_h = quiet + inside, quiet_h + (truth.quiet_s[1] - truth.quiet_s[0]) / 3600
        matched, right = {a for a, _ in pairs}, {b for _, b in pairs}
        for event in (event for n, event in enumerate(events) if n not in right):
            during[sounding(event, truth)] += 1
        in_quiet.update(
            f"{event.label} in {place_at(event.start_s, truth)}"
            for event in events
            if detection.count_within([event], *truth.quiet_s)
        )
        for name in truth.words:
            word = words.setdefault(name, Word(promise(detector.reaches[name])))
            own = [n for n, event in enumerate(expected) if event.label == name]
            hits = len(matched.intersection(own))
            word.true, word.hits, word.hours = (
                word.true + len(own),
                word.hits + hits,
                word.hours + hours,
            )
            word.alarms += sum(event.label == name for event in events) - hits
            word.onset_errors_s += [
                e for e, (a, _) in zip(own_errors, pairs, strict=True) if a in own
            ]
        if family.name.startswith("short"):
            short = [short[0] + counts.hits, short[1] + len(expected)]
        blocks.append(detection.block_counts(expected, events, OVERLAP, seconds=truth.seconds))
        rows.append(
            f"| {family.name.replace('_', ' and ')} | {len(expected)} of {len(family.words)} | "
            f"{counts.f1:.2f} | {counts.precision:.2f} | {counts.recall:.2f} | "
            f"{counts.false_alarms / hours / len(truth.words):.2f} | {median(own_errors)} | "
            f"{inside} |"
        )
        total = detection.DetectionCounts(
            total.hits + counts.hits, total.missed + counts.missed,
            total.false_alarms + counts.false_alarms,
        )  # fmt: skip
        for budget, by_word in budgets.items():
            other = Classifier(truth.words, backbone=embedder, progress=False).detector(
                settings=Detection(false_alarms=budget)
            )
            found = events_of(other, embedded, truth.seconds)
            pairs = detection.match(expected, found, OVERLAP)
            right = {b for _, b in pairs}
            for name in truth.words:
                by_word[name][0] += sum(
                    event.label == name and n not in right for n, event in enumerate(found)
                )
                by_word[name][1] += hours
    [drawn] = detection.resampled([np.concatenate(blocks)], rng=generator("event report", part))
    low, high = np.quantile(detection.f1_values(drawn), (0.025, 0.975))
    asked_h = sum(word.hours for word in words.values())
    occurring = {name: word for name, word in words.items() if word.true}
    quarter = sum(word.recall >= 0.25 for word in occurring.values())
    once = sum(word.hits > 0 for word in occurring.values())
    lines = [
        "| family | events of words | F1 | precision | recall | false alarms per hour and word | "
        "onset error (s) | in quiet part |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *rows,
        f"| **all** | {total.hits + total.missed} of {len(occurring)} | "
        f"**{total.f1:.2f}** ({low:.2f} to {high:.2f}) | {total.precision:.2f} | "
        f"{total.recall:.2f} | {total.false_alarms / asked_h:.2f} | {median(errors_s)} | "
        f"{quiet} ({quiet / quiet_h:.1f} per hour) |",
        "",
        f"{quarter} of {len(occurring)} words are found at least once in four, {once} at all. "
        f"Of glass, shots and knocks of 0.1 to 1 s at 10 dB {short[0]} of {short[1]} are found.",
        "",
        f"What sounds during the {sum(during.values())} false alarms: "
        + ", ".join(f"{what} {count}" for what, count in during.items())
        + ".",
        "",
        "In the quiet parts, by place and second of its recording: "
        + ("; ".join(f"{what} ({count})" for what, count in sorted(in_quiet.items())) or "none")
        + ".",
        "",
        "| false alarms asked for, per hour and word | measured | words within a factor of "
        f"{WITHIN:g} | words with none |",
        "| --- | --- | --- | --- |",
    ]
    rng = generator("event report", part, "exact rates")
    for budget, by_word in budgets.items():
        alarms, hours = np.array([*by_word.values()]).T
        near, none = near_and_none(alarms, hours, budget)
        by_chance = rng.poisson(budget * hours, (DRAWS, len(hours))).astype(np.float64)
        best_near, best_none = near_and_none(by_chance, hours, budget)
        lines.append(
            f"| {budget:g} | {alarms.sum() / hours.sum():.2f} | {near:.0f} of {len(hours)} "
            f"({best_near:.0f}) | {none:.0f} ({best_none:.0f}) |"
        )
    lines += [
        "",
        "In brackets: the mean of a detector whose rate is exactly the one asked for, for every "
        "word, when chance decides how many false alarms come in these hours.",
    ]
    lines += ["", "| promised | words | recall |", "| --- | --- | --- |"]
    for _, level in PROMISES:
        promised = [word for word in occurring.values() if word.promised == level]
        if promised:
            recall = sum(word.hits for word in promised) / sum(word.true for word in promised)
            lines.append(f"| {level} | {len(promised)} | {recall:.2f} |")
    lines += ["", "| word | found | false alarms per hour | onset error (s) | promised |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    ranked = sorted(
        words.items(), key=lambda item: (-item[1].recall if item[1].true else 1, item[0])
    )
    for name, word in ranked:
        share = f"{word.hits} of {word.true}" if word.true else "never occurs"
        lines.append(
            f"| {name} | {share} | {word.alarms / word.hours:.1f} | "
            f"{median(word.onset_errors_s)} | {word.promised} |"
        )
    return "\n".join(lines)


def bird_calls() -> dict[str, list[tuple[float, float]]]:
    """Return when a bird calls in each recording; calls that are less than 3 s apart are one."""
    home = repository(BIRDS)
    content = subprocess.run(
        ["git", "-C", home, "show", f"{COMMIT}:{CALLS}"], check=True, capture_output=True
    ).stdout.decode()
    calls = defaultdict(list)
    for row in csv.DictReader(io.StringIO(content)):
        start_s = float(row["OFFSET"])
        calls[row["IN FILE"].replace("_", " ")].append((start_s, start_s + float(row["DURATION"])))
    joined: dict[str, list[tuple[float, float]]] = {}
    for name, spans in calls.items():
        merged: list[tuple[float, float]] = []
        for start_s, end_s in sorted(spans):
            if merged and start_s - merged[-1][1] < Detection().gap_s:
                merged[-1] = (merged[-1][0], max(end_s, merged[-1][1]))
            else:
                merged.append((start_s, end_s))
        joined[name] = merged
    return joined


def birds(embedder: Embedder) -> str:
    """Return one line about "bird" in real field recordings."""
    home, folder = repository(BIRDS), FOLDER / "birds"
    folder.mkdir(parents=True, exist_ok=True)
    detector = Classifier(["bird"], backbone=embedder, progress=False).detector()
    hits = missed = alarms = files = 0
    seconds, onsets, offsets = [0.0], list[float](), list[float]()
    for name, spans in sorted(bird_calls().items()):
        path = folder / name
        if not path.exists():
            shown = subprocess.run(
                ["git", "-C", home, "show", f"{COMMIT}:{RECORDINGS}/{name}"], capture_output=True
            )
            if shown.returncode:  # not every recording is in the snapshot
                continue
            path.write_bytes(shown.stdout)
        truth = [Event("bird", *span, 0.0) for span in spans]
        done = [0.0]
        try:
            events = list(detector.events(str(path), seconds=done.append))
        except DriftscoreError:
            continue
        counts = detection.count(truth, events, OVERLAP)
        hits, missed = hits + counts.hits, missed + counts.missed
        alarms, files = alarms + counts.false_alarms, files + 1
        seconds.append(done[-1])
        for a, b in detection.match(truth, events, OVERLAP):
            onsets.append(abs(truth[a].start_s - events[b].start_s))
            offsets.append(abs(truth[a].end_s - events[b].end_s))
    counts = detection.DetectionCounts(hits, missed, alarms)
    return (
        f'"bird" in {files} real field recordings ({sum(seconds) / 3600:.1f} h, {hits + missed} '
        f"stretches with calls): F1 {counts.f1:.2f}, precision {counts.precision:.2f}, recall "
        f"{counts.recall:.2f}, median error of onsets {median(onsets)} s, of offsets "
        f"{median(offsets)} s."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the tables into the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--birds", action="store_true", help="also the field recordings of birds")
    parser.add_argument("--part", choices=("report", "choose"), default="report")
    parser.add_argument("--backbone", default="mini")
    options = parser.parse_args(arguments)
    with Embedder(options.backbone) as embedder:
        text = tables(options.part, embedder)
        text = f"With the default of {DEFAULT_FALSE_ALARMS:g} per hour and word:\n\n{text}"
        if options.birds:
            text += f"\n\n{birds(embedder)}"
    print(text)
    if options.part == "report" and options.backbone == "mini":
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
