"""`driftscore lab ...`: parse, one call of the lab, print.

stdout is data, stderr is messages; exit 0 done, 1 something failed, 2 wrong usage.
"""

import shlex
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import click

from driftscore.backbones import load_backbone
from driftscore.cli.app import app
from driftscore.cli.options import FILE, WholeNumber, search_current_folder
from driftscore.cli.output import counted, say
from driftscore.errors import UsageError
from driftscore.formats import OutputRow, write_rows
from driftscore.lab.corpora.datasets import find_dataset
from driftscore.lab.corpora.noises import find_noise
from driftscore.lab.corpora.soundscapes.draw import Material, draw
from driftscore.lab.corpora.soundscapes.render import check_target, write_soundscape
from driftscore.lab.corpora.soundscapes.truth import SoundscapeRecipe, read_soundscape, truth_path
from driftscore.lab.runs.export import export as export_rows
from driftscore.lab.runs.grid import Grid, keys, load_grid, measure, shipped_grids
from driftscore.lab.runs.mixes import read_mixes, write_audio, write_mixes
from driftscore.lab.runs.runner import duration, missing, mixes, run
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.validation import check
from driftscore.storage.files import check_output, output_folder
from driftscore.system.process import Interrupted


@app.group()
def lab() -> None:
    """Measure rules in noise over a grid.

    $ driftscore lab run panel --plan
    $ driftscore lab report --out report.html
    """


_store = click.option(
    "--store", "-s", type=FILE,
    help="The folder of the results; default: $DRIFTSCORE_LAB or the cache.",
)  # fmt: skip
_backbones = click.option(
    "--backbone",
    "-b",
    multiple=True,
    help="Use this model instead of the grid's, in the blocks that name it if some do; repeatable.",
)


@lab.command("run")
@click.argument("grid")
@click.option("--workers", "-w", type=WholeNumber(1), default=1, help="Number of processes.")
@click.option("--engine", default="local",
              help="Where the work is done: local, ray or ray:HOST:PORT.")  # fmt: skip
@click.option("--retry", is_flag=True, help="Also compute rows with an error again.")
@click.option("--plan", is_flag=True, help="Only count and estimate.")
@_backbones
@_store
def run_(
    grid: str,
    workers: int,
    engine: str,
    retry: bool,
    plan: bool,
    backbone: tuple[str, ...],
    store: Path | None,
) -> None:
    """Compute every cell of a grid that has no row yet; it can be stopped and started again.

    GRID is a shipped grid (see `lab grids`) or a TOML file.

    $ driftscore lab run panel --plan
    $ driftscore lab run panel --workers 4
    """
    engine, _, address = engine.partition(":")
    chosen = _grid(grid, backbone)
    with Store(store) as opened:
        if not plan:
            say(f"Checking {chosen.title}")
        facts = check(chosen, plan=plan)
        for line in facts.corpora.values() if plan else ():
            say(line)
        size = measure(chosen, facts, clip_s=opened.clip_costs())
        on = f"{workers} workers" if engine == "local" and workers > 1 else "one core"
        say(
            f"{counted(size.cells, 'cell')} in {counted(size.conditions, 'condition')}, "
            f"{counted(size.clips, 'clip')} to embed, "
            f"about {duration(size.seconds / workers)} for all of it on {on}"
        )
        if plan:
            for line in facts.missing:
                say(f"missing: {line}")
            if facts.missing:
                say("a missing dataset is counted as published; `driftscore data get NAME` gets it")
            return
        models = [part for spec in backbone for part in ("--backbone", spec)]
        command = shlex.join(["driftscore", "lab", "run", grid, *models])
        blocks = [{**block.axes, "limit": block.limit} for block in chosen.blocks]
        note = {"title": chosen.title, "blocks": blocks}
        opened.put_json("grids", (chosen.name, command), note)
        try:
            outcome = run(
                chosen, opened, workers=workers, engine=engine, address=address or None,
                retry=retry, facts=facts, report=say,
            )  # fmt: skip
        except Interrupted as error:
            error.advice = ". Run the same command again to continue: rows that are done are stored"
            raise
        failures = len(opened.failures())
    for line in dict.fromkeys(outcome.notes):
        say(f"note: {line}")
    say(
        f"{outcome.computed:,} rows computed, {outcome.already:,} stored before, "
        f"{outcome.errors:,} with an error, in {outcome.seconds:.0f} s"
    )
    if failures:
        say(f"{failures:,} clips could not be used in their conditions; see the report")
    if outcome.errors:
        raise click.exceptions.Exit(1)


