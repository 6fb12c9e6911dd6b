"""Datasets and noises under names of one's own, and grids that are made in Python."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from driftscore.cli.lab import lab as app
from driftscore.errors import FormatError, UsageError
from driftscore.lab.corpora.datasets import find_dataset
from driftscore.lab.corpora.noises import find_noise
from driftscore.lab.runs.grid import make_grid, parse_grid
from driftscore.lab.runs.runner import mixes, run
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.validation import check

from .small_lab import WriteWav, build, quick, tone, write

GRID = """
datasets = ["yard", "hall"]
noises = ["traffic", "crowd"]
snrs = ["clean", 0]
backbones = ["fake"]
rules = ["cosine", "zs_audio"]

[homes]
yard = "clips"
hall = "hall.csv"
traffic = "noise"
crowd = "crowd"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a folder with two datasets, one of them a csv, and two noises."""
    build(tmp_path)
    write(tmp_path / "crowd" / "people.wav", tone(150, 3.0))
    (tmp_path / "hall.csv").write_text(
        "file,label\nclips/siren-0.wav,siren\nclips/rain-1.wav,rain\n", encoding="utf-8"
    )
    return tmp_path


def test_names_with_a_home_are_folders_of_clips_and_of_noise(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    grid = parse_grid(GRID, name="mine", folder=home)
    with Store(home / "store") as store:
        outcome = run(grid, store)
        rows = list(store.rows())
    assert outcome.errors == 0
    conditions = {(r.cell.condition.dataset, r.cell.condition.noise) for r in rows}
    noises = (None, "traffic", "crowd")
    assert conditions == {(dataset, noise) for dataset in ("yard", "hall") for noise in noises}
    assert {r.n for r in rows if r.cell.condition.dataset == "yard"} == {12}
    assert {r.n for r in rows if r.cell.condition.dataset == "hall"} == {2}


def test_the_rows_of_clean_clips_do_not_depend_on_the_name(home: Path) -> None:
    values = {}
    for name in ("folder", "yard"):
        content = {"datasets": [name], "backbones": ["fake"], "homes": {name: "clips"}}
        with Store(home / name) as store:
            run(make_grid(content, folder=home), store)
            values[name] = [(r.cell.scoring, r.value, r.n) for r in store.rows()]
    assert len(values["yard"]) == 2
    assert sorted(values["yard"], key=str) == sorted(values["folder"], key=str)


def test_mixes_take_their_noise_from_the_folder_of_its_name(home: Path) -> None:
    grid = parse_grid(GRID, name="mine", folder=home)
    parts = {
        (str(saved.condition.noise), Path(part.file).parent.name)
        for saved in mixes(grid, check(grid), lambda backbone: 16_000)
        if saved.record is not None
        for part in saved.record.parts
        if part.role == "background"
    }
    assert parts == {("traffic", "noise"), ("crowd", "crowd")}


def test_a_plan_says_what_was_found_in_each_folder(home: Path) -> None:
    ahead = check(parse_grid(GRID, name="mine", folder=home), plan=True)
    assert list(ahead.corpora.values()) == [
        "yard: 12 clips of 3 labels",
        "hall: 2 clips of 2 labels",
        "traffic: 2 noise recordings",
        "crowd: 1 noise recordings",
    ]
    assert not ahead.missing
    (home / "mine.toml").write_text(GRID, encoding="utf-8")
    done = CliRunner().invoke(
        app, ["run", str(home / "mine.toml"), "--plan", "--store", str(home / "store")]
    )
    assert done.exit_code == 0
    for line in ahead.corpora.values():
        assert line in done.stderr
    assert "about 2 s for all of it" in done.stderr  # 42 clips of an assumed 0.05 s


def test_a_folder_that_is_empty_is_missing_in_the_plan(home: Path) -> None:
    content = {"datasets": ["yard"], "homes": {"yard": "nothing"}}
    ahead = check(make_grid(content, folder=home), plan=True)
    assert "sound files in one sub-folder per label" in ahead.missing[0]


def test_a_name_without_a_home_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"No dataset called 'yard'.*its folder in \[homes\]"):
        find_dataset("yard")
    with pytest.raises(UsageError, match=r"No noise called 'crowd'.*its folder in \[homes\]"):
        find_noise("crowd")
    with pytest.raises(UsageError, match="No dataset called 'yard'"):
        check(make_grid({"datasets": ["yard"]}), plan=True)


def test_a_known_name_keeps_its_own_layout_also_with_a_home(tmp_path: Path) -> None:
    assert "meta/esc50.csv" in find_dataset("esc50", tmp_path).missing()


def test_the_column_of_a_table_may_be_label_or_labels(tmp_path: Path, write_wav: WriteWav) -> None:
    write_wav(tmp_path / "a.wav")
    for column in ("label", "labels"):
        (tmp_path / "labels.csv").write_text(f"file,{column}\na.wav,siren\n", encoding="utf-8")
        (clip,) = find_dataset("mine", tmp_path).clips()
        assert clip.labels == ("siren",)
    (tmp_path / "labels.csv").write_text("file,class\na.wav,siren\n", encoding="utf-8")
    with pytest.raises(FormatError, match="lacks the column labels; its columns: file, class"):
        find_dataset("mine", tmp_path).clips()


def test_a_grid_in_python_is_the_grid_of_the_same_file(home: Path) -> None:
    content = {
        "datasets": ["yard", "hall"],
        "noises": ["traffic", "crowd"],
        "snrs": ["clean", 0],
        "backbones": ["fake"],
        "rules": ["cosine", "zs_audio"],
        "homes": {"yard": "clips", "hall": "hall.csv", "traffic": "noise", "crowd": "crowd"},
    }
    made = make_grid(content, name="mine", folder=home)
    assert made == parse_grid(GRID, name="mine", folder=home)


def test_a_wrong_value_in_python_is_named_by_its_key() -> None:
    with pytest.raises(FormatError, match="The grid grid: datasets must be a text, a number"):
        make_grid({"datasets": None})
    with pytest.raises(FormatError, match="No key called 'dataset'; did you mean 'datasets'"):
        make_grid({"dataset": ["yard"]})
