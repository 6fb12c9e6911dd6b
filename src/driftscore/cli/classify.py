"""`driftscore classify`: label recordings; and the rows of results, the same keys in every row."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from driftscore.audio.decoding import stated_rate
from driftscore.cli import options as take
from driftscore.cli.app import app
from driftscore.cli.output import (
    Tally,
    output,
    report_model,
    say,
    span_row,
    until_interrupted,
    watched,
    with_cuts,
)
from driftscore.engines.examples import example_files
from driftscore.errors import UsageError
from driftscore.formats import Format, OutputRow, OutputValue, write_rows
from driftscore.scoring.head import UNITS, Head, Result
from driftscore.scoring.rules import rule_names
from driftscore.system.progress import hours_text

if TYPE_CHECKING:
    from driftscore.classifier import Classifier
    from driftscore.detector import Detector
    from driftscore.embedder import Embedded

TITLES = {unit: f"Scores: {meaning}" for unit, meaning in UNITS.items()}
"""The title of a table that says what its scores are."""
_LONG_S = 60.0
"""Recordings from this length on are better searched for events."""


@app.command()
@take.files_argument
@take.label_options
@take.examples_option
@take.output_options
@take.multi_option
@take.threshold_option
@click.option("--or-none", is_flag=True,
              help="No label for a recording where none fits, not the nearest.")  # fmt: skip
@take.negatives_option
@take.rule_options
@click.option("--compare", type=take.PluginName(rule_names), metavar="NAME",
              help="A second rule, side by side with --rule.")  # fmt: skip
@take.head_option
@take.backbone_options
@take.partial_option
@take.cache_option
@take.engine_option
@take.audit_options
@take.verbose_option
def classify(
    files: tuple[str, ...],
    partial: bool,
    format: Format,
    out: str | None,
    multi: bool,
    threshold: float | None,
    or_none: bool,
    negatives: tuple[str, ...],
    compare: str | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Label recordings with your own words.

    FILES are recordings, folders, globs or URLs.

    $ driftscore classify recordings/ --labels "siren, dog bark, rain"
    $ driftscore classify *.flac --labels doorbell --examples "doorbell=mine/bell*.wav"
    """
    if compare and (or_none or multi or threshold is not None or options["head"]):
        raise UsageError(
            "--compare sets the best labels of two rules side by side; leave out --or-none, "
            "--multi, --threshold and --head"
        )
    if compare and options["audit"]:
        raise UsageError("--compare shows scores and decides nothing; leave it out, or --audit")
    if or_none and multi:
        raise UsageError("--or-none reports the label that fits; leave out --multi")
    recordings = take.list_recordings(files, partial, format)
    embedder = take.make_embedder(**options)
    classifier = take.make_classifier(embedder, label_threshold=threshold, **options)
    log = take.open_audit(recordings=recordings, **options)
    tally = Tally(quiet=out is None and not format.spans, continues=embedder.audio_cache)
    with embedder, log or nullcontext():
        embedder.prepare()  # while the labels are compiled
        classifiers, title = [classifier], ""
        rows: Iterator[OutputRow]
        if or_none:
            from driftscore.events.watchlist import WatchList  # here: most runs need no events

            names = classifier.labels
            examples = example_files(options["examples"])
            watch = None if names is None else WatchList.of(names, negatives, examples)
            detector = classifier.detector(watch, one_label=True)
            title = TITLES[detector.head.unit]
            embedded = watched(embedder.embed, recordings, tally)
            if log is not None:
                from driftscore.decisions import audited_judgements

                embedded = audited_judgements(log, detector, recordings, embedded)
            rows = judged_rows(detector, embedded)
        elif compare:
            if options["examples"]:
                take.fit(classifier, **options)
            classifiers = list(classifier.compared_with(compare))
            rows = compared_rows(classifiers, watched(embedder.embed, recordings, tally))
        else:
            head = take.fit(classifier, **options).head_
            title = TITLES[head.unit]
            results = watched(classifier.classify, recordings, tally)
            if log is not None:
                from driftscore.decisions import audited_results

                results = audited_results(log, classifier, recordings, results)
            rows = result_rows(
                results, head, threshold, multi=multi, spans=format.spans, lengths=format.lengths
            )
        if verbose:
            report_model(embedder.backbone, *classifiers)
        with output(out) as stream:
            write_rows(until_interrupted(with_cuts(rows), tally), format, stream, title=title)
    if not (or_none or compare or multi) and threshold is None and len(classifier.classes_) == 1:
        say(
            "One label leaves nothing to choose between, so every recording gets it. Is it there? "
            "--or-none says so, and --threshold 2.5 judges by a score"
        )
    seconds, name = tally.longest
    if seconds >= _LONG_S and not (or_none or compare):
        say(
            f"{name} lasts {hours_text(seconds)}, and this is one label for all of it. "
            "To find out what happens when: driftscore detect\n"
            "Then: --false-alarms 0.1 for fewer events or 2 for more, --plot night.png for a "
            "picture, --format audacity (raven, csv, ...) --out FILE to export"
        )
    tally.finish(len(recordings))


