"""The typer app of all commands, and `main`, which turns errors into a sentence and a status."""

import atexit
import errno
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from driftscore.cli.completion import prepare_completion
from driftscore.cli.reporting import say
from driftscore.cli.streams import discard_stdout, open_streams
from driftscore.cli.values import PlainCommand, PlainGroup
from driftscore.errors import DriftscoreError
from driftscore.interrupts import STOPPED, Interrupted, interruptible
from driftscore.version import __version__

_HELP = {"help_option_names": ["-h", "--help"]}
_COMMANDS = {
    "classify": "classify:classify",
    "embed": "embed:embed",
    "export": "embed:export",
    "head": "heads:head",
    "score": "heads:score",
    "prompts": "heads:prompts",
    "calibrate": "calibrate:calibrate",
    "review": "review:review",
    "doctor": "doctor:doctor",
    "serve": "serve:serve",
    "list": "listing:list_",
    "completion": "completion:completion",
    "lab": "app:lab",
    "data": "app:data",
    "listen": "app:listen",
    "audit": "app:audit",
    "cache": "cache:app",
}
"""Where each command is: a file here and a function in it, or the app of a group."""


def make_app(names: Iterable[str] = tuple(_COMMANDS)) -> typer.Typer:
    """Return the app of some commands; the files of the others are not imported."""
    made = typer.Typer(
        name="driftscore",
        help="Zero-shot audio classification that keeps working in noise.",
        no_args_is_help=True,
        context_settings=_HELP,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    made.callback(cls=PlainGroup)(options)
    for name in names:
        file, _, attribute = _COMMANDS[name].partition(":")
        command = getattr(import_module(f"driftscore.cli.{file}"), attribute)
        if isinstance(command, typer.Typer):
            made.add_typer(command)
        else:
            settings = _PASS_ON if file == "app" else None
            made.command(name, cls=PlainCommand, context_settings=settings)(command)
    return made


if TYPE_CHECKING:
    app: typer.Typer
    """All commands; it imports their files, so it is made when it is asked for."""
else:

    def __getattr__(name: str) -> typer.Typer:
        if name != "app":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, make_app())


_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def lab(context: typer.Context) -> None:
    """Measure rules in noise over a grid: run, status, report, export, mixes (extra: lab)."""
    from driftscore.cli.lab import app as group  # not at the top: most commands never need it

    _pass_on(group, context)


def data(context: typer.Context) -> None:
    """Download and check the datasets and noise corpora that the lab uses."""
    from driftscore.cli.data import app as group

    _pass_on(group, context)


def listen(context: typer.Context) -> None:
    """Report the events of live sources: microphones, streams and files (extras: live, mqtt)."""
    from driftscore.cli.listen import app as group

    _pass_on(group, context)


def audit(context: typer.Context) -> None:
    """Show recorded decisions, and decide them again."""
    from driftscore.cli.audit import app as group

    _pass_on(group, context)


def _pass_on(group: typer.Typer, context: typer.Context) -> None:
    """Run a group of commands with the arguments that follow its name."""
    name = f"driftscore {context.info_name}"
    status: object = group(args=context.args, prog_name=name, standalone_mode=False, **_HELP)
    if isinstance(status, int) and status:
        raise typer.Exit(status)


def _show_version(show: bool) -> None:
    if show:
        print(f"driftscore {__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Zero-shot audio classification that keeps working in noise."""


def main() -> NoReturn:
    """Run the command; an error is one sentence and an exit status, no traceback."""
    warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
    open_streams()
    try:
        app = _asked_for(sys.argv[1:])
        with interruptible():
            status = _run(app)
            sys.stdout.flush()
    except (Interrupted, KeyboardInterrupt) as error:
        say(STOPPED)
        status = error.status if isinstance(error, Interrupted) else 130
    except OSError as error:
        discard_stdout()
        if not isinstance(error, BrokenPipeError):  # a reader that has gone, as `head`, is normal
            say(f"error: Cannot write to stdout: {error.strerror or error}")
        status = 1
    sys.exit(status)


def start() -> NoReturn:
    """Run the command as a process of its own.

    What is registered to be done at the end is done. The objects of the interpreter are not freed
    one by one: the system frees them, and it would take longer than labelling a clip.
    """
    try:
        main()
    except SystemExit as end:
        if threading.active_count() > 1:  # a thread that has something to finish
            raise
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError):  # `main` has reported what could not be written
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)


def _asked_for(arguments: list[str]) -> typer.Typer:
    """Return the app of the command that is asked for, or that of all to list or suggest them."""
    first = arguments[0] if arguments else ""
    if first in _COMMANDS:
        return make_app([first])
    complete = make_app()
    groups = [name for name, place in _COMMANDS.items() if place.startswith("app:")]
    prepare_completion(complete, groups, _group)
    return complete


def _group(name: str) -> typer.Typer:
    group: typer.Typer = import_module(f"driftscore.cli.{name}").app
    return group


def _run(app: Callable[[], object]) -> int:
    """Run the command and return its exit status; raise only errors of stdout and interrupts."""
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _STDOUT_ERRORS and not error.filename:
            raise
        if os.environ.get("DRIFTSCORE_DEBUG"):
            traceback.print_exc()
        if not isinstance(error, DriftscoreError):
            say(unexpected(error))
            return 1
        say(f"error: {error}")
        return error.exit_status
    return 0


_STDOUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EDQUOT)
"""Errors of writing to a stream that is open; those of opening a file name it."""


def unexpected(error: Exception) -> str:
    """Return the line for an error that no one foresaw: what to do about it."""
    what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return (
        f"error: unexpected {what}. This is a bug in driftscore: run it again with "
        "DRIFTSCORE_DEBUG=1 to see the traceback, and report it as CONTRIBUTING.md says"
    )
