"""Archives of windows in Parquet: written, appended to, killed, read by others, searched."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet as pq
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

import driftscore.engines.archive as archive_module
from driftscore import Classifier, Embedder, Head, load_backbone
from driftscore.backbones.vectors import Matrix, unit
from driftscore.engines.archive import (
    ArchiveWriter,
    RowBlock,
    StoredRows,
    open_embeddings,
    packed_rows,
)
from driftscore.engines.protocol import Embedded
from driftscore.errors import FormatError, MismatchError, UsageError
from driftscore.events.search import search

from .conftest import PROJECT, Run

RATE = 16_000
FAKE = ("--backbone", "fake", "--window", "1", "--hop", "0.5")


def noise(path: Path, seconds: float, seed: int) -> Path:
    samples = np.random.default_rng(seed).standard_normal(round(seconds * RATE)) * 0.1
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, RATE)
    return path


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """A folder of recordings of different lengths."""
    folder = tmp_path / "recordings"
    for number, seconds in enumerate((2.0, 3.3, 0.4, 6.1)):
        noise(folder / f"{number}.wav", seconds, number)
    return folder


def table(folder: Path) -> Any:
    """All rows of an archive, as another tool reads them."""
    return pyarrow.concat_tables(pq.read_table(path) for path in sorted(folder.glob("*.parquet")))


def windows_of(folder: Path) -> list[tuple[str, float, float]]:
    rows = table(folder)
    return list(
        zip(*(rows[name].to_pylist() for name in ("file", "start_s", "end_s")), strict=True)
    )


def test_an_archive_has_one_row_per_window_with_what_made_it(
    recordings: Path, tmp_path: Path, run: Run
) -> None:
    out = tmp_path / "archive"
    status, _, err = run("embed", recordings, "--out", f"{out}/", *FAKE)
    assert status == 0, err
    fake = load_backbone("fake")
    with Embedder(fake) as embedder:
        expected = [
            (str(path), start_s, end_s, row)
            for path in sorted(recordings.iterdir())
            for start_s, end_s, row in embedder.slide(str(path), window_s=1.0, hop_s=0.5)
        ]
    assert windows_of(out) == [window[:3] for window in expected]
    rows = table(out)
    assert rows.schema.field("embedding").type == pyarrow.list_(
        pyarrow.field("element", pyarrow.int8(), nullable=False), fake.dim
    )
    codes = np.array(rows["embedding"].to_pylist(), np.float32)
    unpacked = codes * np.array(rows["scale"])[:, None]
    exact = np.stack([row for *_, row in expected])
    np.testing.assert_allclose(np.linalg.norm(unpacked, axis=1), 1, atol=1e-6)
    assert ((unpacked * exact).sum(axis=1) > 0.9999).all()
    about = json.loads(rows.schema.metadata[b"driftscore"])
    assert about == {"model": "fake", "fingerprint": fake.fingerprint, "window_s": 1.0,
                     "hop_s": 0.5}  # fmt: skip


def test_the_next_run_adds_what_is_missing_and_nothing_twice(
    recordings: Path, tmp_path: Path, run: Run
) -> None:
    out = tmp_path / "archive"
    run("embed", recordings / "0.wav", recordings / "0.wav", "--out", f"{out}/", *FAKE)
    first = (out / "part-000000.parquet").read_bytes()
    status, _, err = run("embed", recordings, "--out", out, *FAKE)
    assert status == 0
    assert "1 recording in" in err
    assert (out / "part-000000.parquet").read_bytes() == first
    whole = tmp_path / "whole"
    run("embed", recordings, "--out", f"{whole}/", *FAKE)
    assert windows_of(out) == windows_of(whole)


def test_a_recording_that_has_changed_since_is_embedded_again(
    recordings: Path, tmp_path: Path, run: Run
) -> None:
    out, live = tmp_path / "archive", recordings / "0.wav"
    whole = live.read_bytes()
    noise(live, 1.0, 7)  # as a recorder that still writes it
    run("embed", recordings, "--out", f"{out}/", *FAKE)
    before = windows_of(out)
    live.write_bytes(whole)
    status, _, err = run("embed", recordings, "--out", out, *FAKE)
    assert status == 0, err
    expected = tmp_path / "expected"
    run("embed", recordings, "--out", f"{expected}/", *FAKE)
    assert before != sorted(windows_of(out)) == sorted(windows_of(expected))
    # Also where it was all that its shard had, and nothing a third time.
    os.utime(live)
    assert "windows of 1 recording" in run("embed", recordings, "--out", out, *FAKE)[2]
    assert "windows of 0 recordings" in run("embed", recordings, "--out", out, *FAKE)[2]
    assert sorted(windows_of(out)) == sorted(windows_of(expected))


SLOW_RUN = """
import sys, time
import driftscore.engines.archive as archive
from driftscore.backbones.fake import Fake
archive._SHARD_ROWS = 3
encode = Fake.encode
Fake.encode = lambda self, features: time.sleep(0.01) or encode(self, features)
from driftscore.cli.app import main
main()
"""


def test_a_run_that_is_killed_loses_and_doubles_no_row(tmp_path: Path, run: Run) -> None:
    folder, out = tmp_path / "recordings", tmp_path / "archive"
    for number in range(40):
        noise(folder / f"{number:02d}.wav", 2.0, number)
    arguments = ("embed", str(folder), "--out", f"{out}/", *FAKE)
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_RUN, *arguments],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while len(list(out.glob("part-*.parquet"))) < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    process.wait()
    (out / ".part-000099.parquet.partial").write_bytes(b"PAR1 cut")
    killed = windows_of(out)
    assert 0 < len({name for name, *_ in killed}) < 40
    status, _, err = run(*arguments)
    assert status == 0, err
    assert not list(out.glob(".*.partial"))
    again = windows_of(out)
    assert again[: len(killed)] == killed
    assert len(again) == len(set(again)) == 40 * 3


def test_two_runs_do_not_write_to_one_archive_at_a_time(tmp_path: Path) -> None:
    fake = load_backbone("fake")
    with (
        ArchiveWriter(tmp_path, fake, window_s=1, hop_s=1),
        pytest.raises(UsageError, match="Another run is writing"),
        ArchiveWriter(tmp_path, fake, window_s=1, hop_s=1),
    ):
        pass


def test_an_archive_takes_rows_of_one_model_and_window(
    recordings: Path, tmp_path: Path, run: Run
) -> None:
    out = tmp_path / "archive"
    run("embed", recordings, "--out", f"{out}/", *FAKE)
    status, _, err = run("embed", recordings, "--out", out, "--backbone", "fake", "--window", "2")
    assert status != 0
    assert "use --window 1 --hop 0.5" in err
    other = load_backbone("fake", seed=1)
    with (
        pytest.raises(MismatchError, match="was made with fake"),
        ArchiveWriter(out, other, window_s=1.0, hop_s=0.5),
    ):
        pass
    status, _, err = run("find", "siren", "--in", out)  # with the model mini
    assert status != 0
    assert "was made with fake" in err


def test_silent_and_broken_recordings_are_reported_and_the_others_kept(
    recordings: Path, tmp_path: Path, run: Run
) -> None:
    (recordings / "bad.wav").write_bytes(b"RIFF")
    soundfile.write(recordings / "silent.wav", np.zeros(RATE), RATE)
    status, _, err = run("embed", recordings, "--out", f"{tmp_path / 'archive'}/", *FAKE)
    assert status == 1
    assert "bad.wav" in err
    assert "silent.wav is silent" in err
    assert len({name for name, *_ in windows_of(tmp_path / "archive")}) == 4


def test_the_windows_of_a_model_go_through_its_engine(
    recordings: Path, tmp_path: Path, run: Run
) -> None:
    """Without a window of their own, models that encode each window have those of `embed`."""
    out = tmp_path / "archive"
    status, _, err = run("embed", recordings, "--out", f"{out}/", "--backbone", "fake", "--cache")
    assert status == 0, err
    with Embedder("fake") as embedder:
        expected = [
            (one.source, *span)
            for one in embedder.embed(map(str, sorted(recordings.iterdir())))
            for span in one.spans.tolist()
        ]
    assert windows_of(out) == expected
    status, _, err = run("embed", recordings, "--out", f"{tmp_path}/b/", "--cache", *FAKE)
    assert status != 0
    assert "--window 2 --hop 1" in err


def test_score_reads_archives_and_npz_of_windows_alike(
    recordings: Path, tmp_path: Path, run: Run
) -> None:
    out, npz = tmp_path / "archive", tmp_path / "windows.npz"
    run("embed", recordings, "--out", f"{out}/", *FAKE)
    run("embed", recordings, "--out", npz, "--windows", *FAKE)
    labels = ("--labels", "siren, dog bark", "--backbone", "fake", "--format", "json")
    ours, theirs = (json.loads(run("score", path, *labels)[1]) for path in (out, npz))
    assert [row["start_s"] for row in ours] == [start_s for _, start_s, _ in windows_of(out)]
    assert len(ours) == len(theirs) > 4
    for one, other in zip(ours, theirs, strict=True):
        assert (one["file"], one["start_s"], one["end_s"]) == (
            other["file"], other["start_s"], other["end_s"]
        )  # fmt: skip
        assert one["score"] == pytest.approx(other["score"], abs=0.01)
    status, text, _ = run("score", out, *labels[:4], "--format", "audacity", "--multi")
    assert status != 0 or text


def test_rules_take_their_noise_from_an_archive(recordings: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "archive"
    run("embed", recordings, "--out", f"{out}/", *FAKE)
    head = ("head", "-l", "siren, dog", "-r", "zs_audio", "-b", "fake", "--set")
    status, _, err = run(*head, f"noise={out}", "-o", tmp_path / "head.npz")
    assert status == 0, err
    fitted = Classifier(["siren", "dog"], backbone="fake", rule="zs_audio",
                        settings={"noise": open_embeddings(out).read()}).fit()  # fmt: skip
    np.testing.assert_array_equal(Head.load(tmp_path / "head.npz").offsets, fitted.head_.offsets)


@pytest.fixture
def rows() -> Matrix:
    rng = np.random.default_rng(0)
    return rng.standard_normal((5000, 8)).astype(np.float32) * 3


@pytest.fixture
def head_file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    path = tmp_path / "head.npz"
    Head(("a", "b", "c"), rng.standard_normal((3, 8)).astype(np.float32)).save(path)
    return path


def fixed_lists(rows: Any) -> Any:
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.reshape(-1)), rows.shape[1])


@pytest.mark.parametrize("kind", ["npy", "fortran", "npz", "lists", "float16", "float64"])
def test_embeddings_of_other_tools_are_scored_by_naming_their_column(
    kind: str, rows: Matrix, head_file: Path, tmp_path: Path, run: Run
) -> None:
    path, column = tmp_path / "other.parquet", ("--column", "vector")
    others = fixed_lists(rows[:, :2].copy())
    if kind in ("npy", "fortran"):
        path, column = tmp_path / "other.npy", ()  # type: ignore[assignment]
        np.save(path, rows if kind == "npy" else np.asfortranarray(rows))
    elif kind == "npz":
        path = tmp_path / "other.npz"
        np.savez(path, vector=rows, ids=np.arange(len(rows)))
    else:
        vector = {"lists": pyarrow.array(rows.tolist(), pyarrow.list_(pyarrow.float32())),
                  "float16": fixed_lists(rows.astype(np.float16)),
                  "float64": fixed_lists(rows.astype(np.float64))}[kind]  # fmt: skip
        pq.write_table(pyarrow.table({"vector": vector, "box": others}), path, row_group_size=700)
        status, _, err = run("score", path, "--head", head_file)
        assert status != 0
        assert "2 columns of lists (vector, box)" in err
    status, out, err = run("score", path, "--head", head_file, *column, "--multi", "-f", "jsonl")
    assert status == 0, err
    scored = [json.loads(line) for line in out.splitlines()]
    assert scored[4999]["file"] == f"{path.name}[4999]"
    expected = Head.load(head_file).scores(unit(rows))
    found = np.array([list(row["scores"].values()) for row in scored])
    np.testing.assert_allclose(found, expected, atol=1e-3 if kind == "float16" else 1e-6)


def test_columns_that_are_no_embeddings_are_refused(tmp_path: Path) -> None:
    columns = {
        "ragged": pyarrow.array([[1.0, 2.0], [3.0]]),
        "empty": pyarrow.array([[1.0, 2.0], None]),
        "hole": pyarrow.array([[1.0, 2.0], [3.0, None]]),
        "texts": pyarrow.array([["a"], ["b"]]),
        "nan": pyarrow.array([[1.0, 2.0], [3.0, float("nan")]]),
    }
    path = tmp_path / "other.parquet"
    pq.write_table(pyarrow.table(columns), path)
    for name in columns:
        with pytest.raises(FormatError, match=re.escape(str(path))):
            open_embeddings(path, name).read()
    with pytest.raises(UsageError, match=r"ragged, empty, .* none called 'x'"):
        open_embeddings(path, "x")
    pq.write_table(pyarrow.table({"v": [[1.0], [2.0]], "file": ["a", None]}), path)
    with pytest.raises(FormatError, match=r"'file' of .* has empty cells; fill or rename it"):
        open_embeddings(path).read()
    (tmp_path / "none").mkdir()
    with pytest.raises(FormatError):
        open_embeddings(tmp_path / "none")


def test_a_damaged_shard_is_an_error_that_names_it(tmp_path: Path) -> None:
    fake = load_backbone("fake")
    with ArchiveWriter(tmp_path, fake, window_s=1.0, hop_s=0.5) as writer:
        writer.add(Embedded("a", np.array([[0.0, 1.0]] * 50), unit(np.ones((50, 64), np.float32))))
    path = tmp_path / "part-000000.parquet"
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for number in range(60):
        damaged = bytearray(content[: rng.integers(1, len(content))] if number % 2 else content)
        for at in rng.integers(0, len(damaged), 3):
            damaged[at] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            assert len(open_embeddings(tmp_path).read()) == 50
        except (FormatError, MismatchError) as error:
            assert str(path) in str(error)  # noqa: PT017 (a changed number is not an error)


def slow_search(
    labels: tuple[str, ...], scores: np.ndarray[Any, Any], windows: list[tuple[str, float, float]],
    top: int,
) -> list[tuple[str, float, float, str, float]]:  # fmt: skip
    """The definition: the lowest threshold of a label with at most `top` places, all windows."""
    result = []
    for c, label in enumerate(labels):
        best: list[tuple[str, float, float, float]] = []
        order = sorted(range(len(windows)), key=lambda n: (-scores[n, c], windows[n]))
        for count in range(1, len(order) + 1):
            places: list[tuple[str, float, float, float]] = []
            for number in sorted(order[:count], key=lambda n: windows[n]):
                source, start_s, end_s = windows[number]
                score = scores[number, c]
                if places and places[-1][0] == source and start_s < places[-1][2]:
                    last = places.pop()
                    place = (source, last[1], max(end_s, last[2]), max(score, last[3]))
                else:
                    place = (source, start_s, end_s, score)
                places.append(place)
            if len(places) > top:
                break
            best = places
        ranked = sorted(best, key=lambda place: (-place[3], place[0], place[1]))
        result += [(*place[:3], label, place[3]) for place in ranked]
    return result


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000), top=st.integers(1, 8), block=st.integers(1, 40),
    parts=st.integers(1, 3), files=st.integers(1, 6),
)  # fmt: skip
def test_search_gives_the_places_of_its_definition(
    seed: int, top: int, block: int, parts: int, files: int
) -> None:
    rng = np.random.default_rng(seed)
    windows = [(f"{file}", 0.5 * n, 0.5 * n + 1.0) for file in range(files)
               for n in range(rng.integers(1, 40)) if rng.random() < 0.8]  # fmt: skip
    windows = windows or [("0", 0.0, 1.0)]
    # Few directions: many windows have exactly the same score.
    rows = unit(rng.integers(-2, 3, (len(windows), 3)).astype(np.float32) + np.float32(0.01))
    codes, scales = packed_rows(rows)
    head = Head(("a", "b"), rng.standard_normal((2, 3)).astype(np.float32))

    def part(first: int, last: int) -> Any:
        def blocks() -> Any:
            for start in range(first, last, block):
                end = min(last, start + block)
                names = np.array([name for name, *_ in windows[start:end]], object)
                spans = np.array([window[1:] for window in windows[start:end]])
                yield RowBlock(Path("x"), codes[start:end], names, spans, scales[start:end])

        return blocks

    cuts = sorted({0, len(windows), *rng.integers(0, len(windows), parts - 1).tolist()})
    stored = StoredRows(Path("x"), len(windows), [part(a, b) for a, b in pairwise(cuts)])
    scores = head.scores(unit(codes.astype(np.float32)))
    found = search(head, stored, top=top)
    assert [
        (place.source, place.start_s, place.end_s, place.label, place.score) for place in found
    ] == slow_search(head.labels, scores, windows, top)


def test_find_ranks_the_windows_of_detect(tmp_path: Path, run: Run, speech_free: Path) -> None:
    """With windows that do not overlap, each place is a window of `detect --windows`."""
    out = tmp_path / "archive"
    cut = ("--window", "2", "--hop", "2")
    status, _, err = run("embed", speech_free, "--out", f"{out}/", *cut)
    assert status == 0, err
    for word in ("siren", "dog bark"):
        arguments = ("detect", speech_free, "-l", word, *cut, "--windows", "-f", "json")
        rows = json.loads(run(*arguments)[1])
        rows.sort(key=lambda row: -row["score"])
        status, text, err = run("find", word, "--in", out, "--top", "6", "-f", "json")
        assert status == 0, err
        found = json.loads(text)
        # in standard deviations, and cosines: an affine function of each other
        scores = [[row["score"] for row in part] for part in (found, rows[:6])]
        assert np.corrcoef(scores)[0, 1] > 0.99
        precisions = [row["precision"] for row in found]
        assert precisions == sorted(precisions, reverse=True)
        assert 0 <= precisions[-1] <= precisions[0] <= 1
        assert [(r["file"], r["start_s"], r["end_s"]) for r in found[:3]] == [
            (r["file"], r["start_s"], r["end_s"]) for r in rows[:3]
        ]


@pytest.fixture
def speech_free(tmp_path: Path) -> Path:
    """Recordings of tones, sweeps and noise, which differ enough to be ranked."""
    folder = tmp_path / "sounds"
    folder.mkdir()
    seconds = np.arange(12 * RATE) / RATE
    rng = np.random.default_rng(0)
    for number in range(4):
        level = np.abs(np.sin(2 * np.pi * seconds * (number + 1) / 7))
        tone = np.sin(2 * np.pi * (400 + 300 * number) * seconds * (1 + 0.3 * np.sin(seconds)))
        samples = 0.3 * level * tone + 0.05 * rng.standard_normal(len(seconds))
        soundfile.write(folder / f"2026010{number + 1}_030000.wav", samples, RATE)
    return folder


def test_find_cuts_clips_and_writes_a_page(tmp_path: Path, run: Run, speech_free: Path) -> None:
    out, clips, page = tmp_path / "archive", tmp_path / "clips", tmp_path / "places.html"
    run("embed", speech_free, "--out", f"{out}/")
    status, _, err = run("find", "siren", "dog <bark>", "--in", out, "--top", "2",
                         "--clips", clips, "-f", "html", "-o", page)  # fmt: skip
    assert status == 0, err
    text = page.read_text("utf-8")
    assert text.count("<audio") == 4 == len(list(clips.glob("*.flac")))
    assert "dog &lt;bark&gt;" in text
    assert re.search(r'src="file:///[^"]*2026010\d_030000\.wav#t=\d', text)
    (speech_free / "20260101_030000.wav").unlink()
    status, _, err = run("find", "siren", "--in", out, "--clips", clips)
    assert status == 1
    assert "20260101_030000.wav" in err


def test_find_looks_for_what_examples_sound_like(tmp_path: Path, run: Run) -> None:
    """The sound of an example is a part of one recording; no word is needed for it."""
    out, sounds = tmp_path / "archive", Path(__file__).parents[1] / "demo" / "sounds"
    files = [sounds / f"{name}.flac" for name in ("rain", "church_bell", "siren", "crickets")]
    run("embed", *files, "--out", f"{out}/", "--window", "2", "--hop", "2")
    samples, rate = soundfile.read(sounds / "church_bell.flac")
    soundfile.write(tmp_path / "bell.wav", samples[: 3 * rate], rate)
    given = ("--examples", f"bell={tmp_path / 'bell.wav'}", "--in", out, "-f", "json")
    status, text, err = run("find", *given, "--top", "1")
    assert status == 0, err
    (place,) = json.loads(text)
    assert (place["label"], Path(place["file"]).name) == ("bell", "church_bell.flac")
    status, text, err = run("find", "siren", *given, "--top", "2")
    assert status == 0, err
    assert [row["label"] for row in json.loads(text)] == ["siren"] * 2 + ["bell"] * 2


def test_find_reads_stored_windows_of_any_kind_with_a_head(
    rows: Matrix, head_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "clips.npy"
    np.save(path, rows)
    head = Head.load(head_file)
    scores = head.scores(unit(rows))
    places = search(head, open_embeddings(path), top=3)
    assert [place.source for place in places] == [
        f"clips.npy[{row}]" for c in range(3) for row in np.argsort(-scores[:, c])[:3]
    ]


def test_duckdb_scores_an_archive_in_sql_as_the_documents_show(
    recordings: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("embed", recordings, "--out", "windows/", *FAKE)
    run("head", "-l", "siren, dog bark", "-b", "fake", "-o", "head.json")
    text = (PROJECT / "docs" / "archives.md").read_text("utf-8")
    block = re.search(r"```python\n(import duckdb\n.*?)```", text, re.DOTALL)
    assert block is not None
    values: dict[str, Any] = {}
    exec(block[1], values)
    scores = Head.load("head.json").scores(open_embeddings("windows").read())
    best = np.sort(scores.ravel())[::-1][:20]
    np.testing.assert_allclose([place[4] for place in values["places"]], best, atol=1e-4)


def test_words_are_needed_to_find_anything(tmp_path: Path, run: Run) -> None:
    status, _, err = run("find", "--in", tmp_path)
    assert status == 2
    assert "No words given" in err


def test_shards_are_cut_by_rows_between_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "_SHARD_ROWS", 10)
    fake = load_backbone("fake")
    spans = np.array([[0.0, 1.0]] * 4)
    with ArchiveWriter(tmp_path, fake, window_s=1.0, hop_s=1.0) as writer:
        for number in range(7):
            writer.add(Embedded(f"{number}", spans, unit(np.ones((4, 64), np.float32))))
    counts = [pq.read_metadata(path).num_rows for path in sorted(tmp_path.glob("*.parquet"))]
    assert counts == [12, 12, 4]
    assert os.listdir(tmp_path).count(".lock") == 1  # noqa: PTH208
