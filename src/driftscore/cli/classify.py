"""`driftscore classify`: label recordings."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from driftscore.audio import expand
from driftscore.backbones import DEFAULT_BACKBONE, DEFAULT_RUNTIME
from driftscore.classifier import Classifier
from driftscore.cli import options as take
from driftscore.cli.reporting import Tally, output, report_runtime, say, watched
from driftscore.cli.rows import (
    EVENT_COLUMNS,
    compared_rows,
    event_rows,
    result_rows,
    score_title,
    unit_of,
)
from driftscore.embedder import Embedder
from driftscore.engines import DEFAULT_ENGINE
from driftscore.errors import UsageError
from driftscore.formats import DEFAULT_FORMAT, OutputRow, find_format, write_rows
from driftscore.settings import AUTO, DEFAULT_PRESET


def classify(
    files: take.Files,
    head: take.HeadFile = None,
    compare: take.Compare = None,
    multi: take.Multi = False,
    threshold: take.Threshold = None,
    timeline: take.Timeline = False,
    windows: take.Windows = False,
    format: take.FormatName = DEFAULT_FORMAT,
    out: take.Out = None,
    labels: take.LabelsOption = None,
    labels_file: take.LabelsFile = None,
    backbone: take.BackboneName = DEFAULT_BACKBONE,
    runtime: take.Runtime = DEFAULT_RUNTIME,
    rule: take.RuleName = AUTO,
    beta: take.Beta = None,
    settings: take.SettingsOption = None,
    noise: take.NoiseOption = None,
    pool: take.Pool = None,
    preset: take.PresetName = DEFAULT_PRESET,
    prompt: take.Prompt = None,
    pack: take.PackOption = None,
    templates: take.Templates = None,
    reference: take.Reference = None,
    direction: take.Direction = None,
    skip_same: take.SkipSame = False,
    calibration: take.CalibrationFile = None,
    raw: take.Raw = False,
    cache: take.KeepAudio = False,
    engine: take.EngineName = DEFAULT_ENGINE,
    address: take.Address = None,
    threads: take.Threads = None,
    verbose: take.Verbose = False,
) -> None:
    """Label recordings with your own words."""
    view = View(format, multi, timeline or windows, not windows).checked(compare, threshold, head)
    recordings = expand(files)
    names = None if head else take.label_names(labels, labels_file)
    prompts = take.prompt_settings(preset, prompt, pack, templates, reference, direction, skip_same)
    values = take.rule_settings(settings, beta, noise, pool, raw=raw)
    scoring = take.ScoringOptions(names, rule, values, prompts, preset, calibration)
    with take.make_embedder(backbone, runtime, cache, engine, address, threads) as embedder:
        found = fitted(scoring, embedder, compare, threshold=threshold, head=head, verbose=verbose)
        view.show(found, recordings, out)


@dataclass(frozen=True)
class View:
    """How the results of `classify` are shown."""

    format: str
    multi: bool
    events: bool
    merged: bool

    def checked(self, compare: str | None, threshold: str | None, head: Path | None) -> "View":
        """Return the view; refuse an unknown format, and options that exclude each other."""
        find_format(self.format)
        if self.events and self.multi:
            raise UsageError("--multi shows the scores of recordings; leave it out with --timeline")
        if compare and (self.events or self.multi or threshold or head):
            raise UsageError(
                "--compare sets the best labels of two rules side by side; leave out --timeline, "
                "--windows, --multi, --threshold and --head"
            )
        return self

    def show(self, classifiers: list[Classifier], recordings: list[str], out: str | None) -> None:
        """Write the rows of all recordings; the exit status is 1 if one of them failed."""
        spans = find_format(self.format).spans
        tally = Tally(quiet=out is None and not spans)  # the rows hold the errors
        columns = EVENT_COLUMNS if self.events else ()
        title = "" if len(classifiers) > 1 else score_title(classifiers[0].head_)
        with output(out) as stream:
            rows = self._rows(classifiers, recordings, tally, spans)
            write_rows(rows, self.format, stream, title=title, columns=columns)
        tally.finish(len(recordings))

    def _rows(
        self, classifiers: list[Classifier], recordings: list[str], tally: Tally, spans: bool
    ) -> Iterator[OutputRow]:
        classifier = classifiers[0]
        if len(classifiers) > 1:
            return compared_rows(classifiers, watched(classifier.embed, recordings, tally))
        if self.events:
            embedded = watched(classifier.embed, recordings, tally)
            return event_rows(classifier, embedded, merged=self.merged)
        results = watched(classifier.classify, recordings, tally)
        unit = unit_of(classifier.head_)
        return result_rows(results, classifier.threshold, unit, multi=self.multi, spans=spans)


def fitted(
    scoring: take.ScoringOptions,
    embedder: Embedder,
    compare: str | None,
    *,
    threshold: str | None,
    head: Path | None,
    verbose: bool,
) -> list[Classifier]:
    """Return the fitted classifier, and with --compare that of the other rule."""
    cut = take.optional_number("--threshold", threshold)
    classifier = scoring.classifier(embedder, threshold=cut, head=head)
    found = list(classifier.compared_with(compare)) if compare else [classifier.fit()]
    if verbose:
        report_runtime(embedder.backbone)
        for classifier in found if head is None else ():
            say(f"rule: {classifier.rule_.name} ({classifier.why_})")
    return found
