import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from small_lab import build, content, quick, small_grid

from driftscore.errors import StoreError, UsageError
from driftscore.lab import jobs, listening, metrics, scoring
from driftscore.lab.corpora import Clip
from driftscore.lab.grid import groups
from driftscore.lab.mixing import MixRecord, mix
from driftscore.lab.runner import run
from driftscore.lab.store import Store
from driftscore.lab.validation import check


@pytest.fixture
def home(tmp_path, monkeypatch):
    quick(monkeypatch)
    return build(tmp_path / "home")


def finished(grid, folder, **options):
    with Store(folder) as store:
        outcome = run(grid, store, **options)
        return outcome, content(store)


def by_name(store, snr_db, seed=0, mixing="additive"):
    return {
        r.cell.scoring.name: r
        for r in store.rows()
        if (r.cell.condition.snr_db, r.cell.condition.seed) == (snr_db, seed)
        and r.cell.condition.mixing == mixing
    }


def test_every_rule_has_a_row_in_every_condition(home, tmp_path):
    grid = small_grid(home, mixings='["additive", "scaper"]')
    outcome, rows = finished(grid, tmp_path / "store")
    assert outcome.computed == outcome.cells == len(rows) == 9 + 2 * 2 * 2 * 11
    assert not outcome.errors
    assert all(0 <= row[2] <= 1 and row[3] == 12 for row in rows)


def test_running_again_computes_nothing(home, tmp_path, monkeypatch):
    grid = small_grid(home, rules=["cosine", "das"])
    _, first = finished(grid, tmp_path / "store")
    monkeypatch.setattr(listening, "embed_chunk", None)
    outcome, second = finished(grid, tmp_path / "store")
    assert (outcome.computed, outcome.already) == (0, outcome.cells)
    assert first == second


def test_a_clip_is_heard_once_for_all_rules_betas_and_packs(home, tmp_path, monkeypatch):
    heard = []
    original = listening._heard

    def counted(condition, clip, *rest):
        heard.append((condition.key, clip.id))
        return original(condition, clip, *rest)

    monkeypatch.setattr(listening, "_heard", counted)
    grid = small_grid(home, rules=["cosine", "das", "tgap", "zs_audio_oracle"])
    finished(grid, tmp_path / "store")
    assert len(heard) == len(set(heard)) == 12 * 5
    more = small_grid(home, rules=["das", "zs_text"], more="betas = [0.1, 0.3]")
    outcome, _ = finished(more, tmp_path / "store")
    assert outcome.computed
    assert len(heard) == 12 * 5


def test_workers_and_chunks_change_nothing(home, tmp_path, monkeypatch):
    rules = ["cosine", "das", "zs_text:matched", "tgap"]
    grid = small_grid(home, rules=rules, mixings='["scaper"]')
    _, alone = finished(grid, tmp_path / "one")
    monkeypatch.setattr(listening, "CHUNK", 200)  # as in the workers, which start afresh
    _, many = finished(grid, tmp_path / "two", workers=2)
    assert alone == many


def test_killed_at_any_moment_it_ends_with_the_same_rows(home, tmp_path):
    script = (
        "import sys; from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from driftscore.lab import listening\n"
        "listening.CHUNK = 2\n"
        "from driftscore.lab.runner import run\n"
        "from driftscore.lab.store import Store\n"
        "from small_lab import small_grid\n"
        f"grid = small_grid(Path({str(home)!r}), rules=['cosine', 'das', 'tgap'])\n"
        "run(grid, Store(sys.argv[1]))\n"
    )
    folder = tmp_path / "killed"
    for files in (1, 8, 20):
        process = subprocess.Popen([sys.executable, "-c", script, str(folder)])
        deadline = time.monotonic() + 60
        while len(list(folder.rglob("*.npz"))) < files and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True)
    _, whole = finished(small_grid(home, rules=["cosine", "das", "tgap"]), tmp_path / "whole")
    with Store(folder) as store:
        assert content(store) == whole


