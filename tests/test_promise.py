"""The figures that are told anywhere are those of the stored rows; defaults by the worst set."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftscore import Classifier, load_backbone
from driftscore.lab.conditions import COSINE, Cell, Row, clean_condition
from driftscore.lab.runs.truth import Truth
from driftscore.scoring.calibration import Calibration
from driftscore.scoring.rules import choose_rule
from training import promise
from training.choose import REPORT, STORED, Settings, chosen
from training.sets import animal_file, office_file

from .conftest import PROJECT

CALIBRATIONS = PROJECT / "src" / "driftscore" / "models" / "calibrations"


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    rows: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8"))
    return rows


@pytest.mark.parametrize("name", promise.FILES)
def test_the_tables_of_a_document_are_those_of_the_stored_rows(
    name: str, stored: dict[str, Any]
) -> None:
    text = (PROJECT / name).read_text(encoding="utf-8")
    assert "<!-- promise: " in text
    assert promise.rendered(text, stored) == text, "run `python -m training.promise`"
    line = promise.select(stored["rows"], model="mini", set="esc50", rule="anchor")[0]
    changed = {**line, "noise": [9.9, 9.8, 9.95], "accuracy": dict.fromkeys(line["accuracy"], 1.0)}
    other = {**stored, "rows": [changed if row is line else row for row in stored["rows"]]}
    assert promise.rendered(text, other) != text


@pytest.mark.parametrize("model", ["mini", "mn04"])
def test_the_reason_for_the_default_has_the_figures_of_the_stored_rows(
    model: str, stored: dict[str, Any]
) -> None:
    calibration = Calibration.load(CALIBRATIONS / f"{model}.safetensors")
    rule, reason = choose_rule(calibration)
    default = stored["defaults"][model]
    assert rule == default["rule"]
    assert reason == promise.why(stored, model), "run `python -m training.promise`"
    assert dict(calibration.settings[rule]) == default["settings"]
    assert calibration.digest == default["calibration"], "run `python -m training.default`"
    assert (CALIBRATIONS / f"{model}.safetensors").stat().st_size < 2e6
    for dataset in REPORT:
        line = promise.select(stored["rows"], model=model, set=dataset, rule=rule)[0]
        assert line["clips"] > 100
        assert line["noise"][1] < line["noise"][0] < line["noise"][2]


def test_the_rows_are_those_of_the_model_that_ships_and_of_the_command(
    stored: dict[str, Any],
) -> None:
    model = load_backbone("mini")
    assert stored["defaults"]["mini"]["fingerprint"] == model.fingerprint
    fitted = Classifier(["siren", "rain"], backbone=model).fit()
    assert fitted.why_ == promise.why(stored, "mini")
    assert fitted.head_.unit == "cosine"


def test_figures_of_earlier_defaults_are_told_nowhere() -> None:
    pages = [PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")]
    for page in [page for page in pages if page.name != "report.md"]:
        text = page.read_text(encoding="utf-8")
        for figure in ("**+6.6**", "+6.6 and +6.3", "67.7 %", "by how often the noisy copy"):
            assert figure not in text, f"{figure} in {page.name}"


def test_without_a_calibration_nothing_is_said_to_follow_from_it() -> None:
    rule, reason = choose_rule(None)
    assert rule == "das"
    assert reason == "no calibration exists for this model, so DAS as in the paper"


def test_settings_are_chosen_by_the_worst_set_and_then_the_gentlest() -> None:
    def candidate(weight: float, amount: float, *gained: float) -> tuple[Settings, Any]:
        settings = {"weight": weight, "amount": amount, "sharpness": 1.0}
        return settings, {"a": gained[:2], "b": gained[2:]}

    strong = candidate(0.3, 0.1, 0.20, 0.20, -0.04, 0.10)
    best = candidate(0.2, 0.05, 0.02, 0.03, 0.02, 0.03)
    gentle = candidate(0.1, 0.05, 0.015, 0.03, 0.02, 0.02)
    gentler = candidate(0.1, 0.01, 0.005, 0.03, 0.02, 0.02)
    table = [strong, best, gentle, gentler]
    assert chosen(table, ["a", "b"]) is gentle
    assert chosen([strong, best, gentler], ["a", "b"]) is best
    assert chosen(table, ["a"]) is strong


def test_a_gain_is_the_mean_over_clips_and_in_balanced_sets_over_classes() -> None:
    truth = Truth(("x", "y"), tuple("abcd"), (None,) * 4, ((0,), (0,), (0,), (1,)), False)
    cell = Cell(clean_condition("animals", "", 0, "mini", ""), COSINE)

    def outcomes(labels: list[int], *, balanced: bool) -> promise.Outcomes:
        collected = promise.Outcomes()
        row = Row(cell, outcomes=np.array(labels, np.int16))
        collected.add(None, row, truth, balanced=balanced)
        collected.add(10.0, row, truth, balanced=balanced)
        return collected

    for balanced, expected in ((False, 25.0), (True, 50.0)):
        ours = outcomes([0, 0, 1, 1], balanced=balanced)
        base = outcomes([0, 0, 1, 0], balanced=balanced)
        values, resampled = promise.gain(ours, base, "test", noisy=False)
        assert values[0] == pytest.approx(expected)
        assert values[1] <= values[0] <= values[2]
        assert len(resampled) == promise.RESAMPLES
        assert ours.share(10.0) == pytest.approx((2 / 3 + 1) / 2 if balanced else 3 / 4)


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("data/train/sound/keysDrop012.wav", "clean/keys/keysDrop012.wav"),
        (
            "data/val/segments/dev_1_ebr_-6_nec_1_poly_0_knock_00.wav",
            "noisy/door_knock/dev_1_ebr_-6_nec_1_poly_0_knock_00.wav",
        ),
        ("data/val/wav_files/long.wav", ""),
    ],
)
def test_office_sounds_go_to_the_folder_of_their_label(path: str, file: str) -> None:
    assert office_file(path) == file


def test_animals_go_to_the_folder_of_their_english_name() -> None:
    assert animal_file("Kus-Part2/Kus_101.wav") == "bird/Kus_101.wav"
    assert animal_file("README.md") == ""


def test_no_noise_that_is_tested_with_is_in_a_calibration() -> None:
    for path in CALIBRATIONS.glob("*.safetensors"):
        made_by = Calibration.load(path).made_by
        assert "no test noise" in str(made_by["noises"])
        names = json.dumps(made_by["sources"])
        assert not any(test in names for test in ("moodist", "berlin", "blanket", "speechcommands"))
    assert Path(CALIBRATIONS / "mini.safetensors").exists()
