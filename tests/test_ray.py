"""A real Ray of two workers: the same rows as on this machine, even when a worker is killed."""

import io
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from driftscore import (
    Classifier,
    DriftscoreError,
    Embedded,
    Embedder,
    Head,
    MissingExtraError,
    UsageError,
    load_backbone,
)
from driftscore.audio.recordings import Recording
from driftscore.decisions import Replayer, open_store
from driftscore.engines import EngineSettings, ModelSpec, ray_tasks
from driftscore.engines import ray as ray_engine
from driftscore.engines.archive import open_embeddings
from driftscore.errors import WorkerError

from .conftest import PROJECT, noise_clip
from .ray_cluster import gone, kill_the_slow, odd, running_cluster

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]

LABELS = ["dog bark", "rain", "siren"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("ray")) as address:
        yield address


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of twelve recordings in the working directory."""
    monkeypatch.chdir(tmp_path)
    place = Path("sounds")
    place.mkdir()
    for seed in range(12):
        clip = noise_clip(1.0 + seed / 2, seed=seed)
        soundfile.write(place / f"{seed:02}.wav", clip.samples, clip.rate)
    return place


def on_ray(recordings: Iterable[Recording], **options: Any) -> Iterator[Embedded]:
    with Embedder("fake", engine="ray", **options) as embedder:
        yield from embedder.embed(recordings)


def classify(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run the command in a process of its own and return what came of it."""
    command = [sys.executable, "-m", "driftscore", "classify", *map(str, arguments)]
    command += ["--backbone", "fake", "--labels", ",".join(LABELS), "--format", "csv"]
    return subprocess.run(command, capture_output=True, text=True)


def alike(one: Embedded, two: Embedded) -> bool:
    return (
        (one.source, one.error) == (two.source, two.error)
        and one.rows.dtype == two.rows.dtype
        and one.rows.flags.writeable == two.rows.flags.writeable
        and np.array_equal(one.rows, two.rows)
        and np.array_equal(one.spans, two.spans)
    )


def assert_same(found: list[Embedded], recordings: Iterable[Recording]) -> None:
    with Embedder("fake") as embedder:
        here = list(embedder.embed(recordings))
    assert len(found) == len(here)
    assert [a.source for a, b in zip(found, here, strict=True) if not alike(a, b)] == []


def test_the_rows_are_those_of_this_machine_whatever_is_given(cluster: str, folder: Path) -> None:
    (folder / "damaged.wav").write_bytes(b"RIFF of nothing")
    soundfile.write(folder / "silent.wav", np.zeros(16_000), 16_000)
    content = (folder / "00.wav").read_bytes()
    copy = (folder / "01.wav").read_bytes()

    def recordings() -> Iterator[Recording]:
        yield from sorted(folder.iterdir())
        yield from ("./sounds/03.wav", str((folder / "04.wav").absolute()), "sounds/none.wav")
        yield from (content, io.BytesIO(copy), noise_clip(3.0), (np.ones(9_000), 8_000))

    assert_same(list(on_ray(recordings())), recordings())


def test_a_classifier_gives_the_same_results_on_ray(cluster: str, folder: Path) -> None:
    files = sorted(folder.iterdir())
    here = Classifier(LABELS, backbone="fake")
    with Embedder("fake", engine="ray") as embedder:
        there = Classifier(LABELS, backbone=embedder)
        assert np.array_equal(here.scores(files), there.scores(files))
        assert list(here.events(files[-1])) == list(there.events(files[-1]))


def test_the_command_writes_the_same_table_on_ray(cluster: str, folder: Path) -> None:
    (folder / "damaged.wav").write_bytes(b"RIFF of nothing")
    alone = classify("sounds")
    both = classify("sounds", "--engine", f"ray:{cluster}", "--audit", "audit.db")
    assert alone.stdout.count("\n") == 14
    assert (both.stdout, both.stderr) == (alone.stdout, alone.stderr)
    assert both.returncode == alone.returncode == 1
    with open_store("audit.db") as store:
        recorded = list(store.decisions())
        assert len(recorded) == 12  # not the damaged one
        replayer = Replayer(store)
        assert all(replayer.replay(decision).same for decision in recorded)


def test_embeddings_written_on_ray_are_the_same(cluster: str, folder: Path) -> None:
    for name, more in (("here", []), ("there", ["--engine", f"ray:{cluster}"])):
        command = ["embed", "sounds", "--backbone", "fake", "--out", f"{name}.npz", *more]
        subprocess.run([sys.executable, "-m", "driftscore", *command], check=True)
    assert Path("here.npz").read_bytes() == Path("there.npz").read_bytes()


def test_a_worker_killed_half_way_changes_no_row(cluster: str, folder: Path) -> None:
    slow = odd(folder / "06-slow.odd")
    recordings = sorted(str(path) for path in (*folder.glob("*.wav"), slow))
    found = []
    for embedded in on_ray(recordings):
        found.append(embedded)
        if len(found) == 1:  # rows come while others are still in work
            kill_the_slow(slow)
    assert gone(slow)
    assert not any(embedded.error for embedded in found)
    assert_same(found, recordings)