@lab.command()
@click.argument("grid", required=False)
@_backbones
@_store
def status(grid: str | None, backbone: tuple[str, ...], store: Path | None) -> None:
    """Count the rows that are stored: all, or those of one GRID.

    $ driftscore lab status
    $ driftscore lab status panel
    """
    rows: list[OutputRow]
    with Store(store) as opened:
        if grid is None:
            stored, size = list(opened.rows()), 0
            for path in opened.home.rglob("*"):
                with suppress(OSError):  # a run removes it meanwhile
                    size += path.stat().st_size if path.is_file() else 0
            rows = [{
                "store": str(opened.home),
                "rows": len(stored),
                "errors": sum(bool(row.error) for row in stored),
                "clips failed": len(opened.failures()),
                "files": f"{size / 1e6:.0f} MB",
            }]  # fmt: skip
        else:
            chosen = _grid(grid, backbone)
            counts: dict[tuple[str, str], list[int]] = {}
            for condition, cells, done in missing(chosen, check(chosen), opened):
                pair = counts.setdefault((condition.backbone, condition.dataset), [0, 0])
                pair[0] += cells
                pair[1] += done
            rows = [
                {"backbone": model, "dataset": dataset, "cells": cells, "rows": done}
                for (model, dataset), (cells, done) in counts.items()
            ]
        write_rows(rows, "table", sys.stdout)
        _end_with_damage(opened)


@lab.command()
@click.option("--out", "-o", required=True, help="An .html or .md file.")
@click.option("--grid", help="Only the rows of this grid; default: all.")
@_backbones
@_store
def report(out: str, grid: str | None, backbone: tuple[str, ...], store: Path | None) -> None:
    """Write the page of tables and figures.

    $ driftscore lab report --out report.html
    $ driftscore lab report --grid panel --out panel.md
    """
    from driftscore.lab.report.report import write_report

    check_output(out)
    with Store(store) as opened:
        only = None
        if grid is not None:
            chosen = _grid(grid, backbone)
            only = frozenset(keys(chosen, check(chosen)))
        write_report(opened, out, only=only)
        say(f"Report in {out}")
        _end_with_damage(opened)


@lab.command()
@click.argument("path")
@_store
def export(path: str, store: Path | None) -> None:
    """Write all rows as a flat table.

    PATH is rows.csv, rows.jsonl or rows.parquet.

    $ driftscore lab export rows.csv
    $ driftscore lab export rows.parquet
    """
    check_output(path)
    with Store(store) as opened:
        count = export_rows(opened.rows(), path)
        say(f"{count:,} rows in {path}")
        _end_with_damage(opened)


@lab.command("mixes")
@click.argument("grid")
@click.option("--out", "-o", required=True, help="The file to write, mixes.jsonl.")
@_backbones
def mixes_(grid: str, out: str, backbone: tuple[str, ...]) -> None:
    """Write the record of every mix of a grid: one JSON line per clip and noisy condition.

    GRID is a shipped grid (see `lab grids`) or a TOML file.

    $ driftscore lab mixes panel --out mixes.jsonl
    $ driftscore lab mixes mine.toml --backbone mini --out mixes.jsonl
    """
    check_output(out, ".jsonl")
    chosen = _grid(grid, backbone)
    rates = cache(lambda name: load_backbone(name).rate)
    count = write_mixes(mixes(chosen, check(chosen), rates), out)
    say(f"{count:,} mixes in {out}")


@lab.command()
@click.argument("file", type=FILE)
@click.option("--out", "-o", required=True, help="The folder of the wav files.")
def rebuild(file: Path, out: str) -> None:
    """Build mixes from their records and write them as wav files; print one path per line.

    FILE is one of `lab mixes`.

    $ driftscore lab rebuild mixes.jsonl --out mixes/
    $ driftscore lab rebuild mixes.jsonl --out mixes/ > paths.txt
    """
    failed, folder = 0, output_folder(out)
    check_output(folder / "mix.wav")
    for saved in read_mixes(file):
        if saved.record is None:
            failed += 1
            say(f"{saved.clip}: {saved.error}")
        else:
            print(write_audio(saved, folder))
    if failed:
        raise click.exceptions.Exit(1)


