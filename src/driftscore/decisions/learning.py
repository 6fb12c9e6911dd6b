"""Learn from answers: right events become examples, wrong ones negative examples of their label.

Labels with fewer than `MIN_RIGHT` right answers keep their words alone: one or two examples bring
more false events than they find.
Thresholds follow from all answers. Every answer is scored by a head that has not learnt from it
(`FOLDS` parts), as a multiple of the label's spread, as thresholds are (`events/thresholds.py`).
The lowest multiple from which on the share of right answers reaches the target is where the answers
want the threshold; if it is reached at the usual one already, the threshold may only fall.
The threshold goes there by n / (n + `PRIOR_ANSWERS`) of the way from the usual one.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from msgspec import structs

from driftscore.audio.decoding import check_file
from driftscore.audio.recordings import Audio, read_part
from driftscore.backbones.vectors import Matrix
from driftscore.classifier import Classifier
from driftscore.decisions.records import RIGHT, WRONG, StoredEvent
from driftscore.decisions.review import TARGET, fit_threshold
from driftscore.detector import Detector
from driftscore.embedder import Embedder
from driftscore.engines.examples import embed_examples
from driftscore.errors import AudioError, UsageError
from driftscore.events.thresholds import LOWEST
from driftscore.events.tracking import Detection
from driftscore.events.watchlist import WatchedLabel, WatchList
from driftscore.scoring.examples import Example, Examples
from driftscore.storage.files import writing_to

FOLDS = 5
MIN_RIGHT = 3
PRIOR_ANSWERS = 20
"""Answers that move a threshold half of the way."""
NO_ANSWERS = (
    "There is no answer with audio to learn from: review events first, and give --clips DIR for "
    "the store of a listener"
)
_MAX_S = 60.0


EventSound = tuple[Path, float, float]
"""A file, and from when to when it has an event, in seconds."""


@dataclass(frozen=True, eq=False)
class AnsweredEvent:
    """An event that a person answered, with what a head can score of it."""

    label: str
    right: bool
    sound: EventSound
    example: Example
    rows: Matrix
    """The embeddings of its windows, as the detector cuts them."""


@dataclass(frozen=True)
class LearntLabel:
    """What answers changed for a label, and what answers that were left out say of it."""

    label: str
    right: int
    wrong: int
    usual: float
    """The threshold without answers, as a multiple of the spread."""
    multiple: float
    right_kept: int
    """Right answers that are reported by a head and threshold of the other answers."""
    wrong_kept: int
    learnt: bool = True
    """Whether the answers are examples, and not only those of the threshold."""

    def __str__(self) -> str:
        way = "stays" if abs(self.multiple - self.usual) < 0.005 else "rises"
        way = "falls" if self.multiple < self.usual - 0.005 else way
        examples = f"{self.right} examples, {self.wrong} negative examples"
        if not self.learnt:
            examples = f"too few of {self.right + self.wrong} answers are right for examples"
        return (
            f"{self.label}: {examples}; the threshold "
            f"{way} from {self.usual:.2f} to {self.multiple:.2f} spreads; of answers left out, "
            f"{self.right_kept} of {self.right} right and {self.wrong_kept} of {self.wrong} wrong "
            "ones would be reported"
        )


def answers_of(
    events: Iterable[StoredEvent],
    sound_of: Callable[[StoredEvent], EventSound | None],
    embedder: Embedder,
    *,
    window_s: float,
    hop_s: float,
) -> list[AnsweredEvent]:
    """Return the answers right and wrong whose audio can be read."""
    answers = []
    with Embedder(embedder.backbone, audio_cache=True) as cached:
        for event in events:
            sound = sound_of(event) if event.verdict in (RIGHT, WRONG) else None
            if sound is None:
                continue
            try:
                audio = excerpt(*sound)
                [example] = embed_examples(cached.embed, [audio])
                windows = list(embedder.slide(audio, window_s=window_s, hop_s=hop_s))
            except AudioError:
                continue
            rows = np.stack([row for *_, row in windows])
            answers.append(AnsweredEvent(event.label, event.verdict == RIGHT, sound, example, rows))
    return answers


def learn(
    classifier: Classifier,
    watch: WatchList,
    answers: Sequence[AnsweredEvent],
    *,
    target: float = TARGET,
    settings: Detection | None = None,
) -> tuple[WatchList, list[LearntLabel]]:
    """Return the watch list with thresholds of the answers, and what changed for each label.

    The classifier has learnt from the answers as well, and the thresholds belong to its detectors.
    """
    if not answers:
        raise UsageError(NO_ANSWERS)
    names = dict.fromkeys(answer.label for answer in answers)
    labels = (*watch.labels, *(WatchedLabel(name) for name in names if name not in watch.names))
    watch = structs.replace(watch, labels=labels)
    multiples = np.zeros(len(answers))
    for fold in range(FOLDS):
        others = {number for number in range(len(answers)) if number % FOLDS != fold}
        detector = learnt_detector(classifier, watch, answers, others.__contains__, settings)
        for number in range(fold, len(answers), FOLDS):
            multiples[number] = _multiple(detector, answers[number])
    detector = learnt_detector(classifier, watch, answers, lambda _: True, settings)
    spreads, summaries = detector.rules.spreads, []
    changed = list(watch.labels)
    for c, label in enumerate(watch.labels):
        own = np.array([answer.label == label.name for answer in answers])
        if not own.any():
            continue
        right = np.array([answer.right for answer in answers])[own]
        usual = float(detector.rules.criteria.thresholds[c])
        multiple = fitted_multiple(multiples[own], right, usual=usual, target=target)
        above = multiples[own] >= multiple
        summaries.append(
            LearntLabel(
                label.name, int(right.sum()), int((~right).sum()), usual, multiple,
                int((above & right).sum()), int((above & ~right).sum()),
                label.name in _with_examples(answers),
            )
        )  # fmt: skip
        threshold = multiple * (1.0 if spreads is None else float(spreads[c]))
        changed[c] = structs.replace(label, threshold=round(threshold, 5), false_alarms=None)
    return structs.replace(watch, labels=tuple(changed)), summaries


def learnt_detector(
    classifier: Classifier,
    watch: WatchList,
    answers: Sequence[AnsweredEvent],
    chosen: Callable[[int], bool],
    settings: Detection | None = None,
) -> Detector:
    """Return the detector that has learnt from the answers whose numbers are chosen."""
    positive: dict[str, list[Example]] = {}
    negative: dict[str, list[Example]] = {}
    enough = _with_examples(answers)
    for number, answer in enumerate(answers):
        if chosen(number) and answer.label in enough:
            group = positive if answer.right else negative
            group.setdefault(answer.label, []).append(answer.example)
    classifier.examples_ = Examples(positive, negative)
    return classifier.detector(watch, settings)


def _with_examples(answers: Sequence[AnsweredEvent]) -> set[str]:
    """Return the labels that have enough right answers to learn from them."""
    counts = Counter(answer.label for answer in answers if answer.right)
    return {label for label, count in counts.items() if count >= MIN_RIGHT}


def _multiple(detector: Detector, answer: AnsweredEvent) -> float:
    """Return the highest score of an answer's windows above what its label usually scores."""
    c, rules = detector.watch.names.index(answer.label), detector.rules
    scores = detector.head.scores(answer.rows)[:, c]
    prior = 0.0 if rules.prior is None else rules.prior[c]
    return float((scores.max() - prior) / (1.0 if rules.spreads is None else rules.spreads[c]))


