"""`driftscore classify`: label recordings."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from driftscore.audio import expand
from driftscore.audit import AuditLog, audited_judgements, audited_results
from driftscore.classifier import Classifier
from driftscore.cli import options as take
from driftscore.cli.groups import AuditOptions, EmbedOptions, ScoreOptions, flat
from driftscore.cli.reporting import Tally, output, report_runtime, say, watched
from driftscore.cli.rows import (
    EVENT_COLUMNS,
    EventRows,
    compared_rows,
    judged_rows,
    result_rows,
    score_title,
    unit_of,
    window_rows,
)
from driftscore.cli.timeline import EventOptions, EventView
from driftscore.detector import Detector
from driftscore.embedder import Embedded, Embedder
from driftscore.engines import DEFAULT_ENGINE
from driftscore.errors import UsageError
from driftscore.files import is_url
from driftscore.formats import DEFAULT_FORMAT, OutputRow, find_format, write_rows
from driftscore.progress import hours_text
from driftscore.result import ResultBlock

EVENT_TITLE = "Events: scores and thresholds are above the recent background of the label"
_LONG_S = 60.0
"""Recordings from this length on are better searched for events."""


@flat
def classify(
    files: take.Files,
    scores: ScoreOptions,
    model: EmbedOptions,
    events: EventOptions,
    auditing: AuditOptions,
    head: take.HeadFile = None,
    compare: take.Compare = None,
    multi: take.Multi = False,
    threshold: take.Threshold = None,
    or_none: take.OrNone = False,
    format: take.FormatName = DEFAULT_FORMAT,
    out: take.Out = None,
    verbose: take.Verbose = False,
) -> None:
    """Label recordings with your own words."""
    view = View(format, out, multi, or_none).checked(events, compare, threshold, head, model)
    recordings = expand(files)
    events.products.checked(recordings)
    scoring = scores.scoring(labels=not head and not events.watching.watch)
    watch = events.watching.watch_list(scoring.labels)
    if watch is not None and scoring.labels is None:
        scoring = replace(scoring, labels=watch.names)
    log = opened_audit(auditing, events, compare, recordings)
    with model.embedder() as embedder, log or nullcontext():
        cut = take.optional_number("--threshold", threshold)
        found = classifiers(scoring, embedder, compare, threshold=cut, head=head)
        embedder.prepare()  # while the labels are compiled
        if events.asked or or_none:
            detector = found[0].detector(watch, events.settings())
            show = partial(view.show_events, detector, events, log)
        else:
            show = partial(view.show, [classifier.fit() for classifier in found], log)
        if verbose:
            report_choices(embedder, found)
        show(recordings)


@dataclass(frozen=True)
class View:
    """How the results of `classify` are shown."""

    format: str
    out: str | None
    multi: bool
    or_none: bool

    def checked(
        self,
        events: EventOptions,
        compare: str | None,
        threshold: str | None,
        head: Path | None,
        model: EmbedOptions,
    ) -> "View":
        """Return the view; refuse an unknown format, and options that exclude each other."""
        find_format(self.format)
        if compare and (events.asked or self.or_none or self.multi or threshold or head):
            raise UsageError(
                "--compare sets the best labels of two rules side by side; leave out --timeline, "
                "--windows, --or-none, --multi, --threshold and --head"
            )
        if events.asked and (self.multi or self.or_none):
            raise UsageError(
                "Events are reported one label per row, and only where one fits; leave out "
                "--multi and --or-none, or --timeline"
            )
        if events.asked and model.engine != DEFAULT_ENGINE:
            raise UsageError(
                f"Events are searched on this machine; leave out --engine {model.engine}"
            )
        return self

    def show(
        self, classifiers: list[Classifier], log: AuditLog | None, recordings: list[str]
    ) -> None:
        """Write the rows of all recordings; the exit status is 1 if one of them failed."""
        tally, longest = self._tally(), _Longest()
        title = "" if len(classifiers) > 1 else score_title(classifiers[0].head_)
        with output(self.out) as stream:
            if len(classifiers) > 1:
                embedded = watched(classifiers[0].embedder_.blocks, recordings, tally)
                rows = compared_rows(classifiers, chain.from_iterable(embedded))
            else:
                blocks = watched(classifiers[0].classify_blocks, recordings, tally)
                if log is not None:
                    results = chain.from_iterable(blocks)
                    audited = audited_results(log, classifiers[0], recordings, results)
                    blocks = map(ResultBlock.of, audited)
                rows = self._rows(classifiers[0], longest.of(blocks))
            write_rows(rows, self.format, stream, title=title)
        longest.advise()
        tally.finish(len(recordings))

    def show_events(
        self,
        detector: Detector,
        events: EventOptions,
        log: AuditLog | None,
        recordings: list[str],
    ) -> None:
        """Write the events of all recordings, or one row for each where a label fits."""
        tally, unit = self._tally(), unit_of(detector.head)
        products = events.products.made(detector, recordings)
        format = find_format(self.format)
        view = EventView(detector, EventRows(unit, format.lengths), tally, products, log)
        columns = EVENT_COLUMNS if events.asked else ()
        title = score_title(detector.head)
        with output(self.out) as stream:
            if self.or_none:
                blocks = watched(detector.embedder.blocks, recordings, tally)
                embedded: Iterator[Embedded] = chain.from_iterable(blocks)
                if log is not None:
                    embedded = audited_judgements(log, detector, recordings, embedded)
                rows = judged_rows(detector, embedded, unit)
            elif events.windows:
                rows = window_rows(detector, recordings, tally)
            else:
                rows = view.of(recordings, resume=events.resume)
            title = EVENT_TITLE if events.asked and not events.windows else title
            write_rows(rows, self.format, stream, title=title, columns=columns)
        if view.interrupted is not None:
            raise view.interrupted
        if events.asked and not events.windows:
            view.finish()
        tally.finish(len(recordings))

    def _tally(self) -> Tally:
        """Return a count of failures; it is quiet where the rows hold the errors."""
        return Tally(quiet=self.out is None and not find_format(self.format).spans)

    def _rows(self, classifier: Classifier, blocks: Iterator[ResultBlock]) -> Iterator[OutputRow]:
        unit, spans = unit_of(classifier.head_), find_format(self.format).spans
        return result_rows(blocks, classifier.threshold, unit, multi=self.multi, spans=spans)


@dataclass
class _Longest:
    """The longest recording of a run: one label for hours of audio says little."""

    source: str = ""
    seconds: float = 0.0

    def of(self, blocks: Iterator[ResultBlock]) -> Iterator[ResultBlock]:
        """Yield blocks of results, and remember the longest recording."""
        for block in blocks:
            longest = max(block.seconds)
            if longest > self.seconds:
                self.source, self.seconds = block.sources[block.seconds.index(longest)], longest
            yield block

    def advise(self) -> None:
        """Tell how to find events, if a recording is long."""
        if self.seconds < _LONG_S:
            return
        say(
            f"{self.source} lasts {hours_text(self.seconds)}, and this is one label for all of it. "
            "To find out what happens when, add --timeline.\n"
            "Then: --false-alarms 0.1 for fewer events or 2 for more, --plot night.png for a "
            "picture, --format audacity (raven, csv, ...) --out FILE to export"
        )


def opened_audit(
    options: AuditOptions, events: EventOptions, compare: str | None, recordings: list[str]
) -> AuditLog | None:
    """Open the audit log that is asked for; refuse what has no decisions, or no audio to keep."""
    if options.audit is not None and (compare or events.windows):
        raise UsageError(
            "--compare and --windows show scores and decide nothing; leave them out, or --audit"
        )
    if options.audit_audio and (remote := next(filter(is_url, recordings), None)):
        raise UsageError(
            f"--audit-audio copies files of this machine, and {remote} is none; leave it out, or "
            "download the recording first"
        )
    return options.log(once=events.resume)


def classifiers(
    scoring: take.ScoringOptions,
    embedder: Embedder,
    compare: str | None,
    *,
    threshold: float | None,
    head: Path | None,
) -> list[Classifier]:
    """Return the classifier, and with --compare that of the other rule."""
    classifier = scoring.classifier(embedder, threshold=threshold, head=head)
    return list(classifier.compared_with(compare)) if compare else [classifier]


def report_choices(embedder: Embedder, classifiers: list[Classifier]) -> None:
    """Report what the model runs in and which rules were chosen."""
    report_runtime(embedder.backbone)
    for classifier in classifiers:
        if hasattr(classifier, "rule_"):
            say(f"rule: {classifier.rule_.name} ({classifier.why_})")
