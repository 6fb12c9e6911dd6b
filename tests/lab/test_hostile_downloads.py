"""Hostile servers and archives: no way down to http, no names that are paths, nothing half done."""

import bz2
import gzip
import io
import lzma
import tarfile
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from driftscore.errors import DownloadError, FormatError, WriteError
from driftscore.lab.corpora import unpack as unpacking
from driftscore.lab.corpora.download import _RecordFile
from driftscore.lab.corpora.folders import root
from driftscore.lab.corpora.unpack import unpack
from driftscore.storage.downloads import _checked_redirect

from .archives import split, zipped


@pytest.mark.parametrize("target", ["http://evil.example/a", "ftp://evil.example/a"])
def test_a_redirect_from_https_to_anything_else_is_refused(target: str) -> None:
    url, good = "https://zenodo.org/a", httpx.URL("https://files.zenodo.org/a")
    with pytest.raises(DownloadError, match="which is not https"):
        _checked_redirect(url, httpx.URL(url), httpx.URL(target))
    assert _checked_redirect(url, httpx.URL(url), good) == good


@pytest.mark.parametrize(
    "name", ["audio/../../evil.tar.gz", "/etc/x", "a\\b", "C:x", "a\0", "", ".x", "downloads.json"]
)
def test_the_name_of_a_file_in_a_record_is_never_a_path(name: str) -> None:
    stated = "md5:" + "0" * 32
    with pytest.raises(ValueError, match="is not the name of a file"):
        _RecordFile(name, stated)
    assert _RecordFile("FSD50K.dev_audio.z01", stated).key == "FSD50K.dev_audio.z01"


@pytest.mark.parametrize("stated", ["", "md5:", "sha256:00", "md5:../x", "md5:" + "G" * 32])
def test_the_checksum_in_a_record_is_an_md5(stated: str) -> None:
    with pytest.raises(ValueError, match="is not an md5"):
        _RecordFile("a", stated)


def tarred(path: Path, mode: str) -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for number in range(20):
            info = tarfile.TarInfo(f"audio/{number}.wav")
            content = bytes((number * i * i) % 251 for i in range(3000))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_a_compressed_tar_that_is_cut_anywhere_is_refused(ending: str, tmp_path: Path) -> None:
    path = tarred(tmp_path / f"a.tar.{ending}", f"w:{ending}")
    content, home = path.read_bytes(), tmp_path / "home"
    for part in (0.02, 0.2, 0.5, 0.8, 0.95, 0.999):
        path.write_bytes(content[: int(part * len(content))])
        with pytest.raises(FormatError, match="damaged or not an archive"):
            unpack(path, home)
        assert not list(home.iterdir())
    path.write_bytes(content)
    assert len(unpack(path, home)) == 20


def test_names_of_our_own_files_and_names_with_nul_are_refused(tmp_path: Path) -> None:
    for name in ("downloads.json", "./downloads.json", ".downloads/x", "a\0b"):
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("xyz", b"1")
            info = zipfile.ZipInfo("a_b" if "\0" in name else name)
            archive.writestr(info, b"1")
        if "\0" in name:
            path.write_bytes(path.read_bytes().replace(b"a_b", b"a\0b"))
        with pytest.raises(FormatError, match="not safe to unpack"):
            unpack(path, tmp_path / "home")
        assert not list((tmp_path / "home").iterdir())


def plain_tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_a_tar_that_is_cut_between_two_files_is_refused(tmp_path: Path) -> None:
    whole = plain_tar({"a.wav": b"a" * 512, "b.wav": b"b" * 512})
    for path, cut in ((tmp_path / "a.tar", bytes), (tmp_path / "a.tgz", gzip.compress)):
        path.write_bytes(cut(whole[:1024]))  # the first file, complete
        with pytest.raises(FormatError, match="its end is missing"):
            unpack(path, tmp_path / "home")
        assert not list((tmp_path / "home").iterdir())
        path.write_bytes(cut(whole))
        assert len(unpack(path, tmp_path / f"good {path.suffix}")) == 2


