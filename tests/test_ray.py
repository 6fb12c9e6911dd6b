"""A real Ray of two workers: the same rows as this machine's, even when a worker is killed.

A stand-in for ffmpeg, first on the path of tests and workers, hears files that end in .odd:
`deadly` ones kill the process that asks, as a decoder that crashes does; for `slow` ones the
first process that asks waits until it is killed.
"""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from driftscore import Classifier, load_backbone
from driftscore.engines import _ray_work, local
from driftscore.engines import ray as ray_engine
from driftscore.errors import DriftscoreError, MissingExtraError, UsageError
from driftscore.lab.runs.runner import run
from driftscore.lab.runs.store import Store

from .conftest import noise_clip
from .lab.small_lab import build, content, small_grid

SPEC = json.dumps({"spec": "fake", "options": {}})
LABELS = ["dog bark", "rain", "siren"]
FFMPEG = """#!/bin/sh
for word; do case "$word" in *.odd) file="$word" ;; esac; done
case "$file" in
*deadly*) kill -9 $PPID ;;
*slow*) if mkdir "$file.met" 2> /dev/null; then
    echo $PPID > "$file.part" && mv "$file.part" "$file.pid"
    while kill -0 $PPID 2> /dev/null; do sleep 0.05; done
fi ;;
esac
cat "$file.au"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Start a Ray of two workers and return its address."""
    ray = pytest.importorskip("ray", reason="RAY IS NOT INSTALLED: pip install 'driftscore[ray]'")
    home = tmp_path_factory.mktemp("ray")
    (home / "ffmpeg").write_text(FFMPEG)
    (home / "ffmpeg").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{home}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("DRIFTSCORE_CACHE", str(home / "cache"))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        ray.init(
            "local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=100_000_000,
        )
        yield ray.get_runtime_context().gcs_address
        ray.shutdown()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder of twelve recordings, the working directory."""
    monkeypatch.chdir(tmp_path)
    place = Path("sounds")
    place.mkdir()
    for seed in range(12):
        clip = noise_clip(1.0 + seed / 2, seed=seed)
        soundfile.write(place / f"{seed:02}.wav", clip.samples, clip.rate)
    return place


def odd(path: Path) -> Path:
    """Write a recording that only the stand-in for ffmpeg can hear."""
    path.write_bytes(b"no sound that libsndfile knows")
    clip = noise_clip(3.0, seed=99)
    soundfile.write(f"{path}.au", clip.samples, clip.rate, "FLOAT", "BIG", "AU")
    return path


def kill_the_slow(path: Path) -> None:
    """Kill the worker that is at a slow recording, once it is."""
    marker, deadline = Path(f"{path}.pid"), time.monotonic() + 30
    while not marker.exists():
        assert time.monotonic() < deadline, "no worker came to the slow recording"
        time.sleep(0.02)
    os.kill(int(marker.read_text()), signal.SIGKILL)


def gone(path: Path) -> bool:
    """Return whether the worker that met a slow recording first is no more."""
    return not Path(f"/proc/{Path(f'{path}.pid').read_text().strip()}").exists()


def on_ray(sources, **options):
    return ray_engine.hear(sources, load_backbone("fake"), spec=SPEC, **options)


def classify(*arguments):
    """Run the command in a process of its own and return what came of it."""
    command = [sys.executable, "-m", "driftscore.cli", "classify", *map(str, arguments)]
    command += ["--backbone", "fake", "--labels", ",".join(LABELS), "--format", "csv"]
    return subprocess.run(command, capture_output=True, text=True)


def alike(heard, other) -> bool:
    return (
        (heard.source, heard.error) == (other.source, other.error)
        and heard.rows.dtype == other.rows.dtype
        and heard.rows.flags.writeable == other.rows.flags.writeable
        and np.array_equal(heard.rows, other.rows)
        and np.array_equal(heard.spans, other.spans)
    )


def assert_same(found, sources) -> None:
    here = list(local.hear(sources, load_backbone("fake")))
    assert len(found) == len(here)
    assert [h.source for h, o in zip(found, here, strict=True) if not alike(h, o)] == []


def test_the_rows_are_those_of_this_machine_whatever_is_given(cluster, folder):
    (folder / "damaged.wav").write_bytes(b"RIFF of nothing")
    soundfile.write(folder / "silent.wav", np.zeros(16_000), 16_000)
    whole = (folder / "00.wav").read_bytes()
    with open(folder / "01.wav", "rb") as handle:
        copy = io.BytesIO(handle.read())

    def sources():
        yield from sorted(folder.iterdir())
        yield from ("./sounds/03.wav", str((folder / "04.wav").absolute()), "sounds/none.wav")
        yield from (whole, io.BytesIO(copy.getvalue()), noise_clip(3.0), (np.ones(9_000), 8_000))

    assert_same(list(on_ray(sources())), list(sources()))


def test_a_classifier_says_the_same_on_ray(cluster, folder):
    files = sorted(folder.iterdir())
    ears = Classifier(LABELS, backbone="fake")
    there = Classifier(LABELS, backbone="fake", engine="ray")
    assert np.array_equal(ears.scores(files), there.scores(files))
    assert ears.timeline(files[-1]) == there.timeline(files[-1])


def test_the_command_writes_the_same_table_on_ray(cluster, folder):
    (folder / "damaged.wav").write_bytes(b"RIFF of nothing")
    alone, both = classify("sounds"), classify("sounds", "--engine", "ray", "--address", cluster)
    assert alone.stdout.count("\n") == 14
    assert (both.stdout, both.stderr) == (alone.stdout, alone.stderr)
    assert both.returncode == alone.returncode == 1


def test_embeddings_written_on_ray_are_the_same(cluster, folder):
    for name, more in (("here", []), ("there", ["--engine", "ray", "--address", cluster])):
        command = ["embed", "sounds", "--backbone", "fake", "--out", f"{name}.npz", *more]
        subprocess.run([sys.executable, "-m", "driftscore.cli", *command], check=True)
    assert Path("here.npz").read_bytes() == Path("there.npz").read_bytes()


def test_a_worker_killed_half_way_changes_no_row(cluster, folder):
    slow = odd(folder / "06-slow.odd")
    sources = sorted(str(path) for path in (*folder.glob("*.wav"), slow))
    found = []
    for heard in on_ray(sources):
        found.append(heard)
        if len(found) == 1:  # rows come while others are still to be heard
            kill_the_slow(slow)
    assert gone(slow)
    assert not any(heard.error for heard in found)
    assert_same(found, sources)


def test_a_recording_that_kills_every_worker_is_one_row_with_an_error(cluster, folder):
    alone = classify("sounds").stdout.splitlines()
    deadly = odd(folder / "02-deadly.odd")
    good = sorted(str(path) for path in folder.glob("*.wav"))
    done = classify(*good[:2], deadly, *good[2:], "--engine", "ray", "--address", cluster)
    lines = done.stdout.splitlines()
    assert lines[:3] + lines[4:] == alone  # Ray's own words about lost workers are not among them
    assert lines[3].startswith("sounds/02-deadly.odd,")
    assert "02-deadly.odd could not be heard: it lost its worker 3 times" in lines[3]
    assert done.returncode == 1
    assert done.stderr == "1 of 13 recordings could not be used\n"


def test_few_more_recordings_are_taken_than_there_are_workers_for(cluster, folder):
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield str(folder / "00.wav")

    heard = on_ray(endless())
    for _ in range(40):
        assert not next(heard).error
    heard.close()
    assert taken <= 40 + 4 * 4 * ray_engine.SHARD


def test_shards_grow_small_towards_the_end_and_leave_nothing_out():
    shards = list(ray_engine._shards(map(str, range(200)), lambda: 2))
    assert [parcel.place for shard in shards for parcel in shard] == list(range(200))
    sizes = [len(shard) for shard in shards]
    assert sizes[0] == ray_engine.SHARD
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-4:] == [1, 1, 1, 1]


def test_a_file_that_a_node_does_not_see_is_a_row_that_names_the_node(folder):
    shard = (ray_engine._parcel(0, "sounds/00.wav"),)
    answer = [(np.zeros((0, 2)), np.zeros((0, 64), np.float32), "cannot be opened", "node7")]
    (heard,) = ray_engine._unpacked(shard, answer, 64)
    assert heard.error.startswith("sounds/00.wav is not there on the node node7; put it into a")


def test_another_model_on_a_node_ends_the_run_with_a_sentence(cluster, folder):
    other = json.dumps({"spec": "fake", "options": {"seed": 1}})
    heard = ray_engine.hear([folder / "00.wav"], load_backbone("fake"), spec=other)
    with pytest.raises(DriftscoreError, match=r"On the node .*fingerprint fake/.*/1 for fake/.*/0"):
        next(heard)
    absent = json.dumps({"spec": "clap:/no/such/folder"})
    heard = ray_engine.hear([folder / "00.wav"], load_backbone("fake"), spec=absent)
    with pytest.raises(DriftscoreError, match="On the node "):
        next(heard)


def test_what_cannot_be_run_on_ray_is_refused_in_words(cluster, folder):
    with pytest.raises(UsageError, match="not as a loaded model"):
        next(ray_engine.hear([folder / "00.wav"], load_backbone("fake")))
    with pytest.raises(UsageError, match=r"5 threads fits on no machine .* 2 cores"):
        next(on_ray([folder / "00.wav"], threads=5))


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"driftscore\[ray\]"):
        next(on_ray(["a.wav"]))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_an_address_where_nothing_answers_is_a_sentence(address):
    with pytest.raises(DriftscoreError, match=f"No Ray cluster answers at {address}"):
        _ray_work._reach(address)
    with pytest.raises(UsageError, match="is host:port"):
        _ray_work._reach("somewhere")


def test_the_lab_fills_the_same_rows_on_ray_though_a_worker_is_killed(cluster, tmp_path):
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


def test_a_store_that_a_node_does_not_see_ends_the_run(tmp_path):
    with pytest.raises(DriftscoreError, match="a folder that every node sees"):
        Store.aside(tmp_path / "elsewhere")


def test_the_lab_takes_no_number_of_workers_on_ray(tmp_path):
    grid = small_grid(build(tmp_path / "home"), rules=["cosine"])
    with Store(tmp_path / "store") as store:
        with pytest.raises(UsageError, match="leave out the number"):
            run(grid, store, engine="ray", workers=2)
        with pytest.raises(UsageError, match="did you mean 'ray'"):
            run(grid, store, engine="rey")
