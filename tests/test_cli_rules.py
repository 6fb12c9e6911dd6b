"""Rules, their settings and presets, chosen on the command line."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from driftscore import Backbone, ClassBank, Classifier, Head

from .conftest import LABELS, Install, Run, WriteWav

ASK = ["--labels", ", ".join(LABELS), "--backbone", "fake"]
RULE = '''
"""Rank labels by twice their cosine."""
import numpy as np
from driftscore import Head

def double(bank, *, factor: float = 2.0):
    """Rank labels by a multiple of their cosine."""
    return Head(bank.labels, factor * bank.prototypes, np.zeros(len(bank.labels)))
'''


@pytest.fixture
def outside(install: Install) -> None:
    """Install a package with a rule, which is also the entry point `double`."""
    install("outside_rules", RULE, "[driftscore.rules]\ndouble = outside_rules:double\n")


def head_of(run: Run, tmp_path: Path, *options: object) -> Head:
    status, _, err = run("head", *ASK, *options, "-o", tmp_path / "h.safetensors")
    assert status == 0, err
    return Head.load(tmp_path / "h.safetensors")


def settings_of(head: Head) -> dict[str, object]:
    settings = head.made_by["settings"]
    assert isinstance(settings, dict)
    return settings


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    path = tmp_path / "my.toml"
    path.write_text('[mine]\ntitle = "Mine"\n[mine.rules.das]\nbeta = 0.7\n')
    return path


def test_the_beta_of_a_preset_reaches_the_head_and_an_option_wins(
    run: Run, tmp_path: Path, preset: Path, bank: ClassBank, fake: Backbone
) -> None:
    for options, beta in (
        ([], 0.25),
        (["--preset", preset], 0.7),
        (["--preset", preset, "--set", "beta=0.1"], 0.1),
        (["--preset", preset, "--set", "beta=0.2"], 0.2),
    ):
        head = head_of(run, tmp_path, *options)
        assert settings_of(head)["beta"] == beta
        expected = bank.prototypes + beta * bank.drifts
        np.testing.assert_allclose(head.weights, expected, atol=1e-6)
    fitted = Classifier(LABELS, backbone=fake, preset=preset).fit()
    assert settings_of(fitted.head_)["beta"] == 0.7


def test_the_beta_of_a_preset_reaches_classify(
    run: Run, wav: WriteWav, preset: Path, fake: Backbone
) -> None:
    file = wav()
    scores = Classifier(LABELS, backbone=fake, settings={"beta": 0.7}).scores([file])[0]
    ask = ["classify", file, *ASK, "--preset", preset, "--multi", "-f", "jsonl"]
    row = json.loads(run(*ask)[1])
    assert list(row["scores"].values()) == pytest.approx(list(scores), abs=1e-6)
    default = json.loads(run("classify", file, *ASK, "--multi", "-f", "jsonl")[1])
    assert row["scores"] != default["scores"]


def test_settings_of_a_rule_reach_it(run: Run, tmp_path: Path) -> None:
    head = head_of(run, tmp_path, "-r", "zs_text", "--set", "background=street traffic", "--set",
                   "tau=0.3")  # fmt: skip
    assert settings_of(head) == {"background": "street traffic", "tau": 0.3}


@pytest.mark.parametrize(("rule", "other"), [("zs_text", "das"), ("das", "zs_text")])
def test_each_compared_rule_gets_the_settings_that_it_has(
    run: Run, wav: WriteWav, fake: Backbone, rule: str, other: str
) -> None:
    file = wav()
    ask = ["classify", file, *ASK, "-r", rule, "--compare", other, "-f", "jsonl"]
    status, out, _ = run(*ask, "--set", "tau=0.9", "--set", "beta=0.8")
    assert status == 0
    row = json.loads(out)
    for name, settings in (("zs_text", {"tau": 0.9}), ("das", {"beta": 0.8})):
        classifier = Classifier(LABELS, backbone=fake, rule=name, settings=settings)
        [result] = classifier.classify([file])
        assert row[name] == result.label
        assert row[f"{name} margin"] == pytest.approx(result.margin, abs=1e-6)
    status, _, err = run(*ask, "--set", "tua=0.9")
    assert (status, "No setting called 'tua'" in err) == (2, True)


def test_noise_goes_to_the_compared_rule_that_uses_it(run: Run, wav: WriteWav) -> None:
    file, noise = wav(), wav("noise.wav", seed=5)
    ask = ["classify", file, *ASK, "-r", "das", "--compare", "zs_audio", "-f", "csv"]
    status, out, _ = run(*ask, "--set", f"noise={noise}")
    assert status == 0
    assert next(csv.DictReader(io.StringIO(out)))["zs_audio"] in LABELS
    status, _, err = run("classify", file, *ASK, "--set", f"noise={noise}")
    assert (status, "No setting called 'noise'" in err) == (2, True)


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize("rule", ["outside_rules:double", "double"])
def test_a_rule_from_outside_is_used_by_its_reference_or_its_entry_point(
    run: Run, wav: WriteWav, tmp_path: Path, bank: ClassBank, rule: str
) -> None:
    assert run("classify", wav(), *ASK, "-r", rule)[0] == 0
    head = head_of(run, tmp_path, "-r", rule, "--set", "factor=3")
    np.testing.assert_allclose(head.weights, 3 * bank.prototypes, atol=1e-6)
    row = json.loads(
        run("classify", wav(), *ASK, "-r", rule, "--compare", "cosine", "-f", "jsonl")[1]
    )
    assert row[rule] == row["cosine"]


@pytest.mark.usefixtures("outside")
def test_an_entry_point_is_listed(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("list", "rules", "-f", "csv")[1])))
    assert {"rule": "double", "what": "Rank labels by a multiple of their cosine"} in rows


def test_a_rule_in_a_file_of_the_current_folder_is_found_by_the_installed_command(
    wav: WriteWav, tmp_path: Path
) -> None:
    program = Path(sys.executable).with_name("driftscore")
    if not program.is_file():
        pytest.skip("THE COMMAND IS NOT INSTALLED: make setup")
    (tmp_path / "my_rules.py").write_text(RULE)
    file = wav()

    def call(rule: str) -> "subprocess.CompletedProcess[str]":
        command = [str(program), "classify", file, *ASK, "--rule", rule, "--format", "csv"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    found = call("my_rules:double")
    assert (found.returncode, found.stderr) == (0, "")
    assert call("my_rules:missing").returncode == 2
    (tmp_path / "soxr.py").write_text("raise SystemExit('the library of the folder was imported')")
    assert call("my_rules:double").stdout == found.stdout