def fitted_multiple(
    multiples: Sequence[float] | np.ndarray,
    right: Sequence[bool] | np.ndarray,
    *,
    usual: float,
    target: float = TARGET,
) -> float:
    """Return the threshold of a label: near the usual one with few answers, else by the answers."""
    values, hits = np.asarray(multiples, np.float64), np.asarray(right, np.bool_)
    choices = fit_threshold("", values, hits, target=target).choices
    reaching = [choice.threshold for choice in choices if choice.precision >= target]
    wanted = reaching[0] if reaching else float(values[~hits].max()) * 1.05
    reported = values >= usual
    if reported.any() and hits[reported].mean() >= target:
        wanted = min(wanted, usual)
    wanted = max(LOWEST, wanted)
    return usual + len(values) / (len(values) + PRIOR_ANSWERS) * (wanted - usual)


def write_examples(folder: Path, watch: WatchList, answers: Sequence[AnsweredEvent]) -> WatchList:
    """Write the audio that was learnt from into a folder; return the list that names it."""
    patterns: dict[tuple[str, bool], str] = {}
    enough = _with_examples(answers)
    for answer in (answer for answer in answers if answer.label in enough):
        name = "_".join(answer.label.split()).replace(os.sep, "_")
        place = folder / name / (RIGHT if answer.right else WRONG)
        path = place / f"{answer.example.sha256[:16]}.wav"
        audio = excerpt(*answer.sound)
        with writing_to(path):
            place.mkdir(parents=True, exist_ok=True)
            try:
                soundfile.write(path, audio.samples, audio.rate, subtype="PCM_16")
            except soundfile.LibsndfileError as error:
                raise OSError(str(error)) from error
        patterns[answer.label, answer.right] = f"{folder.name}/{name}/{place.name}/*.wav"
    labels = []
    for label in watch.labels:
        own, against = (patterns.get((label.name, right), "") for right in (True, False))
        examples = dict.fromkeys((*label.examples, *([own] if own else [])))
        negatives = dict.fromkeys((*label.negatives, *([against] if against else [])))
        labels.append(structs.replace(label, examples=tuple(examples), negatives=tuple(negatives)))
    return structs.replace(watch, labels=tuple(labels))


def excerpt(path: str | os.PathLike[str], start_s: float, end_s: float) -> Audio:
    """Read a part of a recording, at most a minute."""
    check_file(Path(path))
    return read_part(path, max(0.0, start_s), min(end_s, start_s + _MAX_S))
