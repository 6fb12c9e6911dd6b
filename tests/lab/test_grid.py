import json
import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from driftscore.errors import FormatError, UsageError
from driftscore.lab.conditions import Cell, read_key
from driftscore.lab.runs import grid as grids
from driftscore.lab.runs.grid import Grid, groups, keys, load_grid, measure, parse_grid
from driftscore.lab.runs.scorings import Facts
from driftscore.lab.runs.validation import check

from .small_lab import build, small_grid, write


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return build(tmp_path)


def cells(grid: Grid) -> list[Cell]:
    return [Cell(condition, s) for condition, scorings in groups(grid) for s in scorings]


def axis(values: Iterable[float]) -> str:
    return json.dumps(list(values))


@pytest.mark.slow
def test_a_million_cells_are_planned_in_seconds() -> None:
    text = (
        'datasets = ["esc50", "fsd50k", "sonyc_ust", "tut2016", "urbansound8k"]\n'
        'noises = ["tau2019", "demand", "musan", "recorded", "synthetic"]\n'
        f'mixings = ["additive", "scaper"]\nsnrs = {axis(range(20))}\nseeds = {axis(range(10))}\n'
        f'backbones = ["mini", "mn04"]\nrules = ["cosine", "das", "zs_text", "zs_audio"]\n'
        f"betas = {axis(n / 100 for n in range(1, 48))}\n"
    )
    started = time.process_time()
    big = parse_grid(text, name="big")
    facts = Facts(clips={f"{name}/0": 400 for name in big.names("datasets")})
    size = measure(big, facts)
    listed = sum(1 for _ in keys(big, facts))
    assert size.cells == listed == 1_000_000
    assert size.clips == 20_000 * 400
    assert size.seconds > 0
    assert time.process_time() - started < 10


def test_planning_takes_no_more_memory_for_more_cells() -> None:
    def peak(seeds: int) -> int:
        text = (
            'datasets = ["esc50"]\nnoises = ["musan"]\nsnrs = [0, 10]\nrules = ["das"]\n'
            f"seeds = {axis(range(seeds))}\nbetas = {axis(n / 100 for n in range(50))}\n"
        )
        planned = parse_grid(text, name="many")
        tracemalloc.start()
        try:
            assert sum(1 for _ in keys(planned)) == 100 * seeds
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(2)  # what is imported and cached on first use is not counted
    assert peak(400) < peak(10) + 100_000


def test_the_count_is_that_of_distinct_keys(home: Path) -> None:
    grid = small_grid(home, more="betas = [0.1, 0.25]")
    listed = list(keys(grid))
    assert len(listed) == len(set(listed)) == measure(grid).cells
    assert listed == [cell.key for cell in cells(grid)]


def test_a_key_is_canonical_json_and_describes_the_cell(home: Path) -> None:
    for cell in cells(small_grid(home)):
        assert json.dumps(json.loads(cell.key), sort_keys=True, separators=(",", ":")) == cell.key
        assert read_key(Cell, cell.key) == cell


def test_blocks_share_conditions_and_no_cell_is_planned_twice() -> None:
    text = (
        'datasets = ["esc50"]\nnoises = ["musan"]\nsnrs = ["clean", 0]\n'
        '[[block]]\nrules = ["cosine", "das"]\n[[block]]\nrules = ["das", "zs_text"]\n'
        "betas = [0.25, 0.5]\n"
    )
    found = [cell.key for cell in cells(parse_grid(text, name="two"))]
    assert len(found) == len(set(found)) == 2 * 4
    conditions = [condition for condition, _ in groups(parse_grid(text, name="two"))]
    assert len(conditions) == len(set(conditions)) == 2


def settings_of(rule: str) -> set[str]:
    """Return the settings that the scorings of a rule have in a noisy condition."""
    text = f'datasets = ["esc50"]\nnoises = ["musan"]\nsnrs = [0]\nrules = ["{rule}"]\n'
    ((_, (scoring,)),) = groups(parse_grid(text, name="one"))
    names = ("beta", "pack", "direction", "reference", "anchors")
    return {name for name in names if getattr(scoring, name) is not None}


def test_a_model_that_is_asked_for_is_measured_in_the_blocks_that_name_it() -> None:
    grid = parse_grid(
        'datasets = ["esc50"]\n[[block]]\nbackbones = ["mini"]\n'
        '[[block]]\nbackbones = ["mn04"]\nlimit = 200\n',
        name="blocks",
    )

    def measured(*models: str) -> list[tuple[list[str], int]]:
        return [(b.names("backbones"), b.limit) for b in grid.with_backbones(models).blocks]

    assert measured("mini") == [(["mini"], 0)]
    assert measured("mini", "fake") == [(["mini", "fake"], 0), (["fake"], 200)]
    assert measured("fake") == [(["fake"], 0), (["fake"], 200)]


