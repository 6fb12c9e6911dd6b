"""Samples in, events out: one recording, or one source that goes on for ever.

Nothing later than a window is used for it, so the events do not depend on how the samples are cut
into blocks.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import soxr

from driftscore.audio import Samples
from driftscore.backbones.protocol import Backbone
from driftscore.background import Background
from driftscore.engines.protocol import check_finite
from driftscore.errors import UsageError
from driftscore.events import Criteria, Detection, Event, Tracker, Watcher
from driftscore.head import Head
from driftscore.levels import LevelTrack
from driftscore.sliding import LIVE_BLOCK_S, WindowEmbedding, WindowStore, window_stream
from driftscore.vectors import Matrix, Scores

_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Search:
    """Everything that decides which events there are."""

    head: Head
    """Scores of the labels, then of the negative words."""
    criteria: Criteria
    settings: Detection
    window_s: float
    hop_s: float
    prior: Scores | None = None
    """What each word scores on other sounds; None without a calibration."""
    spreads: Scores | None = None
    """The upper spread of each word on other sounds; None without a calibration."""

    def background(self) -> Background:
        """Return the background before a recording begins."""
        return Background(self.hop_s, prior=self.prior)

    def scale(self, background: Background) -> Scores | float | None:
        """Return what scores are divided by; None while there is nothing to estimate it from."""
        if self.spreads is not None:
            return self.spreads
        return 1.0 if self.settings.threshold is not None else background.spread()


class Follower(Protocol):
    """What follows a search: the scores of every window, and the events that follow from them."""

    def begin(self, search: Search) -> None:
        """Take what decides."""

    def window(self, start_s: float, end_s: float, above: Scores, spreads: Scores | float) -> None:
        """Take the scores of a window above the background, and what they are divided by."""

    def decided(self, events: Sequence[Event], end_s: float | None) -> None:
        """Take events that ended, also rejected ones; at the end of the recording with its end."""


class WindowSearch:
    """Scores of windows in, events out."""

    def __init__(self, search: Search, note: Callable[[float, Scores], None] | None = None) -> None:
        self.search = search
        self.tracker = Tracker(search.criteria, search.settings, hop_s=search.hop_s)
        self._background = search.background()
        self._note = note
        self.follower: Follower | None = None

    def feed(self, start_s: float, end_s: float, scores: Scores) -> list[Event]:
        """Take the scores of one window; return the events that ended."""
        above = scores - self._background.level(scores)
        scale = self.search.scale(self._background)
        found: list[Event] = []
        if scale is not None:
            found = self.tracker.feed(start_s, end_s, above, scale)
            if self.follower is not None:
                self.follower.window(start_s, end_s, above, scale)
            if self._note is not None:
                criteria = self.search.criteria
                multiples = (above / scale)[: len(criteria.labels)]
                self._note((start_s + end_s) / 2, multiples / criteria.thresholds)
        self._background.update(scores, self.tracker.held((start_s + end_s) / 2))
        return found

    def finish(self, end_s: float) -> list[Event]:
        """Return the events that are left at the end."""
        return self.tracker.finish(end_s)


class EventStream:
    """Mono samples of any rate in, events out; rejected events have the reason in them."""

    def __init__(
        self,
        search: Search,
        backbone: Backbone,
        rate: int,
        *,
        block_s: float = LIVE_BLOCK_S,
        pool: ThreadPoolExecutor | None = None,
        watcher: Watcher | None = None,
        store: WindowStore | None = None,
        name: str = "The stream",
    ) -> None:
        self._search = search
        self._name = name
        self._resampler = None
        if rate != backbone.rate:
            self._resampler = soxr.ResampleStream(
                rate, backbone.rate, 1, dtype="float32", quality="HQ"
            )
        self._windows = window_stream(
            backbone,
            window_s=search.window_s,
            hop_s=search.hop_s,
            block_s=block_s,
            pool=pool,
            store=store,
        )
        self._watcher = watcher
        self._found = WindowSearch(search, self._note)
        self._rate = backbone.rate
        self._samples = 0
        self._scored_s = 0.0
        self.levels = LevelTrack(backbone.rate)
        self.current: list[tuple[str, float]] = []
        """The best labels of the last window, with their share of the threshold."""

    @property
    def seconds(self) -> float:
        """Seconds of audio so far."""
        return self._samples / self._rate

    @property
    def open_s(self) -> float:
        """The earliest start that an event to come may have."""
        return min(self._found.tracker.earliest_s, self._scored_s)

    @property
    def active(self) -> tuple[str, ...]:
        """The labels that are present now."""
        tracker = self._found.tracker
        return tuple(tracker.criteria.labels[c] for c in tracker.active)

    def follow(self, follower: Follower) -> None:
        """Pass the scores of each window, and the events that end, to a follower."""
        self._found.follower = follower
        follower.begin(self._search)

    def feed(self, samples: Samples) -> list[Event]:
        """Take mono samples; return the events that ended, also those that were rejected."""
        if samples.ndim != 1:
            raise UsageError(f"A stream takes one channel, got samples of shape {samples.shape}")
        part = samples.astype(np.float32, copy=False)
        if self._resampler is not None:
            part = self._resampler.resample_chunk(part)
        return self._told(self._taken(part))

    def finish(self) -> list[Event]:
        """Return the events that are left at the end."""
        found: list[Event] = []
        if self._resampler is not None:
            found = self._taken(self._resampler.resample_chunk(np.zeros(0, np.float32), last=True))
        found += self._scored(self._windows.finish())
        found += self._with_levels(self._found.finish(self.seconds))
        return self._told(found, self.seconds)

    def _told(self, events: list[Event], end_s: float | None = None) -> list[Event]:
        if self._found.follower is not None:
            self._found.follower.decided(events, end_s)
        return events

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
        check_finite(self._name, rows)
        found: list[Event] = []
        for (start_s, end_s, _), scores in zip(
            windows, self._search.head.scores(rows), strict=True
        ):
            found += self._found.feed(start_s, end_s, scores)
            self._scored_s = start_s
        return self._with_levels(found)

    def _note(self, time_s: float, shares: Scores) -> None:
        order = np.argsort(-shares, kind="stable")[:_SHOWN]
        labels = self._search.criteria.labels
        self.current = [(labels[c], float(shares[c])) for c in order]
        if self._watcher is not None:
            self._watcher.scores(time_s, shares)

    def _with_levels(self, events: list[Event]) -> list[Event]:
        return [
            replace(
                event,
                level_db=self.levels.level_db(event.start_s, event.end_s),
                snr_db=self.levels.snr_db(event.start_s, event.end_s),
            )
            for event in events
        ]
