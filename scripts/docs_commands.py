"""The pages of the commands, from the commands themselves: usage, arguments and options."""

import re

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from driftscore.cli import audit, data, lab, listen
from driftscore.cli.app import app

_APPS = {"lab": lab.app, "data": data.app, "listen": listen.app, "audit": audit.app}
"""Commands that are apps of their own, which are loaded when they are used."""
_DEFAULT = re.compile(r"  \[(?:default: )?(.*)\]$")


def command_pages() -> tuple[str, dict[str, str]]:
    """Return the table of all commands, and the page of each by its name."""
    commands: dict[str, TyperCommand] = getattr(typer.main.get_command(app), "commands", {})
    rows, pages = ["| command | what it does |", "| --- | --- |"], {}
    for name, listed in sorted(commands.items()):
        command = typer.main.get_command(_APPS[name]) if name in _APPS else listed
        pages[name] = f"# driftscore {name}\n\n" + describe(command, f"driftscore {name}", listed)
        rows.append(f"| [`{name}`]({name}.md) | {first_line(listed)} |")
    return "\n".join(rows), pages


def first_line(command: TyperCommand | TyperGroup) -> str:
    """Return the first line of the help of a command."""
    return cell((command.help or "").strip().partition("\n")[0])


def describe(command: TyperCommand | TyperGroup, name: str, listed: TyperCommand) -> str:
    """Return the description of a command, or of a group with its commands."""
    text = f"{(command.help or listed.help or '').strip()}\n\n"
    if isinstance(command, TyperGroup):
        for inner, found in command.commands.items():
            text += f"## {name} {inner}\n\n" + describe(found, f"{name} {inner}", found)
        return text
    context = typer.Context(command, info_name=name)
    arguments = [one for one in command.params if isinstance(one, TyperArgument)]
    text += f"```text\n{' '.join([name, '[OPTIONS]', *map(usage, arguments)])}\n```\n\n"
    text += table("argument", [(shown(one), one.get_help_record(context)) for one in arguments])
    options = [one for one in command.params if not isinstance(one, TyperArgument)]
    return text + table("option", [("", one.get_help_record(context)) for one in options])


def shown(argument: TyperArgument) -> str:
    """Return the name of an argument."""
    return re.sub(r"\W", "", argument.metavar or argument.name or "").upper()


def usage(argument: TyperArgument) -> str:
    """Return an argument as the line of usage shows it: required or not, one or more."""
    name = shown(argument) if argument.required else f"[{shown(argument)}]"
    return f"{name}..." if argument.nargs == -1 else name


def table(title: str, records: list[tuple[str, tuple[str, str] | None]]) -> str:
    """Return the table of parameters from what the help shows; hidden ones have no record."""
    rows = [row_of(name or record[0], record[1]) for name, record in records if record]
    if not rows:
        return ""
    return "\n".join([f"| {title} | meaning | default |", "| --- | --- | --- |", *rows, "\n"])


def row_of(names: str, help: str) -> str:
    """Return the row of a parameter."""
    flags = re.findall(r"(?<![\w<])-{1,2}[a-z][\w-]*", names) or [names]
    default = _DEFAULT.search(help)
    cells = (", ".join(f"`{flag}`" for flag in flags), cell(_DEFAULT.sub("", help)),
             cell(default[1]) if default else "")  # fmt: skip
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    """Return a text as the cell of a table: no bars, no HTML."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    plain = [p if p.startswith("`") else p.replace("<", "&lt;").replace("*", r"\*") for p in parts]
    return "".join(plain).replace("|", r"\|")
