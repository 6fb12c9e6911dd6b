"""Detector: the events of recordings and streams.

    stream -> windows at a fine hop -> embeddings -> scores of labels and negative words
           -> above the background of each (`background.py`) -> events (`events.py`)

A file is a stream that is read as fast as possible: both go through the same code, sample by
sample, so they give the same events however the samples are cut into blocks.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np

from driftscore.audio import Recording, check_length, describe, resampled_blocks
from driftscore.backbones.protocol import Backbone, LocalBackbone
from driftscore.calibration import Calibration, standardise
from driftscore.embedder import Embedder
from driftscore.errors import UsageError
from driftscore.events import Criteria, Detection, Event, Watcher, in_order
from driftscore.eventstream import EventStream, Follower, Search, WindowSearch
from driftscore.head import Head
from driftscore.result import Result
from driftscore.sliding import BLOCK_S, LIVE_BLOCK_S, WindowStore
from driftscore.thresholds import (
    LOWEST,
    Multiples,
    fitting,
    multiple_for,
    own_multiples,
    quiet_multiples,
    upper_spread,
)
from driftscore.vectors import Vector
from driftscore.watchlist import WatchedLabel, WatchList

LOCAL_WINDOW_S, LOCAL_HOP_S = 3.0, 0.5
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
        self.search = self._search()

    def events(
        self,
        recording: Recording,
        *,
        rejected: bool = False,
        seconds: Callable[[float], None] | None = None,
        watcher: Watcher | None = None,
        store: WindowStore | None = None,
        follower: Follower | None = None,
    ) -> Iterator[Event]:
        """Yield the events of a recording by their start; with `rejected` also those not reported.

        `seconds` is called with the seconds of audio that are done, for a progress bar; `watcher`
        is given the samples and the scores over time, for a picture. Windows that a `store` has
        are not embedded again. A `follower` is given what each event was decided from.
        """
        search = self.search
        if self.source == "recording":
            search = self._own_search(recording)
        observers = Observers(seconds, watcher, follower)
        found = event_batches(recording, search, self.embedder.backbone, observers, store)
        return (event for event in in_order(found) if rejected or not event.rejected)

    def stream(
        self,
        rate: int,
        *,
        block_s: float = LIVE_BLOCK_S,
        watcher: Watcher | None = None,
    ) -> EventStream:
        """Return a stream that takes samples of this rate as they come."""
        if self.source == "recording":
            raise UsageError(
                "Thresholds from the recording itself need all of it; for a stream use "
                "thresholds_from='calibration', or a quiet recording of the place"
            )
        backbone = self.embedder.backbone
        return EventStream(self.search, backbone, rate, block_s=block_s, watcher=watcher)

    def judge(self, source: str, embedding: Vector, seconds: float = 0.0) -> Result:
        """Return the scores of one clip, and which labels fit it at all (`thresholds.fitting`)."""
        prior, spreads = self.search.prior, self.search.spreads
        if prior is None or spreads is None:
            raise UsageError(
                "Whether anything fits is told from a calibration of the model, and there is none "
                "here; make one with `driftscore calibrate`"
            )
        scores, names = self.head.scores(embedding)[0], self.watch.names
        fits = fitting(scores, prior, spreads, self.search.criteria.opposed)
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

    @property
    def false_alarms(self) -> str:
        """The false alarms per hour and label that are accepted, as text: "0.5", or "0.1 to 2"."""
        low, high = min(self._budgets()), max(self._budgets())
        return f"{low:g}" if low == high else f"{low:g} to {high:g}"

    @property
    def thresholds(self) -> dict[str, float]:
        """The score above its background that each label must reach."""
        multiples, spreads = self.search.criteria.thresholds, self.search.spreads
        names = self.watch.names
        scale = np.ones(len(names)) if spreads is None else spreads[: len(names)]
        return dict(zip(names, (multiples * scale).tolist(), strict=True))

    def _budgets(self) -> list[float]:
        """Return the false alarms per hour of each label."""
        default = self.watch.false_alarms or self.settings.false_alarms
        return [label.false_alarms or default for label in self.watch.labels]

    def _search(self) -> Search:
        """Return the search, with thresholds from the calibration or its quiet recording."""
        prior = spreads = None
        if self.calibration is not None:
            other = np.concatenate([self.calibration.clean, self.calibration.noisy])
            scores = self.head.scores(other)
            prior, spreads = np.median(scores, axis=0), upper_spread(scores)
        shortest = [
            self.settings.min_duration_s if label.min_duration_s is None else label.min_duration_s
            for label in self.watch.labels
        ]
        criteria = Criteria(
            self.watch.names,
            np.array([multiple_for(budget) for budget in self._budgets()]),
            np.array(shortest),
            self.watch.competing,
            opposed(self.head, self.watch),
        )
        made = Search(self.head, criteria, self.settings, self.window_s, self.hop_s, prior, spreads)
        if self.source == "quiet":
            return self._with_multiples(made, self._quiet_multiples(made))
        return self._with_multiples(made, criteria.thresholds)

    def _with_multiples(self, search: Search, multiples: Multiples) -> Search:
        """Return a search with other thresholds; those that were given replace them."""
        chosen = multiples.copy()
        for c, label in enumerate(self.watch.labels):
            given = self.settings.threshold if label.threshold is None else label.threshold
            if given is not None:
                chosen[c] = given / (1.0 if search.spreads is None else search.spreads[c])
        return replace(search, criteria=replace(search.criteria, thresholds=chosen))

    def _own_search(self, recording: Recording) -> Search:
        """Return the search with thresholds from the recording itself."""
        ended = [0.0]
        batches = event_batches(
            recording, _lowest(self.search), self.embedder.backbone, Observers(ended.append)
        )
        peaks = self._peaks(event for batch, _ in batches for event in batch)
        multiples = own_multiples(peaks, ended[-1] / 3600, self._budgets())
        return self._with_multiples(self.search, multiples)

    def _quiet_multiples(self, search: Search) -> Multiples:
        """Return thresholds from the quiet recording that the calibration holds."""
        assert self.calibration is not None  # noqa: S101 (`source` has checked it)
        rows, window_s = self.calibration.quiet, self.calibration.quiet_window_s
        hop_s = self.calibration.quiet_hop_s
        windows = WindowSearch(replace(_lowest(search), window_s=window_s, hop_s=hop_s))
        found: list[Event] = []
        for number, scores in enumerate(search.head.scores(rows)):
            found += windows.feed(number * hop_s, number * hop_s + window_s, scores)
        hours = len(rows) * hop_s / 3600
        found += windows.finish(hours * 3600 + window_s)
        return quiet_multiples(self._peaks(found), hours, self._budgets())

    def _peaks(self, events: Iterable[Event]) -> list[list[float]]:
        """Return the peaks of each label as multiples of its spread, from a low search."""
        peaks: dict[str, list[float]] = {name: [] for name in self.watch.names}
        for event in events:
            if event.threshold and event.score >= event.threshold:
                peaks[event.label].append(LOWEST * event.score / event.threshold)
        return list(peaks.values())


@dataclass(frozen=True)
class Observers:
    """What is told about a search while it runs; see `Detector.events`."""

    seconds: Callable[[float], None] | None = None
    watcher: Watcher | None = None
    follower: Follower | None = None


def event_batches(
    recording: Recording,
    search: Search,
    backbone: Backbone,
    observers: Observers | None = None,
    store: WindowStore | None = None,
) -> Iterator[tuple[list[Event], float]]:
    """Yield the events of a recording that ended, and the earliest start of those that follow."""
    told = observers or Observers()
    several = isinstance(backbone, LocalBackbone) and backbone.parallel > 1
    with ThreadPoolExecutor(backbone.parallel) if several else nullcontext() as pool:
        stream = EventStream(
            search,
            backbone,
            backbone.rate,
            block_s=BLOCK_S,
            pool=pool,
            watcher=told.watcher,
            store=store,
            name=describe(recording),
        )
        if told.follower is not None:
            stream.follow(told.follower)
        for part in resampled_blocks(recording, backbone.rate):
            batch = stream.feed(part)
            if told.seconds is not None:
                told.seconds(stream.seconds)
            yield batch, stream.open_s
        check_length(recording, stream.seconds)
        yield stream.finish(), float("inf")


def _lowest(search: Search) -> Search:
    """Return a search that reports every peak from `LOWEST` on."""
    low = np.full(len(search.criteria.labels), LOWEST)
    return replace(search, criteria=replace(search.criteria, thresholds=low))


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
