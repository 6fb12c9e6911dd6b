"""`driftscore audit`: recorded decisions, shown and made again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from driftscore.audit import EVENT, read_entries
from driftscore.cli.reporting import say
from driftscore.errors import DriftscoreError
from driftscore.replay import Replayer, replay_error

app = typer.Typer(
    name="audit",
    help="Show recorded decisions, and decide them again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Folder = Annotated[Path, typer.Argument(help="The folder given to --audit.", metavar="DIR")]
Days = Annotated[
    list[str] | None, typer.Option("--day", help="Only this day (UTC): 2026-11-16; repeatable.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the recorded lines as they are.")]


@app.command()
def show(folder: Folder, day: Days = None, json_lines: AsJson = False) -> None:
    """Print each decision: when, what, and by which model and rule."""
    for where, entry in read_entries(folder, day or ()):
        print(json.dumps(entry, ensure_ascii=False) if json_lines else shown(where, entry))


@app.command()
def replay(folder: Folder, day: Days = None) -> None:
    """Decide again; status 1 if a decision is another one now."""
    replayer = Replayer(folder)
    counts = {True: 0, False: 0, None: 0}
    for where, entry in read_entries(folder, day or ()):
        try:
            found = replayer.replay(entry)
        except DriftscoreError as error:
            found = replay_error(error)
        counts[found.same] += 1
        verdict = {True: "same", False: "DIFFERENT", None: "skipped"}[found.same]
        print(f"{verdict}\t{where}\t{entry['kind']}\t{entry['source']}\t{found.note}")
    say(f"{counts[True]} the same, {counts[False]} different, {counts[None]} not decided again")
    if counts[False]:
        raise typer.Exit(1)


def shown(where: str, entry: Mapping[str, object]) -> str:
    """Return a decision as one line."""
    outcome = entry["outcome"]
    assert isinstance(outcome, dict)  # noqa: S101 (checked by the format)
    if entry["kind"] == EVENT:
        decided = outcome["decided"]
        what = f"{decided['label']} {outcome['start']} to {outcome['end']}"
        what += f" score {decided['score']:.2f} of {decided['threshold'] or 0:.2f}"
        what += f" rejected: {outcome['rejected']}" if outcome["rejected"] else ""
    else:
        what = ", ".join(outcome["labels"]) or "no label"
    model = f"{entry['backbone']} {str(entry['fingerprint'])[:12]}"
    prompts = f"prompts {str(entry['prompts_sha256'])[:12]}"
    calibration = f"calibration {str(entry['calibration'] or 'none')[:12]}"
    return "\t".join(
        [where, str(entry["time"]), str(entry["kind"]), str(entry["source"]), what,
         f"rule {entry['rule']}", model, prompts, calibration]
    )  # fmt: skip
