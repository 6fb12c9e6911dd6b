"""`driftscore detect`: find the events of long recordings; and the options that `listen` shares."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftscore.audio.clock import Start, parse_start, start_of
from driftscore.audio.decoding import stated_rate
from driftscore.cli import options as take
from driftscore.cli.app import app
from driftscore.cli.classify import TITLES
from driftscore.cli.output import (
    Tally,
    counted,
    cut_of,
    output,
    report_model,
    say,
    span_row,
    until_interrupted,
)
from driftscore.detector import Detector
from driftscore.engines.examples import example_files
from driftscore.engines.window_log import window_log
from driftscore.errors import AuditError, DriftscoreError, UsageError
from driftscore.events.clips import AROUND_S, ClipFolder
from driftscore.events.stream import SHOWN_LABELS
from driftscore.events.thresholds import DEFAULT_FALSE_ALARMS, GOOD
from driftscore.events.tracking import Detection, Event
from driftscore.events.watchlist import WatchList
from driftscore.formats import Format, OutputValue, write_rows
from driftscore.storage.files import check_output
from driftscore.system.process import Interrupted
from driftscore.system.progress import hours_text, seconds_bar

if TYPE_CHECKING:
    from driftscore.decisions import DecisionStore
    from driftscore.pictures import HourCounts, PictureTrack

EventRow = dict[str, OutputValue]
EVENT_COLUMNS = tuple(span_row("", "", 0.0, 0.0, 0.0))
HINTS = (
    "--false-alarms 2 for more events", "--plot night.png for a picture",
    "--false-alarms 0.1 for fewer", "--format raven (audacity, csv, ...) --out FILE to export",
    "--clips FOLDER for the audio",
)  # fmt: skip
"""What to try next; without events only the first two."""
EVENT_TITLE = "Events: scores and thresholds are above the recent background of the label"
watch_options = take.together(
    take.label_options,
    click.option(
        "--watch", type=take.FILE,
        help="A watch list (TOML): labels with wordings, negative words and thresholds.",
    ),
    take.negatives_option,
)  # fmt: skip
detection_options = take.together(
    click.option(
        "--false-alarms", type=take.Number(),
        help=f"Acceptable false alarms per hour and label; {DEFAULT_FALSE_ALARMS:g} if not given.",
    ),
    click.option("--window", "window_s", type=take.Number(), help="Seconds of a window."),
    click.option(
        "--hop", "hop_s", type=take.Number(), help="Seconds from one window to the next."
    ),
)  # fmt: skip


def make_watch_list(*, watch: Path | None, negatives: tuple[str, ...], **options: Any) -> WatchList:
    """Return the watch list of a file, or of labels with negative words; with examples."""
    files = example_files(options["examples"])
    if watch is None:
        return WatchList.of(take.label_names(**options), negatives, files)
    if options["labels"] or negatives:
        raise UsageError("A watch list has labels and negative words: give --watch only")
    return WatchList.load(watch).with_examples(files)


def make_detection(values: dict[str, list[str]], **options: Any) -> Detection:
    """Return how events are found; what --set has of it is taken out of `values`."""
    changes = {
        name: options.get(name) for name in ("false_alarms", "window_s", "hop_s", "threshold")
    }
    for name in {"min_duration_s", "gap_s", "leave", "hold_s"} & values.keys():
        changes[name] = take.take_number(values, name, 0.0)
    if "thresholds_from" in values:
        changes["thresholds_from"] = values.pop("thresholds_from")[-1]
    return Detection().changed(**changes)


@app.command()
@take.files_argument
@watch_options
@take.output_options
@take.examples_option
@detection_options
@click.option("--threshold", "-t", type=take.Number(),
              help="The score above its background that every label must reach, not "
              "--false-alarms.")  # fmt: skip
@click.option("--windows", is_flag=True, help="One row per window, with its best label.")
@click.option("--start", metavar="TIME",
              help="When the recording began, as 2026-11-16T22:00; else from its name or "
              "metadata.")  # fmt: skip
@click.option("--clips", type=take.FILE, help="Cut each event out into this folder.")
@click.option("--plot", cls=take.OutputFile, type=take.FILE,
              help="Draw spectrogram, scores and events (.png or .svg); of several recordings, "
              "labels by hour of day.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue a run that was interrupted.")
@take.rule_options
@take.head_option
@take.backbone_options
@take.partial_option
@take.cache_option
@take.audit_options
@take.verbose_option
def detect(
    files: tuple[str, ...],
    partial: bool,
    format: Format,
    out: str | None,
    windows: bool,
    start: str | None,
    clips: Path | None,
    plot: Path | None,
    resume: bool,
    settings: tuple[str, ...],
    verbose: bool,
    **options: Any,
) -> None:
    """Find events in long recordings: which label, from when to when.

    FILES are recordings, folders, globs or URLs. --set also takes the settings of events:
    min_duration_s, gap_s, leave, hold_s, thresholds_from (calibration, quiet, recording or auto),
    and margin_s, the seconds before and after an event in a clip.

    $ driftscore detect night.flac --labels "siren, dog bark"
    $ driftscore detect nights/ --labels "owl" --format raven --out owls.txt --clips owls/
    """
    recordings = take.list_recordings(files, partial, format)
    if windows and options["audit"]:
        raise UsageError("--windows shows scores and decides nothing; leave it out, or --audit")
    if start is not None:
        parse_start(start)
        if len(recordings) > 1:
            raise UsageError(
                f"--start says when one recording began, and there are {len(recordings)}; "
                "name the files like 20261116_031500.wav instead"
            )
    if plot is not None:
        from driftscore.pictures import HourCounts, PictureTrack, check_picture

        check_picture(plot)
        if len(recordings) > 1 and not any(map(start_of, recordings)):
            raise UsageError(
                "No recording says when it starts, so there is no hour of day to draw; name the "
                "files like 20261116_031500.wav, or draw one recording"
            )
    if clips is not None:
        check_output(clips / "event.flac")
    values = take.named_values(settings)
    detection = make_detection(values, **options)
    margin_s = take.take_number(values, "margin_s", AROUND_S)
    watch = None
    if options["head"] is None or options["watch"] is not None:
        watch = make_watch_list(**options)
    embedder = take.make_embedder(**options)
    names = None if watch is None else watch.names
    classifier = take.make_classifier(embedder, names, settings=values, **options)
    log = take.open_audit(recordings=recordings, once=resume, **options)
    tally = Tally(quiet=out is None and not format.spans)
    with embedder, log or nullcontext():
        embedder.prepare()  # while the labels are compiled
        detector = classifier.detector(watch, detection, one_label=windows)
        if verbose:
            report_model(embedder.backbone, classifier)
        search = EventSearch(detector, tally, start, format.lengths, resume, log)
        if clips is not None:
            silent = [label.name for label in detector.watch.labels if not label.clips]
            search.clips = ClipFolder(clips, around_s=margin_s, without=silent)
        rate = options["false_alarms"] or options["threshold"]
        pictured = plot or recordings[1:] or None  # that of several needs clock times
        hinted = (rate, pictured, rate, out, clips)
        search.hints = [h for h, value in zip(HINTS, hinted, strict=True) if value is None]
        if not windows and detection.threshold is None:
            report_promises(detector)
        if plot is not None and len(recordings) == 1:
            search.track = PictureTrack(detector.watch.names, hop_s=detector.hop_s)
        elif plot is not None:
            search.hours = HourCounts(detector.watch.names)
        rows, title = search.rows(recordings), EVENT_TITLE
        if windows:
            rows = window_rows(detector, recordings, tally)
            title = TITLES[detector.head.unit]
        unit = {"unit": detector.head.unit}
        with output(out) as stream:
            in_unit = until_interrupted((row | unit for row in rows), tally)
            write_rows(in_unit, format, stream, title=title, columns=EVENT_COLUMNS)
    if not windows and tally.interrupted is None:
        search.finish(plot)
    tally.finish(len(recordings))


@dataclass
class EventSearch:
    """A search of recordings for events: its rows, and what is reported at its end."""

    detector: Detector
    tally: Tally
    start: str | None
    lengths: bool
    """Whether a row also has the length of its recording, which is known at its end."""
    resume: bool
    audit: "DecisionStore | None"
    clips: ClipFolder | None = None
    track: "PictureTrack | None" = None
    """For the picture of one recording."""
    hours: "HourCounts | None" = None
    """For the picture of several recordings, by the hour of day."""
    hints: Sequence[str] = ()
    """What to try next: options that were not given."""
    seconds: float = 0.0
    count: int = 0
    clip_count: int = 0
    nearest: Event | None = None
    drawn: tuple[list[Event], str, Start | None] | None = None
    zone_reported: bool = False

    def rows(self, recordings: Sequence[str]) -> Iterator[EventRow]:
        """Yield the rows of the events of each recording."""
        with seconds_bar("Searching", recordings) as done:
            for recording in recordings:
                before = self.seconds
                try:
                    yield from self._rows_of(recording, done)
                    why = cut_of(recording)
                except AuditError:
                    raise
                except DriftscoreError as error:
                    why = str(error)
                    self.tally.fail(why)
                except Interrupted as error:
                    error.reached = f" at {hours_text(self.seconds - before)} of {recording}"
                    error.advice = ". Run the same command with --resume to continue there"
                    raise
                if why:
                    row = failed_row(recording, why)
                    yield row | ({"duration_s": 0.0, "rate": None} if self.lengths else {})

    def _rows_of(self, recording: str, done: Callable[[float], None]) -> Iterator[EventRow]:
        detector, before = self.detector, self.seconds
        start = start_of(recording, self.start)
        if start is not None and not start.zone_known and not self.zone_reported:
            self.zone_reported = True
            say(f"{recording} began at {start}; if it is another zone, give it with --start")

        def reached(now_s: float) -> None:
            self.seconds = before + now_s
            done(self.seconds)

        embedder = detector.embedder
        log = window_log(
            recording, embedder.backbone, window_s=detector.window_s, hop_s=detector.hop_s
        )
        read = log is not None and (self.resume or embedder.audio_cache)
        if log is not None and read and log.read().done and self.resume:
            say(f"{recording}: continuing at {hours_text(len(log.done) * detector.hop_s)}")
        reported: list[Event] = []
        nearly: list[Event] = []
        with nullcontext() if log is None else log.writing(keep=embedder.audio_cache):
            if self.audit is None:
                events = detector.events(
                    recording, rejected=True, seconds=reached, observer=self.track, store=log
                )
            else:
                from driftscore.decisions import audited_events

                events = audited_events(
                    self.audit, detector, recording, seconds=reached, observer=self.track, store=log
                )
            for event in events:
                if event.rejected:
                    if self.nearest is None or _share(event) > _share(self.nearest):
                        self.nearest = event
                    if self.track is not None:
                        nearly.append(event)
                    continue
                reported.append(event)
                self.count += 1
                if not self.lengths:
                    yield event_row(recording, event, start)
        seconds = self.seconds - before
        if self.lengths:
            length = {"duration_s": seconds, "rate": stated_rate(recording)}
            for event in reported or [Event("", 0.0, 0.0, 0.0)]:
                yield event_row(recording, event, start) | length
        if self.clips is not None:
            written = self.clips.cut(recording, reported)
            self.clip_count += sum(path is not None for path in written)
        if self.track is not None:
            self.drawn = (reported + nearly, recording, start)
        if self.hours is not None:
            self.hours.add(start, seconds, reported)

    def finish(self, plot: Path | None) -> None:
        """Draw the picture; report how many events there are, and what to do next."""
        if self.clips is not None:
            say(f"{counted(self.clip_count, 'clip')} in {self.clips.folder}")
        if plot is not None and (self.drawn is not None or self.hours is not None):
            from driftscore.pictures import plot_hours, plot_recording

            if self.hours is not None:
                plot_hours(plot, self.hours)
            elif self.track is not None and self.drawn is not None:
                events, name, start = self.drawn
                plot_recording(plot, self.track, events, name=name, start=start)
            say(f"Picture in {plot}")
        if not self.seconds:
            return  # nothing could be read: that was reported
        threshold = self.detector.settings.threshold
        budget = f"a threshold of {threshold or 0:g}"
        if threshold is None:
            rate = self.detector.false_alarms
            budget = (
                f"{rate} false alarm{'' if rate == '1' else 's'} per hour and label asked for "
                f"(by the {self.detector.source})"
            )
            if self.detector.calibration is None:
                budget = "thresholds of raw scores: the model has no calibration"
        events_text = counted(self.count, "event") if self.count else "No events"
        doubt = ""
        if self.count and threshold is None and self.detector.calibration is not None:
            alarms = min(self.count, round(self.detector.expected_alarms(self.seconds)))
            doubt = f"; {f'about {alarms}' if alarms else 'none'} of them expected to be false"
        say(f"{events_text} in {hours_text(self.seconds)} of audio, with {budget}{doubt}")
        if not self.count and (near := self.nearest) is not None:
            say(
                f"nearest: {near.label!r} at {hours_text(near.start_s)} with {near.score:.2f} of "
                f"{near.threshold:.2f} ({near.rejected})"
            )
        if hints := [hint for hint in self.hints if self.count or hint in HINTS[:2]]:
            say(f"next: {', '.join(hints)}")


def report_promises(detector: Detector) -> None:
    """Report how well the labels can be expected to work, unless all of them are good."""
    promises = detector.promises
    texts = []
    for expected in sorted(set(promises.values())):
        names = [name for name in promises if promises[name] == expected]
        more = " ..." if len(names) > SHOWN_LABELS else ""
        texts.append(f"{', '.join(names[:SHOWN_LABELS])}{more}: {expected}")
    if set(promises.values()) - {GOOD}:
        say(f"expected: {'; '.join(texts)}")


def _share(event: Event) -> float:
    return event.score / event.threshold if event.threshold else 0.0


def event_row(source: str, event: Event, start: Start | None) -> EventRow:
    """Return the row of an event."""
    return span_row(
        source, event.label, event.start_s, event.end_s, event.score,
        time="" if start is None else start.text_at(event.start_s), threshold=event.threshold,
        level_db=event.level_db, snr_db=event.snr_db,
    )  # fmt: skip


def failed_row(source: str, error: str) -> EventRow:
    """Return the row of a recording that could not be read to its end: without times and score."""
    row = span_row(source, "", 0.0, 0.0, 0.0, error=error)
    return row | {"start_s": "", "end_s": "", "score": ""}


def window_rows(detector: Detector, recordings: Sequence[str], tally: Tally) -> Iterator[EventRow]:
    """Yield one row per window: its best label with its score."""
    names = detector.watch.names
    for recording in recordings:
        try:
            for start_s, end_s, row in detector.embedder.slide(
                recording, window_s=detector.window_s, hop_s=detector.hop_s
            ):
                scores = detector.head.scores(row)[0, : len(names)]
                best = int(scores.argmax())
                yield span_row(recording, names[best], start_s, end_s, float(scores[best]))
            why = cut_of(recording)
        except DriftscoreError as error:
            why = str(error)
            tally.fail(why)
        if why:
            yield failed_row(recording, why)
