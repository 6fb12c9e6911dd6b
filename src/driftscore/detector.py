"""Detector: the events of recordings and streams.

    stream -> windows at a fine hop -> embeddings -> scores of labels and negative words
           -> above the background of each (`background.py`) -> events (`events.py`)

A file is a stream that is read as fast as possible: both go through the same code, sample by
sample, so they give the same events however the samples are cut into blocks.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import soxr

from driftscore.audio import Audio, Recording, Samples, describe, resampled_blocks
from driftscore.backbones.protocol import Backbone, LocalBackbone
from driftscore.background import Background
from driftscore.calibration import Calibration, standardise
from driftscore.embedder import Embedder
from driftscore.errors import AudioError, UsageError
from driftscore.events import Criteria, Detection, Event, Tracker, Watcher, in_order
from driftscore.head import Head
from driftscore.levels import LevelTrack
from driftscore.sliding import BLOCK_S, LIVE_BLOCK_S, WindowEmbedding, window_stream
from driftscore.thresholds import (
    LOWEST,
    Multiples,
    multiple_for,
    own_multiples,
    quiet_multiples,
    upper_spread,
)
from driftscore.vectors import Matrix, Scores
from driftscore.watchlist import WatchedLabel, WatchList

LOCAL_WINDOW_S, LOCAL_HOP_S = 2.0, 0.5
"""Window and hop for a backbone whose windows are poolings of frames."""
OTHER_WINDOW_S = 4.0
"""Window for a backbone that encodes each window; the next one begins half of it later."""
_ALIKE = 0.6
"""A built-in word whose weights have this cosine with those of a label does not oppose it."""


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
        self._prior: Scores | None = None
        self._spreads: Scores | None = None
        if calibration is not None:
            other = self.head.scores(np.concatenate([calibration.clean, calibration.noisy]))
            self._prior, self._spreads = np.median(other, axis=0), upper_spread(other)
        self.criteria = self._criteria()

    def events(
        self,
        recording: Recording,
        *,
        rejected: bool = False,
        seconds: Callable[[float], None] | None = None,
        watcher: Watcher | None = None,
    ) -> Iterator[Event]:
        """Yield the events of a recording by their start; with `rejected` also those not reported.

        `seconds` is called with the seconds of audio that are done, for a progress bar; `watcher`
        is given the samples and the scores over time, for a picture.
        """
        criteria = self.criteria
        if self._source() == "recording":
            criteria = self._own_criteria(recording)
        found = self._batches(recording, criteria, seconds, watcher)
        return (event for event in in_order(found) if rejected or not event.rejected)

    def stream(self, rate: int, *, block_s: float = LIVE_BLOCK_S) -> "EventStream":
        """Return a stream that takes samples of this rate as they come."""
        if self._source() == "recording":
            raise UsageError(
                "Thresholds from the recording itself need all of it; for a stream use "
                "thresholds_from='calibration', or a quiet recording of the place"
            )
        return EventStream(self, rate, self.criteria, block_s=block_s)

    def background(self) -> Background:
        """Return the background before a recording begins."""
        return Background(self.hop_s, prior=self._prior)

    def spreads(self, background: Background) -> Scores | float | None:
        """Return what scores are divided by; None while there is nothing to tell it from."""
        if self._spreads is not None:
            return self._spreads
        return 1.0 if self.settings.threshold is not None else background.spread()

    def peaks(self, recording: Recording) -> tuple[list[list[float]], float]:
        """Return the peaks of each label as multiples of its spread, and the hours of audio."""
        low = replace(self.criteria, thresholds=np.full(len(self.criteria.labels), LOWEST))
        ended = [0.0]
        found = self._batches(recording, low, lambda now: ended.append(now))
        return self._by_label(event for batch, _ in found for event in batch), ended[-1] / 3600

    def _by_label(self, events: Iterable[Event]) -> list[list[float]]:
        peaks: dict[str, list[float]] = {name: [] for name in self.watch.names}
        for event in events:
            if event.threshold and event.score >= event.threshold:
                peaks[event.label].append(LOWEST * event.score / event.threshold)
        return list(peaks.values())

    def _batches(
        self,
        recording: Recording,
        criteria: Criteria,
        seconds: Callable[[float], None] | None,
        watcher: Watcher | None = None,
    ) -> Iterator[tuple[list[Event], float]]:
        """Yield the events that ended, and the earliest start of those that may follow."""
        backbone = self.embedder.backbone
        local = isinstance(backbone, LocalBackbone) and backbone.parallel > 1
        with ThreadPoolExecutor(backbone.parallel) if local else nullcontext() as pool:
            stream = EventStream(
                self, backbone.rate, criteria, block_s=BLOCK_S, pool=pool,
                name=describe(recording), watcher=watcher,
            )  # fmt: skip
            for part in resampled_blocks(recording, backbone.rate):
                batch = stream.feed(part)
                if seconds is not None:
                    seconds(stream.seconds)
                yield batch, stream.open_s
            yield stream.finish(), float("inf")
            if not stream.seconds:
                raise AudioError(f"{describe(recording)} is empty: it has no samples")

    def _source(self) -> str:
        chosen = self.settings.thresholds_from
        has_quiet = self.calibration is not None and len(self.calibration.quiet) > 0
        if chosen == "quiet" and not has_quiet:
            raise UsageError(
                "The calibration holds no quiet recording; make one with "
                "`driftscore calibrate --quiet night.flac --out place.safetensors`"
            )
        return ("quiet" if has_quiet else "calibration") if chosen == "auto" else chosen

    def _budgets(self) -> list[float]:
        """Return the false alarms per hour of each label."""
        default = self.watch.false_alarms or self.settings.false_alarms
        return [label.false_alarms or default for label in self.watch.labels]

    def _criteria(self) -> Criteria:
        watch, budgets = self.watch, self._budgets()
        shortest = [
            self.settings.min_duration_s if label.min_duration_s is None else label.min_duration_s
            for label in watch.labels
        ]
        made = Criteria(
            watch.names,
            np.array([multiple_for(budget) for budget in budgets]),
            np.array(shortest),
            watch.competing,
            opposed(self.head, watch),
        )
        if self._source() == "quiet":
            made = self._quiet_criteria(made, budgets)
        return self._with_thresholds(made)

    def _with_thresholds(self, criteria: Criteria) -> Criteria:
        """Return criteria in which thresholds that were given replace those from a budget."""
        multiples = criteria.thresholds.copy()
        for c, label in enumerate(self.watch.labels):
            given = self.settings.threshold if label.threshold is None else label.threshold
            if given is not None:
                multiples[c] = given / (1.0 if self._spreads is None else self._spreads[c])
        return replace(criteria, thresholds=multiples)

    def _own_criteria(self, recording: Recording) -> Criteria:
        peaks, hours = self.peaks(recording)
        multiples = own_multiples(peaks, hours, self._budgets())
        return self._with_thresholds(replace(self.criteria, thresholds=multiples))

    def _quiet_criteria(self, criteria: Criteria, budgets: list[float]) -> Criteria:
        """Return criteria from the quiet recording that the calibration holds."""
        assert self.calibration is not None  # noqa: S101 (_source has checked it)
        window_s, hop_s = self.calibration.quiet_window_s, self.calibration.quiet_hop_s
        low = replace(criteria, thresholds=np.full(len(criteria.labels), LOWEST))
        tracker, background = Tracker(low, self.settings, hop_s=hop_s), self.background()
        found: list[Event] = []
        for number, scores in enumerate(self.head.scores(self.calibration.quiet)):
            found += advance(self, tracker, background, number * hop_s, window_s, scores)
        hours = len(self.calibration.quiet) * hop_s / 3600
        found += tracker.finish(hours * 3600 + window_s)
        return replace(criteria, thresholds=quiet_multiples(self._by_label(found), hours, budgets))


class EventStream:
    """Samples in, events out: one recording, or one source that goes on for ever."""

    def __init__(
        self,
        detector: Detector,
        rate: int,
        criteria: Criteria,
        *,
        block_s: float,
        pool: ThreadPoolExecutor | None = None,
        name: str = "The stream",
        watcher: Watcher | None = None,
    ) -> None:
        backbone = detector.embedder.backbone
        self._detector = detector
        self._name = name
        self._watcher = watcher
        self._resampler = None
        if rate != backbone.rate:
            self._resampler = soxr.ResampleStream(
                rate, backbone.rate, 1, dtype="float32", quality="HQ"
            )
        self._windows = window_stream(
            backbone, window_s=detector.window_s, hop_s=detector.hop_s, block_s=block_s, pool=pool
        )
        self._background = detector.background()
        self._tracker = Tracker(criteria, detector.settings, hop_s=detector.hop_s)
        self._rate = backbone.rate
        self._samples = 0
        self._scored_s = 0.0
        self.levels = LevelTrack(backbone.rate)
        self.current: list[tuple[str, float]] = []
        """The labels of the last window with their share of the threshold, best first."""

    @property
    def seconds(self) -> float:
        """Seconds of audio so far."""
        return self._samples / self._rate

    @property
    def open_s(self) -> float:
        """The earliest start that an event to come may have."""
        return min(self._tracker.earliest_s, self._scored_s)

    @property
    def active(self) -> tuple[str, ...]:
        """The labels that are present now."""
        return tuple(self._detector.watch.names[c] for c in self._tracker.active)

    def feed(self, samples: Samples) -> list[Event]:
        """Take mono samples; return the events that ended, also those that were rejected."""
        mono = Audio(samples, self._rate).samples if samples.ndim > 1 else samples
        if self._resampler is not None:
            mono = self._resampler.resample_chunk(mono.astype(np.float32, copy=False))
        return self._taken(mono)

    def finish(self) -> list[Event]:
        """Return the events that are left at the end."""
        found: list[Event] = []
        if self._resampler is not None:
            found = self._taken(self._resampler.resample_chunk(np.zeros(0, np.float32), last=True))
        found += self._scored(self._windows.finish())
        ended = self._tracker.finish(self.seconds)
        return found + [self._with_level(event) for event in ended]

    def _taken(self, samples: Samples) -> list[Event]:
        self._samples += len(samples)
        self.levels.feed(samples)
        if self._watcher is not None:
            self._watcher.samples(samples, self._rate)
        return self._scored(self._windows.feed(samples))

    def _scored(self, windows: list[WindowEmbedding]) -> list[Event]:
        """Return the events that end with these windows; all are scored in one product."""
        if not windows:
            return []
        rows: Matrix = np.stack([row for _, _, row in windows])
        if not np.isfinite(rows).all():
            raise AudioError(
                f"{self._name}: an embedding near {windows[0][0]:.0f} s is not finite; the samples "
                "there are far beyond full scale"
            )
        found: list[Event] = []
        detector = self._detector
        for (start_s, end_s, _), scores in zip(windows, detector.head.scores(rows), strict=True):
            found += advance(
                detector, self._tracker, self._background, start_s, end_s - start_s, scores,
                self._note,
            )  # fmt: skip
            self._scored_s = (start_s + end_s) / 2
        return [self._with_level(event) for event in found]

    def _note(self, time_s: float, above: Scores, spreads: Scores | float) -> None:
        criteria = self._tracker.criteria
        share = (above / spreads)[: len(criteria.labels)] / criteria.thresholds
        order = np.argsort(-share, kind="stable")
        self.current = [(criteria.labels[c], float(share[c])) for c in order[:5]]
        if self._watcher is not None:
            self._watcher.scores(time_s, share)

    def _with_level(self, event: Event) -> Event:
        level = self.levels.level_db(event.start_s, event.end_s)
        snr = self.levels.snr_db(event.start_s, event.end_s)
        return replace(event, level_db=level, snr_db=snr)


def advance(
    detector: Detector,
    tracker: Tracker,
    background: Background,
    start_s: float,
    window_s: float,
    scores: Scores,
    note: Callable[[float, Scores, Scores | float], None] | None = None,
) -> list[Event]:
    """Give one window to a tracker, relative to the background before it; then add it to that."""
    above = scores - background.level(scores)
    spreads = detector.spreads(background)
    found: list[Event] = []
    if spreads is not None:
        found = tracker.feed(start_s, start_s + window_s, above, spreads)
        if note is not None:
            note(start_s + window_s / 2, above, spreads)
    background.update(scores, tracker.held(start_s + window_s / 2))
    return found


def grouped(head: Head, watch: WatchList, calibration: Calibration | None) -> Head:
    """Return the head of the labels and negative words: the wordings of a label are averaged."""
    place = {name: number for number, name in enumerate(head.labels)}
    groups = [watch.wordings(label) for label in watch.labels]
    groups += [(word,) for word in watch.competing]
    missing = [word for words in groups for word in words if word not in place]
    if missing:
        raise UsageError(f"The head has no label {missing[0]!r} of the watch list")
    weights = np.stack([head.weights[[place[w] for w in words]].mean(axis=0) for words in groups])
    offsets = np.stack([head.offsets[[place[w] for w in words]].mean() for words in groups])
    made = Head((*watch.names, *watch.competing), weights, offsets, head.made_by)
    if head.standardised and calibration is not None:
        return standardise(made, calibration)
    return made


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
        for c, label in enumerate(watch.labels):
            mask[c, n] = _opposes(word, label, watch, float(alike[c, n]))
    return mask


def _opposes(word: str, label: WatchedLabel, watch: WatchList, cosine: float) -> bool:
    if word in watch.negatives or word in label.negatives:
        return True
    of_another = any(word in other.negatives for other in watch.labels)
    return not of_another and cosine < _ALIKE


__all__ = ["Detector", "EventStream", "Multiples", "window_and_hop"]
