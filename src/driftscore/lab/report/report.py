"""The report: what was found, tables in the paper's layout, figures.

If any rule is better than DAS, the page says so first. It is made from the store alone, so it can
be written wherever the store was copied to.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from driftscore.errors import StoreError, UsageError
from driftscore.lab.conditions import COSINE
from driftscore.lab.report import detections, findings
from driftscore.lab.report.figures import detection_figure, figures
from driftscore.lab.report.page import Paragraph, Part, Section, write_page
from driftscore.lab.report.results import Results
from driftscore.lab.report.tables import all_tables
from driftscore.lab.runs.store import Store
from driftscore.storage.files import is_url
from driftscore.version import __version__

SUFFIXES = (".html", ".htm", ".md", ".markdown")
SHOWN_RIVALS = 6  # rivals named in sentences; all of them are in the table
_TABLES = (
    "Same layout as the paper (Vo, Zaheer and Park, 2026), filled with what was measured here. "
    "Lines marked as the paper's are its printed figures, on its own data and models: they are "
    "shown for orientation and are not a reproduction."
)
_METHOD = (
    "Additive mixing sets the power ratio over the event's active part; Scaper mixing sets a "
    "difference of loudness in a soundscape of 10 s. The two SNRs are different numbers.",
    "ZS-A-m is given 200 excerpts of 10 s drawn from the noise corpus; TGAP the 10 nearest clean "
    "clips of the dataset, the clean version of the test clip among them; ZS-T-m the true "
    "environment of each clip. Noise that contains a clip's class is never mixed into it.",
    "Our 52 noise phrases and 4 templates are a reconstruction: the paper prints five phrases and "
    "one template. Values pool all seeds; mAP ranks all mixes of a condition together.",
)


def write_report(store: Store, out: str | Path, *, only: Collection[str] | None = None) -> None:
    """Write the report as HTML or Markdown, by the suffix of `out`; `only` are keys of cells."""
    target = Path(out)
    if is_url(out):
        raise UsageError(f"A report is written to a file of this machine, not to {out}")
    if target.suffix.lower() not in SUFFIXES:
        raise UsageError(f"Unsupported format {target.suffix!r}: use .html or .md")
    results = Results(store, only=only)
    events, failed = detections.read_detections(store, only=only)
    if not (results.rows or events or failed):
        if store.damage:
            raise StoreError(store.damage_in_words)
        raise UsageError(
            f"The store {store.home} has no rows to report; run a grid first: driftscore lab run"
        )
    title, page = "Events in long recordings", []
    if results.rows:
        title, page = "What noise does to zero-shot audio labels", sections(results)
    if events or failed:
        page.append(event_section(store, events, failed))
    scenes = [r.scene for r in results.all] + [e.scene for e in events]
    names = {
        "datasets": {dataset for dataset, _ in scenes},
        "models": {model for _, model in scenes},
        "noise corpora": {r.condition.noise for r in results.all if r.condition.noise},
    }
    listed = "; ".join(
        f"{what}: {', '.join(sorted(values))}" for what, values in names.items() if values
    )
    origin = f"driftscore {__version__}, {datetime.now(UTC).date().isoformat()}"
    lead = f"Drift-Augmented Scoring and its rivals, measured. {listed}. {origin}."
    write_page(title, lead, page, target)


def sections(results: Results) -> list[Section]:
    """Return the page about labels."""
    embedded = [r for r in results.all if r.scoring == COSINE]
    sizes = []
    for dataset in dict.fromkeys(r.condition.dataset for r in embedded):
        here = [r for r in embedded if r.condition.dataset == dataset]
        mixes, clips = sum(r.mixes for r in here), max(r.clips for r in here)
        sizes.append(f"{mixes:,} recordings and mixes of {clips:,} clips of {dataset}")
    commands = [f"`{command}`" for _, command in results.store.all_json("grids")]
    by = f" by {' and '.join(commands)}" if commands else ""
    origin = Paragraph((f"From {'; '.join(sizes)}, over all models{by}.",))

    rivals = findings.rivals(results)
    clear = [rival.sentence for rival in rivals if rival.gap.clear]
    texts = ["No rule measured here is clearly better than DAS by an interval that excludes zero."]
    if results.das() is None:
        texts = ["DAS with the paper's settings has no rows here."]
    elif clear:
        texts = ["Clearly better than DAS in noise, by an interval that excludes zero:"]
    texts += clear[:SHOWN_RIVALS]
    if len(clear) > SHOWN_RIVALS:
        texts.append(f"And {len(clear) - SHOWN_RIVALS} more, in the table.")
    above: list[Part] = [Paragraph(tuple(texts), strong=True)]
    above += [findings.rival_table(rivals)] if rivals else []

    gains: tuple[Part, ...] = (origin, findings.gain_table(results), *figures(results))
    failures = findings.failure_tables(results)
    tables: tuple[Part, ...] = (Paragraph((_TABLES,)), origin, *all_tables(results))
    return [
        Section("What beats DAS", tuple(above)),
        Section("Every rule in noise", (origin, findings.overview_table(results))),
        Section("What DAS gains", gains),
        Section("The paper's tables with our rows", tables),
        Section("How it was made", (Paragraph(tuple(_method(results))), *failures)),
    ]


def event_section(
    store: Store, events: Sequence[detections.DetectionResult], failed: Sequence[str]
) -> Section:
    """Return the section about events in long recordings."""
    datasets = {event.scene[0] for event in events}
    commands = [
        f"`{command}`"
        for (_, command), content in store.all_json("grids").items()
        if any(datasets & set(block["datasets"]) for block in content["blocks"])  # type: ignore[attr-defined]
    ]
    parts: list[Part] = [Paragraph((detections.HOW,))]
    if commands:
        parts.append(Paragraph((f"By {' and '.join(commands)}.",)))
    if events:
        parts += [detections.detection_table(events), *detection_figure(events)]
    if failed:
        parts.append(Paragraph(("Rows with an error:", *failed), strong=True))
    return Section("Events in long recordings", tuple(parts))


def _method(results: Results) -> Iterator[str]:
    for (name, command), content in results.store.all_json("grids").items():
        title = content.get("title")
        titled = f" ({title})" if isinstance(title, str) else ""
        yield f"Grid {name}{titled}: `{command}`, then `driftscore lab report`."
    failed, errors = len(results.store.failures()), len(results.errors)
    yield f"{len(results.rows):,} rows, {errors} with an error; {failed} clips could not be used."
    yield "Every row with its interval: `driftscore lab export rows.csv`."
    sizes = {(r.condition.dataset, r.clips) for r in results.all}
    clips = ", ".join(f"{dataset} {clips} clips" for dataset, clips in sorted(sizes))
    seeds = sorted({s for r in results.rows if (s := r.cell.condition.seed) is not None})
    yield f"Data: {clips}. Seeds {', '.join(map(str, seeds)) or 'none'}: each draws other noise."
    yield from _METHOD
    versions = {row.versions for row in results.rows}
    yield f"Versions: {'; '.join(sorted(versions))}."
