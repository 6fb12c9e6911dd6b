"""Download a corpus from its official source: resumed, verified, safely unpacked.

A file is downloaded to `.downloads/NAME.part` in the folder of the corpus, resumed after an
interruption, verified by md5, then unpacked and deleted. The checksum is the one in the file of the
corpus, or the one that the Zenodo record states at download time; `downloads.json` records which
checksum was used and where it came from. Files that are complete are not downloaded again.
"""

import hashlib
import http.client
import json
import re
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, NoReturn
from urllib.parse import urlsplit

from driftscore.errors import DownloadError, FormatError, UsageError, WriteError, unknown
from driftscore.files import replacing
from driftscore.lab.corpora.about import About, Remote
from driftscore.lab.corpora.datasets import Dataset, dataset_names, find_dataset
from driftscore.lab.corpora.folders import require
from driftscore.lab.corpora.noises import Noise, find_noise, noise_names
from driftscore.lab.corpora.unpack import is_volume, unpack
from driftscore.progress import progress_bar

TRIES = 5
PAUSE_S = 1.0
TIMEOUT_S = 60
_BLOCK = 1 << 18
_RECORD = "downloads.json"
_MOST_RECORD = 20_000_000  # bytes of a Zenodo record
_ZENODO = re.compile(r"^https://zenodo\.org/records/(\d+)/files/")


@dataclass(frozen=True)
class _Source:
    """A file to download: its name, address and checksum, and who states the checksum."""

    name: str
    url: str
    md5: str
    stated_by: str
    unpack: bool


def corpus_names() -> tuple[str, ...]:
    """Return the names of all datasets and noises."""
    return tuple(sorted({*dataset_names(), *noise_names()}))


def find_corpus(name: str) -> Dataset | Noise:
    """Return a dataset or noise by its name."""
    if name not in corpus_names():
        raise unknown("dataset or noise", name, corpus_names())
    return find_dataset(name) if name in dataset_names() else find_noise(name)


def check(name: str, home: str | Path | None = None) -> list[str]:
    """Return everything that the folder of a corpus lacks; nothing if it is complete."""
    return find_corpus(name).missing(home)


def get(
    name: str,
    home: str | Path | None = None,
    *,
    mirror: str | None = None,
    keep: bool = False,
    show: bool | None = None,
) -> Path:
    """Download a corpus and return its folder, complete.

    `mirror` is a server with the same paths; `keep` keeps the archives; `show` is whether to show
    a progress bar (None: on a terminal only).
    """
    corpus = find_corpus(name)
    about, folder = corpus.about, corpus.home(home)
    if not about.files:
        raise UsageError(f"{about.title} has nothing to download: give your own folder")
    done = _done(folder)
    sources = _sources(about, mirror)
    for group in _groups(sources):
        if any(done.get(s.name) != s.md5 for s in group):
            _fetch_group(group, folder, keep=keep, show=show)
            _record_done(folder, group)
    require(about, folder, corpus.missing(folder))
    return folder


def _fetch_group(group: list[_Source], folder: Path, *, keep: bool, show: bool | None) -> None:
    """Download the parts of one archive (or one file), then move its content into place."""
    downloads = folder / ".downloads"
    try:
        downloads.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"Cannot write to {folder}: {error.strerror}") from error
    files = [_verified(source, downloads, show=show) for source in group]
    if group[-1].unpack:
        unpack(files[-1], folder)
        if not keep:
            for file in files:
                file.unlink()
    else:
        files[-1].replace(folder / group[-1].name)
    if not any(downloads.iterdir()):
        downloads.rmdir()


def _verified(source: _Source, downloads: Path, *, show: bool | None) -> Path:
    """Return a complete file with the right checksum, downloading what is missing of it."""
    target, part = downloads / source.name, downloads / f"{source.name}.part"
    if target.is_file() and _md5(target) == source.md5:
        return target
    resumed = part.is_file()
    _download(source, part, show=show)
    found = _md5(part)
    if found != source.md5 and resumed:  # the part was of another edition: download all of it again
        part.unlink()
        _download(source, part, show=show)
        found = _md5(part)
    if found != source.md5:
        part.unlink()
        raise DownloadError(
            f"{source.name} from {source.url} has md5 {found}, but {source.stated_by} states "
            f"{source.md5}: it is damaged or has changed; it was deleted"
        )
    part.replace(target)
    return target


def _download(source: _Source, part: Path, *, show: bool | None) -> None:
    """Download to `part`, resuming what is there; a broken connection is tried again."""
    for attempt in range(1, TRIES + 1):
        try:
            _continue(source, part, show=show)
            return
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing beyond what is there: the checksum decides
                return
            if error.code < 500:
                _give_up(source.url, f"the server answers {error.code} {error.reason}")
            problem: Exception = error
        except (http.client.HTTPException, OSError) as error:
            problem = error
        time.sleep(PAUSE_S * attempt)
    _give_up(source.url, f"{TRIES} attempts failed: {problem}; run the command again to resume")


def _continue(source: _Source, part: Path, *, show: bool | None) -> None:
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(source.url, headers=_headers(have))  # noqa: S310 (checked)
    with _OPENER.open(request, timeout=TIMEOUT_S) as response:
        if response.status not in (200, 206):
            _give_up(source.url, f"the server answers {response.status} instead of the file")
        if response.status != 206:  # the server sends the complete file
            have = 0
        length = response.headers.get("Content-Length")
        if length and not (length.isascii() and length.isdigit() and len(length) < 19):
            _give_up(source.url, f"the server states the odd length {length[:40]!r}")
        total = have + int(length) if length else 0
        with progress_bar(f"Downloading {source.name} (bytes)", total, show=show) as advance:
            advance(have)
            for block in iter(lambda: response.read(_BLOCK), b""):
                _append(part, have, block)
                have += len(block)
                advance(len(block))
    if length and have < total:
        raise ConnectionError(f"the connection ended after {have} of {total} bytes")


