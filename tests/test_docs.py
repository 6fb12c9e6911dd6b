"""What the documents show exists: commands with their options, and the targets of links."""

import re
import shlex
from pathlib import Path

import pytest
import typer
import typer.core

from driftscore.cli import audit, data, lab, listen
from driftscore.cli.app import app

from .conftest import PROJECT

DOCUMENTS = [
    *(PROJECT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((PROJECT / "docs").glob("*.md")),
]
COMMANDS = [
    line.split("#")[0].split(">")[0].strip().removeprefix("$ ")
    for path in DOCUMENTS
    for line in path.read_text(encoding="utf-8").splitlines()
    if re.match(r"(\$ )?driftscore \w", line)
]


def find_options(words: list[str]) -> set[str]:
    """Return the options of the command that words name; `lab run` is a command of a group."""
    groups = {"lab": lab.app, "data": data.app, "audit": audit.app, "listen": listen.app}
    command = typer.main.get_command(groups.get(words[0], app))
    for word in words[1:] if words[0] in groups else words:
        if not isinstance(command, typer.core.TyperGroup):
            break
        command = command.commands[word]
    return {flag for parameter in command.params for flag in parameter.opts}


def test_the_documents_show_commands() -> None:
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_in_the_documents_has_the_options_that_it_shows(line: str) -> None:
    words = shlex.split(line)[1:]
    shown = {word.split("=")[0] for word in words if word.startswith("-")}
    assert shown <= find_options(words)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_to_files_that_exist(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_that_the_documents_name_exist(name: str) -> None:
    """Names in backticks such as `rules/das.py` are files of the package or of the project."""
    text = (PROJECT / name).read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for shown in re.findall(r"`([\w./-]+\.(?:py|toml|md)|[\w./-]+/)`", prose):
        assert any((home / shown).exists() for home in (PROJECT, PROJECT / "src/driftscore")), shown


def test_the_glossary_defines_every_word_of_the_vocabulary() -> None:
    text = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    glossary = text.partition("## Glossary")[2].partition("\n## ")[0]
    for word in ("recording", "clip", "window", "embedding", "label", "phrase", "prompt", "bank",
                 "head", "rule", "backbone", "calibration", "score", "event", "condition", "cell",
                 "row"):  # fmt: skip
        assert f"| {word} |" in glossary


def test_no_path_of_a_machine_is_in_the_repository() -> None:
    names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"]
    for name in names:
        assert not re.search(r"/(work|root|opt)/", (PROJECT / name).read_text(encoding="utf-8"))
