"""`driftscore lab ...`: parse, one call of the lab, print.

stdout is data, stderr is messages; exit 0 done, 1 something failed, 2 wrong usage.
"""

import shlex
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from driftscore.backbones import load_backbone
from driftscore.cli.reporting import counted, say
from driftscore.cli.soundscape import soundscape
from driftscore.errors import UsageError
from driftscore.files import output_folder
from driftscore.formats import OutputRow, write_rows
from driftscore.lab.runs.export import export as export_rows
from driftscore.lab.runs.grid import Grid, keys, load_grid, measure, shipped_grids
from driftscore.lab.runs.mixes import read_mixes, write_audio, write_mixes
from driftscore.lab.runs.runner import Outcome, missing, mixes, run
from driftscore.lab.runs.scorings import Facts
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.validation import check, look_ahead

app = typer.Typer(
    name="lab",
    help="Measure rules in noise, over a grid.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(soundscape)

GridName = Annotated[
    str, typer.Argument(metavar="GRID", help="A shipped grid (see `lab grids`) or a TOML file.")
]
StoreHome = Annotated[
    Path | None,
    typer.Option(
        "--store", "-s", help="The folder of the results; default: $DRIFTSCORE_LAB or the cache."
    ),
]
Backbones = Annotated[
    list[str] | None,
    typer.Option("--backbone", "-b", help="Use this model instead of the grid's; repeatable."),
]


@app.command("run")
def run_(
    grid: GridName,
    workers: Annotated[int, typer.Option("--workers", "-w", help="Number of processes.")] = 1,
    engine: Annotated[
        str, typer.Option("--engine", help="Where the work is done: local | ray.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option("--address", help="The address of the Ray cluster, host:port.")
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Also compute rows with an error again.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only count and estimate.")] = False,
    backbone: Backbones = None,
    store: StoreHome = None,
) -> None:
    """Compute every cell of a grid that has no row yet; it can be stopped and started again."""
    chosen = _grid(grid, backbone)
    if workers < 1:
        raise UsageError(f"--workers must be at least 1, got {workers}")
    with Store(store) as opened:
        if plan:
            ahead = look_ahead(chosen)
            for line in ahead.found:
                say(line)
            say(_size(chosen, ahead.facts, opened, workers=workers, engine=engine))
            for line in ahead.missing:
                say(f"missing, and not counted: {line}")
            return
        say(f"Checking {chosen.title}")
        facts = check(chosen)
        say(_size(chosen, facts, opened, workers=workers, engine=engine))
        models = [part for spec in backbone or [] for part in ("--backbone", spec)]
        command = shlex.join(["driftscore", "lab", "run", grid, *models])
        blocks = [{**block.axes, "limit": block.limit} for block in chosen.blocks]
        note = {"title": chosen.title, "blocks": blocks}
        opened.put_json("grids", (chosen.name, command), note)
        outcome = run(
            chosen, opened, workers=workers, engine=engine, address=address, retry=retry,
            facts=facts, report=say,
        )  # fmt: skip
        failures = len(opened.failures())
    _print_outcome(outcome, failures)
    if outcome.errors:
        raise typer.Exit(1)


@app.command()
def status(
    grid: Annotated[
        str | None, typer.Argument(metavar="[GRID]", help="Count the rows of this grid only.")
    ] = None,
    backbone: Backbones = None,
    store: StoreHome = None,
) -> None:
    """Count the rows that are stored."""
    with Store(store) as opened:
        if grid is None:
            rows = list(opened.rows())
            summary: OutputRow = {
                "store": str(opened.home),
                "rows": len(rows),
                "errors": sum(bool(row.error) for row in rows),
                "clips failed": len(opened.failures()),
                "files": f"{_bytes(opened.home) / 1e6:.0f} MB",
            }
            write_rows([summary], "table", sys.stdout)
            _end_with_damage(opened)
            return
        chosen = _grid(grid, backbone)
        counts: dict[tuple[str, str], list[int]] = {}
        for condition, cells, stored in missing(chosen, check(chosen), opened):
            pair = counts.setdefault((condition.backbone, condition.dataset), [0, 0])
            pair[0] += cells
            pair[1] += stored
        table: list[OutputRow] = [
            {"backbone": model, "dataset": dataset, "cells": cells, "rows": stored}
            for (model, dataset), (cells, stored) in counts.items()
        ]
        write_rows(table, "table", sys.stdout)
        _end_with_damage(opened)


@app.command()
def report(
    out: Annotated[str, typer.Option("--out", "-o", help="An .html or .md file.")],
    grid: Annotated[
        str | None, typer.Option("--grid", help="Only the rows of this grid; default: all.")
    ] = None,
    backbone: Backbones = None,
    store: StoreHome = None,
) -> None:
    """Write the page of tables and figures."""
    from driftscore.lab.report.report import write_report

    with Store(store) as opened:
        only = None
        if grid is not None:
            chosen = _grid(grid, backbone)
            only = frozenset(keys(chosen, check(chosen)))
        write_report(opened, out, only=only)
        say(f"Report in {out}")
        _end_with_damage(opened)


@app.command()
def export(
    path: Annotated[str, typer.Argument(help="rows.csv, rows.jsonl or rows.parquet.")],
    store: StoreHome = None,
) -> None:
    """Write all rows as a flat table."""
    with Store(store) as opened:
        count = export_rows(opened.rows(), path)
        say(f"{count:,} rows in {path}")
        _end_with_damage(opened)


@app.command("mixes")
def mixes_(
    grid: GridName,
    out: Annotated[str, typer.Option("--out", "-o", help="The file to write, mixes.jsonl.")],
    backbone: Backbones = None,
) -> None:
    """Write the record of every mix of a grid: one JSON line per clip and noisy condition."""
    chosen = _grid(grid, backbone)
    rates = cache(lambda name: load_backbone(name).rate)
    count = write_mixes(mixes(chosen, check(chosen), rates), out)
    say(f"{count:,} mixes in {out}")


@app.command()
def rebuild(
    file: Annotated[Path, typer.Argument(help="A file of `lab mixes`.")],
    out: Annotated[str, typer.Option("--out", "-o", help="The folder of the wav files.")],
) -> None:
    """Build mixes from their records and write them as wav files; print one path per line."""
    failed, folder = 0, output_folder(out)
    for saved in read_mixes(file):
        if saved.record is None:
            failed += 1
            say(f"{saved.clip}: {saved.error}")
        else:
            print(write_audio(saved, folder))
    if failed:
        raise typer.Exit(1)


@app.command()
def grids() -> None:
    """List the grids that come with driftscore."""
    found = [load_grid(name) for name in shipped_grids()]
    rows: list[OutputRow] = [
        {"grid": g.name, "cells": measure(g).cells, "what": g.title} for g in found
    ]
    write_rows(rows, "table", sys.stdout)


def _grid(name: str, backbones: list[str] | None) -> Grid:
    """Return a grid, with other models instead of its own if they are given."""
    chosen = load_grid(name)
    return chosen.with_backbones(backbones) if backbones else chosen


def _size(grid: Grid, facts: Facts, store: Store, *, workers: int, engine: str) -> str:
    """Return the size of a grid and an estimate in words."""
    size = measure(grid, facts, clip_s=store.clip_costs())
    on = f"{workers} workers" if engine == "local" and workers > 1 else "one core"
    return (
        f"{counted(size.cells, 'cell')} in {counted(size.conditions, 'condition')}, "
        f"{counted(size.clips, 'clip')} to embed, "
        f"about {_duration(size.seconds / workers)} for all of it on {on}"
    )


def _duration(seconds: float) -> str:
    """Return a time in words, in a unit that fits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"


def _end_with_damage(store: Store) -> None:
    """If some of the store could not be used, say so and end with status 1."""
    if store.damage:
        say(f"warning: {store.damage_in_words}")
        raise typer.Exit(1)


def _print_outcome(outcome: Outcome, failures: int) -> None:
    for line in dict.fromkeys(outcome.notes):
        say(f"note: {line}")
    say(
        f"{outcome.computed:,} rows computed, {outcome.already:,} stored before, "
        f"{outcome.errors:,} with an error, in {outcome.seconds:.0f} s"
    )
    if failures:
        say(f"{failures:,} clips could not be used in their conditions; see the report")


def _bytes(folder: Path) -> int:
    """Return the size of the files in a folder; one that a run removes meanwhile counts as none."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total
