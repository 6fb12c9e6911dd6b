"""What the documents promise is there."""

import re
import shlex

import pytest
import typer

from driftscore.cli.app import app
from driftscore.lab import commands

from .conftest import PROJECT

DOCUMENTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
COMMANDS = [
    line.split("#")[0].split(">")[0].strip()
    for path in DOCUMENTS
    for line in path.read_text(encoding="utf-8").splitlines()
    if re.match(r"(\$ )?driftscore \w", line)
]


def test_the_readme_shows_commands():
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_in_the_docs_has_the_options_that_it_shows(line):
    words = shlex.split(line.removeprefix("$ "))
    rooms = {"lab": commands.lab, "data": commands.data}
    command = typer.main.get_command(rooms.get(words[1], app))
    command = command.commands[words[2] if words[1] in rooms else words[1]]
    known = {flag for parameter in command.params for flag in parameter.opts}
    shown = {word.split("=")[0] for word in words[2:] if word.startswith("-")}
    assert shown <= known


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_to_files_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_no_address_of_a_machine_is_in_the_repo():
    names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"]
    for name in names:
        assert not re.search(r"/(work|root|opt)/", (PROJECT / name).read_text(encoding="utf-8"))
