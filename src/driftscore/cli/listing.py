"""`driftscore list`, `cache` and `completion`: what there is to choose from, kept, completed."""

import os
import sys
from importlib import import_module

import click
from click import shell_completion
from rich.filesize import decimal

from driftscore.cli import options as take
from driftscore.cli.app import app
from driftscore.cli.output import say
from driftscore.errors import DriftscoreError
from driftscore.formats import Format, OutputRow, write_rows
from driftscore.storage.caches import find_caches, list_caches
from driftscore.system import plugins
from driftscore.text.packs import load_pack, pack_names
from driftscore.text.presets import load_preset, preset_names

_PLUGINS = {
    "rules": "scoring.rules",
    "backbones": "backbones",
    "engines": "engines",
    "formats": "formats",
    "datasets": "lab.corpora.datasets",
    "noises": "lab.corpora.noises",
    "mixings": "lab.mixing.mixings",
}
"""The rooms of the plug-ins, which are imported when they are listed."""


@app.command("list")
@click.argument("what", type=take.OneOf((*_PLUGINS, "packs", "presets")))
@take.format_option
def list_(what: str, format: Format) -> None:
    """Show what there is to choose from.

    $ driftscore list rules
    $ driftscore list packs -f csv
    """
    rows: list[OutputRow] = []
    if what == "packs":
        for pack in map(load_pack, pack_names()):
            holds = f"{len(pack.entries)} {pack.kind}"
            rows.append({"pack": pack.id, "holds": holds, "what": pack.title})
    elif what == "presets":
        rows += [{"preset": name, "what": load_preset(name).title} for name in preset_names()]
    else:
        kind: plugins.Kind = import_module(f"driftscore.{_PLUGINS[what]}").KIND
        for name in plugins.names(kind):
            try:
                summary = plugins.summary(plugins.find(kind, name))
            except DriftscoreError as error:  # one that cannot be loaded is a row that says so
                summary = str(error)
            rows.append({kind.title: name, "what": summary})
    write_rows(rows, format, sys.stdout)


@app.group(invoke_without_command=True)
@take.format_option
@click.pass_context
def cache(context: click.Context, format: Format) -> None:
    """Show where the caches are and how large, and clear them.

    $ driftscore cache
    $ driftscore cache --format json
    """
    if context.invoked_subcommand is not None:
        return
    rows: list[OutputRow] = []
    for one in list_caches():
        size = one.size()
        shown = {"size": decimal(size)} if format.name == "table" else {"bytes": size}
        rows.append({"cache": one.name, **shown, "files": len(one.files()), "path": str(one.path),
                     "what": one.summary})  # fmt: skip
    write_rows(rows, format, sys.stdout)


@cache.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def clear(names: tuple[str, ...], yes: bool) -> None:
    """Delete caches; what they held is computed or downloaded again when it is needed.

    NAME is one of those of `driftscore cache`; without a name all but data and lab are deleted.

    $ driftscore cache clear
    $ driftscore cache clear audio --yes
    """
    chosen = find_caches(names)
    if not yes:  # click's own question writes to stdout, which is for data
        size = decimal(sum(one.size() for one in chosen))
        question = f"Delete {', '.join(one.name for one in chosen)} ({size})? [y/N] "
        print(question, end="", file=sys.stderr, flush=True)
        try:
            answer = sys.stdin.readline() if sys.stdin else ""
        except (OSError, ValueError):  # closed, or not text
            answer = ""
        if answer.strip().lower() not in ("y", "yes"):
            say("Nothing deleted")
            raise click.exceptions.Exit(1)
    say(f"Deleted {decimal(sum(one.clear() for one in chosen))}")


@shell_completion.add_completion_class
class PowerShell(shell_completion.ShellComplete):
    """The script of PowerShell, which click has none for."""

    name = "powershell"
    source_template = """
Register-ArgumentCompleter -Native -CommandName %(prog_name)s -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $env:%(complete_var)s = "powershell_complete"
    $env:COMP_WORDS = $commandAst.ToString()
    $env:COMP_WORD = $wordToComplete
    %(prog_name)s | ForEach-Object {
        [System.Management.Automation.CompletionResult]::new($_, $_, "ParameterValue", $_)
    }
    $env:%(complete_var)s = $env:COMP_WORDS = $env:COMP_WORD = ""
}
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one to complete, and that one."""
        words, last = os.environ["COMP_WORDS"].split()[1:], os.environ["COMP_WORD"]
        return (words[:-1] if last and words else words), last

    def format_completion(self, item: shell_completion.CompletionItem) -> str:
        """Return one word per line."""
        return str(item.value)


@app.command()
@click.argument("shell", type=take.OneOf(("bash", "zsh", "fish", "powershell")))
def completion(shell: str) -> None:
    """Print a script that completes words in a shell.

    Nothing is installed.

    $ driftscore completion bash > ~/.local/share/bash-completion/completions/driftscore
    $ driftscore completion fish > ~/.config/fish/completions/driftscore.fish
    """
    make = shell_completion.get_completion_class(shell) or PowerShell
    print(make(app, {}, "driftscore", "_DRIFTSCORE_COMPLETE").source())
