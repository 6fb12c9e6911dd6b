"""Every command and Python block of the documents runs, or is listed with the reason why not."""

import ast
import importlib.util
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click
import pytest

import driftscore
from driftscore.cli.app import all_commands

from .conftest import PROJECT
from .examples import (
    DOCUMENTS,
    ELSEWHERE,
    NOT_RUN,
    STAND_INS,
    Example,
    examples,
    write_models,
    write_recordings,
)
from .fresh_process import Done, run_steps

EXAMPLES = [example for path in DOCUMENTS for example in examples(path)]
COMMANDS = [example for example in EXAMPLES if example.kind == "command"]
RUN = [e for e in EXAMPLES if e.kind in ("command", "python") and e.reason is None]
PRELUDE = "import numpy as np\nsamples = np.random.default_rng(0).standard_normal(44_100)\n"
"""What a Python block may use without making it: its samples are the reader's own."""
BUCKET = """
import fsspec
fsspec.filesystem("memory").put("night.flac", "/bucket/night/night.flac")
"""
"""Puts a recording where the stand-in for object storage has it."""


GROUPS = {name: f"examples {n % 2}" for n, name in enumerate(sorted({e.document for e in RUN}))}
"""Two groups of documents, which two workers run at the same time."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Example], Done]:
    """Return what runs the group of an example in one process, a folder per document, once."""

    @cache
    def run_group(group: str) -> dict[int, Done]:
        home = tmp_path_factory.mktemp("documents")
        write_recordings(home / "recordings")
        write_models(home / "hub")
        steps: list[tuple[str, str]] = []
        ids: list[int | None] = []
        for document in [name for name in GROUPS if GROUPS[name] == group]:
            folder = shutil.copytree(home / "recordings", home / document.replace("/", "_"))
            for example in EXAMPLES:
                if example.document == document and example.kind == "file":
                    name, _, text = example.text.partition("\n")
                    (folder / name.removeprefix("# ")).write_text(text, encoding="utf-8")
            own = [example for example in RUN if example.document == document]
            steps += [("folder", str(folder)), ("python", BUCKET), *map(step, own)]
            ids += [None, None, *map(id, own)]
        homes = {"HOME": str(home), "USERPROFILE": str(home)}  # the second is Windows'
        settings = {**homes, "HF_HUB_CACHE": str(home / "hub"), "HF_HUB_OFFLINE": "1"}
        results = run_steps(
            steps, cwd=home, paths=(PROJECT / "src",), cache=home / "cache", settings=settings
        )
        return {key: one for key, one in zip(ids, results, strict=True) if key is not None}

    return lambda example: run_group(GROUPS[example.document])[id(example)]


def step(example: Example) -> tuple[str, str]:
    text = example.text
    for pattern, other in STAND_INS.items():
        text = re.sub(pattern, other, text)
    return example.kind, (PRELUDE + text if example.kind == "python" else text)


@pytest.mark.parametrize(
    "example",
    [pytest.param(e, marks=pytest.mark.xdist_group(GROUPS[e.document]), id=str(e)) for e in RUN],
)
def test_an_example_runs(example: Example, done: Callable[[Example], Done]) -> None:
    result = done(example)
    assert result.status == 0, f"{result.status}\n{result.out}{result.err}"
    shown = " ".join((result.out + result.err).split())
    for line in example.output:
        assert " ".join(line.split()) in shown, result.out + result.err


def parse(words: list[str]) -> None:
    """Parse a command line as driftscore does, without running it."""
    command, rest = all_commands()[words[0]], words[1:]
    while isinstance(command, click.Group) and rest and rest[0] in command.commands:
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context("driftscore", list(rest))


@pytest.mark.parametrize(
    "example", [e for e in COMMANDS if re.match("(python -m )?driftscore ", e.text)], ids=str
)
def test_the_command_line_has_what_an_example_uses(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driftscore.cli.options.check_output", lambda _: None)  # names only
    line = example.text.split(" > ")[0]
    parse(shlex.split(line.removeprefix("python -m "))[1:])


def test_a_command_line_with_an_unknown_option_is_found() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["classify", "a.wav", "--label", "siren"])


@pytest.mark.parametrize("pattern", NOT_RUN)
def test_every_reason_not_to_run_is_that_of_an_example(pattern: str) -> None:
    assert any(re.search(pattern, e.text) for e in EXAMPLES), "remove it from NOT_RUN"


@pytest.mark.parametrize("skipped", ELSEWHERE)
def test_what_another_test_runs_exists(skipped: str) -> None:
    document, _, section = skipped.partition(" ")
    assert section in (PROJECT / document).read_text(encoding="utf-8")
    test = re.search(r"tests/[\w/]+\.py", ELSEWHERE[skipped])
    assert test
    assert Path(document).name in (PROJECT / test[0]).read_text(encoding="utf-8")


@pytest.mark.parametrize("example", [e for e in COMMANDS if e.reason], ids=str)
def test_what_other_programs_are_given_exists(example: Example) -> None:
    """Targets of make, modules of python -m, and extras of pip install."""
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    about = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    for target in re.findall(r"^make ([a-z-]+)", example.text):
        assert f"\n{target}:" in makefile
    for module in re.findall(r"python -m ((?:bench|training)[\w.]*)", example.text):
        path = PROJECT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
    for extras in re.findall(r"pip install '(?:driftscore|\.)\[([\w,]+)\]'", example.text):
        assert set(extras.split(",")) <= set(about["project"]["optional-dependencies"])


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.kind == "python"], ids=str)
def test_a_python_example_imports_what_exists(example: Example) -> None:
    for node in ast.walk(ast.parse(example.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("driftscore"):
            assert importlib.util.find_spec(node.module or "")
            if node.module == "driftscore":
                assert {alias.name for alias in node.names} <= set(driftscore.__all__)


def test_most_examples_are_run() -> None:
    assert len(RUN) > len([e for e in EXAMPLES if e.reason and "driftscore" in e.text])