def test_two_runs_at_once_share_the_work(home, tmp_path):
    script = (
        "import sys; from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from driftscore.lab.runner import run\n"
        "from driftscore.lab.store import Store\n"
        "from small_lab import small_grid\n"
        f"grid = small_grid(Path({str(home)!r}), rules=['cosine', 'das'])\n"
        "print(run(grid, Store(sys.argv[1])))\n"
    )
    folder = tmp_path / "store"
    both = [subprocess.Popen([sys.executable, "-c", script, str(folder)]) for _ in range(2)]
    assert [process.wait(timeout=100) for process in both] == [0, 0]
    outcome, rows = finished(small_grid(home, rules=["cosine", "das"]), folder)
    assert len(rows) == outcome.cells
    _, whole = finished(small_grid(home, rules=["cosine", "das"]), tmp_path / "whole")
    assert rows == whole


def test_a_corrupt_clip_is_a_failure_and_never_the_end(home, tmp_path):
    (home / "clips" / "siren-1.wav").write_bytes(b"RIFF of nothing")
    with Store(tmp_path / "store") as store:
        outcome = run(small_grid(home), store)
        assert not outcome.errors
        assert {(r.n, r.failed) for r in store.rows()} == {(11, 1)}
        failures = store.failures()
        assert {clip for _, clip, _ in failures} == {"siren-1.wav"}
        assert len(failures) == 5  # clean, and two SNRs with two seeds
        assert all("siren-1.wav" in why for _, _, why in failures)
        clips, _ = jobs._clips("folder", str(home / "clips"), 0)
        for row in store.rows():
            failed = [clip.id for clip, o in zip(clips, row.outcomes, strict=True) if o == -1]
            assert failed == ["siren-1.wav"]


def test_a_rule_that_cannot_be_had_is_a_row_that_says_why(home, tmp_path):
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


def test_a_full_disk_ends_the_run_with_a_sentence(home, tmp_path, monkeypatch):
    def full(*_):
        raise StoreError("Cannot write x: No space left on device")

    with Store(tmp_path / "store") as store:
        monkeypatch.setattr(Store, "put_arrays", full)
        with pytest.raises(StoreError, match="No space left"):
            run(small_grid(home), store)
        monkeypatch.undo()
        quick(monkeypatch)
        assert run(small_grid(home, rules=["cosine"]), store).computed == 5


def test_bias_subtraction_leaves_average_precision_exactly_as_it_was(tmp_path, monkeypatch):
    quick(monkeypatch)
    home = build(tmp_path / "home", multi=True)
    with Store(tmp_path / "store") as store:
        run(small_grid(home), store)
        found = by_name(store, 0.0)
    assert found["cosine"].metric == "mAP"
    for name in ("zs_text", "zs_audio"):
        assert found[name].value == found["cosine"].value
        assert (found[name].difference, found[name].low, found[name].high) == (0, 0, 0)
    assert found["tgap"].value == found["tgap_audio"].value


def test_heads_by_place_and_by_clip_match_a_slow_reference(home, tmp_path):
    grid = small_grid(home)
    facts = check(grid)
    with Store(tmp_path / "store") as store:
        run(grid, store, facts=facts)
        condition = next(c for c, _ in groups(grid, facts) if c.snr_db == 0.0)
        clips, labels = jobs._clips("folder", grid.homes["folder"], 0)
        truth = scoring.Truth.of(clips, labels)
        model = jobs._model(condition)
        bench = scoring.Bench.of(store, condition, truth, model, backgrounds=True)
        scorings = {s.name: s for c, found in groups(grid, facts) if c == condition for s in found}
        bank = scoring.bank_of(bench, scorings["cosine"])
        base = bench.heard.rows.astype(float) @ bank.prototypes.T
        assert set(bench.heard.environments) == {"busy street", "cafe"}
        for index, clip in enumerate(clips):
            place = bench.heard.environments[index]
            sentences = (
                f"This is a sound of {place}",
                f"{place.capitalize()} sounds in the background",
                f"This is a sound of {place} in the background",
            )
            bias = (model.embed_text(sentences) @ bank.prototypes.T).mean(axis=0)
            matched = scoring.scores_of(bench, scorings["zs_text:matched"])
            assert np.allclose(matched[index], base[index] - 0.5 * bias, atol=1e-6)
            background = mix(
                listening.record_of(condition, clip, model.rate, grid.homes["recorded"])
            ).background
            own = model.embed_audio([background])[0] @ bank.prototypes.T
            oracle = scoring.scores_of(bench, scorings["zs_audio_oracle"])
            assert np.allclose(oracle[index], base[index] - 0.5 * own, atol=1e-6)


