"""The report: what was found, tables in the paper's layout, figures.

If any rule is better than DAS, the page says so first. It is made from the store alone, so it can
be written wherever the store was copied to.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from driftscore.errors import StoreError, UsageError
from driftscore.files import is_url
from driftscore.lab.conditions import COSINE
from driftscore.lab.report import findings
from driftscore.lab.report.detections import (
    HOW,
    DetectionResult,
    detection_table,
    failed_detections,
    read_detections,
)
from driftscore.lab.report.figures import detection_figure, figures
from driftscore.lab.report.headings import das_of
from driftscore.lab.report.numbers import points
from driftscore.lab.report.overview import overview_table
from driftscore.lab.report.page import write_page
from driftscore.lab.report.parts import Collapsed, Heading, PagePart, Paragraph, Tiles
from driftscore.lab.report.results import Results
from driftscore.lab.report.tables import all_tables
from driftscore.lab.runs.store import Store
from driftscore.version import __version__

SUFFIXES = (".html", ".htm", ".md", ".markdown")
_RIVALS = 6  # rivals named in sentences; all of them are in the table
_TABLES = (
    "Same layout as the paper (Vo, Zaheer and Park, 2026), filled with what was measured here. "
    "Lines marked as the paper's are its printed figures, on its own data and models: they are "
    "shown for orientation and are not a reproduction."
)


def write_report(store: Store, out: str | Path, *, only: Collection[str] | None = None) -> None:
    """Write the report as HTML or Markdown, by the suffix of `out`; `only` are keys of cells."""
    target = Path(out)
    if is_url(out):
        raise UsageError(f"A report is written to a file of this machine, not to {out}")
    if target.suffix.lower() not in SUFFIXES:
        raise UsageError(f"Unsupported format {target.suffix!r}: use .html or .md")
    results = Results(store, only=only)
    events = read_detections(store, only=only)
    failed = failed_detections(store, only=only)
    if not (results.rows or events or failed):
        if store.damage:
            raise StoreError(store.damage_in_words)
        raise UsageError(
            f"The store {store.home} has no rows to report; run a grid first: driftscore lab run"
        )
    title = "What noise does to zero-shot audio labels"
    if not results.rows:
        title = "Events in long recordings"
    found = parts(results) if results.rows else []
    found += event_parts(store, events, failed)
    write_page(title, _lead(results, events), found, target)


def parts(results: Results) -> list[PagePart]:
    """Return the page, section by section."""
    found: list[PagePart] = [Heading("What beats DAS"), *_rivals(results)]
    found.append(Tiles(tuple(_tiles(results))))
    origin = Paragraph((_origin(results),))
    found += [Heading("Every rule in noise"), origin, overview_table(results)]
    found += [Heading("What DAS gains"), origin, findings.gain_table(results), *figures(results)]
    if (classes := findings.class_table(results)) is not None:
        found.append(Collapsed(classes))
    found += [Heading("Advice"), Paragraph(tuple(findings.advice(results)))]
    found += [Heading("The paper's tables with our rows"), Paragraph((_TABLES,)), origin]
    found += [*all_tables(results), Heading("Every result"), origin]
    found.append(Collapsed(findings.rows_table(results)))
    if (failures := findings.failure_table(results)) is not None:
        found.append(Collapsed(failures))
    found += [Heading("How it was made"), Paragraph(tuple(_method(results)))]
    return found


def event_parts(
    store: Store, events: Sequence[DetectionResult], failed: Sequence[str]
) -> list[PagePart]:
    """Return the section about events in long recordings; nothing without a row about them."""
    if not events and not failed:
        return []
    datasets = {event.scene[0] for event in events}
    commands = [
        f"`{command}`"
        for (_, command), content in store.all_json("grids").items()
        if any(datasets & set(block["datasets"]) for block in content["blocks"])  # type: ignore[attr-defined]
    ]
    by = (f"By {' and '.join(commands)}.",) if commands else ()
    found: list[PagePart] = [Heading("Events in long recordings"), Paragraph((HOW,))]
    found += [Paragraph(by)] if by else []
    if events:
        found.append(detection_table(events))
    if (figure := detection_figure(events)) is not None:
        found.append(figure)
    if failed:
        found.append(Paragraph(("Rows with an error:", *failed), strong=True))
    return found


def _lead(results: Results, events: Sequence[DetectionResult]) -> str:
    scenes = [(r.dataset, r.backbone) for r in results.all] + [e.scene for e in events]
    names = {
        "datasets": {dataset for dataset, _ in scenes},
        "models": {model for _, model in scenes},
        "noise corpora": {r.noise for r in results.all if r.noise},
    }
    listed = "; ".join(
        f"{what}: {', '.join(sorted(values))}" for what, values in names.items() if values
    )
    day = datetime.now(UTC).date().isoformat()
    made = f"driftscore {__version__}, {day}"
    return f"Drift-Augmented Scoring and its rivals, measured. {listed}. {made}."


def _origin(results: Results) -> str:
    """Return how much was embedded, and by which command."""
    embedded = [r for r in results.all if r.scoring == COSINE]
    sizes = []
    for dataset in dict.fromkeys(r.dataset for r in embedded):
        rows = [r for r in embedded if r.dataset == dataset]
        mixes, clips = sum(r.mixes for r in rows), max(r.clips for r in rows)
        sizes.append(f"{mixes:,} recordings and mixes of {clips:,} clips of {dataset}")
    commands = [f"`{command}`" for _, command in results.store.all_json("grids")]
    by = f" by {' and '.join(commands)}" if commands else ""
    return f"From {'; '.join(sizes)}, over all models{by}."


def _tiles(results: Results) -> Iterator[tuple[str, str, str]]:
    das = das_of(results)
    for scene in findings.scenes(results) if das else []:
        rows = [r for r in findings.noisy(results, scene) if r.scoring == das]
        found = results.difference([(r.place, r.scoring, COSINE) for r in rows])
        if found:
            metric = rows[0].metric
            what = f"points of {metric} by DAS over cosine in noise: {scene[0]}, {scene[1]}"
            within = f"95 % interval {points(found).partition(' ')[2]}"
            yield f"{100 * found.difference:+.1f}", what, within
    mixes = sum(r.mixes for r in results.all if r.scoring == COSINE)
    failed = len(results.store.failures())
    yield f"{len(results.rows):,}", "rows", f"{len(results.errors)} with an error"
    yield f"{mixes:,}", "mixes embedded", f"{failed} clips could not be used"


def _rivals(results: Results) -> list[PagePart]:
    """Return what is above DAS, clear differences first; or that nothing is."""
    if das_of(results) is None:
        return [Paragraph(("DAS with the paper's settings has no rows here.",), strong=True)]
    found = findings.rivals(results)
    clear = [rival.sentence for rival in found if rival.clear]
    first = (
        "Clearly better than DAS in noise, by an interval that excludes zero:"
        if clear
        else "No rule measured here is clearly better than DAS by an interval that excludes zero."
    )
    more = [f"And {len(clear) - _RIVALS} more, in the table."] if len(clear) > _RIVALS else []
    listed: list[PagePart] = [Paragraph((first, *clear[:_RIVALS], *more), strong=True)]
    return [*listed, findings.rival_table(found)] if found else listed


def _method(results: Results) -> Iterator[str]:
    for (name, command), content in results.store.all_json("grids").items():
        title = content.get("title")
        titled = f" ({title})" if isinstance(title, str) else ""
        yield f"Grid {name}{titled}: `{command}`, then `driftscore lab report`."
    sizes = {(r.dataset, r.clips) for r in results.all}
    clips = ", ".join(f"{dataset} {clips} clips" for dataset, clips in sorted(sizes))
    seeds = sorted({s for r in results.rows if (s := r.cell.condition.seed) is not None})
    yield f"Data: {clips}. Seeds {', '.join(map(str, seeds)) or 'none'}: each draws other noise."
    yield (
        "Additive mixing sets the power ratio over the event's active part; Scaper mixing sets a "
        "difference of loudness in a soundscape of 10 s. The two SNRs are different numbers."
    )
    yield (
        "ZS-A-m is given 200 excerpts of 10 s drawn from the noise corpus; TGAP the 10 nearest "
        "clean clips of the dataset, the clean version of the test clip among them; ZS-T-m the "
        "true environment of each clip. Noise that contains a clip's class is never mixed into it."
    )
    yield (
        "Our 52 noise phrases and 4 templates are a reconstruction: the paper prints five phrases "
        "and one template. Values pool all seeds; mAP ranks all mixes of a condition together."
    )
    versions = {row.stamp.versions for row in results.rows}
    yield f"Versions: {'; '.join(sorted(versions))}."