def _headers(have: int) -> dict[str, str]:
    # A compressed answer would make the byte positions mean something else.
    wanted = {"User-Agent": "driftscore", "Accept-Encoding": "identity"}
    return wanted | ({"Range": f"bytes={have}-"} if have else {})


def _append(part: Path, position: int, block: bytes) -> None:
    """Write a block at the end of `part`; a full disk is an error that is not tried again."""
    try:
        with open(part, "r+b" if position else "wb") as out:
            out.seek(position)
            out.write(block)
    except OSError as error:
        raise WriteError(f"Cannot write {part}: {error.strerror or error}") from error


def _sources(about: About, mirror: str | None) -> list[_Source]:
    """Return every file to download; Zenodo records are asked for checksums that are not stated."""
    records: dict[str, dict[str, str]] = {}
    found = []
    for remote in about.files:
        if remote.md5:
            address = _address(remote.url, mirror)
            found.append(_Source(remote.name, address, remote.md5, "driftscore", remote.unpack))
            continue
        match = _ZENODO.match(remote.url)
        if match is None:
            raise UsageError(
                f"{remote.name} has no published checksum and no Zenodo record that states one"
            )
        record = match[1]
        if record not in records:
            records[record] = _record_sums(record, mirror)
        found += _listed(remote, record, records[record], mirror)
    return found


def _listed(remote: Remote, record: str, sums: dict[str, str], mirror: str | None) -> list[_Source]:
    """Return the files of a record that match a name or pattern."""
    names = sorted(name for name in sums if fnmatchcase(name, remote.name))
    if not names:
        raise DownloadError(f"Zenodo record {record} has no file {remote.name}: {sorted(sums)}")
    page = remote.url.removesuffix(remote.name)
    return [
        _Source(name, _address(page + name, mirror), sums[name], f"record {record}", remote.unpack)
        for name in names
    ]


def _record_sums(record: str, mirror: str | None) -> dict[str, str]:
    """Return the md5 of each file of a Zenodo record, as the record states it now."""
    url = _address(f"https://zenodo.org/api/records/{record}", mirror)
    request = urllib.request.Request(url, headers=_headers(0))  # noqa: S310 (checked)
    try:
        with _OPENER.open(request, timeout=TIMEOUT_S) as response:
            files = json.loads(response.read(_MOST_RECORD))["files"]
        return {_plain(file["key"]): _sum(file["checksum"]) for file in files}
    except (OSError, http.client.HTTPException) as error:
        _give_up(url, str(error))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DownloadError(f"{url} does not list its files as expected: {error}") from error


def _plain(name: str) -> str:
    """Return the name of a file in a record; a path, or a name of our own files, is an error."""
    if not name or name == _RECORD or name.startswith(".") or set(name) & set("/\\:\0"):
        raise ValueError(f"{name[:80]!r} is not the name of a file")
    return name


def _sum(stated: str) -> str:
    """Return the md5 that a record states."""
    md5 = stated.removeprefix("md5:")
    if not re.fullmatch("[0-9a-f]{32}", md5):
        raise ValueError(f"{stated[:80]!r} is not an md5")
    return md5


class _SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to an address without encryption."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            _give_up(req.full_url, f"it is redirected to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_SecureRedirects)


def _address(url: str, mirror: str | None) -> str:
    """Return the address of a file: the official https address, or the same path on a mirror."""
    parts = urlsplit(url)
    if mirror is None:
        if parts.scheme != "https":
            raise UsageError(f"{url} is not an https address")
        return url
    if urlsplit(mirror).scheme not in ("http", "https"):
        raise UsageError(f"A mirror must be an http or https address, got {mirror!r}")
    return mirror.rstrip("/") + parts.path


def _groups(sources: list[_Source]) -> list[list[_Source]]:
    """Return the files that are unpacked together: a zip with its volumes, or a single file."""
    groups: list[list[_Source]] = []
    waiting: list[_Source] = []
    for source in sources:
        waiting.append(source)
        if not is_volume(source.name):
            groups.append(waiting)
            waiting = []
    if waiting:
        raise FormatError(f"{waiting[-1].name} is a part of a zip whose last part is not listed")
    return groups


def _done(folder: Path) -> dict[str, str]:
    """Return the md5 of each file that was downloaded before."""
    return {name: str(source["md5"]) for name, source in _recorded(folder).items()}


def _record_done(folder: Path, group: list[_Source]) -> None:
    done = _recorded(folder) | {source.name: asdict(source) for source in group}
    with replacing(folder / _RECORD) as partial:
        partial.write_text(json.dumps(done, indent=1, sort_keys=True), encoding="utf-8")


def _recorded(folder: Path) -> dict[str, dict[str, object]]:
    path = folder / _RECORD
    if not path.is_file():
        return {}
    try:
        done = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): dict(source) for name, source in done.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise FormatError(f"{path} cannot be read: {error}; delete it") from error


def _md5(path: Path) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _give_up(url: str, why: str) -> NoReturn:
    raise DownloadError(f"Cannot download {url}: {why}")