def test_a_noisy_pool_is_that_of_the_other_folds(home, tmp_path, monkeypatch):
    monkeypatch.setattr(scoring, "rule_settings", lambda *_: {"nearest": 2})
    grid = small_grid(home, rules=["cosine", "tgap:noisy"], snrs="[0]")
    facts = check(grid)
    with Store(tmp_path / "store") as store:
        run(grid, store, facts=facts)
        condition, scorings = next(iter(groups(grid, facts)))
        clips, labels = jobs._clips("folder", grid.homes["folder"], 0)
        truth = scoring.Truth.of(clips, labels)
        model = jobs._model(condition)
        bench = scoring.Bench.of(store, condition, truth, model, backgrounds=False)
        found = scoring.scores_of(bench, next(s for s in scorings if s.variant == "noisy"))
    prototypes = scoring.bank_of(bench, scoring.COSINE).prototypes.astype(float)
    rows = bench.heard.rows.astype(float)
    for index, clip in enumerate(clips):
        pool = rows[[other.fold != clip.fold for other in clips]]
        for number, prototype in enumerate(prototypes):
            nearest = pool[np.argsort(-(pool @ prototype))[:2]].mean(axis=0)
            assert found[index, number] == pytest.approx(rows[index] @ nearest, abs=1e-5)


def test_noise_that_holds_the_class_is_never_mixed_in(home):
    grid = small_grid(home)
    condition = next(c for c, _ in groups(grid, check(grid)) if c.snr_db == 0.0)
    clip = Clip(home / "clips" / "siren-0.wav", ("siren",), "0", "siren-0.wav")
    for number in range(6):
        named = Clip(clip.path, clip.labels, clip.fold, f"clip {number}")
        record = listening.record_of(condition, named, 16_000, grid.homes["recorded"])
        assert record.parts[0].label == "cafe"
        assert MixRecord.from_json(record.to_json()) == record


def test_along_the_snr_axis_only_the_gain_changes(home):
    grid = small_grid(home)
    noisy = [c for c, _ in groups(grid, check(grid)) if c.seed == 0]
    clip = Clip(home / "clips" / "rain-0.wav", ("rain",), "0", "rain-0.wav")
    records = [listening.record_of(c, clip, 16_000, grid.homes["recorded"]) for c in noisy]
    assert len(records) == 2
    assert len({(r.parts[0].file, r.parts[0].source_start) for r in records}) == 1
    gains = [r.parts[0].gain_db for r in records]
    assert abs(gains[0] - gains[1]) == pytest.approx(10)


def test_a_row_is_what_the_metrics_say(home, tmp_path):
    grid = small_grid(home, rules=["cosine", "das"])
    facts = check(grid)
    with Store(tmp_path / "store") as store:
        run(grid, store, facts=facts)
        condition = next(c for c, _ in groups(grid, facts) if c.snr_db == 10.0)
        clips, labels = jobs._clips("folder", grid.homes["folder"], 0)
        truth = scoring.Truth.of(clips, labels)
        bench = scoring.Bench.of(store, condition, truth, jobs._model(condition), backgrounds=False)
        row = by_name(store, 10.0)["das"]
        scores = scoring.scores_of(bench, row.cell.scoring)
        assert row.value == metrics.accuracy(truth.single, scores)
        assert row.details["fold_mean"] == metrics.fold_mean_accuracy(
            truth.single, scores, truth.folds
        )
        cosine = scoring.scores_of(bench, scoring.COSINE)
        difference = metrics.accuracy(truth.single, scores) - metrics.accuracy(truth.single, cosine)
        assert row.difference == pytest.approx(difference)


def test_no_worker_is_no_run(home, tmp_path):
    with Store(tmp_path / "store") as store, pytest.raises(UsageError, match="at least one worker"):
        run(small_grid(home), store, workers=0)
