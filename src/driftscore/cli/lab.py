"""`driftscore lab ...` and `driftscore data ...`: parse, one call of the lab, print.

The main command imports this file only when one of the two is used. stdout is data, stderr
is talk; exit 0 done, 1 something failed, 2 wrong usage.
"""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from driftscore.errors import UsageError
from driftscore.formats import write_rows
from driftscore.lab import download
from driftscore.lab.datasets import dataset_names
from driftscore.lab.export import export as export_rows
from driftscore.lab.grid import Grid, canonical, keys, load_grid, measure, shipped_grids
from driftscore.lab.runner import missing, run
from driftscore.lab.store import Store
from driftscore.lab.validation import check

_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "pretty_exceptions_enable": False,
}
lab = typer.Typer(name="lab", help="Measure rules in noise, over a grid.", **_SETTINGS)
data = typer.Typer(name="data", help="Fetch and check datasets and noises.", **_SETTINGS)

GridName = Annotated[
    str, typer.Argument(metavar="GRID", help="A shipped grid (see `lab grids`) or a TOML file.")
]
StoreHome = Annotated[
    Path | None,
    typer.Option("--store", "-s", help="The results' folder; else $DRIFTSCORE_LAB or the cache."),
]
Backbones = Annotated[
    list[str] | None,
    typer.Option("--backbone", "-b", help="Use this model in place of the grid's; repeatable."),
]
Home = Annotated[Path | None, typer.Option("--home", help="The corpus's folder, if elsewhere.")]


def call(app: typer.Typer, arguments: list[str], name: str) -> None:
    """Run a sub-command with the arguments that the main command passed on."""
    code = app(args=arguments, prog_name=name, standalone_mode=False)
    if isinstance(code, int) and code:
        raise typer.Exit(code)


