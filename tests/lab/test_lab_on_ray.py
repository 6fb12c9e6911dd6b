"""The lab on a real Ray: the same rows as on this machine, even when a worker is killed."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftscore import UsageError
from driftscore.errors import StoreError
from driftscore.lab.runs.runner import run
from driftscore.lab.runs.store import Store, open_files
from tests.lab.small_lab import build, content, small_grid
from tests.ray_cluster import gone, kill_the_slow, odd, running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("ray")) as address:
        yield address


@pytest.mark.slow
@pytest.mark.xdist_group("ray")  # never two clusters at once
@pytest.mark.usefixtures("cluster")
def test_the_lab_fills_the_same_rows_on_ray_although_a_worker_is_killed(tmp_path: Path) -> None:
    home = build(tmp_path / "home")
    slow = odd(home / "clips" / "rain-slow.odd")
    with open(home / "clips" / "labels.csv", "a", encoding="utf-8") as handle:
        handle.write("rain-slow.odd,rain,0\n")
    (home / "clips" / "siren-1.wav").write_bytes(b"RIFF of nothing")
    grid = small_grid(home, rules=["cosine", "das", "zs_text:matched", "tgap", "zs_audio_oracle"])
    killer = threading.Thread(target=kill_the_slow, args=(slow,))
    killer.start()
    with Store(tmp_path / "there") as store:
        outcome = run(grid, store, engine="ray")
        there, failures = content(store), store.failures()
        assert store.clip_costs().keys() == {"fake"}
        sets, drifts = store.all_json("sets"), store.all_json("drifts")
    killer.join()
    assert gone(slow)
    assert outcome.computed == outcome.cells == len(there)
    with Store(tmp_path / "here") as store:
        run(grid, store)
        assert there == content(store)
        assert failures == store.failures()
        assert sets == store.all_json("sets")
        assert drifts == store.all_json("drifts")


def test_a_store_that_a_node_does_not_see_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="a folder that every node has"):
        open_files(tmp_path / "elsewhere")


def test_the_lab_takes_no_number_of_workers_on_ray(tmp_path: Path) -> None:
    grid = small_grid(build(tmp_path / "home"), rules=["cosine"])
    with Store(tmp_path / "store") as store:
        with pytest.raises(UsageError, match="leave out the number"):
            run(grid, store, engine="ray", workers=2)
        with pytest.raises(UsageError, match="did you mean 'ray'"):
            run(grid, store, engine="rey")
