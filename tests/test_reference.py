"""Reference pages say what commands and docstrings say, and public tables what the rows say."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

import driftscore
from driftscore.cli.app import all_commands

from .conftest import PROJECT

SCRIPTS = PROJECT / "scripts"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    """Return a script as a module; the parameter is its name."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    spec = importlib.util.spec_from_file_location(request.param, SCRIPTS / f"{request.param}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("script", ["reference"], indirect=True)
def test_the_reference_is_what_commands_and_docstrings_say(script: ModuleType) -> None:
    for path, text in script.pages().items():
        assert path.read_text(encoding="utf-8") == text, "run python scripts/reference.py"
    commands = script.COMMANDS.read_text(encoding="utf-8")
    for name in all_commands():
        assert f"\n## driftscore {name}\n" in commands
    python = script.API.read_text(encoding="utf-8")
    for name in set(driftscore.__all__) - {"__version__"}:
        assert f"<!-- ::: driftscore.{name} -->" in python, "add it to docs/api.md"
    assert "the sounds to look for, in words" in python
    assert " at 0x" not in python  # the same on every machine


def row(noise: str, snr_db: float | None, rule: str, accuracy: float) -> dict[str, object]:
    gain = None if rule == "cosine" else [accuracy - 50.0, accuracy - 51.0, accuracy - 49.0]
    return {"model": "mini", "noise": noise, "snr_db": snr_db, "rule": rule, "clips": 635,
            "accuracy": accuracy, "gain": gain}  # fmt: skip


CONDITIONS = [("", None), *((n, s) for n in ("esc50_noise", "synthetic") for s in (10.0, 0.0))]
CONTENT = {
    "defaults": {"mini": "whiten"},
    "rows": [
        row(noise, snr, rule, accuracy)
        for noise, snr in CONDITIONS
        for rule, accuracy in (("cosine", 50.0), ("das", 49.5), ("whiten", 56.25))
    ],
}


@pytest.mark.parametrize("script", ["public_table"], indirect=True)
def test_public_tables_are_made_from_rows(script: ModuleType) -> None:
    page = "<!-- public: short -->\nold\n<!-- /public -->\n<!-- public: full -->\n<!-- /public -->"
    text = script.written(page, CONTENT)
    assert "old" not in text
    assert "| rule | clean | sounds of ESC-50, 10 dB | sounds of ESC-50, 0 dB | synthetic" in text
    assert "| +6.2 (+5.2 to +7.2); +6.2 (+5.2 to +7.2) |" in text
    assert "50.0 / 49.5 / **56.2**" in text
    assert "+6.2 (+5.2 to +7.2)" in text
    assert "| `whiten` (default) |" in text
    assert "`mini`, 635 clips" in text
    assert script.written(text, CONTENT) == text


@pytest.mark.parametrize("script", ["public_table"], indirect=True)
def test_the_public_tables_of_the_documents_are_those_of_the_rows(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not script.ROWS.is_file():
        pytest.skip(
            "THE PUBLIC ROWS ARE MISSING: scripts/public_table.py --store STORE writes them"
        )
    monkeypatch.setattr(sys, "argv", ["public_table.py", "--check"])
    assert script.main() == 0
    rows = json.loads(script.ROWS.read_text(encoding="utf-8"))["rows"]
    assert {one["clips"] for one in rows} == {635}


def test_the_tested_clips_are_listed_once_and_none_is_of_fold_5() -> None:
    path = Path(driftscore.__file__).parent / "lab/corpora/datasets/esc50_public.txt"
    names = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert len(names) == len(set(names)) == 635
    assert {name[0] for name in names} == {"1", "2", "3", "4"}
    assert len({name.rpartition("-")[2] for name in names}) == 50
