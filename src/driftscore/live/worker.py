"""The thread that works on one source: blocks in; events, levels and states out.

Where audio is missing for more than a second, and where the labels change, the stream ends and a
new one begins: no event spans a gap.
"""

import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from driftscore.audio.levels import INTERVAL_S, SoundLevels, SoundMeter
from driftscore.audio.recordings import Audio
from driftscore.decisions.records import (
    Decider,
    LevelReport,
    Present,
    SourceStatus,
    Started,
    StoredEvent,
    Words,
    event_decision,
    iso,
    local_now,
)
from driftscore.decisions.store import DecisionStore
from driftscore.detector import Detector
from driftscore.errors import DriftscoreError
from driftscore.events.stream import EventStream
from driftscore.events.tracking import Detection, Event
from driftscore.live.blocks import AudioBlock, BlockQueue
from driftscore.live.clips import PRE_ROLL_S, AudioRing, EventClips, span
from driftscore.live.outputs import Outputs, SourceView
from driftscore.live.policy import Policy
from driftscore.live.reader import FIRST_WAIT_S, SourceReader
from driftscore.live.sources import Source
from driftscore.live.speech import SpeechGuard

GAP_S = 1.0
"""Missing audio that ends a stream."""
SURE_S = 4.0
"""Until then the complete windows have shown an event that the early ones have."""
SILENT_S = 60.0
"""Digital silence after which a microphone or a stream counts as offline."""
MUTED = "every sample is zero; is it muted?"
JOINED_S = 8.0
"""Audio that is worked on at once where it waits: long blocks cost less, so a worker catches up."""
_FOLLOW = 0.01
"""How fast the clock of a stream follows that of the machine, per block."""
_WAIT_S = 0.5


@dataclass(frozen=True)
class ListenSettings:
    """How a listener works.

    Attributes:
        detection: how events are found; None for the defaults.
        spl_offset: dB that make levels dBA; None for levels relative to full scale.
        level_s: seconds of one level.
        clips: where clips are written; None for nowhere.
        privacy: whether clips with speech are never written.
        audit: where decisions are recorded; None for nowhere.
        merge: whether a sound that several sources have at the same time is reported once.
        retry_s: seconds after which a source that failed is opened again; twice as long each time.
        learn_s: seconds after which new verdicts in the store are learnt from; None for never.

    """

    detection: Detection | None = None
    spl_offset: float | None = None
    level_s: float = INTERVAL_S
    clips: EventClips | None = None
    privacy: bool = False
    audit: DecisionStore | None = None
    merge: bool = False
    retry_s: float = FIRST_WAIT_S
    learn_s: float | None = None


class _Run:
    """One stream without gaps, and what belongs to it."""

    def __init__(self, detector: Detector, block: AudioBlock) -> None:
        self.detector = detector
        self.decider = Decider.of(detector)
        self.rate = block.rate
        self.stream: EventStream = detector.stream(block.rate, early=True)
        self.started: dict[str, Started] = {}
        """The events that have begun and are not over, by their labels."""
        self.started_s: dict[str, float] = {}
        """When that was reported, by the time of the stream."""
        self.over_s: dict[str, float] = {}
        """Until when each label was reported or withdrawn, by the time of the stream."""
        self.ring = AudioRing(block.rate)
        self._begun = block.at  # the time of the first sample on the monotonic clock
        self._samples = 0

    @property
    def seconds(self) -> float:
        """Seconds of audio so far."""
        return self._samples / self.rate

    @property
    def since_1970_s(self) -> float:
        """When the stream began, by the clock of the machine."""
        return time.time() - time.monotonic() + self._begun

    def feed(self, block: AudioBlock) -> list[Event]:
        """Take a block; return the events that ended."""
        self._begun += _FOLLOW * (block.at - self.seconds - self._begun)
        self._samples += len(block.samples)
        self.ring.add(block.samples)
        return self.stream.feed(block.samples)

    def cut(self, event: Event, pre_roll_s: float = PRE_ROLL_S) -> Audio:
        """Return the audio of an event."""
        return self.ring.cut(*span(event.start_s, event.end_s, self.seconds, pre_roll_s))


