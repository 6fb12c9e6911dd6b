"""Unpacking: joined where split, whole or not at all, and never outside the folder."""

import io
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from driftscore.errors import FormatError
from driftscore.lab.corpora import unpack

from .archives import FSD50K, split, tarred, tree, zipped


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("at", [150_000, 200_600])
def test_a_split_zip_is_joined(tmp_path: Path, method: int, at: int) -> None:
    first, last = split(FSD50K, at, method)
    (tmp_path / "x.z01").write_bytes(first)
    (tmp_path / "x.zip").write_bytes(last)
    unpack.unpack(tmp_path / "x.zip", tmp_path / "home")
    for name, content in FSD50K.items():
        assert (tmp_path / "home" / name).read_bytes() == content


def test_a_split_zip_made_by_zip_itself_is_joined(tmp_path: Path) -> None:
    if shutil.which("zip") is None:
        pytest.skip("NOT RUN: no `zip` command to make a split zip with")
    for name, content in FSD50K.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    subprocess.run(
        ["zip", "-q", "-r", "-s", "64k", tmp_path / "x.zip", "FSD50K.eval_audio"],
        cwd=tmp_path / "in",
        check=True,
    )
    assert len(list(tmp_path.glob("x.z*"))) > 3
    unpack.unpack(tmp_path / "x.zip", tmp_path / "home")
    assert tree(tmp_path / "home") == sorted(FSD50K)
    for name, content in FSD50K.items():
        assert (tmp_path / "home" / name).read_bytes() == content


def test_a_damaged_split_zip_writes_nothing(tmp_path: Path) -> None:
    first, last = split(FSD50K, 150_000)
    (tmp_path / "x.z01").write_bytes(first[:1000] + b"?" + first[1001:])
    (tmp_path / "x.zip").write_bytes(last)
    with pytest.raises(FormatError, match="damaged"):
        unpack.unpack(tmp_path / "x.zip", tmp_path / "home")
    assert tree(tmp_path / "home") == []
    (tmp_path / "x.z01").write_bytes(first[:-7])
    with pytest.raises(FormatError, match="damaged"):
        unpack.unpack(tmp_path / "x.zip", tmp_path / "home")
    (tmp_path / "x.zip").write_bytes(last[: len(last) // 2])
    with pytest.raises(FormatError, match="no end record"):
        unpack.unpack(tmp_path / "x.zip", tmp_path / "home")


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_link(name: str, target: str) -> bytes:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, 0o120777 << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("good.wav", b"good")
        archive.writestr(info, target)
    return buffer.getvalue()


EVIL = {
    "tar with a way up": ("x.tar.gz", tarred({"good.wav": b"g", "../evil.wav": b"e"})),
    "tar with an absolute name": ("x.tar.gz", tarred({"good.wav": b"g", "/tmp/evil.wav": b"e"})),
    "tar with a symbolic link": (
        "x.tar.gz",
        tarred({"good.wav": b"g", "a": link("a", "..", tarfile.SYMTYPE), "a/evil.wav": b"e"}),
    ),
    "tar with a hard link": (
        "x.tar.gz",
        tarred({"good.wav": b"g", "a": link("a", "/etc/passwd", tarfile.LNKTYPE)}),
    ),
    "tar with a device": ("x.tar.gz", tarred({"a": link("a", "", tarfile.CHRTYPE)})),
    "zip with a way up": ("x.zip", zipped({"good.wav": b"g", "a/../../evil.wav": b"e"})),
    "zip with an absolute name": ("x.zip", zipped({"good.wav": b"g", "/tmp/evil.wav": b"e"})),
    "zip with a Windows way up": ("x.zip", zipped({"good.wav": b"g", "..\\evil.wav": b"e"})),
    "zip with a drive": ("x.zip", zipped({"good.wav": b"g", "C:evil.wav": b"e"})),
    "zip with a symbolic link": ("x.zip", zip_link("a", "/etc")),
}


@pytest.mark.parametrize("case", EVIL)
def test_an_unsafe_archive_is_refused_and_writes_nothing(case: str, tmp_path: Path) -> None:
    name, content = EVIL[case]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(content)
    home = tmp_path / "deep" / "home"
    with pytest.raises(FormatError, match="not safe to unpack"):
        unpack.unpack(tmp_path / "in" / name, home)
    assert tree(tmp_path) == [f"in/{name}"]
    assert list(home.iterdir()) == []


def test_an_unsafe_split_zip_is_refused(tmp_path: Path) -> None:
    first, last = split({"a.wav": b"a" * 3000, "../evil.wav": b"e" * 3000}, 40)
    (tmp_path / "x.z01").write_bytes(first)
    (tmp_path / "x.zip").write_bytes(last)
    with pytest.raises(FormatError, match=r"'\.\./evil\.wav' would be outside"):
        unpack.unpack(tmp_path / "x.zip", tmp_path / "home")
    assert tree(tmp_path / "home") == []


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz"])
def test_a_file_that_is_no_archive_or_is_truncated_is_reported_as_damaged(
    name: str, tmp_path: Path
) -> None:
    whole = (zipped if name == "x.zip" else tarred)({"a.wav": np.random.default_rng(0).bytes(9999)})
    for content in (b"", b"hello" * 100, whole[: len(whole) // 2]):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FormatError, match="damaged or not an archive"):
            unpack.unpack(tmp_path / name, tmp_path / "home")
    assert tree(tmp_path / "home") == []


def test_unpacking_adds_to_what_is_there(tmp_path: Path) -> None:
    for part in ("1", "2"):
        (tmp_path / f"{part}.zip").write_bytes(zipped({f"T/audio/{part}.wav": part.encode()}))
        unpack.unpack(tmp_path / f"{part}.zip", tmp_path / "home")
    assert tree(tmp_path / "home") == ["T/audio/1.wav", "T/audio/2.wav"]
