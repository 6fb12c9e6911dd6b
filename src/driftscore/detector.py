"""Detector: the events of recordings and streams.

    stream -> windows at a fine hop -> embeddings -> scores of labels and negative words
           -> above the background of each (`background.py`) -> events (`events.py`)

A file is a stream that is read as fast as possible: both go through the same code, sample by
sample, so they give the same events however the samples are cut into blocks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from os import getpid

import numpy as np

from driftscore.audio.recordings import Recording, check_length, describe, resampled_blocks
from driftscore.backbones.protocol import Backbone, LocalBackbone
from driftscore.backbones.vectors import Scores, Vector
from driftscore.embedder import Embedder
from driftscore.engines.window_log import WindowLog
from driftscore.engines.window_stream import BLOCK_S, LIVE_BLOCK_S
from driftscore.errors import UsageError
from driftscore.events.stream import EventRules, EventStream, EventTracker
from driftscore.events.thresholds import (
    GOOD,
    LOWEST,
    MIN_LEARNT,
    fitting_labels,
    multiple_for,
    own_multiples,
    promise,
    quiet_multiples,
    reach,
    reach_shift,
    spread_of,
    tail_shift,
)
from driftscore.events.tracking import NEVER, Detection, Event, LabelRules, Observer, in_order
from driftscore.events.watchlist import WatchList
from driftscore.scoring.calibration import Calibration, standardise
from driftscore.scoring.examples import example_counts
from driftscore.scoring.head import Head, Result
from driftscore.system.process import check_process

LOCAL_WINDOW_S, LOCAL_HOP_S = 3.0, 0.5
"""Window and hop for a backbone whose windows are poolings of frames."""
OTHER_WINDOW_S = 4.0
"""Window for a backbone that encodes each window; the next one begins half of it later."""
_ALIKE = 0.6
"""A built-in word whose weights have this cosine with those of a label does not oppose it."""

_RESEMBLES = 0.5
"""A negative word whose scores on other sounds correlate with those of a label resembles it."""


def window_and_hop(settings: Detection, backbone: Backbone) -> tuple[float, float]:
    """Return the window and the hop: as asked for, or what suits the backbone."""
    if isinstance(backbone, LocalBackbone):
        window_s = settings.window_s or LOCAL_WINDOW_S
        return window_s, settings.hop_s or min(LOCAL_HOP_S, window_s)
    window_s = settings.window_s or min(OTHER_WINDOW_S, backbone.seconds)
    return window_s, settings.hop_s or window_s / 2


class Detector:
    """Finds the events of a watch list.

    Parameters
    ----------
        embedder: the model.
        head: the scores of every wording and every negative word of the watch list.
        watch: what to look for.
        settings: how events are found.
        calibration: what the words score on other sounds; None if the model has no calibration.

    """

    def __init__(
        self,
        embedder: Embedder,
        head: Head,
        watch: WatchList,
        settings: Detection | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self.embedder = embedder
        self.watch = watch
        self.settings = settings or Detection()
        self.calibration = calibration
        self.head = grouped(head, watch, calibration)
        self.window_s, self.hop_s = window_and_hop(self.settings, embedder.backbone)
        default = watch.false_alarms or self.settings.false_alarms
        self._budgets = [label.false_alarms or default for label in watch.labels]
        prior = spreads = None
        if calibration is not None:
            scores = self.head.scores(np.concatenate([calibration.clean, calibration.noisy]))
            prior, spreads = np.median(scores, axis=0), spread_of(scores)
        shortest = [
            self.settings.min_duration_s if label.min_duration_s is None else label.min_duration_s
            for label in watch.labels
        ]
        multiples = np.array([multiple_for(budget) for budget in self._budgets])
        counts = example_counts(self.head)
        learnt = [counts.get(label.words[0], 0) >= MIN_LEARNT for label in watch.labels]
        self.reaches: dict[str, float] = {}
        """How far the sounds of the calibration reach for each label (`thresholds.reach`)."""
        self.promises: dict[str, str] = {}
        """How well each label can be expected to work: "good", "poor, it resembles 'music'"."""
        if calibration is not None:
            reached = reach(scores)[: len(learnt)]
            multiples += np.where(learnt, tail_shift(scores)[: len(learnt)], reach_shift(reached))
            self.reaches = dict(zip(watch.names, reached.tolist(), strict=True))
            self.promises = _promises(scores, self.reaches, watch.competing)
        mask = opposed(self.head, watch)
        low = LOWEST + multiples - [multiple_for(budget) for budget in self._budgets]
        criteria = LabelRules(
            watch.names, multiples, np.array(shortest), watch.competing, mask, low
        )
        rules = EventRules(
            self.head, criteria, self.settings, self.window_s, self.hop_s, prior, spreads
        )
        if self.source == "quiet" and calibration is not None:
            window_s, hop_s = calibration.quiet_window_s, calibration.quiet_hop_s
            tracker = EventTracker(replace(_lowest(rules), window_s=window_s, hop_s=hop_s))
            events: list[Event] = []
            for number, row in enumerate(self.head.scores(calibration.quiet)):
                events += tracker.feed(number * hop_s, number * hop_s + window_s, row)
            hours = len(calibration.quiet) * hop_s / 3600
            events += tracker.finish(hours * 3600 + window_s)
            multiples = quiet_multiples(self._peaks(events), hours, self._budgets)
        self.rules = self._with_multiples(rules, multiples)

    def events(
        self,
        recording: Recording,
        *,
        rejected: bool = False,
        seconds: Callable[[float], None] | None = None,
        observer: Observer | None = None,
        store: WindowLog | None = None,
        rules: EventRules | None = None,
    ) -> Iterator[Event]:
        """Yield the events of a recording by their start; with `rejected` also those not reported.

        `seconds` is called with the seconds of audio that are done, for a progress bar; `observer`
        is given the samples and the scores over time, for a picture. Windows that a `store` has
        are not embedded again. `rules` are what `rules_for` returned, if the caller has them.
        """
        batches = event_batches(
            recording,
            rules or self.rules_for(recording),
            self.embedder.backbone,
            seconds=seconds,
            observer=observer,
            store=store,
        )
        return (event for event in in_order(batches) if rejected or not event.rejected)

    def rules_for(self, recording: Recording) -> EventRules:
        """Return what decides about a recording, whose thresholds may follow from itself."""
        if self.source != "recording":
            return self.rules
        ended_s = [0.0]
        batches = event_batches(
            recording, _lowest(self.rules), self.embedder.backbone, seconds=ended_s.append
        )
        peaks = self._peaks(event for batch, _ in batches for event in batch)
        multiples = own_multiples(peaks, ended_s[-1] / 3600, self._budgets)
        return self._with_multiples(self.rules, multiples)

    def stream(
        self,
        rate: int,
        *,
        block_s: float = LIVE_BLOCK_S,
        observer: Observer | None = None,
        early: bool = False,
    ) -> EventStream:
        """Return a stream that takes samples of this rate as they come.

        With `early` its `open` has an event as soon as it is sure.
        """
        if self.source == "recording":
            raise UsageError(
                "Thresholds from the recording itself need all of it; for a stream use "
                "thresholds_from='calibration', or a quiet recording of the place"
            )
        backbone = self.embedder.backbone
        return EventStream(
            self.rules, backbone, rate, block_s=block_s, observer=observer, early=early
        )

    def label_or_none(self, source: str, embedding: Vector, seconds: float = 0.0) -> Result:
        """Return the scores of one clip, and which labels fit it at all (`fitting_labels`)."""
        prior, spreads = self.rules.prior, self.rules.spreads
        if prior is None or spreads is None:
            raise UsageError(
                "Whether anything fits is told from a calibration of the model, and there is none "
                "here; make one with `driftscore calibrate`"
            )
        scores, names = self.head.scores(embedding)[0], self.watch.names
        fits = fitting_labels(scores, prior, spreads, self.rules.criteria.opposed)
        return Result(source, names, scores[: len(names)], seconds, fits=tuple(fits.tolist()))

    @property
    def source(self) -> str:
        """What thresholds follow from: calibration, quiet or recording."""
        chosen = self.settings.thresholds_from
        has_quiet = self.calibration is not None and len(self.calibration.quiet) > 0
        if chosen == "quiet" and not has_quiet:
            raise UsageError(
                "The calibration holds no quiet recording; make one with "
                "`driftscore calibrate --quiet night.flac --out place.safetensors`"
            )
        return ("quiet" if has_quiet else "calibration") if chosen == "auto" else chosen

    def expected_alarms(self, seconds: float) -> float:
        """Return how many false alarms of all labels are expected in so much audio."""
        return sum(self._budgets) * seconds / 3600

    @property
    def false_alarms(self) -> str:
        """The false alarms per hour and label that are accepted, as text: "0.5", or "0.1 to 2"."""
        low, high = min(self._budgets), max(self._budgets)
        return f"{low:g}" if low == high else f"{low:g} to {high:g}"

    @property
    def thresholds(self) -> dict[str, float]:
        """The score above its background that each label must reach."""
        multiples, spreads = self.rules.criteria.thresholds, self.rules.spreads
        names = self.watch.names
        scale = np.ones(len(names)) if spreads is None else spreads[: len(names)]
        return dict(zip(names, (multiples * scale).tolist(), strict=True))

    def _with_multiples(self, rules: EventRules, multiples: Scores) -> EventRules:
        """Return rules with other thresholds; those of the user replace them."""
        chosen = multiples.copy()
        low = rules.criteria.low.copy()
        for c, label in enumerate(self.watch.labels):
            own = self.settings.threshold if label.threshold is None else label.threshold
            if own is not None:
                chosen[c] = own / (1.0 if rules.spreads is None else rules.spreads[c])
                low[c] = NEVER  # what the user asked for does not move
        return replace(rules, criteria=replace(rules.criteria, thresholds=chosen, low=low))

    def _peaks(self, events: Iterable[Event]) -> list[list[float]]:
        """Return the peaks of each label as multiples of its spread, by the lowest rules."""
        peaks: dict[str, list[float]] = {name: [] for name in self.watch.names}
        for event in events:
            if event.threshold and event.score >= event.threshold:
                peaks[event.label].append(LOWEST * event.score / event.threshold)
        return list(peaks.values())


def event_batches(
    recording: Recording,
    rules: EventRules,
    backbone: Backbone,
    *,
    seconds: Callable[[float], None] | None = None,
    observer: Observer | None = None,
    store: WindowLog | None = None,
) -> Iterator[tuple[list[Event], float]]:
    """Yield the events of a recording that ended, and the earliest start of those that follow."""
    several, pid = isinstance(backbone, LocalBackbone) and backbone.parallel > 1, getpid()
    with ThreadPoolExecutor(backbone.parallel) if several else nullcontext() as pool:
        stream = EventStream(
            rules,
            backbone,
            backbone.rate,
            block_s=BLOCK_S,
            pool=pool,
            observer=observer,
            store=store,
            name=describe(recording),
        )
        for part in resampled_blocks(recording, backbone.rate):
            check_process(pid)
            batch = stream.feed(part)
            if seconds is not None:
                seconds(stream.seconds)
            yield batch, stream.open_s
        check_process(pid)
        check_length(recording, stream.seconds)
        yield stream.finish(), float("inf")


def _lowest(rules: EventRules) -> EventRules:
    """Return rules by which every peak from `LOWEST` on is reported."""
    low = np.full(len(rules.criteria.labels), LOWEST)
    return replace(rules, criteria=replace(rules.criteria, thresholds=low, low=np.zeros(0)))


def _promises(
    scores: Scores, reaches: Mapping[str, float], negatives: Sequence[str]
) -> dict[str, str]:
    """Return the promise of each label, with the negative word that resembles one that is poor."""
    promises = {name: promise(reached) for name, reached in reaches.items()}
    with np.errstate(invalid="ignore", divide="ignore"):  # a label may score the same everywhere
        alike = np.nan_to_num(np.atleast_2d(np.corrcoef(scores.T))[: len(reaches), len(reaches) :])
    for name, row in zip(reaches, alike, strict=True):
        if promises[name] != GOOD and row.max(initial=0.0) >= _RESEMBLES:
            promises[name] += f", it resembles {negatives[int(row.argmax())]!r}"
    return promises


def grouped(head: Head, watch: WatchList, calibration: Calibration | None) -> Head:
    """Return the head of the labels and negative words: the wordings of a label are averaged."""
    rows = {name: number for number, name in enumerate(head.labels)}
    groups = [label.words for label in watch.labels] + [(word,) for word in watch.competing]
    missing = [word for words in groups for word in words if word not in rows]
    if missing:
        raise UsageError(f"The head has no label {missing[0]!r} of the watch list")
    indices = [[rows[word] for word in words] for words in groups]
    weights = np.stack([head.weights[index].mean(axis=0) for index in indices])
    offsets = np.stack([head.offsets[index].mean() for index in indices])
    averaged = Head((*watch.names, *watch.competing), weights, offsets, head.made_by)
    if head.standardised and calibration is not None:
        return standardise(averaged, calibration)
    return averaged


def opposed(head: Head, watch: WatchList) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Return which negative words compete with which label: (labels, negatives).

    Words of the list compete with every label, those of a label with this label, and built-in
    words with the labels that they do not resemble.
    """
    count, words = len(watch.names), watch.competing
    unit = head.weights / np.linalg.norm(head.weights, axis=1, keepdims=True)
    alike = unit[:count] @ unit[count:].T
    mask = np.zeros((count, len(words)), np.bool_)
    for n, word in enumerate(words):
        of_a_label = any(word in label.negatives for label in watch.labels)
        for c, label in enumerate(watch.labels):
            named = word in watch.negatives or word in label.negatives
            mask[c, n] = named or (not of_a_label and float(alike[c, n]) < _ALIKE)
    return mask
