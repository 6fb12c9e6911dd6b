"""Fetch a corpus from its official source: resumed, verified, safely unpacked.

A file is downloaded to `.downloads/NAME.part` in the corpus's folder, continued where it
broke off, verified by md5, then unpacked and deleted. The sum is the one published with the
loader, or the one that the Zenodo record states at download time; `downloads.json` keeps
which sum was used and where it came from. What is done is not done again.
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
from typing import Any, NoReturn
from urllib.parse import urlsplit

from driftscore.errors import DriftscoreError, FormatError, UsageError, unknown
from driftscore.files import replacing
from driftscore.lab.corpora import About, Remote, require
from driftscore.lab.datasets import dataset_names, find_dataset, home_of
from driftscore.lab.noises import find_noise, noise_names
from driftscore.lab.unpack import is_volume, unpack
from driftscore.progress import progress_bar

TRIES = 5
PAUSE_S = 1.0
TIMEOUT_S = 60
_BLOCK = 1 << 18
_RECORD = "downloads.json"
_ZENODO = re.compile(r"^https://zenodo\.org/records/(\d+)/files/")


@dataclass(frozen=True)
class _Source:
    """A file to fetch: its name, address and sum, and who states the sum."""

    name: str
    url: str
    md5: str
    stated_by: str
    unpack: bool


def corpus_names() -> tuple[str, ...]:
    """Return the names of all datasets and noises."""
    return tuple(sorted({*dataset_names(), *noise_names()}))


def find_corpus(name: str) -> Any:
    """Return the module of a dataset or noise."""
    if name not in corpus_names():
        raise unknown("dataset or noise", name, corpus_names())
    return find_dataset(name) if name in dataset_names() else find_noise(name)


def check(name: str, home: str | Path | None = None) -> list[str]:
    """Return what a corpus's folder lacks, nothing if it is complete."""
    module = find_corpus(name)
    missing: list[str] = module.missing(home_of(module, home))
    return missing


def get(
    name: str,
    home: str | Path | None = None,
    *,
    mirror: str | None = None,
    keep: bool = False,
    show: bool | None = None,
) -> Path:
    """Fetch a corpus and return its folder, complete.

    `mirror` is a server that holds the same paths; `keep` keeps the archives; `show` is the
    progress bar's (None: on a terminal only).
    """
    module = find_corpus(name)
    about: About = module.ABOUT
    folder = home_of(module, home)
    if not about.files:
        raise UsageError(f"{about.title} has nothing to download: point at your own folder")
    done = _done(folder)
    sources = _sources(about, mirror)
    for group in _groups(sources):
        if any(done.get(s.name, {}).get("md5") != s.md5 for s in group):
            _fetch_group(group, folder, keep=keep, show=show)
            done |= {source.name: asdict(source) for source in group}
            with replacing(folder / _RECORD) as partial:
                partial.write_text(json.dumps(done, indent=1, sort_keys=True), encoding="utf-8")
    require(about, folder, module.missing(folder))
    return folder


def _fetch_group(group: list[_Source], folder: Path, *, keep: bool, show: bool | None) -> None:
    """Download the parts of one archive (or one file), then put its content in place."""
    cellar = folder / ".downloads"
    try:
        cellar.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"Cannot write to {folder}: {error.strerror}") from error
    files = [_verified(source, cellar, show=show) for source in group]
    if group[-1].unpack:
        unpack(files[-1], folder)
        if not keep:
            for file in files:
                file.unlink()
    else:
        files[-1].replace(folder / group[-1].name)
    if not any(cellar.iterdir()):
        cellar.rmdir()


def _verified(source: _Source, cellar: Path, *, show: bool | None) -> Path:
    """Return a whole file with the right sum, downloading what of it is not there."""
    target, part = cellar / source.name, cellar / f"{source.name}.part"
    if target.is_file() and _md5(target) == source.md5:
        return target
    resumed = part.is_file()
    _download(source, part, show=show)
    found = _md5(part)
    if found != source.md5 and resumed:  # what lay there was of another edition: once more, whole
        part.unlink()
        _download(source, part, show=show)
        found = _md5(part)
    if found != source.md5:
        part.unlink()
        raise FormatError(
            f"{source.name} from {source.url} has md5 {found}, but {source.stated_by} states "
            f"{source.md5}: it was damaged on the way or has changed; it was deleted"
        )
    part.replace(target)
    return target


