"""The group of all commands, and `main`, which turns errors into a sentence and a status.

A wrong option or command is one sentence that names the nearest right one.
"""

import errno
import inspect
import os
import sys
import traceback
import warnings
from importlib import import_module
from typing import Any, NoReturn

import click

from driftscore.cli.output import discard_stdout, open_streams, say
from driftscore.errors import DriftscoreError, UsageError, unknown
from driftscore.system.process import Interrupted, interruptible
from driftscore.version import __version__

COMMANDS = {
    "classify": ("classify", "Label recordings with your own words."),
    "detect": ("detect", "Find events in long recordings: which label, from when to when."),
    "find": ("find", "Find the best places of an archive for words, without reading audio."),
    "listen": ("listen", "Report the events of microphones, streams and files, live."),
    "serve": ("serve", "Answer requests over HTTP, and show the page."),
    "review": ("review", "Answer whether events are right, and get thresholds."),
    "learn": ("review", "Make a better watch list, or a head, of the answers to events."),
    "audit": ("decisions", "Show recorded decisions, and decide them again."),
    "explain": ("explain", "Show what the model takes a word for."),
    "embed": ("models", "Turn recordings into embeddings, to be scored later with any head."),
    "head": ("models", "Compile labels and a rule to a head, or join HEADS of one model."),
    "score": ("models", "Label stored embeddings."),
    "prompts": ("models", "Write the exact texts that a head is made of."),
    "calibrate": ("models", "Measure how noise moves a model's embeddings."),
    "export": ("models", "Turn a CLAP checkpoint into ONNX, which runs without torch."),
    "lab": ("lab", "Measure rules in noise over a grid."),
    "data": ("data", "Download and check the datasets and noises of the lab."),
    "list": ("listing", "Show what there is to choose from."),
    "cache": ("listing", "Show where the caches are and how large, and clear them."),
    "doctor": ("doctor", "Show what is installed and works, and what is missing."),
    "completion": ("listing", "Print a script that completes words in a shell."),
}
"""The file of each command, and what it does in one line."""
_REMOVED = {
    "--labels-file": "`--labels sounds.txt` reads one label per line",
    "--raw": "`--set standardised=no` gives the rule's own scores everywhere",
    "--sd": "`--set standardised=yes` gives standard deviations",
    "--timeline": "`driftscore detect` finds events in long recordings without it",
    "--windows": "`driftscore detect --windows` shows the best label of each window",
}
"""Options of earlier versions, and what to use in their place."""
_STDOUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EDQUOT)
"""Errors of writing to a stream that is open; those of opening a file name it."""


class Command(click.Command):
    """A command with examples: the lines of its docstring that begin with "$ "."""

    def __init__(self, name: str | None, help: str | None = None, **kwargs: Any) -> None:
        # Of its own, not of its group: click keeps the option that it made first.
        kwargs["context_settings"] = {"help_option_names": ["-h", "--help"], "show_default": True}
        lines = inspect.cleandoc(help or "").splitlines()
        text = "\n".join(line for line in lines if not line.startswith("$ "))
        super().__init__(name, help=text.strip(), **kwargs)
        self.examples = tuple(line[2:] for line in lines if line.startswith("$ "))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; an option of earlier versions is answered with what replaces it."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in _REMOVED:
                raise
            instead = _REMOVED[error.option_name]
            raise UsageError(f"No option {error.option_name} here: {instead}") from None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"  {line}\n")


class Group(Command, click.Group):
    """A group of commands; a mistyped one is answered with the nearest."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first argument."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise unknown("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """All commands; the file of a command is imported when the command is named."""

    group_class = Group

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name in COMMANDS:
            import_module(f"driftscore.cli.{COMMANDS[cmd_name][0]}")
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of all commands; none is imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=LazyGroup)
@click.version_option(__version__, message="driftscore %(version)s")
def app() -> None:
    """Zero-shot audio classification that keeps working in noise.

    $ driftscore classify recordings/ --labels "siren, dog bark, rain"
    $ driftscore detect night.flac --labels "siren, dog bark"
    """


def all_commands() -> dict[str, click.Command]:
    """Import every command, by its name."""
    for file, _ in COMMANDS.values():
        import_module(f"driftscore.cli.{file}")
    return {name: app.commands[name] for name in COMMANDS}


def main() -> NoReturn:
    """Run the command; an error is one sentence and an exit status, no traceback."""
    warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
    open_streams()
    try:
        with interruptible():
            try:
                if os.environ.get("_DRIFTSCORE_COMPLETE", "").startswith("powershell"):
                    import_module("driftscore.cli.listing")  # click itself has no PowerShell
                status = app.main(sys.argv[1:], "driftscore", standalone_mode=False) or 0
            except click.Abort:
                raise
            except click.exceptions.NoArgsIsHelpError as error:
                error.show()
                status = error.exit_code
            except click.ClickException as error:
                ctx = error.ctx if isinstance(error, click.MissingParameter) else None
                example = f" See: {ctx.command_path} --help" if ctx is not None else ""
                say(f"error: {error.format_message()}{example}")
                status = error.exit_code
            except Exception as error:
                if (
                    isinstance(error, OSError)
                    and error.errno in _STDOUT_ERRORS
                    and not error.filename
                ):
                    raise
                if os.environ.get("DRIFTSCORE_DEBUG"):
                    traceback.print_exc()
                status = getattr(error, "exit_status", 1)
                if isinstance(error, DriftscoreError):
                    say(f"error: {error}")
                else:
                    what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                    say(
                        f"error: unexpected {what}. This is a bug in driftscore: run it again with "
                        "DRIFTSCORE_DEBUG=1 to see the traceback, and report it as CONTRIBUTING.md "
                        "says"
                    )
            sys.stdout.flush()
    except (Interrupted, click.Abort) as error:
        say(str(error) or "stopped")
        status = error.status if isinstance(error, Interrupted) else 130
    except OSError as error:
        discard_stdout()
        if not isinstance(error, BrokenPipeError):  # a reader that has gone, as `head`, is normal
            say(f"error: Cannot write to stdout: {error.strerror or error}")
        status = 1
    sys.exit(status)
