"""`driftscore classify --timeline`: the events of long recordings."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftscore.audit import AuditLog, EventAudit
from driftscore.cli import options as take
from driftscore.cli.groups import DetectionOptions, WatchOptions
from driftscore.cli.products import ProductOptions, Products
from driftscore.cli.reporting import Tally, counted, say
from driftscore.cli.rows import EventRows
from driftscore.detector import Detector
from driftscore.errors import AuditError, DriftscoreError
from driftscore.events import Detection, Event
from driftscore.formats import OutputRow
from driftscore.interrupts import Interrupted
from driftscore.progress import hours_text, seconds_bar
from driftscore.windowlog import window_log

if TYPE_CHECKING:
    from driftscore.pictures import PictureTrack


@dataclass(frozen=True)
class EventOptions:
    """How events are found, and what is made of them."""

    products: ProductOptions
    watching: WatchOptions
    finding: DetectionOptions
    timeline: take.Timeline = False
    windows: take.Windows = False
    thresholds_from: take.ThresholdsFrom = "auto"
    resume: take.Resume = False

    @property
    def asked(self) -> bool:
        """Whether events are asked for, by --timeline or by an option that only they have."""
        given = (self.timeline, self.windows, self.watching.watch, self.finding.false_alarms,
                 self.resume)  # fmt: skip
        return any(given) or self.products.asked

    def settings(self) -> Detection:
        """Return how events are found."""
        return self.finding.detection().changed(thresholds_from=self.thresholds_from)


class EventView:
    """The rows of all events, and what is told about them at the end."""

    def __init__(
        self,
        detector: Detector,
        rows: EventRows,
        tally: Tally,
        products: Products,
        audit: AuditLog | None = None,
    ) -> None:
        self._detector = detector
        self._audit = None if audit is None else EventAudit(audit, detector)
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
                except AuditError:
                    raise
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
            found = (
                detector.events(
                    recording, rejected=True, seconds=reached, watcher=watcher, store=log
                )
                if self._audit is None
                else self._audit.events(recording, seconds=reached, watcher=watcher, store=log)
            )
            for event in found:
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
        found = counted(self._count, "event") if self._count else "No events"
        say(f"{found} in {hours_text(self._seconds)} of audio, with {budget}")
        if not self._count and self._nearest is not None:
            near = self._nearest
            say(
                f"nearest: {near.label!r} at {hours_text(near.start_s)} with {near.score:.2f} of "
                f"{near.threshold:.2f} ({near.rejected})"
            )
        say(
            "next: --false-alarms 0.1 for fewer or 2 for more, --plot night.png for a picture, "
            "--format raven (audacity, csv, ...) --out FILE to export, --clips FOLDER for the audio"
        )


def _share(event: Event) -> float:
    return event.score / event.threshold if event.threshold else 0.0