def _download(source: _Source, part: Path, *, show: bool | None) -> None:
    """Download to `part`, continuing what is there, trying again when the line breaks."""
    for attempt in range(1, TRIES + 1):
        try:
            _continue(source, part, show=show)
            return
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing beyond what we have: the sum will tell
                return
            if error.code < 500:
                _give_up(source.url, f"the server answers {error.code} {error.reason}")
            problem: Exception = error
        except (http.client.HTTPException, OSError) as error:
            problem = error
        time.sleep(PAUSE_S * attempt)
    _give_up(source.url, f"{TRIES} times in a row: {problem}; run it again to continue")


def _continue(source: _Source, part: Path, *, show: bool | None) -> None:
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(source.url, headers=_headers(have))  # noqa: S310 (checked)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
        if response.status != 206:  # the server sends the whole file again
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else 0
        with progress_bar(f"Downloading {source.name} (bytes)", total, show=show) as advance:
            advance(have)
            for block in iter(lambda: response.read(_BLOCK), b""):
                _append(part, have, block)
                have += len(block)
                advance(len(block))
    if length and have < total:
        raise ConnectionError(f"the connection broke after {have} of {total} bytes")


def _headers(have: int) -> dict[str, str]:
    # A compressed answer would make the byte positions mean something else.
    wanted = {"User-Agent": "driftscore", "Accept-Encoding": "identity"}
    return wanted | ({"Range": f"bytes={have}-"} if have else {})


def _append(part: Path, position: int, block: bytes) -> None:
    """Write a block at the end of what is there; a full disk is not the line's fault."""
    try:
        with open(part, "r+b" if position else "wb") as out:
            out.seek(position)
            out.write(block)
    except OSError as error:
        raise UsageError(f"Cannot write {part}: {error.strerror or error}") from error


def _sources(about: About, mirror: str | None) -> list[_Source]:
    """Return every file to fetch with its sum, asking the records for the sums not published."""
    records: dict[str, dict[str, str]] = {}
    found = []
    for remote in about.files:
        if remote.md5:
            address = _address(remote.url, mirror)
            found.append(_Source(remote.name, address, remote.md5, "driftscore", remote.unpack))
            continue
        match = _ZENODO.match(remote.url)
        if match is None:
            raise UsageError(f"{remote.name} has no published sum and no record that states one")
        record = match[1]
        if record not in records:
            records[record] = _record_sums(record, mirror)
        found += _listed(remote, record, records[record], mirror)
    return found


def _listed(remote: Remote, record: str, sums: dict[str, str], mirror: str | None) -> list[_Source]:
    """Return the files of a record that a name or pattern means."""
    names = sorted(name for name in sums if fnmatchcase(name, remote.name))
    if not names:
        raise FormatError(f"Zenodo record {record} has no file {remote.name}: {sorted(sums)}")
    page = remote.url.removesuffix(remote.name)
    return [
        _Source(name, _address(page + name, mirror), sums[name], f"record {record}", remote.unpack)
        for name in names
    ]


def _record_sums(record: str, mirror: str | None) -> dict[str, str]:
    """Return the md5 sum of each file of a Zenodo record, as the record states it now."""
    url = _address(f"https://zenodo.org/api/records/{record}", mirror)
    request = urllib.request.Request(url, headers=_headers(0))  # noqa: S310 (checked)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
            files = json.load(response)["files"]
        return {file["key"]: file["checksum"].removeprefix("md5:") for file in files}
    except (OSError, http.client.HTTPException) as error:
        _give_up(url, str(error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{url} does not list its files as expected: {error}") from error


def _address(url: str, mirror: str | None) -> str:
    """Return where to fetch a file: its official https address, or the same path elsewhere."""
    parts = urlsplit(url)
    if mirror is None:
        if parts.scheme != "https":
            raise UsageError(f"{url} is not an https address")
        return url
    if urlsplit(mirror).scheme not in ("http", "https"):
        raise UsageError(f"A mirror is an http or https address, not {mirror!r}")
    return mirror.rstrip("/") + parts.path


def _groups(sources: list[_Source]) -> list[list[_Source]]:
    """Return the files that are unpacked together: a zip with its volumes, else each alone."""
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


def _done(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        done = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise FormatError(f"{folder / _RECORD} cannot be read: {error}; delete it") from error
    return dict(done)


def _md5(path: Path) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _give_up(url: str, why: str) -> NoReturn:
    raise DriftscoreError(f"Cannot download {url}: {why}")