def result_rows(
    results: Iterable[Result],
    head: Head,
    threshold: float | None,
    *,
    multi: bool,
    spans: bool,
    lengths: bool = False,
) -> Iterator[OutputRow]:
    """Yield one row per recording; as spans, one row for each of its labels.

    With `lengths` they have that of their recording, also where it has no label.
    """
    unit = head.unit
    for result in results:
        row: dict[str, OutputValue] = {"file": result.source}
        if spans:
            scores = dict(result.ranking)
            labels = [result.label] if threshold is None else result.above(threshold)
            about: dict[str, OutputValue] = {}
            if lengths:
                about = {"duration_s": result.seconds, "rate": stated_rate(result.source)}
                labels = labels or [""]
            for label in labels:
                yield span_row(
                    result.source, label, 0.0, result.seconds, scores.get(label, 0.0), unit=unit,
                    error=result.error,
                ) | about  # fmt: skip
            continue
        if multi or threshold is not None:
            if threshold is not None:
                row["labels"] = result.above(threshold)
            row["scores"] = {**dict.fromkeys(result.labels, ""), **dict(result.ranking)}
        elif result.error:
            row |= {"label": "", "score": "", "margin": "", "runner_up": ""}
        else:
            (label, score), *others = result.best_two()
            row["label"], row["score"] = label, score
            row["margin"] = score - others[0][1] if others else math.inf
            row["runner_up"] = others[0][0] if others else ""
        row["unit"], row["error"] = unit, result.error
        yield row


def judged_rows(detector: "Detector", recordings: "Iterable[Embedded]") -> Iterator[OutputRow]:
    """Yield one row per recording, without a label where none fits."""
    for embedded in recordings:
        if embedded.error:
            result = Result(embedded.source, detector.watch.names, error=embedded.error)
        else:
            result = detector.label_or_none(embedded.source, embedded.embedding, embedded.seconds)
        scores = dict(result.ranking)
        others = [name for name in scores if name != result.label]
        yield {
            "file": result.source,
            "label": result.label,
            "score": scores.get(result.label, ""),
            "nearest": others[0] if others else "",
            "nearest_score": scores[others[0]] if others else "",
            "unit": detector.head.unit,
            "error": result.error,
        }


def compared_rows(
    classifiers: "Sequence[Classifier]", recordings: "Iterable[Embedded]"
) -> Iterator[OutputRow]:
    """Yield the best labels of several rules side by side."""
    for embedded in recordings:
        row: dict[str, OutputValue] = {"file": embedded.source}
        labels = set()
        for classifier in classifiers:
            result, name = Result(embedded.source), classifier.rule_.name
            if not embedded.error:
                head = classifier.head_
                result = Result("", head.labels, head.scores(embedded.embedding)[0])
            row |= {name: result.label, f"{name} margin": "" if embedded.error else result.margin}
            labels.add(result.label)
        same = "" if embedded.error else "yes" if len(labels) == 1 else "NO"
        yield row | {"same": same, "error": embedded.error}
