"""Samples in, events out: one recording, or one source that goes on for ever.

Nothing later than a window is used for it, so the events do not depend on how the samples are cut
into blocks.

A frame of a local backbone depends on some seconds of audio after it (`mini`: 2.1 s), and a window
waits for them. With `early` the same windows are also pooled from frames that have seen only
`EARLY_CONTEXT_S` after them, and tracked apart: these scores are nearly the same, and tell that an
event has begun about a second sooner. The events themselves follow from the complete windows alone.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import soxr

from driftscore.audio.levels import LevelTrack
from driftscore.audio.recordings import Samples
from driftscore.backbones.protocol import Backbone
from driftscore.backbones.vectors import Matrix, Scores
from driftscore.engines.protocol import check_finite
from driftscore.engines.window_log import WindowLog
from driftscore.engines.window_stream import LIVE_BLOCK_S, WindowEmbedding, window_stream
from driftscore.errors import UsageError
from driftscore.events.background import Background
from driftscore.events.tracking import Detection, Event, LabelRules, Observer, Tracker
from driftscore.scoring.head import Head

SHOWN_LABELS = 5


@dataclass(frozen=True, eq=False)
class EventRules:
    """Everything that decides which events there are."""

    head: Head
    """Scores of the labels, then of the negative words."""
    criteria: LabelRules
    settings: Detection
    window_s: float
    hop_s: float
    prior: Scores | None = None
    """What each word scores on other sounds; None without a calibration."""
    spreads: Scores | None = None
    """The spread of each word on other sounds; None without a calibration."""


class EventTracker:
    """Scores of windows in, events out."""

    def __init__(self, rules: EventRules) -> None:
        self.rules = rules
        self.tracker = Tracker(rules.criteria, rules.settings, hop_s=rules.hop_s)
        self._background = Background(rules.hop_s, prior=rules.prior)
        self.shares: Scores | None = None
        """The labels' scores in the last window as shares of their thresholds; None before any."""

    def feed(self, start_s: float, end_s: float, scores: Scores) -> list[Event]:
        """Take the scores of one window; return the events that ended."""
        above = scores - self._background.level(scores)
        scale: Scores | float | None = self.rules.spreads
        if scale is None:  # of the recording so far; None while there is too little of it
            fixed = self.rules.settings.threshold is not None
            scale = 1.0 if fixed else self._background.spread()
        events: list[Event] = []
        if scale is not None:
            events = self.tracker.feed(start_s, end_s, above, scale)
            multiples = (above / scale)[: len(self.rules.criteria.labels)]
            self.shares = multiples / self.tracker.thresholds(start_s)
        self._background.update(scores, self.tracker.held((start_s + end_s) / 2))
        return events

    def finish(self, end_s: float) -> list[Event]:
        """Return the events that are left at the end."""
        return self.tracker.finish(end_s)


@dataclass(eq=False)
class EventStream:
    """Mono samples of any rate in, events out; rejected events have the reason in them."""

    rules: EventRules
    backbone: Backbone
    rate: int
    """Of the samples that come in."""
    block_s: float = LIVE_BLOCK_S
    pool: ThreadPoolExecutor | None = None
    observer: Observer | None = None
    store: WindowLog | None = None
    name: str = "The stream"
    early: bool = False

    def __post_init__(self) -> None:
        rules, backbone = self.rules, self.backbone
        self._early_s = -1.0  # the start of the last early window
        self._early_tracker = EventTracker(rules)
        self._resampler = None
        if self.rate != backbone.rate:
            self._resampler = soxr.ResampleStream(
                self.rate, backbone.rate, 1, dtype="float32", quality="HQ"
            )
        self._windows = window_stream(
            backbone,
            window_s=rules.window_s,
            hop_s=rules.hop_s,
            block_s=self.block_s,
            pool=self.pool,
            store=self.store,
        )
        self._tracker = EventTracker(rules)
        self._samples = 0
        self._scored_s = 0.0
        self.levels = LevelTrack(backbone.rate)
        self.current: list[tuple[str, float]] = []
        """The best labels of the last window, with their share of the threshold."""

    @property
    def seconds(self) -> float:
        """Seconds of audio so far."""
        return self._samples / self.backbone.rate

    @property
    def open_s(self) -> float:
        """The earliest start that an event to come may have."""
        return min(self._tracker.tracker.earliest_s, self._scored_s)

    @property
    def open(self) -> list[Event]:
        """The events that are sure and not over, as they are so far."""
        events = self._tracker.tracker.open
        labels = {event.label for event in events}
        return events + [e for e in self._early_tracker.tracker.open if e.label not in labels]

    def feed(self, samples: Samples) -> list[Event]:
        """Take mono samples; return the events that ended, also those that were rejected."""
        if samples.ndim != 1:
            raise UsageError(f"A stream takes one channel, got samples of shape {samples.shape}")
        part = samples.astype(np.float32, copy=False)
        if self._resampler is not None:
            part = self._resampler.resample_chunk(part)
        return self._taken(part)

    def finish(self) -> list[Event]:
        """Return the events that are left at the end."""
        events: list[Event] = []
        if self._resampler is not None:
            events = self._taken(self._resampler.resample_chunk(np.zeros(0, np.float32), last=True))
        events += self._scored(self._windows.finish())
        return events + self._with_levels(self._tracker.finish(self.seconds))

    def _taken(self, samples: Samples) -> list[Event]:
        self._samples += len(samples)
        self.levels.feed(samples)
        if self.observer is not None:
            self.observer.samples(samples, self.backbone.rate)
        windows = self._windows.feed(samples)
        if self.early:
            # Where several blocks came at once, some windows are complete before they are early.
            missed = [window for window in windows if window[0] > self._early_s]
            early = missed + self._windows.early()
            self._early_s = early[-1][0] if early else self._early_s
            self._track(self._early_tracker, early)
        return self._scored(windows)

    def _scored(self, windows: list[WindowEmbedding]) -> list[Event]:
        """Return the events that end with these windows."""
        events = self._track(self._tracker, windows)
        self._scored_s = windows[-1][0] if windows else self._scored_s
        return self._with_levels(events)

    def _track(self, tracker: EventTracker, windows: list[WindowEmbedding]) -> list[Event]:
        """Return the events of a tracker that end with windows; all are scored in one product."""
        if not windows:
            return []
        rows: Matrix = np.stack([row for _, _, row in windows])
        check_finite(self.name, rows)
        events: list[Event] = []
        for (start_s, end_s, _), scores in zip(windows, self.rules.head.scores(rows), strict=True):
            events += tracker.feed(start_s, end_s, scores)
            if tracker is self._tracker and (shares := tracker.shares) is not None:
                order = np.argsort(-shares, kind="stable")[:SHOWN_LABELS]
                labels = self.rules.criteria.labels
                self.current = [(labels[c], float(shares[c])) for c in order]
                if self.observer is not None:
                    self.observer.scores((start_s + end_s) / 2, shares)
        return events

    def _with_levels(self, events: list[Event]) -> list[Event]:
        return [
            replace(
                event,
                level_db=self.levels.level_db(event.start_s, event.end_s),
                snr_db=self.levels.snr_db(event.start_s, event.end_s),
            )
            for event in events
        ]
