"""`driftscore classify --timeline`: the events of long recordings."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftscore.cli import options as take
from driftscore.cli.products import ProductOptions, Products
from driftscore.cli.reporting import Tally, say
from driftscore.cli.rows import EventRows
from driftscore.detector import Detector
from driftscore.errors import DriftscoreError, UsageError
from driftscore.events import Detection, Event
from driftscore.formats import OutputRow
from driftscore.interrupts import Interrupted
from driftscore.progress import hours_text, seconds_bar
from driftscore.prompts import split_labels
from driftscore.watchlist import NONE, WatchList
from driftscore.windowlog import window_log

if TYPE_CHECKING:
    from driftscore.pictures import PictureTrack


@dataclass(frozen=True)
class EventOptions:
    """How events are found, and what is made of them."""

    products: ProductOptions
    timeline: take.Timeline = False
    windows: take.Windows = False
    watch: take.WatchFile = None
    false_alarms: take.FalseAlarms = None
    thresholds_from: take.ThresholdsFrom = "auto"
    window: take.WindowLength = None
    hop: take.HopLength = None
    min_duration: take.MinDuration = None
    resume: take.Resume = False

    @property
    def asked(self) -> bool:
        """Whether events are asked for, by --timeline or by an option that only they have."""
        given = (self.timeline, self.windows, self.watch, self.false_alarms, self.resume)
        return any(given) or self.products.asked

    def settings(self) -> Detection:
        """Return how events are found."""
        return Detection().changed(
            false_alarms=take.optional_number("--false-alarms", self.false_alarms),
            thresholds_from=self.thresholds_from,
            window_s=take.optional_number("--window", self.window),
            hop_s=take.optional_number("--hop", self.hop),
            min_duration_s=take.optional_number("--min-duration", self.min_duration),
        )

    def watch_list(
        self, labels: tuple[str, ...] | None, negatives: list[str] | None
    ) -> WatchList | None:
        """Return the watch list: a file, or the labels with negative words; None for a head."""
        words = split_labels(",".join(negatives)) if negatives else ()
        if self.watch is not None:
            if words:
                raise UsageError("Negative words are part of a watch list; leave out --not")
            return WatchList.load(self.watch)
        if labels is None:
            if words and words != (NONE,):
                raise UsageError("A compiled head knows no other words; leave out --not")
            return None
        return WatchList.of(labels, words)


class EventView:
    """The rows of all events, and what is told about them at the end."""

    def __init__(
        self, detector: Detector, rows: EventRows, tally: Tally, products: Products
    ) -> None:
        self._detector = detector
        self._rows = rows
        self._tally = tally
        self._products = products
        self._seconds = 0.0
        self._count = 0
        self._nearest: Event | None = None
        self.interrupted: Interrupted | None = None

    def of(self, recordings: Sequence[str], *, resume: bool = False) -> Iterator[OutputRow]:
        """Yield the rows of the events of each recording; an interruption ends them early."""
        with seconds_bar("Searching", recordings) as done:
            for recording in recordings:
                before = self._seconds
                try:
                    yield from self._of_one(recording, done, resume=resume)
                except DriftscoreError as error:
                    self._tally.fail(str(error))
                    yield self._rows.failed(recording, str(error))
                except Interrupted as error:
                    self.interrupted = error
                    reached = hours_text(self._seconds - before)
                    say(
                        f"stopped at {reached} of {recording}; what was found so far is kept. "
                        "Run the same command with --resume to continue there"
                    )
                    return

    def _of_one(
        self, recording: str, done: Callable[[float], None], *, resume: bool
    ) -> Iterator[OutputRow]:
        before = self._seconds
        start, watcher = self._products.start(recording), self._products.watcher()
        found: list[Event] = []

        def reached(now_s: float) -> None:
            self._seconds = before + now_s
            done(self._seconds)

        for event in self._events(recording, reached, watcher, resume=resume):
            found.append(event)
            if not self._rows.lengths:
                yield self._rows.event(recording, event, start)
        seconds = self._seconds - before
        if self._rows.lengths:  # the length of a recording is known at its end
            yield from self._rows.of_recording(recording, found, start, seconds)
        self._products.done(recording, found, seconds, start, watcher)

    def _events(
        self,
        recording: str,
        reached: Callable[[float], None],
        watcher: "PictureTrack | None",
        *,
        resume: bool,
    ) -> Iterator[Event]:
        """Yield the events that are reported; windows that are done are kept on disk."""
        detector = self._detector
        embedder = detector.embedder
        log = window_log(
            recording, embedder.backbone, window_s=detector.window_s, hop_s=detector.hop_s
        )
        if log is not None and (resume or embedder.audio_cache) and log.read().known and resume:
            say(f"{recording}: continuing at {hours_text(len(log.known) * detector.hop_s)}")
        with nullcontext() if log is None else log.writing(keep=embedder.audio_cache):
            for event in detector.events(
                recording, rejected=True, seconds=reached, watcher=watcher, store=log
            ):
                if event.rejected:
                    self._note_nearest(event)
                else:
                    self._count += 1
                    yield event

    def _note_nearest(self, event: Event) -> None:
        if self._nearest is None or _share(event) > _share(self._nearest):
            self._nearest = event

    def finish(self) -> None:
        """Tell how many events there are, what decided it, and what to do next."""
        self._products.finish()
        settings, source = self._detector.settings, self._detector.source
        budget = (
            f"a threshold of {settings.threshold:g}"
            if settings.threshold is not None
            else f"{self._detector.false_alarms} false alarms per hour and label (by the {source})"
        )
        found = (
            f"{self._count} event{'' if self._count == 1 else 's'}" if self._count else "No events"
        )
        say(f"{found} in {hours_text(self._seconds)} of audio, with {budget}")
        if not self._count and self._nearest is not None:
            near = self._nearest
            say(
                f"nearest: {near.label!r} at {hours_text(near.start_s)} with {near.score:.1f} of "
                f"{near.threshold:.1f} ({near.rejected})"
            )
        say(
            "next: --false-alarms 0.1 for fewer or 2 for more, --plot night.png for a picture, "
            "--format raven (audacity, csv, ...) --out FILE to export, --clips FOLDER for the audio"
        )


def _share(event: Event) -> float:
    return event.score / event.threshold if event.threshold else 0.0
