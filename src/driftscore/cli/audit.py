"""`driftscore audit`: recorded decisions, shown and made again."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from driftscore.audit import Replay, Replayer, read_entries
from driftscore.audit.decided import EVENT
from driftscore.audit.entries import Entry
from driftscore.cli.groups import flat
from driftscore.cli.reporting import say
from driftscore.errors import DriftscoreError, UsageError
from driftscore.formats import visible

app = typer.Typer(
    name="audit",
    help="Show recorded decisions, and decide them again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Folder = Annotated[Path, typer.Argument(help="The folder given to --audit.", metavar="DIR")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the recorded lines as they are.")]
Model = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        "-b",
        help="The model, where the recorded one is not one that comes with driftscore.",
    ),
]


@dataclass(frozen=True)
class Selection:
    """Which decisions are meant."""

    day: Annotated[
        list[str] | None, typer.Option("--day", help="Only this day (UTC): 2026-11-16; repeatable.")
    ] = None
    label: Annotated[str, typer.Option("--label", help="Only decisions for this label.")] = ""
    since: Annotated[
        str | None, typer.Option("--since", help="From this time on (UTC): 2026-11-16T22:00.")
    ] = None
    until: Annotated[str | None, typer.Option("--until", help="Before this time (UTC).")] = None

    def entries(self, folder: Path) -> Iterator[tuple[str, Entry]]:
        """Yield the decisions that are meant, each with its place."""
        return read_entries(
            folder,
            self.day or (),
            label=self.label,
            since=moment("--since", self.since),
            until=moment("--until", self.until),
        )


@app.command()
@flat
def show(folder: Folder, chosen: Selection, json_lines: AsJson = False) -> None:
    """Print each decision: when, what, and by which model and rule."""
    for where, entry in chosen.entries(folder):
        print(json.dumps(entry, ensure_ascii=False) if json_lines else shown(where, entry))


@app.command()
@flat
def replay(folder: Folder, chosen: Selection, backbone: Model = None) -> None:
    """Decide again; status 1 if a decision is another one now."""
    replayer = Replayer(folder, backbone=backbone)
    found: list[Replay] = []
    for where, entry in chosen.entries(folder):
        try:
            outcome = replayer.replay(entry)
        except DriftscoreError as error:
            outcome = Replay(False, str(error))
        found.append(outcome)
        verdict = {True: "same", False: "DIFFERENT", None: "skipped"}[outcome.same]
        print(_line([verdict, where, entry["kind"], entry["source"], outcome.note]))
    same = [outcome for outcome in found if outcome.same]
    different = sum(outcome.same is False for outcome in found)
    say(
        f"{len(same)} the same ({sum(outcome.from_audio for outcome in same)} of them from the "
        f"audio), {different} different, {len(found) - len(same) - different} not decided again"
    )
    if different:
        raise typer.Exit(1)


def moment(flag: str, text: str | None) -> datetime | None:
    """Return the time that an option is given; without a zone it is UTC."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{flag} must be a time such as 2026-11-16T22:00, not {text!r}") from None


def shown(where: str, recorded: Mapping[str, object]) -> str:
    """Return a decision as one line."""
    entry = cast(Mapping[str, Any], recorded)
    return _line(
        [where, entry["time"], entry["kind"], entry["source"], _decided(entry),
         f"rule {entry['rule'] or 'unknown'}",
         f"{entry['backbone']} {entry['fingerprint'][:12]}",
         f"prompts {(entry['prompts_sha256'] or 'unknown')[:12]}",
         f"calibration {(entry['calibration'] or 'none')[:12]}"]
    )  # fmt: skip


def _decided(entry: Mapping[str, Any]) -> str:
    """Return what was decided, with scores and thresholds."""
    outcome, evidence = entry["outcome"], entry["evidence"]
    if entry["kind"] == EVENT:
        one = outcome["decided"]
        start, end = (outcome.get(name, f"{one[f'{name}_s']:.1f} s") for name in ("start", "end"))
        what = f"{one['label']} {start} to {end} score {one['score']:.2f}"
        what += f" of {one['threshold'] or 0:.2f}"
        return what + (f" rejected: {outcome['rejected']}" if outcome["rejected"] else "")
    scores = evidence["scores"]
    labels = [f"{name} {scores.get(name, 0):.2f}" for name in outcome["labels"]]
    threshold = evidence["threshold"]
    of = "" if threshold is None else f" (at least {threshold:g})"
    return (", ".join(labels) or "no label") + of


def _line(values: list[object]) -> str:
    return "\t".join(visible(str(value)) for value in values)
