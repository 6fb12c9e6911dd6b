"""Recordings and results behind URLs: through fsspec, with the errors of files."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import soundfile

from driftscore import Backbone, Classifier, Embedder
from driftscore.audio.recordings import expand, read
from driftscore.backbones.stored import EmbeddingFile
from driftscore.errors import AudioError, UsageError
from driftscore.storage.files import is_url, replacing

from .conftest import LABELS, Run, WriteWav

fsspec = pytest.importorskip("fsspec", reason="FSSPEC IS NOT INSTALLED")


@pytest.fixture
def memory(wav: WriteWav) -> Iterator[list[str]]:
    """Return the URLs of two recordings in fsspec's memory, which is empty otherwise."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    for name, seed in (("a.wav", 0), ("b.wav", 3)):
        system.pipe(f"/dir/{name}", Path(wav(name, seconds=5.0, seed=seed)).read_bytes())
    system.pipe("/dir/notes.txt", b"no sound")
    yield ["memory://dir/a.wav", "memory://dir/b.wav"]
    system.store.clear()


@pytest.mark.parametrize(
    ("given", "expected"),
    [("s3://bucket/a.wav", True), ("file:///tmp/a.wav", True), ("simplecache::s3://b/a", True),
     ("a.wav", False), ("/tmp/a.wav", False), ("C://x", False), (Path("s3://b"), False),
     (b"s3://b", False)],
)  # fmt: skip
def test_a_url_has_a_scheme(given: object, expected: bool) -> None:
    assert is_url(given) is expected


def test_a_url_is_read_as_the_file_that_it_is(memory: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    for url in (memory[0], path.as_uri()):
        np.testing.assert_array_equal(read(url).samples, read(path).samples)
        assert read(url).rate == read(path).rate


def test_urls_are_labelled_like_files(
    memory: list[str], wav: WriteWav, fake: Backbone, tmp_path: Path
) -> None:
    files = [str(tmp_path / "a.wav"), str(tmp_path / "b.wav")]
    classifier = Classifier(LABELS, backbone=fake)
    np.testing.assert_array_equal(classifier.scores(memory), classifier.scores(files))
    assert [result.source for result in classifier.classify(memory)] == memory


def test_globs_and_folders_of_urls_are_expanded(memory: list[str], tmp_path: Path) -> None:
    slashed = [url.replace("//", "///") for url in memory]
    assert expand(["memory://dir/*.wav"]) == slashed
    assert expand(["memory://dir"]) == slashed
    assert expand(["memory://dir/absent.wav"]) == ["memory://dir/absent.wav"]
    assert expand([tmp_path.as_uri()]) == [p.as_uri() for p in sorted(tmp_path.glob("*.wav"))]
    with pytest.raises(UsageError, match="No file matches"):
        expand(["memory://dir/*.flac"])
    fsspec.filesystem("memory").pipe("/quiet/notes.txt", b"no sound")
    with pytest.raises(UsageError, match="no sound files"):
        expand(["memory://quiet"])


def test_a_bad_url_is_a_row_and_the_rest_are_done(memory: list[str], fake: Backbone) -> None:
    urls = [memory[0], "memory://dir/absent.wav", "memory://dir/notes.txt", memory[1]]
    found = list(Embedder(fake).embed(urls))
    assert [bool(one.error) for one in found] == [False, True, True, False]
    assert "memory://dir/absent.wav cannot be opened: No such file" in found[1].error
    assert "memory://dir/notes.txt is not a sound file" in found[2].error
    with pytest.raises(AudioError, match="cannot be opened"):
        read("file:///nowhere/absent.wav")


def test_an_unknown_scheme_and_a_missing_library_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(AudioError, match=r"nowhere://a\.wav cannot be reached: Protocol not known"):
        read("nowhere://a.wav")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(AudioError, match=r"pip install '.*\[remote\]'"):
        read("memory://dir/a.wav")


def test_urls_are_cached_by_content_and_known_by_their_version(
    memory: list[str], fake: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = Embedder(fake, audio_cache=True)
    first = list(embedder.embed(memory))
    with monkeypatch.context() as patch:
        for name in ("engines.local.sounding_windows", "engines.audio_cache.audio_digest"):
            patch.setattr(f"driftscore.{name}", lambda *_, **__: pytest.fail("read again"))
        second = list(embedder.embed(memory))
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.rows, two.rows)
    system = fsspec.filesystem("memory")
    system.pipe("/dir/a.wav", system.cat("/dir/b.wav"))
    changed = next(embedder.embed(memory))
    np.testing.assert_array_equal(changed.rows, first[1].rows)


def test_a_file_is_written_to_a_url_when_it_is_complete(memory: list[str], tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    for url in ("memory://new/deep/out.txt", (tmp_path / "deep" / "out.txt").as_uri()):
        with suppress(ZeroDivisionError), replacing(url) as partial:
            partial.write_text("half")
            _ = 1 / 0
        assert not fsspec.open(url).fs.exists(url)
        with replacing(url) as partial:
            partial.write_text("complete")
        with fsspec.open(url, "r") as handle:
            assert handle.read() == "complete"
    assert system.exists("/new/deep/out.txt")


def test_the_command_reads_from_and_writes_to_urls(
    run: Run, memory: list[str], tmp_path: Path
) -> None:
    ask = ["--labels", ", ".join(LABELS), "--backbone", "fake"]
    status, out, _ = run("classify", "memory://dir", *ask, "-f", "csv")
    assert status == 0
    assert run("classify", "memory://dir", *ask, "-f", "csv", "-o", "memory://out/rows.csv")[0] == 0
    system = fsspec.filesystem("memory")
    assert system.cat("/out/rows.csv").decode() == out
    assert run("embed", *memory, "-b", "fake", "-o", "memory://out/clips.npz")[0] == 0
    system.get_file("/out/clips.npz", str(tmp_path / "clips.npz"))
    assert EmbeddingFile.load(tmp_path / "clips.npz").files == tuple(memory)


def test_what_soundfile_writes_to_memory_is_read_back(memory: list[str]) -> None:
    clip = read(memory[0])
    with fsspec.open("memory://dir/c.flac", "wb") as handle:
        soundfile.write(handle, clip.samples, clip.rate, format="FLAC")
    assert read("memory://dir/c.flac").seconds == clip.seconds
