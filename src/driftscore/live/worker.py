"""The thread that works on one source: blocks in; events, levels and states out.

Where audio is missing for more than a second, and where the labels change, the stream ends and a
new one begins: no event spans a gap.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from driftscore.audit import AuditLog, DecidedBy, ScoreTrace
from driftscore.detector import Detector
from driftscore.errors import DriftscoreError
from driftscore.events import Event
from driftscore.eventstream import EventStream
from driftscore.live.blocks import AudioBlock, BlockQueue
from driftscore.live.clips import AudioRing, ClipSettings, EventClips, span
from driftscore.live.confirming import Confirmation
from driftscore.live.decisions import record_event
from driftscore.live.merging import Merging
from driftscore.live.meter import INTERVAL_S, SoundLevels, SoundMeter
from driftscore.live.outputs import Outputs
from driftscore.live.records import EventIds, EventRecord, LevelRecord, local_now
from driftscore.live.speech import SpeechGuard

GAP_S = 1.0
"""Missing audio that ends a stream."""
_FOLLOW = 0.01
"""How fast the clock of a stream follows that of the machine, per block."""
_WAIT_S = 0.5
CLIP = ClipSettings()
"""The part of the audio that an audit log keeps."""


@dataclass(frozen=True)
class WorkSettings:
    """What the workers of all sources share.

    Attributes:
        outputs: where everything is reported to.
        ids: numbers of events.
        notify: called with messages.
        spl_offset: dB that make levels dBA; None for levels relative to full scale.
        level_s: seconds of one level.
        clips: where clips are written; None for nowhere.
        speech: looks for speech in clips before they are written; None where it may be kept.
        audit: where decisions are recorded; None for nowhere.
        merging: finds sounds that several sources have; None where each source counts by itself.

    """

    outputs: Outputs
    ids: EventIds
    notify: Callable[[str], None]
    spl_offset: float | None = None
    level_s: float = INTERVAL_S
    clips: EventClips | None = None
    speech: SpeechGuard | None = None
    audit: AuditLog | None = None
    merging: Merging | None = None


class _Run:
    """One stream without gaps, and what belongs to it."""

    def __init__(self, detector: Detector, block: AudioBlock, settings: WorkSettings) -> None:
        self.detector = detector
        self.rate = block.rate
        self.stream: EventStream = detector.stream(block.rate)
        self.ring = AudioRing(block.rate)
        self.confirmation = Confirmation(detector.watch)
        self.trace: ScoreTrace | None = None
        if settings.audit is not None:
            self.trace, self.decided_by = ScoreTrace(), DecidedBy.of(detector)
            self.stream.follow(self.trace)
        self._begun = block.at  # the time of the first sample on the monotonic clock
        self._samples = 0

    @property
    def seconds(self) -> float:
        """Seconds of audio so far."""
        return self._samples / self.rate

    def feed(self, block: AudioBlock) -> list[Event]:
        """Take a block; return the events that ended."""
        self._begun += _FOLLOW * (block.at - self.seconds - self._begun)
        self._samples += len(block.samples)
        self.ring.add(block.samples)
        return self.stream.feed(block.samples)

    def time(self, seconds: float) -> datetime:
        """Return the time of day at a position of the stream, in the local zone."""
        clock = time.time() - time.monotonic() + self._begun + seconds
        return datetime.fromtimestamp(clock, UTC).astimezone()


class Worker:
    """Finds the events of one source."""

    def __init__(
        self, name: str, queue: BlockQueue, detector: Detector, settings: WorkSettings
    ) -> None:
        self.name = name
        self._queue = queue
        self._settings = settings
        self._lock = threading.Lock()
        self._next: Detector | None = None
        self._run: _Run | None = None
        self._meter: SoundMeter | None = None
        self._measured_to = local_now()  # by the clock of the stream
        self._active: frozenset[str] = frozenset()
        self.detector = detector
        self.seconds = 0.0
        """Seconds of audio so far."""

    @property
    def current(self) -> list[tuple[str, float]]:
        """The labels of the last window with their share of the threshold, best first."""
        run = self._run
        return [] if run is None else run.stream.current

    @property
    def active_labels(self) -> frozenset[str]:
        """The labels that are present now."""
        return self._active

    @property
    def level_db(self) -> float | None:
        """The A-weighted level now."""
        return None if self._meter is None else self._meter.now_db

    def change(self, detector: Detector) -> None:
        """Use another detector from the next block on."""
        with self._lock:
            self._next = detector

    def run(self) -> None:
        """Work until the queue has ended; then report the events that are left."""
        while not self._queue.ended:
            self._swap()
            block = self._queue.get(_WAIT_S)
            if block is not None:
                self._take(block)
        self._finish()
        if self._meter is not None:
            self._report_levels(self._meter.finish())

    def _swap(self) -> None:
        with self._lock:
            changed, self._next = self._next, None
        if changed is not None:
            self._finish()
            self.detector = changed
            self._settings.outputs.words(self.name, changed.watch)

    def _take(self, block: AudioBlock) -> None:
        run = self._run
        if run is not None and (block.gap_s > GAP_S or block.rate != run.rate):
            self._finish()
        if self._run is None:
            self._run = _Run(self.detector, block, self._settings)
        run = self._run
        self._measure(block, run)
        try:
            found = run.feed(block)
        except DriftscoreError as error:  # samples that no model can use
            self._settings.notify(f"{self.name}: {error}")
            self._run = None
            return
        self.seconds += block.seconds
        self._show_active(run)
        for event in found:
            self._report(event, run)

    def _finish(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            for event in run.stream.finish():
                self._report(event, run)
        self._set_active(frozenset())

    def _measure(self, block: AudioBlock, run: _Run) -> None:
        if self._meter is None or run.seconds == 0:
            self._report_levels(self._meter.finish() if self._meter is not None else [])
            self._meter = SoundMeter(
                block.rate,
                offset_db=self._settings.spl_offset or 0.0,
                interval_s=self._settings.level_s,
            )
        self._measured_to = run.time(run.seconds + block.seconds)
        self._report_levels(self._meter.feed(block.samples))

    def _report_levels(self, found: list[SoundLevels]) -> None:
        calibrated = self._settings.spl_offset is not None
        for levels in found:
            measured = levels.laeq, levels.l10, levels.l90, levels.seconds
            record = LevelRecord(self.name, *measured, self._measured_to, calibrated)
            self._settings.outputs.level(record)

    def _show_active(self, run: _Run) -> None:
        now = run.stream.seconds
        self._set_active(
            frozenset(
                label for label in run.stream.active if run.confirmation.would_confirm(label, now)
            )
        )

    def _set_active(self, labels: frozenset[str]) -> None:
        if labels != self._active:
            self._active = labels
            self._settings.outputs.active(self.name, labels)

    def _report(self, event: Event, run: _Run) -> None:
        """Confirm an event, keep its clip, and pass it on."""
        decided = event
        if not event.rejected:
            missing = run.confirmation.missing(event.label, event.end_s)
            event = replace(event, rejected=missing) if missing else event
        start, end = run.time(event.start_s), run.time(event.end_s)
        record = EventRecord(self._settings.ids.next(), self.name, event, start, end)
        merging = self._settings.merging
        if merging is not None and not event.rejected and (same := merging.same_as(record)):
            record = replace(record, event=replace(event, rejected=same))
        if not record.event.rejected:
            record = self._with_clip(record, run)
        self._record(record, decided, run)
        self._settings.outputs.event(record)

    def _record(self, record: EventRecord, decided: Event, run: _Run) -> None:
        """Write a decision into the audit log, with its audio only where no speech is in it."""
        audit = self._settings.audit
        if audit is None or run.trace is None:
            return
        audio = None
        if audit.keep_audio:
            audio = run.ring.cut(*span(decided.start_s, decided.end_s, run.seconds, CLIP))
            speech = self._settings.speech
            if not len(audio.samples) or (speech is not None and speech.speech(audio)):
                audio = None
        try:
            record_event(audit, record, decided, run.trace, run.decided_by, audio)
        except DriftscoreError as error:
            self._settings.notify(f"error: {self.name}: a decision is not in the audit: {error}")

    def _with_clip(self, record: EventRecord, run: _Run) -> EventRecord:
        """Write the clip of an event, unless its label or the speech in it forbids that."""
        folder, event = self._settings.clips, record.event
        if folder is None:
            return record
        label = next(one for one in run.detector.watch.labels if one.name == event.label)
        if not label.clips:
            return replace(record, withheld="no clips of this label")
        first, last = span(event.start_s, event.end_s, run.seconds, folder.settings)
        clip = run.ring.cut(first, last)
        speech = self._settings.speech
        try:
            why = speech.speech(clip) if speech is not None else ""
            if why:
                return replace(record, withheld=why)
            path = folder.write(
                clip, source=self.name, label=event.label, start=record.start, id=record.id
            )
            folder.tidy()
        except (DriftscoreError, OSError) as error:
            self._settings.notify(f"{self.name}: no clip: {error}")
            return replace(record, withheld=str(error))
        return replace(record, clip=path)