def test_a_rule_has_only_the_axes_that_change_its_head() -> None:
    assert settings_of("cosine") == set()
    assert settings_of("das") == {"beta", "pack", "direction", "reference"}
    assert settings_of("noisy_ensemble") == {"pack"}
    assert settings_of("tgap_audio") == {"anchors"}
    assert settings_of("zs_text:matched") == settings_of("zs_audio_oracle") == set()


def test_clean_clips_have_no_noise_and_no_environment(home: Path) -> None:
    clean = next(s for c, s in groups(small_grid(home)) if c.clean)
    names = [scoring.name for scoring in clean]
    assert "zs_audio" in names
    assert "zs_text:matched" not in names
    assert "zs_audio_oracle" not in names
    assert len([c for c, _ in groups(small_grid(home)) if c.clean]) == 1


@pytest.mark.parametrize("name", grids.shipped_grids())
def test_every_shipped_grid_is_planned(name: str) -> None:
    grid = load_grid(name)
    assert grid.title
    assert measure(grid).cells > 10


def test_the_grid_of_the_shared_recordings_has_all_its_snrs_seeds_and_mixings(shared: Path) -> None:
    grid = load_grid(Path(__file__).parents[2] / "training" / "grids" / "here.toml")
    facts = Facts(clips={"shared_events/0": 400, "shared_scenes/0": 200})
    snrs = {c.snr_db for c, _ in groups(grid, facts)}
    assert snrs == {None, 20, 10, 8, 6, 0}
    assert {c.seed for c, _ in groups(grid, facts)} == {None, 0, 1, 2}
    assert {c.mixing for c, _ in groups(grid, facts)} == {None, "additive", "scaper"}


def test_all_problems_are_reported_at_once(home: Path) -> None:
    grid = small_grid(
        home,
        rules=["cosin", "das", "cosine:matched"],
        snrs='["clean", "loud"]',
        mixings='["scapper"]',
        more='betas = ["x"]\ndirections = ["men"]\nreferences = ["prompt"]',
    )
    (home / "clips" / "siren-0.wav").unlink()
    write(home / "noise" / "street.wav", np.zeros(16_000))
    write(home / "noise" / "cafe.wav", np.ones(1_600) * 0.1)
    with pytest.raises(UsageError) as caught:
        check(grid)
    message = str(caught.value)
    for part in (
        "did you mean 'cosine'?",
        "The rule 'cosine' has no variant 'matched'",
        "An SNR must be a number of dB or 'clean', got 'loud'",
        "did you mean 'scaper'?",
        "A beta must be a number, got 'x'",
        "did you mean 'mean'?",
        "siren-0.wav",
        "street.wav is silent",
        "cafe.wav is 0.100 s long",
    ):
        assert part in message, part


def test_a_class_that_all_noise_contains_is_reported_beforehand(home: Path) -> None:
    (home / "noise" / "noise.csv").write_text(
        "file,environment,avoid\nstreet.wav,street,siren\ncafe.wav,cafe,siren rain\n"
    )
    with pytest.raises(UsageError, match=r"Every recording of the noise recorded contains 'siren'"):
        check(small_grid(home))


def test_unknown_names_get_the_nearest(home: Path) -> None:
    text = 'datasets = ["esc5"]\nnoises = ["demnd"]\nsnrs = [0]\nbackbones = ["fke"]\n'
    text += 'packs = ["das5"]\n'
    with pytest.raises(UsageError) as caught:
        check(parse_grid(text, name="typos"))
    for near in ("'esc50'", "'demand'", "'fake'", "'das52'"):
        assert f"did you mean {near}?" in str(caught.value)


def test_folds_are_needed_where_a_rule_draws_from_them(home: Path) -> None:
    (home / "clips" / "labels.csv").unlink()
    for path in sorted((home / "clips").glob("*.wav")):
        label = path.name.split("-")[0]
        (home / "clips" / label).mkdir(exist_ok=True)
        path.rename(home / "clips" / label / path.name)
    with pytest.raises(UsageError, match="folder has no folds"):
        check(small_grid(home, rules=["cosine", "tgap:noisy"]))


def test_what_a_name_stands_for_is_part_of_the_key(home: Path) -> None:
    grid = small_grid(home)
    before = check(grid)
    assert set(keys(grid, before)) == set(keys(grid, check(grid)))
    write(home / "clips" / "siren-0.wav", np.ones(9_000) * 0.1)
    after = check(grid)
    assert not set(keys(grid, before)) & set(keys(grid, after))
    assert before.models == after.models


def test_a_file_that_is_not_a_grid_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'panel'"):
        load_grid("pannel")
    with pytest.raises(FormatError, match="did you mean 'datasets'"):
        parse_grid('dataset = ["esc50"]', name="x")
    with pytest.raises(FormatError, match="not valid TOML"):
        parse_grid("datasets = [", name="x")
    with pytest.raises(FormatError, match="limit must be a whole number"):
        parse_grid('limit = "some"', name="x")