def bomb() -> dict[str, tuple[str, bytes]]:
    zeros = bytes(20_000_000)
    stored = zipped({"a.wav": zeros})
    first, last = split({"a.wav": zeros}, 100)
    lzma_zip = io.BytesIO()
    with zipfile.ZipFile(lzma_zip, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.wav", zeros)
    return {
        "a zip that unpacks to 20 MB": ("a.zip", stored),
        "a split zip that unpacks to 20 MB": ("a.zip", last),
        "its first volume": ("a.z01", first),
        "a tar that unpacks to 20 MB": ("a.tgz", gzip.compress(plain_tar({"a.wav": zeros}))),
        "a tar with a name of 9 MB": ("a.tgz", gzip.compress(plain_tar({"x" * 9_000_000: b"1"}))),
        "a zip with LZMA": ("a.zip", lzma_zip.getvalue()),
    }  # fmt: skip


@pytest.fixture(scope="module")
def bombs() -> dict[str, tuple[str, bytes]]:
    return bomb()


@pytest.mark.parametrize(
    "case",
    [
        "a zip that unpacks to 20 MB",
        "a split zip that unpacks to 20 MB",
        "a tar that unpacks to 20 MB",
        "a tar with a name of 9 MB",
        "a zip with LZMA",
    ],
)
def test_an_archive_may_ask_neither_for_memory_nor_for_disk_beyond_measure(
    case: str,
    bombs: dict[str, tuple[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unpacking, "FREE_BYTES", 1_000_000)
    names = [case, "its first volume"] if "split" in case else [case]
    for name, content in (bombs[one] for one in names):
        (tmp_path / name).write_bytes(content)
    tracemalloc.start()
    with pytest.raises(FormatError):
        unpack(tmp_path / bombs[case][0], tmp_path / "home")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8_000_000
    assert not list((tmp_path / "home").iterdir())


def test_a_split_zip_cannot_ask_for_what_it_does_not_hold(tmp_path: Path) -> None:
    first, last = split({"a.wav": b"a" * 3000, "b.wav": b"b" * 3000}, 60)
    (tmp_path / "x.z01").write_bytes(first)
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(last)
        at = int(rng.integers(len(damaged) - 4))
        damaged[at : at + 4] = rng.bytes(4) if rng.random() < 0.7 else b"\xff" * 4
        (tmp_path / "x.zip").write_bytes(damaged)
        with suppress(FormatError):
            unpack(tmp_path / "x.zip", tmp_path / "home")


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.bz2", "tar.xz", "tar"])
def test_an_archive_damaged_anywhere_is_unpacked_or_refused_in_one_sentence(
    kind: str, tmp_path: Path
) -> None:
    files = {f"audio/{number}.wav": np.random.default_rng(number).bytes(900) for number in range(4)}
    pack = {"zip": zipped, "tar.gz": lambda f: gzip.compress(plain_tar(f)),
            "tar.bz2": lambda f: bz2.compress(plain_tar(f)),
            "tar.xz": lambda f: lzma.compress(plain_tar(f)), "tar": plain_tar}[kind]  # fmt: skip
    whole, path = pack(files), tmp_path / f"a.{kind}"
    rng = np.random.default_rng(1)
    for number in range(150):
        changed = bytearray(whole)
        at = int(rng.integers(len(changed)))
        if number % 3:
            changed[at : at + 8] = rng.bytes(int(rng.integers(1, 9)))
        else:
            del changed[at:]
        path.write_bytes(changed)
        home = tmp_path / f"home {number}"
        try:
            unpack(path, home)
        except FormatError:
            assert not list(home.iterdir())


def test_a_name_that_comes_twice_is_written_once_and_a_file_that_is_a_folder_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.tar"
    twice = plain_tar({"a.wav": b"old"})[:1024] + plain_tar({"a.wav": b"new"})
    path.write_bytes(twice)
    assert unpack(path, tmp_path / "home") == [Path("a.wav")]
    assert (tmp_path / "home" / "a.wav").read_bytes() == b"new"
    path.write_bytes(plain_tar({"x": b"file", "x/y": b"in it"}))
    with pytest.raises(FormatError, match="is a file and a folder"):
        unpack(path, tmp_path / "other")
    assert not list((tmp_path / "other").iterdir())


def test_a_folder_in_the_place_of_a_file_is_found_before_anything_is_moved(tmp_path: Path) -> None:
    path, home = tmp_path / "a.zip", tmp_path / "home"
    path.write_bytes(zipped({"a.wav": b"1", "b.wav": b"2", "c/d.wav": b"3"}))
    (home / "b.wav").mkdir(parents=True)
    with pytest.raises(WriteError, match="move it away"):
        unpack(path, home)
    assert [p.name for p in home.iterdir()] == ["b.wav"]
    (home / "b.wav").rmdir()
    (home / "c").write_text("a file")
    with pytest.raises(WriteError, match="move it away"):
        unpack(path, home)
    assert [p.name for p in home.iterdir()] == ["c"]


def test_what_a_killed_process_left_is_deleted(tmp_path: Path) -> None:
    stage = tmp_path / ".unpacking"
    (stage / "meta").mkdir(parents=True)
    (stage / "meta" / "esc50.csv").write_text("half")
    assert root(tmp_path, "meta/esc50.csv") == tmp_path  # a hidden folder is not the corpus
    (tmp_path / "a.zip").write_bytes(zipped({"a.wav": b"1"}))
    assert unpack(tmp_path / "a.zip", tmp_path) == [Path("a.wav")]
    assert not stage.exists()


def test_damaged_lzma_is_an_error_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.xz"
    content = bytearray(lzma.compress(bytes(100_000)))
    content[40] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(FormatError, match="damaged or not an archive"):
        unpack(path, tmp_path / "home")
