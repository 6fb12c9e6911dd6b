"""The notebooks of the documentation run, and their stored outputs are those of the code."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import PROJECT

pytestmark = pytest.mark.slow

pytest.importorskip("matplotlib", reason="MATPLOTLIB IS NOT INSTALLED")

FOLDER = PROJECT / "docs" / "notebooks"
NAMES = sorted(path.name for path in FOLDER.glob("*.ipynb"))
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run all notebooks once; return the folder with the results."""
    folder = tmp_path_factory.mktemp("notebooks")
    done = subprocess.run(
        [sys.executable, PROJECT / "scripts" / "run_notebooks.py", "--out", folder],
        env=os.environ | {"DRIFTSCORE_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def printed(path: Path) -> list[str]:
    """Return the texts that the cells of a notebook give, and a mark for each figure."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    found = []
    for cell in content["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            text = output.get("text") or data.get("text/plain") or ["(a figure)"]
            found.append("".join(text))
    return found


def test_there_are_two_notebooks() -> None:
    assert NAMES == ["classification_in_noise.ipynb", "own_model.ipynb"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_prints_what_is_stored_in_it(name: str, outputs: Path) -> None:
    """Numbers may differ a little: another processor has other last bits."""
    stored, found = printed(FOLDER / name), printed(outputs / name)
    assert len(stored) > 4
    assert [NUMBER.sub("#", text) for text in found] == [NUMBER.sub("#", text) for text in stored]
    for ours, theirs in zip(found, stored, strict=True):
        close = 4.1 if "%" in theirs else 0.02  # one mix of 25 is 4 %
        for value, expected in zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True):
            assert float(value) == pytest.approx(float(expected), abs=close)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_small_and_has_the_form_of_version_4(name: str) -> None:
    assert (FOLDER / name).stat().st_size < 300_000
    content = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in content["cells"]]
    assert len(ids) == len(set(ids))
    for cell in content["cells"]:
        assert set(cell) >= {"cell_type", "id", "metadata", "source"}
        assert cell["cell_type"] == "markdown" or cell["outputs"] is not None


@pytest.mark.parametrize("name", NAMES)
def test_links_of_a_notebook_lead_to_files_that_exist(name: str) -> None:
    content = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    text = "".join("".join(c["source"]) for c in content["cells"] if c["cell_type"] == "markdown")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (FOLDER / target).exists(), target
