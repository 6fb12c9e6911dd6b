"""`driftscore audit`: recorded decisions, shown and made again."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from driftscore.cli import options as take
from driftscore.cli.app import app
from driftscore.cli.output import say
from driftscore.decisions import DecisionStore, RecordedDecision, Replay, Replayer, open_store
from driftscore.errors import DriftscoreError, UsageError
from driftscore.formats import visible


@app.group()
def audit() -> None:
    """Show recorded decisions, and decide them again.

    $ driftscore audit show audit.db
    $ driftscore audit replay audit.db
    """


_selection = take.together(
    click.argument("database", type=take.FILE, metavar="STORE"),
    click.option("--day", "days", multiple=True,
                 help="Only this day (UTC): 2026-11-16; repeatable."),
    click.option("--label", default="", show_default=False, help="Only decisions for this label."),
    click.option("--since", help="From this time on (UTC): 2026-11-16T22:00."),
    click.option("--until", help="Before this time (UTC)."),
)  # fmt: skip


def _selected(
    store: DecisionStore, *, days: tuple[str, ...], label: str, **times: str | None
) -> Iterator[RecordedDecision]:
    """Yield the decisions that are selected; a time without a zone is UTC."""
    moments: dict[str, datetime | None] = dict.fromkeys(times)
    for name, text in times.items():
        if text is None:
            continue
        try:
            time = datetime.fromisoformat(text)
            moments[name] = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            raise UsageError(
                f"--{name} must be a time such as 2026-11-16T22:00, not {text!r}"
            ) from None
    for decision in store.decisions(label=label, **moments):
        if not days or decision.time[:10] in days:
            yield decision


@audit.command()
@_selection
@click.option("--json", "json_lines", is_flag=True, help="Print the recorded lines as they are.")
def show(database: Path, json_lines: bool, **selection: Any) -> None:
    """Print each decision: when, what, and by which model and rule.

    $ driftscore audit show audit.db --label siren
    $ driftscore audit show audit.db --day 2026-11-16 --json
    """
    with open_store(database) as store:
        for decision in _selected(store, **selection):
            print(decision.line if json_lines else shown(decision))


@audit.command()
@_selection
@click.option("--backbone", "-b",
              help="The model, where the recorded one is not one that comes with driftscore."
              )  # fmt: skip
def replay(database: Path, backbone: str | None, **selection: Any) -> None:
    """Decide again from the audio; status 1 if a decision has changed.

    $ driftscore audit replay audit.db
    $ driftscore audit replay audit.db --since 2026-11-16T22:00 --backbone my-clap/
    """
    words = {True: "same", False: "DIFFERENT", None: "skipped"}
    outcomes: list[bool | None] = []
    with open_store(database) as store:
        replayer = Replayer(store, backbone=backbone)
        for decision in _selected(store, **selection):
            try:
                outcome = replayer.replay(decision)
            except DriftscoreError as error:
                outcome = Replay(False, str(error))
            outcomes.append(outcome.same)
            print(_line(words[outcome.same], decision.id, decision.kind, decision.source,
                        outcome.note))  # fmt: skip
    different = outcomes.count(False)
    say(
        f"{outcomes.count(True)} the same, {different} different, {outcomes.count(None)} not "
        "decided again"
    )
    if different:
        raise click.exceptions.Exit(1)


def shown(decision: RecordedDecision) -> str:
    """Return a decision as one line."""
    outcome, event = decision.outcome, decision.outcome.decided
    if event is not None:
        start = outcome.start or f"{event.start_s:.1f} s"
        end = outcome.end or f"{event.end_s:.1f} s"
        scores = f"score {event.score:.2f} of {event.threshold or 0:.2f}"
        what = f"{event.label} {start} to {end} {scores}"
        what += f" rejected: {outcome.rejected}" if outcome.rejected else ""
    else:
        evidence = decision.evidence
        texts = [f"{name} {evidence.scores.get(name, 0):.2f}" for name in outcome.labels]
        what = ", ".join(texts) or "no label"
        what += "" if evidence.threshold is None else f" (at least {evidence.threshold:g})"
    return _line(
        decision.id, decision.time, decision.kind, decision.source, what,
        f"rule {decision.rule or 'unknown'}",
        f"{decision.backbone} {decision.fingerprint[:12]}",
        f"prompts {(decision.prompts_sha256 or 'unknown')[:12]}",
        f"calibration {(decision.calibration or 'none')[:12]}",
    )  # fmt: skip


def _line(*values: object) -> str:
    return "\t".join(visible(str(value)) for value in values)