def test_a_recording_that_kills_every_worker_is_one_row_with_an_error(
    cluster: str, folder: Path
) -> None:
    alone = classify("sounds").stdout.splitlines()
    deadly = odd(folder / "02-deadly.odd")
    good = sorted(str(path) for path in folder.glob("*.wav"))
    done = classify(*good[:2], deadly, *good[2:], "--engine", f"ray:{cluster}")
    lines = done.stdout.splitlines()
    assert lines[:3] + lines[4:] == alone  # Ray's messages about lost workers are not among them
    assert lines[3].startswith("sounds/02-deadly.odd,")
    assert "02-deadly.odd could not be embedded: it lost its worker 3 times" in lines[3]
    assert done.returncode == 1
    assert done.stderr == "1 of 13 recordings could not be used\n"


def test_few_more_recordings_are_taken_than_there_are_workers_for(
    cluster: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Results wait for a slow worker before them, here at most those of 50 recordings.
    monkeypatch.setattr(ray_engine, "_MAX_WINDOWS", 100)
    taken = 0

    def endless() -> Iterator[Recording]:
        nonlocal taken
        while True:
            taken += 1
            yield str(folder / "00.wav")

    stream: Any = on_ray(endless())
    for _ in range(40):
        assert not next(stream).error
    stream.close()
    assert taken <= 40 + 4 * 4 * ray_engine.SHARD


def test_shards_become_small_towards_the_end_and_leave_nothing_out() -> None:
    shards = list(ray_engine._shards(map(str, range(200)), lambda: 2))
    assert [parcel.number for shard in shards for parcel in shard] == list(range(200))
    sizes = [len(shard) for shard in shards]
    assert sizes[0] == ray_engine.SHARD
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-4:] == [1, 1, 1, 1]


@pytest.mark.usefixtures("folder")
def test_a_file_that_a_node_does_not_see_is_a_row_that_names_the_node() -> None:
    shard = (ray_engine._parcel(0, "sounds/00.wav"),)
    nothing = (np.zeros((0, 2)), np.zeros((0, 64), np.float32))
    (embedded,) = ray_engine._unpacked(shard, [(*nothing, "cannot be opened", "node7")], 64)
    expected = "sounds/00.wav does not exist on the node node7; put it into a folder"
    assert embedded.error.startswith(expected)


def test_another_model_on_a_node_ends_the_run_with_a_message(cluster: str, folder: Path) -> None:
    here = load_backbone("fake", seed=1)
    file = folder / "00.wav"
    other = ray_engine.open_engine(EngineSettings(here, ModelSpec("fake")))
    with pytest.raises(WorkerError, match=r"On the node .*fingerprint fake/.*/0 for fake/.*/1"):
        next(other.embed([file]))
    absent = ray_engine.open_engine(EngineSettings(here, ModelSpec("clap:/no/such/folder")))
    with pytest.raises(DriftscoreError, match="On the node "):
        next(absent.embed([file]))


def test_what_cannot_be_run_on_ray_is_refused_in_words(cluster: str, folder: Path) -> None:
    with pytest.raises(UsageError, match="not as a loaded model"):
        Embedder(load_backbone("fake"), engine="ray").embed([folder / "00.wav"])
    with pytest.raises(UsageError, match=r"5 threads fits on no machine .* 2 cores"):
        next(on_ray([folder / "00.wav"], threads=5))


def test_an_embedder_leaves_a_connection_that_is_not_its_own(cluster: str, folder: Path) -> None:
    import ray

    for _ in range(2):
        with Embedder("fake", engine="ray") as embedder:
            assert not next(embedder.embed([folder / "00.wav"])).error
        assert ray.is_initialized()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"\[ray\]"):
        next(on_ray(["a.wav"]))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_an_address_where_nothing_answers_is_an_error_in_words(address: str) -> None:
    with pytest.raises(WorkerError, match=f"No Ray cluster answers at {address}"):
        ray_tasks.check_reachable(address)
    with pytest.raises(UsageError, match="is host:port"):
        ray_tasks.check_reachable("somewhere")


def test_ray_data_scores_an_archive_as_the_documents_show(
    cluster: str, folder: Path, run: Any
) -> None:
    pytest.importorskip("pyarrow", reason="PYARROW IS NOT INSTALLED")
    pytest.importorskip("pandas", reason="PANDAS, WHICH RAY DATA NEEDS, IS NOT INSTALLED")
    assert run("embed", folder, "--out", "windows/", "--backbone", "fake")[0] == 0
    assert run("head", "-l", "siren, dog bark", "-b", "fake", "-o", "head.json")[0] == 0
    text = (PROJECT / "docs" / "archives.md").read_text("utf-8")
    block = re.search(r"```python\n(import numpy as np\nimport ray\n.*?)```", text, re.DOTALL)
    assert block is not None
    here = Path.cwd()
    exec(block[1].replace("s3://bucket", str(here)), {})
    import pyarrow.parquet as pq

    table = pq.read_table(here / "scores").to_pydict()
    stored = open_embeddings("windows")
    head = Head.load("head.json")
    scores = head.scores(stored.read())
    expected = sorted(zip(np.concatenate([b.files for b in stored.blocks()]).tolist(),
                          scores.max(axis=1).tolist(), strict=True))  # fmt: skip
    rows = sorted(zip(table["file"], table["score"], strict=True))
    assert [name for name, _ in rows] == [name for name, _ in expected]
    np.testing.assert_allclose([s for _, s in rows], [s for _, s in expected], atol=1e-4)
