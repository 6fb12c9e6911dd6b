"""`driftscore completion`: a script with which a shell completes commands and options.

The script is printed and never installed: a user puts it where the shell looks for it. It runs the
command itself, with the words so far in the environment.
"""

import os
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated

import typer

ASKED = "_DRIFTSCORE_COMPLETE"
"""The environment variable by which a script asks for the words that fit."""
_WORDS = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""The environment variables in which the scripts of the shells pass the words so far."""


class Shell(StrEnum):
    """Shells that have a script."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"
    powershell = "powershell"


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell that the script is for.")],
) -> None:
    """Print a script that completes commands and options in a shell; nothing is installed."""
    from typer import completion as scripts

    # typer.completion has no list of its public names.
    make = scripts.get_completion_script  # type: ignore[attr-defined]
    print(make(prog_name="driftscore", complete_var=ASKED, shell=shell.value))


def prepare_completion(
    app: typer.Typer, lazy: Iterable[str], load: Callable[[str], typer.Typer]
) -> None:
    """If a script asks for words, put the group of commands that it asks about into the app.

    Otherwise the groups in `lazy` are passed their arguments unread, so that most runs need not
    import them.
    """
    if not os.environ.get(ASKED):
        return
    from typer import completion as scripts

    scripts.completion_init()  # type: ignore[attr-defined]
    words = " ".join(os.environ.get(name, "") for name in _WORDS).split()
    for name in lazy:
        if name in words[1:2]:
            group = load(name)
            app.registered_commands = [
                known
                for known in app.registered_commands
                if known.callback is None or known.callback.__name__ != name
            ]
            if group.registered_callback is None and len(group.registered_commands) == 1:
                app.registered_commands += group.registered_commands
            else:
                app.add_typer(group, name=name)
