"""Presets: the settings of papers, and files of one's own."""

from pathlib import Path

import numpy as np
import pytest

from driftscore import (
    ClassBank,
    FormatError,
    UsageError,
    compile_head,
)
from driftscore.text.presets import load_preset

from .conftest import leaning_clips


def test_presets_fix_the_parameters_of_the_papers(bank: ClassBank) -> None:
    clips = leaning_clips(64)
    ours = compile_head(bank, "tgap", pool=clips)
    theirs = compile_head(bank, "tgap", preset="acevedo2025", pool=clips)
    assert ours.made_by["settings"]["nearest"] == 10
    assert theirs.made_by["settings"]["nearest"] == 35
    assert compile_head(bank, "das").made_by["settings"]["beta"] == 0.25
    assert compile_head(bank, "das", beta=0.1).made_by["settings"]["beta"] == 0.1


def preset_file(folder: Path, text: str) -> Path:
    path = folder / "own.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_preset_of_ones_own_is_a_file(bank: ClassBank, tmp_path: Path) -> None:
    path = preset_file(tmp_path, '[own]\ntitle = "Ours"\n[own.rules.das]\nbeta = 0.6\n')
    head = compile_head(bank, "das", preset=path)
    assert (head.made_by["preset"], head.made_by["settings"]["beta"]) == ("own", 0.6)
    np.testing.assert_array_equal(head.weights, compile_head(bank, "das", beta=0.6).weights)
    same = compile_head(bank, "das", preset=load_preset(path))
    np.testing.assert_array_equal(head.weights, same.weights)


def test_a_setting_of_a_preset_that_its_rule_does_not_have_is_refused(
    bank: ClassBank, tmp_path: Path
) -> None:
    path = preset_file(tmp_path, "[own.rules.das]\nbta = 0.6\n")
    with pytest.raises(UsageError, match="did you mean 'beta'"):
        compile_head(bank, "das", preset=path)
    compile_head(bank, "cosine", preset=path)  # another rule is not concerned


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not toml", "not valid TOML"),
        ("", "must hold one preset, got 0"),
        ("[a]\n[b]\n", "must hold one preset, got 2"),
        ("own = 3\n", "own must be a table"),
        ("[own.prompt]\n", "did you mean 'prompts'"),
        ("[own.prompts]\npak = 'das52'\n", "did you mean 'pack'"),
        ("[own.prompts]\ndirection = 'pca'\n", "direction must be mean or svd, got 'pca'"),
        ("[own]\nrules = 3\n", "own.rules must be a table"),
        ("[own.rules]\ndas = 3\n", "own.rules.das must be a table"),
    ],
)
def test_a_bad_preset_file_is_refused_in_words(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        load_preset(preset_file(tmp_path, text))
    with pytest.raises(FormatError, match="There is no preset at"):
        load_preset(tmp_path / "absent.toml")
