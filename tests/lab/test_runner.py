import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftscore.errors import StoreError, UsageError
from driftscore.lab import metrics
from driftscore.lab.conditions import COSINE, Condition, Row
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.folders import load
from driftscore.lab.metrics import Interval
from driftscore.lab.mixing.record import MixRecord, mix
from driftscore.lab.runs import embedding, jobs, scoring
from driftscore.lab.runs.grid import Grid, groups
from driftscore.lab.runs.mixes import record_of
from driftscore.lab.runs.runner import Outcome, run
from driftscore.lab.runs.store import ArrayFiles, Store
from driftscore.lab.runs.truth import Truth
from driftscore.lab.runs.validation import check
from driftscore.scoring.rules import find_rule

from .small_lab import build, content, quick, small_grid


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    quick(monkeypatch)
    return build(tmp_path / "home")


def condition_data(
    store: Store, condition: Condition, truth: Truth, *, backgrounds: bool = False
) -> scoring.ConditionData:
    found = embedding.load_embeddings(store, condition, truth.ids, backgrounds=backgrounds)
    assert found is not None
    model = jobs.embedder_of(condition.backbone, condition.model).backbone
    return scoring.ConditionData(store, condition, truth, model, found)


def finished(
    grid: Grid, folder: Path, *, workers: int = 1
) -> tuple[Outcome, list[tuple[Any, ...]]]:
    with Store(folder) as store:
        outcome = run(grid, store, workers=workers)
        return outcome, content(store)


def by_name(store: Store, snr_db: float, seed: int = 0, mixing: str = "additive") -> dict[str, Row]:
    return {
        r.cell.scoring.name: r
        for r in store.rows()
        if (r.cell.condition.snr_db, r.cell.condition.seed) == (snr_db, seed)
        and r.cell.condition.mixing == mixing
    }


def test_every_rule_has_a_row_in_every_condition(home: Path, tmp_path: Path) -> None:
    grid = small_grid(home, mixings='["additive", "scaper"]')
    outcome, rows = finished(grid, tmp_path / "store")
    assert outcome.computed == outcome.cells == len(rows) == 9 + 2 * 2 * 2 * 11
    assert not outcome.errors
    assert all(0 <= row[2] <= 1 and row[3] == 12 for row in rows)


def test_running_again_computes_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = small_grid(home, rules=["cosine", "das"])
    _, first = finished(grid, tmp_path / "store")
    monkeypatch.setattr(embedding, "embed_chunk", None)
    outcome, second = finished(grid, tmp_path / "store")
    assert (outcome.computed, outcome.already) == (0, outcome.cells)
    assert first == second


