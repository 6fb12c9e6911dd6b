"""The pages of the commands, from the commands themselves: usage, arguments and options."""

import re

import click

from driftscore.cli.app import Command, all_commands

_DEFAULT = re.compile(r"  \[(?:default: )?(.*)\]$")


def command_pages() -> tuple[str, dict[str, str]]:
    """Return the table of all commands, and the page of each by its name."""
    rows, pages = ["| command | what it does |", "| --- | --- |"], {}
    for name, command in sorted(all_commands().items()):
        pages[name] = f"# driftscore {name}\n\n" + describe(command, f"driftscore {name}")
        summary = cell((command.help or "").strip().partition("\n")[0])
        rows.append(f"| [`{name}`]({name}.md) | {summary} |")
    return "\n".join(rows), pages


def describe(command: click.Command, name: str) -> str:
    """Return the description of a command, or of a group with its commands."""
    text = f"{(command.help or '').strip()}\n\n"
    context = click.Context(command, info_name=name, **command.context_settings)
    options = [one for one in command.params if isinstance(one, click.Option)]
    if isinstance(command, click.Group):
        text += table("option", [one.get_help_record(context) for one in options])
        for inner, one in command.commands.items():
            text += f"## {name} {inner}\n\n" + describe(one, f"{name} {inner}")
        return text
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    text += f"```text\n{usage}\n```\n\n"
    if isinstance(command, Command) and command.examples:
        text += "```console\n" + "".join(f"$ {line}\n" for line in command.examples) + "```\n\n"
    return text + table("option", [one.get_help_record(context) for one in options])


def table(title: str, records: list[tuple[str, str] | None]) -> str:
    """Return the table of parameters from what the help shows; hidden ones have no record."""
    rows = [row_of(*record) for record in records if record]
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
