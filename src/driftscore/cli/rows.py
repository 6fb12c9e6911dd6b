"""Results as rows for the output formats: the same keys in the same order in every row."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from driftscore.calibration import UNIT
from driftscore.classifier import Classifier
from driftscore.cli.reporting import Tally
from driftscore.clock import Start
from driftscore.decoding import stated_rate
from driftscore.detector import Detector
from driftscore.embedder import Embedded
from driftscore.errors import DriftscoreError
from driftscore.events import Event
from driftscore.formats import OutputRow, OutputValue
from driftscore.head import Head
from driftscore.result import Result, ResultBlock

EVENT_COLUMNS = ("file", "start_s", "end_s", "time", "label", "score", "threshold", "level_db",
                 "snr_db", "unit", "error")  # fmt: skip


def unit_of(head: Head) -> str:
    """Return the unit of a head's scores for the column `unit`: "sd", or "raw"."""
    return "sd" if head.standardised else "raw"


def score_title(head: Head) -> str:
    """Return the title of a table that says what its scores are."""
    return f"Scores: {UNIT}" if head.standardised else ""


def result_rows(
    blocks: Iterable[ResultBlock], threshold: float | None, unit: str, *, multi: bool, spans: bool
) -> Iterator[OutputRow]:
    """Yield one row per recording; as spans, one row for each of its labels."""
    if spans:
        yield from _span_rows(chain.from_iterable(blocks), threshold, unit)
    elif multi or threshold is not None:
        yield from _score_rows(chain.from_iterable(blocks), threshold, unit)
    else:
        yield from _best_rows(blocks, unit)


def _best_rows(blocks: Iterable[ResultBlock], unit: str) -> Iterator[OutputRow]:
    for block in blocks:
        best = block.best()
        for source, error in zip(block.sources, block.errors, strict=True):
            label, score, margin, runner_up = ("", "", "", "") if error else next(best)
            yield {
                "file": source,
                "label": label,
                "score": score,
                "margin": margin,
                "runner_up": runner_up,
                "unit": unit,
                "error": error,
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


@dataclass(frozen=True)
class EventRows:
    """Makes the rows of events; all have the same keys."""

    unit: str
    lengths: bool = False
    """Whether a row also has the length of its recording, which is known at its end."""

    def event(self, source: str, event: Event, start: Start | None = None) -> OutputRow:
        """Return the row of an event."""
        return _event_row(source, event, self.unit, start=start)

    def of_recording(
        self, source: str, events: Sequence[Event], start: Start | None, seconds: float
    ) -> Iterator[OutputRow]:
        """Yield the rows of all events of a recording; one without a label if there is none."""
        length = {"duration_s": seconds, "rate": stated_rate(source)}
        for event in events or [NO_EVENT]:
            yield {**self.event(source, event, start), **length}

    def failed(self, source: str, reason: str) -> OutputRow:
        """Return the row of a recording that could not be used."""
        length = {"duration_s": 0.0, "rate": None} if self.lengths else {}
        unknown = {"start_s": "", "end_s": "", "score": ""}
        return {**_event_row(source, NO_EVENT, self.unit, reason), **unknown, **length}


NO_EVENT = Event("", 0.0, 0.0, 0.0)


def window_rows(detector: Detector, recordings: Iterable[str], tally: Tally) -> Iterator[OutputRow]:
    """Yield one row per window: its best label with its score."""
    rows = EventRows(unit_of(detector.head))
    embedder, names = detector.embedder, detector.watch.names
    for recording in recordings:
        try:
            for start_s, end_s, row in embedder.slide(
                recording, window_s=detector.window_s, hop_s=detector.hop_s
            ):
                scores = detector.head.scores(row)[0, : len(names)]
                best = int(scores.argmax())
                event = Event(names[best], start_s, end_s, float(scores[best]))
                yield rows.event(recording, event)
        except DriftscoreError as error:
            tally.fail(str(error))
            yield rows.failed(recording, str(error))


def judged_rows(
    detector: Detector, recordings: Iterable[Embedded], unit: str
) -> Iterator[OutputRow]:
    """Yield one row per recording, without a label where none fits."""
    for embedded in recordings:
        if embedded.error:
            result = Result(embedded.source, detector.watch.names, error=embedded.error)
        else:
            result = detector.judge(embedded.source, embedded.embedding, embedded.seconds)
        ranked = result.ranking
        scores = dict(ranked)
        others = [name for name, _ in ranked if name != result.label]
        yield {
            "file": result.source,
            "label": result.label,
            "score": scores.get(result.label, ""),
            "nearest": others[0] if others else "",
            "nearest_score": scores[others[0]] if others else "",
            "unit": unit,
            "error": result.error,
        }


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


def _event_row(
    source: str, event: Event, unit: str, error: str = "", start: Start | None = None
) -> OutputRow:
    return {
        "file": source,
        "start_s": event.start_s,
        "end_s": event.end_s,
        "time": "" if start is None else start.text_at(event.start_s),
        "label": event.label,
        "score": event.score,
        "threshold": _known(event.threshold),
        "level_db": _known(event.level_db),
        "snr_db": _known(event.snr_db),
        "unit": unit,
        "error": error,
    }


def _known(value: float | None) -> float | str:
    return "" if value is None else value
