"""The caches: where they are, how large, and that clearing one touches nothing else."""

import csv
import io
import json
from pathlib import Path

import pytest

from driftscore.errors import UsageError
from driftscore.storage.caches import find_caches, list_caches
from driftscore.storage.files import cache_home

from .conftest import LABELS, Run, WriteWav

NAMES = ["texts", "audio", "windows", "models", "loudness", "figures", "scenes", "soundscapes",
         "data", "lab"]  # fmt: skip


@pytest.fixture
def home() -> Path:
    """Return a cache folder with ten bytes in each cache, and files that are not ours."""
    folder = cache_home()
    files = ["texts.sqlite", "audio.sqlite", "loudness.sqlite", "exports/a/m.onnx", "notes.txt",
             "scenes/1/a.wav", "windows/a.windows", "matplotlib/fonts.json", "soundscapes/a.flac",
             "data/esc50/a.wav", "lab/rows/x.bin", "texts"]  # fmt: skip
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"0123456789")
    return folder


def rows_of(run: Run) -> dict[str, dict[str, object]]:
    return {row["cache"]: row for row in json.loads(run("cache", "-f", "json")[1])}


def test_every_cache_is_shown_with_its_place_and_size(run: Run, home: Path) -> None:
    (home / "texts.sqlite-wal").write_bytes(b"01234")
    rows = rows_of(run)
    assert list(rows) == NAMES
    assert (rows["texts"]["bytes"], rows["texts"]["files"]) == (15, 2)
    assert rows["texts"]["path"] == str(home / "texts.sqlite")
    assert [row["bytes"] for row in rows.values()] == [15] + (len(NAMES) - 1) * [10]
    table = list(csv.DictReader(io.StringIO(run("cache", "--format", "csv")[1])))
    assert [row["cache"] for row in table] == NAMES
    assert "10 bytes" in run("cache")[1]


def test_an_empty_cache_folder_is_shown_as_empty(run: Run) -> None:
    assert {row["bytes"] for row in rows_of(run).values()} == {0}
    assert sum(cache.clear() for cache in find_caches()) == 0


def test_what_the_command_keeps_is_in_the_caches(run: Run, wav: WriteWav) -> None:
    run("classify", wav(), "-l", ", ".join(LABELS), "-b", "fake", "--cache")
    kept = {path for cache in list_caches() for path in cache.files()}
    assert kept == {path for path in cache_home().rglob("*") if path.is_file()}
    assert any(path.name == "audio.sqlite" for path in kept)


def test_clearing_by_name_deletes_that_cache_only(run: Run, home: Path) -> None:
    before = {path for path in home.rglob("*") if path.is_file()}
    assert run("cache", "clear", "scenes", "texts", "--yes") == (0, "", "Deleted 20 bytes\n")
    after = {path for path in home.rglob("*") if path.is_file()}
    assert before - after == {home / "texts.sqlite", home / "scenes/1/a.wav"}


def test_clearing_without_a_name_leaves_results_data_and_files_of_others(
    run: Run, home: Path
) -> None:
    assert run("cache", "clear", "--yes")[0] == 0
    left = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    assert left == {"data/esc50/a.wav", "lab/rows/x.bin", "notes.txt", "texts"}
    assert run("cache", "clear", "lab", "data", "-y")[0] == 0
    assert {path.name for path in home.iterdir()} == {"notes.txt", "texts"}


@pytest.mark.parametrize(("answer", "status"), [("n\n", 1), ("y\n", 0)])
def test_clearing_asks_first(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, answer: str, status: int
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    found, out, err = run("cache", "clear", "audio")
    assert (found, out) == (status, "")
    assert "Delete audio (10 bytes)?" in err
    assert (home / "audio.sqlite").exists() == bool(status)


def test_a_link_is_deleted_and_what_it_points_to_is_not(home: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.wav").write_bytes(b"0123456789")
    (home / "scenes/linked").symlink_to(outside)
    (home / "lab/rows/x.bin").unlink()
    (home / "lab/rows").rmdir()
    (home / "lab").rmdir()
    (home / "lab").symlink_to(outside)
    for cache in find_caches(["scenes", "lab"]):
        cache.clear()
    assert not (home / "lab").exists()
    assert not (home / "scenes").exists()
    assert (outside / "precious.wav").exists()


def test_a_store_outside_the_cache_folder_is_shown_and_never_cleared(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "results"
    store.mkdir()
    (store / "rows.sqlite").write_bytes(b"0123")
    monkeypatch.setenv("DRIFTSCORE_LAB", str(store))
    row = rows_of(run)["lab"]
    assert (row["path"], row["bytes"]) == (str(store), 4)
    status, _, err = run("cache", "clear", "lab", "--yes")
    assert (status, "outside the cache folder" in err) == (2, True)
    assert (store / "rows.sqlite").exists()
    assert (home / "lab").exists()


def test_an_unknown_cache_is_an_error_with_the_nearest_name(run: Run) -> None:
    with pytest.raises(UsageError, match="did you mean 'texts'"):
        find_caches(["text"])
    assert run("cache", "clear", "text", "--yes")[0] == 2


@pytest.mark.parametrize("answer", [b"", b"\xff\0\n", b"no\n"])
def test_an_answer_that_is_not_yes_deletes_nothing(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(answer), encoding="utf-8"))
    status, out, err = run("cache", "clear")
    assert (status, out) == (1, "")
    assert err.endswith("Nothing deleted\n")
    assert (home / "texts.sqlite").exists()