@lab.command("run")
def run_(
    grid: GridName,
    workers: Annotated[int, typer.Option("--workers", "-w", help="Processes at work.")] = 1,
    engine: Annotated[
        str, typer.Option("--engine", help="Where the work is done: local | ray.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option("--address", help="The Ray cluster's address, host:port.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Also fill rows with an error.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only count and estimate.")] = False,
    backbone: Backbones = None,
    store: StoreHome = None,
) -> None:
    """Fill every cell of a grid that has no row yet; safe to stop and to start again."""
    chosen = _grid(grid, backbone)
    with Store(store) as kept:
        if workers < 1:
            raise UsageError(f"--workers is one or more, not {workers}")
        _say(f"Checking {chosen.title}")
        facts = check(chosen)
        at_work = f"{workers} at work" if engine == "local" else "on one core"
        size = measure(chosen, facts, clip_s=kept.clip_costs())
        _say(
            f"{size.cells:,} cells in {size.conditions:,} conditions, {size.clips:,} clips to "
            f"hear, about {size.seconds / workers / 60:.0f} min from nothing ({at_work})"
        )
        if plan:
            return
        models = [part for spec in backbone or [] for part in ("--backbone", spec)]
        command = shlex.join(["driftscore", "lab", "run", grid, *models])
        note = {"title": chosen.title, "blocks": [dict(block) for block in chosen.blocks]}
        kept.put_json("grids", (chosen.name, command), note)
        outcome = run(
            chosen, kept, workers=workers, engine=engine, address=address, retry=retry,
            facts=facts, tell=_say,
        )  # fmt: skip
        failures = len(kept.failures())
    for line in dict.fromkeys(outcome.notes):
        _say(f"note: {line}")
    _say(
        f"{outcome.computed:,} rows computed, {outcome.already:,} were there, "
        f"{outcome.errors:,} with an error, in {outcome.seconds:.0f} s"
    )
    if failures:
        _say(f"{failures:,} clips could not be used in their conditions; the report lists them")
    if outcome.busy:
        _say(f"{outcome.busy:,} pieces of work are another run's; run again to see them done")
    if outcome.errors:
        raise typer.Exit(1)


@lab.command()
def status(
    grid: Annotated[
        str | None, typer.Argument(metavar="[GRID]", help="Count the rows of this grid only.")
    ] = None,
    backbone: Backbones = None,
    store: StoreHome = None,
) -> None:
    """Say how far the rows are."""
    with Store(store) as kept:
        if grid is None:
            rows = list(kept.rows())
            table = [
                {
                    "store": str(kept.home),
                    "rows": len(rows),
                    "errors": sum(bool(row.error) for row in rows),
                    "clips failed": len(kept.failures()),
                    "files": f"{_bytes(kept.home) / 1e6:.0f} MB",
                }
            ]
        else:
            chosen = _grid(grid, backbone)
            counts: dict[tuple[str, str], list[int]] = {}
            for condition, cells, there in missing(chosen, check(chosen), kept):
                pair = counts.setdefault((condition.backbone, condition.dataset), [0, 0])
                pair[0] += cells
                pair[1] += there
            table = [
                {"backbone": b, "dataset": d, "cells": cells, "rows": there}
                for (b, d), (cells, there) in counts.items()
            ]
    write_rows(table, "table", sys.stdout)


@lab.command()
def report(
    out: Annotated[Path, typer.Option("--out", "-o", help="An .html or .md file.")],
    grid: Annotated[
        str | None, typer.Option("--grid", help="Only the rows of this grid; else all.")
    ] = None,
    backbone: Backbones = None,
    store: StoreHome = None,
) -> None:
    """Write the page of tables and figures."""
    from driftscore.lab.report import write_report

    with Store(store) as kept:
        only = None
        if grid is not None:
            chosen = _grid(grid, backbone)
            only = frozenset(keys(chosen, check(chosen)))
        write_report(kept, out, only=only)
    _say(f"Report in {out}")


@lab.command()
def export(
    path: Annotated[Path, typer.Argument(help="rows.csv, rows.jsonl or rows.parquet.")],
    store: StoreHome = None,
) -> None:
    """Write all rows as a flat table."""
    with Store(store) as kept:
        count = export_rows(kept.rows(), path)
    _say(f"{count:,} rows in {path}")


@lab.command()
def grids() -> None:
    """List the grids that come with driftscore."""
    found = [load_grid(name) for name in shipped_grids()]
    rows = [{"grid": g.name, "cells": measure(g).cells, "what": g.title} for g in found]
    write_rows(rows, "table", sys.stdout)


@data.command("list")
def list_() -> None:
    """List the datasets and noises, and whether they are here."""
    rows = []
    for name in download.corpus_names():
        about = download.find_corpus(name).ABOUT
        kind = "dataset" if name in dataset_names() else "noise"
        rows.append({"name": name, "kind": kind, "here": _here(name), "what": about.title})
    write_rows(rows, "table", sys.stdout)


@data.command()
def get(
    name: Annotated[str, typer.Argument(help="A dataset or noise: see `data list`.")],
    home: Home = None,
    mirror: Annotated[
        str | None, typer.Option("--mirror", help="A server that holds the same paths.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the archives.")] = False,
) -> None:
    """Fetch a corpus from its official source; what is there is not fetched again."""
    about = download.find_corpus(name).ABOUT
    _say(f"{about.title}\nlicence: {about.licence}\n{about.citation}")
    folder = download.get(name, home, mirror=mirror, keep=keep)
    _say(f"{about.title} is complete in {folder}")


@data.command("check")
def check_(
    name: Annotated[str, typer.Argument(help="A dataset or noise: see `data list`.")],
    home: Home = None,
) -> None:
    """Say what a corpus's folder lacks, one a line."""
    lacking = download.check(name, home)
    for line in lacking:
        print(line)
    if lacking:
        _say(f"{len(lacking):,} missing; fetch them: driftscore data get {name}")
        raise typer.Exit(1)
    _say(f"{name} is complete")


def _grid(name: str, backbones: list[str] | None) -> Grid:
    """Return a grid, with other models in place of its own if they are given."""
    chosen = load_grid(name)
    if not backbones:
        return chosen
    blocks = tuple({**block, "backbones": list(backbones)} for block in chosen.blocks)
    unique = {canonical(block): block for block in map(dict, blocks)}
    return replace(chosen, blocks=tuple(json.loads(key) for key in unique))


def _here(name: str) -> str:
    try:
        return "no" if download.check(name) else "yes"
    except UsageError:
        return "no"


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _say(text: str) -> None:
    print(text, file=sys.stderr)
