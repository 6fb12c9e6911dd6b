"""Options of commands: the same values as typer's own conversion gives, without pydantic."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer
import typer.core

from driftscore.cli.app import _COMMANDS, make_app
from driftscore.cli.values import PlainCommand

Given = dict[str, object]


def parse(arguments: list[str], cls: type[typer.core.TyperCommand]) -> Given | str:
    """Return what a command with options of every kind gets, or the error."""
    app, got = typer.Typer(add_completion=False), Given()

    @app.command(cls=cls)
    def command(
        files: Annotated[list[str], typer.Argument()],
        name: str = "unset",
        other: str | None = None,
        words: list[str] | None = None,
        more: Annotated[list[str], typer.Option()] = ["a"],  # noqa: B006
        path: Path | None = None,
        folder: Path = Path(),
        count: int = 3,
        flag: bool = False,
    ) -> None:
        got.update(locals())

    try:
        app(arguments, standalone_mode=False)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return {key: value for key, value in got.items() if key not in ("got", "app")}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a"],
        ["a", "b", "--name", "x", "--other", ""],
        ["a", "--words", "x", "--words", "y", "--more", "z"],
        ["a", "--path", "absent.wav", "--folder", "/"],
        ["a", "--path", ""],
        ["a", "--count", "5", "--flag"],
        ["a", "--count", "five"],
        ["a", "--unknown"],
        ["a", "--name"],
    ],
    ids=" ".join,
)
def test_values_are_those_of_typer(arguments: list[str]) -> None:
    plain = parse(arguments, PlainCommand)
    assert plain == parse(arguments, typer.core.TyperCommand)
    if isinstance(plain, dict):
        for value in (plain["words"], plain["more"], plain["files"]):
            assert value is None or type(value) is list


def test_help_is_that_of_typer(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for cls in (PlainCommand, typer.core.TyperCommand):
        assert parse(["--help"], cls) == {}
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert "--name" in shown[0]


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a command imports."""
    code = (
        "import sys\nfrom driftscore.cli.app import main\n"
        f"sys.argv = {['driftscore', *arguments]!r}\n"
        "try:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_a_command_imports_neither_other_commands_nor_pydantic() -> None:
    found = loaded_by("prompts", "--labels", "siren, rain")
    assert "driftscore.cli.heads" in found
    assert not found & {"pydantic", "rich", "onnxruntime", "driftscore.cli.classify"}
    assert not found & {"driftscore.cli.serve", "driftscore.cli.doctor", "driftscore.cli.review"}


def test_an_app_of_one_command_knows_it_as_the_app_of_all_does() -> None:
    every = typer.main.get_command(make_app())
    assert isinstance(every, typer.core.TyperGroup)
    assert set(every.commands) == set(_COMMANDS)
    for name in ("classify", "list", "lab", "cache"):
        one = typer.main.get_command(make_app([name]))
        assert isinstance(one, typer.core.TyperGroup)
        assert list(one.commands) == [name]
        expected = [parameter.opts for parameter in every.commands[name].params]
        assert [parameter.opts for parameter in one.commands[name].params] == expected
