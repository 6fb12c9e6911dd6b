"""The typer app of all commands, and `main`, which turns errors into a sentence and a status."""

import sys
import warnings
from typing import Annotated

import typer

from driftscore.cli import cache
from driftscore.cli.calibrate import calibrate
from driftscore.cli.classify import classify
from driftscore.cli.embed import embed, export
from driftscore.cli.heads import head, prompts, score
from driftscore.cli.listing import list_
from driftscore.cli.reporting import say
from driftscore.errors import DriftscoreError
from driftscore.version import __version__

app = typer.Typer(
    name="driftscore",
    help="Zero-shot audio classification that keeps working in noise.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (classify, embed, export, head, score, prompts, calibrate):
    app.command()(command)
app.command("list")(list_)
app.add_typer(cache.app)

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_PASS_ON)
def lab(context: typer.Context) -> None:
    """Measure rules in noise over a grid: run, status, report, export, mixes (extra: lab)."""
    from driftscore.cli.lab import app as group  # not at the top: most commands never need it

    _pass_on(group, context)


@app.command(context_settings=_PASS_ON)
def data(context: typer.Context) -> None:
    """Download and check the datasets and noise corpora that the lab uses."""
    from driftscore.cli.data import app as group

    _pass_on(group, context)


def _pass_on(group: typer.Typer, context: typer.Context) -> None:
    """Run a group of commands with the arguments that follow its name."""
    name = f"driftscore {context.info_name}"
    status: object = group(args=context.args, prog_name=name, standalone_mode=False)
    if isinstance(status, int) and status:
        raise typer.Exit(status)


def _show_version(show: bool) -> None:
    if show:
        print(f"driftscore {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Zero-shot audio classification that keeps working in noise."""


def main() -> None:
    """Run the command; a deliberate error is one sentence and an exit status, no traceback."""
    warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
    try:
        app()
    except DriftscoreError as error:
        say(f"error: {error}")
        sys.exit(error.exit_status)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of stdout has gone, as `head` does: nothing to say
        sys.exit(1)
    except KeyboardInterrupt:
        say("stopped")
        sys.exit(130)
