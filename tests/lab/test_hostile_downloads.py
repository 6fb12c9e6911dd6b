"""Hostile servers and archives: no way down to http, no names that are paths, nothing half done."""

import io
import lzma
import tarfile
import urllib.request
import zipfile
from http.client import HTTPMessage
from pathlib import Path

import pytest

from driftscore.downloads import _SafeRedirects
from driftscore.errors import DownloadError, FormatError
from driftscore.lab.corpora.download import _plain, _sum
from driftscore.lab.corpora.unpack import unpack


@pytest.mark.parametrize("target", ["http://evil.example/a", "ftp://evil.example/a"])
def test_a_redirect_from_https_to_anything_else_is_refused(target: str) -> None:
    request = urllib.request.Request("https://zenodo.org/a")
    handler = _SafeRedirects()
    with pytest.raises(DownloadError, match="which is not https"):
        handler.redirect_request(request, io.BytesIO(), 302, "Found", HTTPMessage(), target)
    good = "https://files.zenodo.org/a"
    found = handler.redirect_request(request, io.BytesIO(), 302, "Found", HTTPMessage(), good)
    assert found is not None
    assert found.full_url == good


@pytest.mark.parametrize(
    "name", ["audio/../../evil.tar.gz", "/etc/x", "a\\b", "C:x", "a\0", "", ".x", "downloads.json"]
)
def test_the_name_of_a_file_in_a_record_is_never_a_path(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a file"):
        _plain(name)
    assert _plain("FSD50K.dev_audio.z01") == "FSD50K.dev_audio.z01"


@pytest.mark.parametrize("stated", ["", "md5:", "sha256:00", "md5:../x", "md5:" + "G" * 32])
def test_the_checksum_in_a_record_is_an_md5(stated: str) -> None:
    with pytest.raises(ValueError, match="is not an md5"):
        _sum(stated)
    assert _sum("md5:" + "0" * 32) == "0" * 32


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


def test_damaged_lzma_is_an_error_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.xz"
    content = bytearray(lzma.compress(bytes(100_000)))
    content[40] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(FormatError, match="damaged or not an archive"):
        unpack(path, tmp_path / "home")
