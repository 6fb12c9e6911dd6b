"""Results as rows for the output formats: the same keys in the same order in every row."""

from collections.abc import Iterable, Iterator, Sequence

from driftscore.calibration import UNIT
from driftscore.classifier import Classifier
from driftscore.embedder import Embedded
from driftscore.events import Event, merge
from driftscore.formats import OutputRow, OutputValue
from driftscore.head import Head
from driftscore.result import Result, lead

EVENT_COLUMNS = ("file", "start_s", "end_s", "label", "score", "unit", "error")


def unit_of(head: Head) -> str:
    """Return the unit of a head's scores for the column `unit`: "sd", or "raw"."""
    return "sd" if head.standardised else "raw"


def score_title(head: Head) -> str:
    """Return the title of a table that says what its scores are."""
    return f"Scores: {UNIT}" if head.standardised else ""


def result_rows(
    results: Iterable[Result], threshold: float | None, unit: str, *, multi: bool, spans: bool
) -> Iterator[OutputRow]:
    """Yield one row per recording; as spans, one row for each of its labels."""
    if spans:
        yield from _span_rows(results, threshold, unit)
    elif multi or threshold is not None:
        yield from _score_rows(results, threshold, unit)
    else:
        yield from _best_rows(results, unit)


def _best_rows(results: Iterable[Result], unit: str) -> Iterator[OutputRow]:
    for result in results:
        best = result.best_two()  # once: an archive has 100,000 of these rows
        label, runner_up, *_ = [*(label for label, _ in best), "", ""]
        yield {
            "file": result.source,
            "label": label,
            "score": best[0][1] if best else "",
            "margin": lead(best) if best else "",
            "runner_up": runner_up,
            "unit": unit,
            "error": result.error,
        }


def _score_rows(
    results: Iterable[Result], threshold: float | None, unit: str
) -> Iterator[OutputRow]:
    for result in results:
        chosen = {} if threshold is None else {"labels": result.above(threshold)}
        scores: dict[str, str | float] = dict.fromkeys(result.labels, "")
        scores |= dict(result.ranking)
        row: dict[str, OutputValue] = {"file": result.source, **chosen, "scores": scores}
        yield row | {"unit": unit, "error": result.error}


def _span_rows(
    results: Iterable[Result], threshold: float | None, unit: str
) -> Iterator[OutputRow]:
    for result in results:
        scores = dict(result.ranking)
        chosen = [result.label] if threshold is None else result.above(threshold)
        for label in chosen:
            event = Event(label, 0.0, result.seconds, scores.get(label, 0.0))
            yield _event_row(result.source, event, unit, result.error)


def event_rows(
    classifier: Classifier, recordings: Iterable[Embedded], *, merged: bool
) -> Iterator[OutputRow]:
    """Yield the events of each recording, or its windows one by one."""
    unit = unit_of(classifier.head_)
    for embedded in recordings:
        if embedded.error:
            yield _event_row(embedded.source, Event("", 0.0, 0.0, 0.0), unit, embedded.error)
            continue
        segments = classifier.segments(embedded)
        # A window by itself is an event of one segment.
        parts = [segments] if merged else [[segment] for segment in segments]
        for part in parts:
            for event in merge(part, classifier.head_.labels, threshold=classifier.threshold):
                yield _event_row(embedded.source, event, unit)


def compared_rows(
    classifiers: Sequence[Classifier], recordings: Iterable[Embedded]
) -> Iterator[OutputRow]:
    """Yield the best labels of several rules side by side."""
    heads = {classifier.rule_.name: classifier.head_ for classifier in classifiers}
    for embedded in recordings:
        results = {
            name: Result(embedded.source)
            if embedded.error
            else Result(embedded.source, head.labels, head.scores(embedded.embedding)[0])
            for name, head in heads.items()
        }
        row: dict[str, OutputValue] = {"file": embedded.source}
        for name, result in results.items():
            row |= {name: result.label, f"{name} margin": "" if embedded.error else result.margin}
        agree = len({result.label for result in results.values()}) == 1
        same = "" if embedded.error else "yes" if agree else "NO"
        yield row | {"same": same, "error": embedded.error}


def _event_row(source: str, event: Event, unit: str, error: str = "") -> OutputRow:
    return {
        "file": source,
        "start_s": event.start_s,
        "end_s": event.end_s,
        "label": event.label,
        "score": event.score,
        "unit": unit,
        "error": error,
    }
