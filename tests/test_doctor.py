"""`driftscore doctor`: every optional part is known to it, and it tells the truth."""

import csv
import io
import json
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from driftscore.backbones import hub, mini
from driftscore.cli import doctor
from driftscore.cli.doctor import PURPOSES, examine
from driftscore.errors import install_command
from driftscore.version import __version__

from .conftest import PROJECT, Run


def states() -> dict[str, tuple[str, str]]:
    return {part: (state, what) for part, state, what in examine()}


def test_it_reports_the_version_the_runtimes_and_the_places(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub.settings(), "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    (tmp_path / "hf" / "hub" / "models--laion--clap-htsat--x").mkdir(parents=True)
    status, out, _ = run("doctor", "--format", "csv")
    assert status == 0, out
    listed = list(csv.reader(io.StringIO(out)))
    rows = {(part, what): state for part, state, what in listed}
    parts = {part: what for part, _, what in listed}
    assert parts["driftscore"].startswith(__version__)
    assert "runs the model mini (527 dimensions)" in parts["runtime onnxruntime"]
    assert str(tmp_path / "hf" / "hub") in parts["hub cache"]
    assert rows["hub model", "laion/clap-htsat--x"] == "ok"
    assert str(tmp_path / "cache") in parts["cache texts"]
    assert "models are not downloaded" in parts["HF_HUB_OFFLINE"]


def test_every_extra_is_known_with_its_libraries() -> None:
    about = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = set(about["project"]["optional-dependencies"]) - {"dev"}
    assert extras == set(PURPOSES), "add the extra to PURPOSES in cli/doctor.py"


def test_a_missing_part_comes_with_its_purpose_and_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remove(monkeypatch, {"mteb", "onnx"})
    monkeypatch.setenv("PATH", "")
    found = states()
    state, what = found["extra mteb"]
    assert state == "missing"
    assert f"lacks mteb: {install_command('mteb')}" in what
    assert "CLAP without torch; lacks onnx" in found["extra export"][1]
    assert found["ffmpeg"][0] == "missing"


def test_a_runtime_that_does_not_work_is_broken_and_the_status_tells(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("libfoo.so cannot be opened")

    monkeypatch.setattr(doctor, "load_backbone", fail)
    status, out, _ = run("doctor", "--format", "json")
    assert status == 1
    broken = [row for row in json.loads(out) if row["state"] == "broken"]
    assert [row["part"] for row in broken] == ["runtime onnxruntime"]
    assert "libfoo.so" in broken[0]["what"]


def test_the_hub_is_asked_only_on_request(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def reason() -> str:
        asked.append("once")
        return "no route"

    monkeypatch.setattr(hub, "unreachable_reason", reason)
    assert "no route" not in run("doctor", "-f", "csv")[1]
    assert not asked
    status, out, _ = run("doctor", "--hub", "-f", "csv")
    assert status == 0
    assert "does not answer (no route)" in out


def test_it_works_where_nothing_optional_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = doctor.libraries()
    always = set(needs.pop(""))
    remove(monkeypatch, {name for names in needs.values() for name in names} - always)
    monkeypatch.setitem(sys.modules, "torch", None)
    found = states()
    assert not [part for part, (state, _) in found.items() if state == "broken"]
    assert all(found[f"extra {extra}"][0] == "missing" for extra in PURPOSES)
    assert mini.HOME.is_dir()


def test_it_works_in_a_copy_of_the_source_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "requires", fail)
    assert doctor.libraries() == {"": []}


def remove(monkeypatch: pytest.MonkeyPatch, packages: set[str]) -> None:
    """Let some packages look as if they were not installed."""

    def version_of(name: str) -> str | None:
        return None if name in packages else "1.0"

    monkeypatch.setattr(doctor, "version_of", version_of)