@lab.command()
def grids() -> None:
    """List the grids that come with driftscore.

    $ driftscore lab grids
    $ driftscore lab grids > grids.txt
    """
    shipped = [load_grid(name) for name in shipped_grids()]
    rows: list[OutputRow] = [
        {"grid": g.name, "cells": measure(g).cells, "what": g.title} for g in shipped
    ]
    write_rows(rows, "table", sys.stdout)


@lab.command()
@click.argument("out", type=FILE)
@click.option("--dataset", default="folder", help="Dataset of the events: see `data list`.")
@click.option("--noise", default="recorded", help="Noise of the background: see `data list`.")
@click.option("--seconds", type=float, default=SoundscapeRecipe.seconds, help="Its length.")
@click.option("--seed", type=int, default=SoundscapeRecipe.seed, help="Determines all draws.")
@click.option("--words", default=str(SoundscapeRecipe.words),
              help="Labels of the events, or how many to draw.")  # fmt: skip
@click.option("--events", type=int, default=SoundscapeRecipe.events, help="Events of the words.")
@click.option("--others", type=int, default=SoundscapeRecipe.others, help="Events of no word.")
@click.option("--quiet", "quiet_s", type=float, default=SoundscapeRecipe.quiet_s,
              help="Seconds of one stretch without any event.")  # fmt: skip
@click.option("--snr", "snr_db", type=(float, float), default=SoundscapeRecipe.snr_db,
              help="Lowest and highest SNR in dB.")  # fmt: skip
@click.option("--rate", type=int, default=SoundscapeRecipe.rate, help="Sample rate in Hz.")
@click.option("--home", type=FILE, help="The folder of the dataset, if not the default.")
@click.option("--noise-home", type=FILE, help="The folder of the noise, likewise.")
@click.option("--from", "truth", type=FILE,
              help="Build the soundscape of this truth again; nothing is drawn.")  # fmt: skip
def soundscape(
    out: Path,
    dataset: str,
    noise: str,
    words: str,
    home: Path | None,
    noise_home: Path | None,
    truth: Path | None,
    **numbers: Any,
) -> None:
    """Write a long recording with known events, and beside it the truth as JSON.

    OUT is the .flac or .wav file to write.

    $ driftscore lab soundscape night.flac --home clips --noise-home noise --words 3
    $ driftscore lab soundscape day.flac --dataset esc50 --noise demand --words "dog, siren"
    """
    check_target(out)
    material = Material.of(find_dataset(dataset, home), find_noise(noise, noise_home))
    if truth is not None:
        drawn = read_soundscape(truth)
    else:
        labels: tuple[str, ...] | int
        labels = tuple(part.strip() for part in words.split(",") if part.strip())
        if words.strip().removeprefix("-").isdecimal():
            labels = int(words)
        elif not labels:
            raise UsageError("--words needs labels, such as 'dog, siren', or a number")
        drawn = draw(SoundscapeRecipe(dataset, words=labels, **numbers), material)
    write_soundscape(drawn, out, material)
    start, end = drawn.quiet_s
    say(
        f"{drawn.seconds:g} s with {len(drawn.wanted)} events of {len(drawn.words)} words and "
        f"{len(drawn.events) - len(drawn.wanted)} others; nothing from {start:.0f} to {end:.0f} s\n"
        f"words: {', '.join(drawn.words)}\ntruth: {truth_path(out)}"
    )


def _grid(name: str, backbones: tuple[str, ...]) -> Grid:
    """Return a grid, with other models instead of its own if they are given.

    It may name datasets and noises as "module:attribute", in a file of the current folder.
    """
    search_current_folder()
    chosen = load_grid(name)
    return chosen.with_backbones(backbones) if backbones else chosen


def _end_with_damage(store: Store) -> None:
    """If some of the store could not be used, say so and end with status 1."""
    if store.damage:
        say(f"warning: {store.damage_in_words}")
        raise click.exceptions.Exit(1)