def test_a_clip_is_embedded_once_for_all_rules_betas_and_packs(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[tuple[str, str]] = []
    original = embedding.prepare

    def counted(
        condition: Condition, clip: Clip, rate: int, noise_home: str | Path | None
    ) -> object:
        prepared.append((condition.key, clip.id))
        return original(condition, clip, rate, noise_home)

    monkeypatch.setattr(embedding, "prepare", counted)
    grid = small_grid(home, rules=["cosine", "das", "tgap", "zs_audio_oracle"])
    finished(grid, tmp_path / "store")
    assert len(prepared) == len(set(prepared)) == 12 * 5
    more = small_grid(home, rules=["das", "zs_text"], more="betas = [0.1, 0.3]")
    outcome, _ = finished(more, tmp_path / "store")
    assert outcome.computed
    assert len(prepared) == 12 * 5


def test_workers_and_chunks_change_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = ["cosine", "das", "zs_text:matched", "tgap"]
    grid = small_grid(home, rules=rules, mixings='["scaper"]')
    _, alone = finished(grid, tmp_path / "one")
    monkeypatch.setattr(embedding, "CHUNK", 200)  # as in the workers, which are new processes
    _, many = finished(grid, tmp_path / "two", workers=2)
    assert alone == many


def test_a_run_killed_at_any_moment_ends_with_the_same_rows(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from driftscore.lab.runs import embedding\n"
        "embedding.CHUNK = 2\n"
        "from driftscore.lab.runs.runner import run\n"
        "from driftscore.lab.runs.store import Store\n"
        "from small_lab import small_grid\n"
        f"grid = small_grid(Path({str(home)!r}), rules=['cosine', 'das', 'tgap'])\n"
        "run(grid, Store(sys.argv[1]))\n"
    )
    folder = tmp_path / "killed"
    for files in (1, 12):
        process = subprocess.Popen([sys.executable, "-c", script, str(folder)])
        deadline = time.monotonic() + 60
        while len(list(folder.rglob("*.npz"))) < files and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    grid = small_grid(home, rules=["cosine", "das", "tgap"])
    monkeypatch.setattr(embedding, "CHUNK", 2)
    assert finished(grid, folder)[1] == finished(grid, tmp_path / "whole")[1]


def test_a_corrupt_clip_is_a_failure_and_does_not_end_the_run(home: Path, tmp_path: Path) -> None:
    (home / "clips" / "siren-1.wav").write_bytes(b"RIFF of nothing")
    with Store(tmp_path / "store") as store:
        outcome = run(small_grid(home), store)
        assert not outcome.errors
        assert {(r.n, r.failed) for r in store.rows()} == {(11, 1)}
        failures = store.failures()
        assert {clip for _, clip, _ in failures} == {"siren-1.wav"}
        assert len(failures) == 5  # clean, and two SNRs with two seeds
        assert all("siren-1.wav" in why for _, _, why in failures)
        clips, _ = jobs.clips_of("folder", str(home / "clips"), 0)
        for row in store.rows():
            assert row.outcomes is not None
            failed = [clip.id for clip, o in zip(clips, row.outcomes, strict=True) if o == -1]
            assert failed == ["siren-1.wav"]


def test_a_rule_that_cannot_be_compiled_is_a_row_with_its_error(home: Path, tmp_path: Path) -> None:
    grid = small_grid(home, rules=["cosine", "tgap:noisy"])  # 35 neighbours of 6 clips
    with Store(tmp_path / "store") as store:
        outcome = run(grid, store)
        found = by_name(store, 0.0)
        assert "averages the 35 nearest clips" in found["tgap:noisy"].error
        assert found["cosine"].value is not None
        assert outcome.errors == 4
        again = run(grid, store)
        assert (again.computed, again.already) == (0, again.cells)
        assert run(grid, store, retry=True).computed == 4


def test_a_full_disk_ends_the_run_with_a_message(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("Cannot write x: No space left on device")

    with Store(tmp_path / "store") as store:
        monkeypatch.setattr(ArrayFiles, "put_arrays", full)
        with pytest.raises(StoreError, match="No space left"):
            run(small_grid(home), store)
        monkeypatch.undo()
        quick(monkeypatch)
        assert run(small_grid(home, rules=["cosine"]), store).computed == 5


def test_bias_subtraction_does_not_change_average_precision_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    home = build(tmp_path / "home", multi=True)
    with Store(tmp_path / "store") as store:
        run(small_grid(home), store)
        found = by_name(store, 0.0)
    assert found["cosine"].metric == "mAP"
    for name in ("zs_text", "zs_audio"):
        assert found[name].value == found["cosine"].value
        assert found[name].gain == Interval(0, 0, 0)
    assert found["tgap"].value == found["tgap_audio"].value


def test_heads_per_environment_and_per_clip_match_a_slow_reference(
    home: Path, tmp_path: Path
) -> None:
    grid = small_grid(home)
    facts = check(grid)
    with Store(tmp_path / "store") as store:
        run(grid, store, facts=facts)
        condition = next(c for c, _ in groups(grid, facts) if c.snr_db == 0.0)
        clips, labels = jobs.clips_of("folder", grid.homes["folder"], 0)
        truth = Truth.of(clips, labels)
        model = jobs.embedder_of(condition.backbone, condition.model).backbone
        data = condition_data(store, condition, truth, backgrounds=True)
        scorings = {s.name: s for c, found in groups(grid, facts) if c == condition for s in found}
        bank = data.bank(scorings["cosine"])
        base = data.embeddings.rows.astype(float) @ bank.prototypes.T
        assert set(data.embeddings.environments) == {"busy street", "cafe"}
        for index, clip in enumerate(clips):
            place = data.embeddings.environments[index]
            sentences = (
                f"This is a sound of {place}",
                f"{place.capitalize()} sounds in the background",
                f"This is a sound of {place} in the background",
            )
            bias = (model.embed_text(sentences) @ bank.prototypes.T).mean(axis=0)
            matched = scoring.scores_of(data, scorings["zs_text:matched"])
            assert np.allclose(matched[index], base[index] - 0.5 * bias, atol=1e-6)
            record = record_of(condition, clip, model.rate, grid.homes["recorded"])
            background = mix(record, load).background
            own = model.embed_audio([background])[0] @ bank.prototypes.T
            oracle = scoring.scores_of(data, scorings["zs_audio_oracle"])
            assert np.allclose(oracle[index], base[index] - 0.5 * own, atol=1e-6)


def test_a_noisy_pool_is_that_of_the_other_folds(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = tmp_path / "two.toml"
    preset.write_text("[two.rules.tgap]\nnearest = 2\n")
    tgap = find_rule("tgap")
    noisy = replace(tgap.variant("noisy"), preset=str(preset))
    other = {"cosine": find_rule("cosine"), "tgap": replace(tgap, variants=(noisy,))}
    monkeypatch.setattr(scoring, "rule_of", other.__getitem__)
    grid = small_grid(home, rules=["cosine", "tgap:noisy"], snrs="[0]")
    facts = check(grid)
    with Store(tmp_path / "store") as store:
        run(grid, store, facts=facts)
        condition, scorings = next(iter(groups(grid, facts)))
        clips, labels = jobs.clips_of("folder", grid.homes["folder"], 0)
        truth = Truth.of(clips, labels)
        data = condition_data(store, condition, truth)
        found = scoring.scores_of(data, next(s for s in scorings if s.variant == "noisy"))
    prototypes = data.bank(COSINE).prototypes.astype(float)
    rows = data.embeddings.rows.astype(float)
    for index, clip in enumerate(clips):
        pool = rows[[other.fold != clip.fold for other in clips]]
        for number, prototype in enumerate(prototypes):
            nearest = pool[np.argsort(-(pool @ prototype))[:2]].mean(axis=0)
            assert found[index, number] == pytest.approx(rows[index] @ nearest, abs=1e-5)


def test_noise_that_contains_the_class_is_never_mixed_in(home: Path) -> None:
    grid = small_grid(home)
    condition = next(c for c, _ in groups(grid, check(grid)) if c.snr_db == 0.0)
    clip = Clip(home / "clips" / "siren-0.wav", ("siren",), "0", "siren-0.wav")
    for number in range(6):
        named = Clip(clip.path, clip.labels, clip.fold, f"clip {number}")
        record = record_of(condition, named, 16_000, grid.homes["recorded"])
        assert record.parts[0].label == "cafe"
        assert MixRecord.from_json(record.to_json()) == record


def test_along_the_snr_axis_only_the_gain_changes(home: Path) -> None:
    grid = small_grid(home)
    noisy = [c for c, _ in groups(grid, check(grid)) if c.seed == 0]
    clip = Clip(home / "clips" / "rain-0.wav", ("rain",), "0", "rain-0.wav")
    records = [record_of(c, clip, 16_000, grid.homes["recorded"]) for c in noisy]
    assert len(records) == 2
    assert len({(r.parts[0].file, r.parts[0].source_start) for r in records}) == 1
    gains = [r.parts[0].gain_db for r in records]
    assert abs(gains[0] - gains[1]) == pytest.approx(10)


def test_the_value_of_a_row_is_that_of_the_metrics(home: Path, tmp_path: Path) -> None:
    grid = small_grid(home, rules=["cosine", "das"])
    facts = check(grid)
    with Store(tmp_path / "store") as store:
        run(grid, store, facts=facts)
        condition = next(c for c, _ in groups(grid, facts) if c.snr_db == 10.0)
        clips, labels = jobs.clips_of("folder", grid.homes["folder"], 0)
        truth = Truth.of(clips, labels)
        data = condition_data(store, condition, truth)
        row = by_name(store, 10.0)["das"]
        scores = scoring.scores_of(data, row.cell.scoring)
        assert row.value == metrics.accuracy(truth.single, scores)
        assert row.details["fold_mean"] == metrics.fold_mean_accuracy(
            truth.single, scores, truth.folds
        )
        cosine = scoring.scores_of(data, COSINE)
        difference = metrics.accuracy(truth.single, scores) - metrics.accuracy(truth.single, cosine)
        assert row.gain is not None
        assert row.gain.difference == pytest.approx(difference)


def test_the_report_on_the_drifts_of_a_bank_is_that_of_its_definition(
    home: Path, tmp_path: Path
) -> None:
    grid = small_grid(home, rules=["das"], snrs='["clean"]')
    facts = check(grid)
    with Store(tmp_path / "store") as store:
        run(grid, store, facts=facts)
        ((condition, (das,)),) = groups(grid, facts)
        truth = Truth.of(*jobs.clips_of("folder", grid.homes["folder"], 0))
        data = condition_data(store, condition, truth)
        ((_, report),) = scoring.drift_reports(data, [das])
    mean, svd = (data.bank(replace(das, direction=name)).drifts for name in ("mean", "svd"))
    assert report["common"] == pytest.approx(np.linalg.norm(mean.mean(axis=0)) ** 2, abs=1e-6)
    assert report["agreement"] == pytest.approx([a @ b for a, b in zip(mean, svd, strict=True)])


def test_a_run_needs_at_least_one_worker(home: Path, tmp_path: Path) -> None:
    with (
        Store(tmp_path / "store") as store,
        pytest.raises(UsageError, match="workers must be at least 1, got 0"),
    ):
        run(small_grid(home), store, workers=0)