@dataclass(eq=False)
class Worker:
    """Finds the events of one source."""

    name: str
    source: Source
    detector: Detector
    settings: ListenSettings
    outputs: Outputs
    """Where everything is reported to."""
    policy: Policy
    """What decides which events are reported."""
    guard: SpeechGuard | None = None
    """Looks for speech in clips before they are written; None where it may be kept."""

    def __post_init__(self) -> None:
        self._queue = BlockQueue()
        # A file is not behind: when its events begin to be sure must not depend on the machine.
        self._joined_s = JOINED_S if self.source.endless else 0.0
        self._max_silent_s = SILENT_S if self.source.endless else math.inf
        self._silent_s = 0.0
        self.reader = SourceReader(
            self.source, self._queue, self.set_status, self.outputs.notify, self.settings.retry_s
        )
        self.status: SourceStatus | None = None
        """Whether the source gives audio; None before it was opened."""
        self._lock = threading.Lock()
        self._next: Detector | None = None
        self._run: _Run | None = None
        self._meter: SoundMeter | None = None
        self._measured_to = local_now()  # by the clock of the stream
        self.active: frozenset[str] = frozenset()
        """The labels that are present now."""
        self.seconds = 0.0
        """Seconds of audio so far."""

    def view(self) -> SourceView:
        """Return what the source does now."""
        status, run, meter = self.status, self._run, self._meter
        return SourceView(
            self.name,
            status is not None and status.online,
            status.why if status else "opening",
            None if meter is None else meter.now_db,
            [] if run is None else run.stream.current,
            self.active,
            self._queue.dropped_s,
            self.seconds,
        )

    def set_status(self, online: bool, why: str) -> None:
        """Keep whether the source gives audio; report it when that changes."""
        before = self.status
        self.status = SourceStatus(self.name, online, iso(local_now()), why)
        if before is None or before.online != online:
            self.outputs.send(self.status)

    def change(self, detector: Detector) -> None:
        """Use another detector from the next block on."""
        with self._lock:
            self._next = detector

    def run(self) -> None:
        """Work until the queue has ended; then report the events that are left."""
        while not self._queue.ended:
            with self._lock:
                changed, self._next = self._next, None
            if changed is not None:
                self._finish()
                self.detector = changed
                self.outputs.send(Words(self.name, changed.watch))
            block = self._queue.get(_WAIT_S, joined_s=self._joined_s)
            if block is None:
                continue
            self._look_for_silence(block)
            run, meter = self._run, self._meter
            if run is not None and (block.gap_s > GAP_S or block.rate != run.rate):
                self._finish()
                run = None
            if run is None or meter is None:
                run = self._run = _Run(self.detector, block)
                self.policy.begin(self.name, self.detector.watch)
                if meter is not None:
                    self._report_levels(meter.finish())
                offset_db, level_s = self.settings.spl_offset or 0.0, self.settings.level_s
                meter = SoundMeter(block.rate, offset_db=offset_db, interval_s=level_s)
                self._meter = meter
            end_s = run.since_1970_s + run.seconds + block.seconds
            self._measured_to = datetime.fromtimestamp(end_s, UTC).astimezone()
            self._report_levels(meter.feed(block.samples))
            try:
                events = run.feed(block)
            except DriftscoreError as error:  # samples that no model can use
                self.outputs.notify(f"{self.name}: {error}")
                self._run = None
                continue
            self.seconds += block.seconds
            for event in events:
                self._report(event, run)
            self._begin_events(run)
        self._finish()
        if self._meter is not None:
            self._report_levels(self._meter.finish())

    def _look_for_silence(self, block: AudioBlock) -> None:
        """Count a source as offline while it gives nothing but zeros."""
        self._silent_s = 0.0 if block.samples.any() else self._silent_s + block.seconds
        if self.status is None:
            return
        if self.status.online and self._silent_s > self._max_silent_s:
            self.set_status(False, MUTED)
            self.outputs.notify(f"{self.name}: {MUTED}")
        elif self.status.why == MUTED and not self._silent_s:
            self.set_status(True, "")
            self.outputs.notify(f"{self.name}: there is sound again")

    def _begin_events(self, run: _Run) -> None:
        """Report the events that have begun, and which of them are none after all."""
        begun_s, now_s = run.since_1970_s, run.stream.seconds
        events = [
            event
            for event in run.stream.open
            if event.start_s > run.over_s.get(event.label, -1.0)
            and self.policy.would_confirm(self.name, event.label, now_s)
        ]
        labels = {event.label for event in events}
        for label in set(run.started) - labels:
            if now_s - run.started_s[label] > SURE_S:
                self._withdraw(run, label, "it stays below the threshold", now_s)
        self._set_active(labels | set(run.started))
        for event in events:
            if event.label not in run.started:
                start_s = begun_s + event.start_s
                started = Started(
                    self.policy.number(),
                    self.name,
                    event.label,
                    event.score,
                    start_s,
                    utc_offset_s(start_s),
                    self.policy.cooling(self.name, event.label, start_s),
                )
                run.started[event.label], run.started_s[event.label] = started, now_s
                self.outputs.send(started)

    def _withdraw(self, run: _Run, label: str, why: str, over_s: float) -> None:
        self.outputs.send(replace(run.started.pop(label), withdrawn=why))
        run.over_s[label] = over_s

    def _finish(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            for event in run.stream.finish():
                self._report(event, run)
            for label in list(run.started):
                self._withdraw(run, label, "the audio has ended", run.seconds)
        self._set_active(())

    def _report_levels(self, reports: list[SoundLevels]) -> None:
        unit = "dBFS" if self.settings.spl_offset is None else "dBA"
        for levels in reports:
            laeq, l10, l90 = (round(value, 1) for value in (levels.laeq, levels.l10, levels.l90))
            end = iso(self._measured_to)
            self.outputs.send(LevelReport(self.name, laeq, l10, l90, unit, levels.seconds, end))

    def _set_active(self, labels: Iterable[str]) -> None:
        active = frozenset(labels)
        if active != self.active:
            self.active = active
            self.outputs.send(Present(self.name, active))

    def _report(self, event: Event, run: _Run) -> None:
        """Decide whether an event is reported, write its clip, record it, and pass it on."""
        with self.policy.reporting:
            self._report_next(event, run)

    def _report_next(self, event: Event, run: _Run) -> None:
        begun_s = run.since_1970_s
        report = StoredEvent(
            self.policy.number(),
            self.name,
            event.label,
            event.score,
            event.threshold,
            begun_s + event.start_s,
            begun_s + event.end_s,
            utc_offset_s(begun_s + event.start_s),
            event.level_db,
            event.snr_db,
            event.rejected,
        )
        report = self.policy.decide(report, event.end_s)
        started = run.started.get(event.label)
        # A run below the threshold may have come before the one that was reported to have begun.
        if started is not None and begun_s + event.end_s >= started.start_s:
            if report.rejected:
                self._withdraw(run, event.label, report.rejected, event.end_s)
            else:
                del run.started[event.label]
                report = replace(report, start_id=started.id)
        if not report.rejected:
            run.over_s[event.label] = event.end_s
        folder, audit = self.settings.clips, self.settings.audit
        if not report.rejected and folder is not None:
            report = self._with_clip(report, event, run, folder)
        if audit is not None:
            # The decision as the scores gave it, and as it was reported.
            decision = event_decision(self.name, event, run.detector.rules)
            fields, names = report.fields(), ("rejected", "start", "end", "clip", "withheld")
            outcome = {
                **decision.outcome,
                "id": fields["id"],
                "reported": not report.rejected,
                **{name: fields[name] for name in names},
            }
            reference = None
            try:
                if audit.keep_audio:
                    audio = run.cut(event)
                    if len(audio.samples) and not (self.guard and self.guard.speech(audio)):
                        reference = audit.refer(audio, complete=False)
                audit.record(replace(decision, outcome=outcome), run.decider, reference)
            except DriftscoreError as error:
                self.outputs.notify(f"error: {self.name}: a decision is not in the audit: {error}")
        self.outputs.send(report)

    def _with_clip(
        self, report: StoredEvent, event: Event, run: _Run, folder: EventClips
    ) -> StoredEvent:
        """Write the clip of an event, unless its label or the speech in it forbids that."""
        watched = next(one for one in run.detector.watch.labels if one.name == event.label)
        if not watched.clips:
            return replace(report, withheld="no clips of this label")
        clip = run.cut(event, folder.pre_roll_s)
        try:
            if self.guard is not None and (why := self.guard.speech(clip)):
                return replace(report, withheld=why)
            folder.tidy()  # first: on a full disk it makes room
            path = folder.write(clip, report)
        except (DriftscoreError, OSError) as error:
            self.outputs.notify(f"{self.name}: no clip: {error}")
            return replace(report, withheld=str(error))
        return replace(report, clip=path)


def utc_offset_s(time_s: float) -> int:
    """Return how many seconds the local zone is ahead of UTC at a time in seconds since 1970."""
    offset = datetime.fromtimestamp(time_s, UTC).astimezone().utcoffset()
    return round(offset.total_seconds()) if offset else 0
