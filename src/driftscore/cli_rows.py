"""What was heard, as rows: plain dicts with the same keys in the same order, for `formats`."""

from collections.abc import Iterable, Iterator

from driftscore.classifier import Classifier
from driftscore.engines import Heard
from driftscore.formats import Row
from driftscore.result import Result, lead
from driftscore.timeline import Event, merge


def result_rows(
    results: Iterable[Result], threshold: float | None, *, multi: bool, spans: bool
) -> Iterator[Row]:
    """Yield a row a recording; as spans, a row for each of its labels."""
    for result in results:
        if spans:
            scores = dict(result.ranking)
            chosen = [result.label] if threshold is None else result.above(threshold)
            for label in chosen:
                event = Event(label, 0.0, result.seconds, scores.get(label, 0.0))
                yield _event_row(result.source, event, result.error)
        elif multi or threshold is not None:
            heard = {} if threshold is None else {"labels": result.above(threshold)}
            every = dict.fromkeys(result.labels, "") | dict(result.ranking)
            yield {"file": result.source, **heard, "scores": every, "error": result.error}
        else:
            best = result.best_two()  # once: an archive has 100,000 of these rows
            label, runner_up, *_ = [*(label for label, _ in best), "", ""]
            yield {
                "file": result.source,
                "label": label,
                "score": best[0][1] if best else "",
                "margin": lead(best) if best else "",
                "runner_up": runner_up,
                "error": result.error,
            }


def timeline_rows(ears: Classifier, recordings: Iterable[Heard], *, merged: bool) -> Iterator[Row]:
    """Yield the events of each recording, or its windows one by one."""
    for heard in recordings:
        if heard.error:
            yield _event_row(heard.source, Event("", 0.0, 0.0, 0.0), heard.error)
            continue
        line = ears.stretches(heard)
        # A window by itself is an event that nothing was merged into.
        parts = [line] if merged else [[stretch] for stretch in line]
        for part in parts:
            for event in merge(part, ears.head_.labels, threshold=ears.threshold):
                yield _event_row(heard.source, event)


def compared_rows(ears: Classifier, rule: str, recordings: Iterable[Heard]) -> Iterator[Row]:
    """Yield the best label of two rules side by side; the audio is embedded once."""
    second = Classifier(**{**ears.get_params(), "rule": rule, "backbone": ears.backbone_}).fit()
    heads = {ears.rule: ears.head_, rule: second.head_}
    for heard in recordings:
        row: Row = {"file": heard.source}
        results = {
            name: Result(heard.source)
            if heard.error
            else Result(heard.source, head.labels, head.scores(heard.embedding)[0])
            for name, head in heads.items()
        }
        for name, result in results.items():
            row |= {name: result.label, f"{name} margin": "" if heard.error else result.margin}
        agree = len({result.label for result in results.values()}) == 1
        same = "" if heard.error else "yes" if agree else "NO"
        yield row | {"same": same, "error": heard.error}


def _event_row(source: str, event: Event, error: str = "") -> Row:
    return {
        "file": source,
        "start_s": event.start_s,
        "end_s": event.end_s,
        "label": event.label,
        "score": event.score,
        "error": error,
    }
