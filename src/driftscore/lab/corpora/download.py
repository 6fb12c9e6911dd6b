"""Download a corpus from its official source: resumed, verified, safely unpacked.

A file is downloaded to `.downloads/NAME.part` in the folder of the corpus, resumed after an
interruption, verified by md5, then unpacked and deleted. The checksum is the one in the file of the
corpus, or the one that the Zenodo record states at download time; `downloads.json` says which files
are done, by their md5. They are not downloaded again, unless the folder lacks something although
all of them are.
"""

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from driftscore.errors import DownloadError, FormatError, UsageError, WriteError, unknown
from driftscore.lab.corpora import datasets, noises
from driftscore.lab.corpora.about import Remote
from driftscore.lab.corpora.folders import SHOWN_FILES, Corpus
from driftscore.lab.corpora.unpack import is_volume, unpack
from driftscore.storage.downloads import download, read_document
from driftscore.storage.files import replacing
from driftscore.system import plugins

DONE = "downloads.json"
MAX_RECORD_BYTES = 20_000_000
MAX_NAME = 150
_ZENODO = re.compile(r"^https://zenodo\.org/records/(\d+)/files/")
_MIRROR = re.compile(r"https?://(\S+@)?(\[[\da-f:.]+\]|[^\s/:\[\]@]+)(:[1-9]\d*)?(/.*)?", re.I)


class _RecordFile(msgspec.Struct):
    """What is read about a file of a Zenodo record: no path, no name of our own files."""

    key: str
    checksum: str

    def __post_init__(self) -> None:
        safe = self.key.isprintable() and not set(self.key) & set("/\\:")
        ours = self.key.startswith(".") or self.key.casefold() == DONE
        if not safe or not self.key or ours or len(self.key) > MAX_NAME:
            raise ValueError(f"{self.key[:80]!r} is not the name of a file")
        if not re.fullmatch("md5:[0-9a-f]{32}", self.checksum):
            raise ValueError(f"{self.checksum[:80]!r} is not an md5")


class _Record(msgspec.Struct):
    """What is read of a Zenodo record."""

    files: list[_RecordFile]


def corpus_names() -> tuple[str, ...]:
    """Return the names of all datasets and noises."""
    return tuple(sorted({*plugins.names(datasets.KIND), *plugins.names(noises.KIND)}))


def find_corpus(name: str, home: str | Path | None = None) -> Corpus:
    """Return a dataset or noise by its name."""
    if name not in corpus_names():
        raise unknown("dataset or noise", name, corpus_names())
    is_dataset = plugins.has(datasets.KIND, name)
    return datasets.find_dataset(name, home) if is_dataset else noises.find_noise(name, home)


def get(
    name: str, home: str | Path | None = None, *, mirror: str | None = None, keep: bool = False
) -> Path:
    """Download a corpus and return its folder, complete.

    `mirror` is a server with the same paths; `keep` keeps the archives.
    """
    corpus = find_corpus(name, home)
    folder = corpus.folder
    if not corpus.about.files:
        raise UsageError(f"{corpus.about.title} has nothing to download: give your own folder")
    if mirror is not None and not _MIRROR.fullmatch(mirror):
        raise UsageError(f"A mirror must be an http or https address, got {mirror!r}")
    done: dict[str, str] = {}
    with suppress(OSError, ValueError, RecursionError):  # nothing is done, or the file is damaged
        done = msgspec.json.decode((folder / DONE).read_bytes(), type=dict[str, str])
    archives: list[list[Remote]] = [[]]  # a zip with its volumes, or a single file
    for remote in _remotes(corpus.about.files, mirror):
        archives[-1].append(remote)
        if not is_volume(remote.name):
            archives.append([])
    if unfinished := archives.pop():
        raise FormatError(f"{unfinished[-1].name} is a part of a zip whose last part is not listed")
    missing = [files for files in archives if any(done.get(f.name) != f.md5 for f in files)]
    if not missing and corpus.missing():  # complete once, but something was deleted since
        missing = archives
    for remotes in missing:
        try:
            _fetch(remotes, folder, keep=keep)
        except OSError as error:
            raise WriteError(f"Cannot write to {folder}: {error.strerror or error}") from error
        done |= {remote.name: remote.md5 for remote in remotes}
        with replacing(folder / DONE) as partial:
            partial.write_text(json.dumps(done, indent=1, sort_keys=True), encoding="utf-8")
    return corpus.complete()


def _fetch(remotes: list[Remote], folder: Path, *, keep: bool) -> None:
    """Download the parts of one archive (or one file), then move its content into place.

    An archive that is refused is deleted even if archives are kept.
    """
    downloads = folder / ".downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    files = []
    for remote in remotes:
        target, part = downloads / remote.name, downloads / f"{remote.name}.part"
        files.append(target)
        # A part may be of another edition: then all of it is downloaded again.
        tries = 0 if target.is_file() and _md5(target) == remote.md5 else 1 + part.is_file()
        while tries:
            download(remote.url, part, what=remote.name)
            digest, tries = _md5(part), tries - 1
            if digest == remote.md5:
                part.replace(target)
                break
            part.unlink()
            if not tries:
                raise DownloadError(
                    f"{remote.name} from {remote.url} has md5 {digest}, but {remote.stated_by} "
                    f"states {remote.md5}: it is damaged or has changed; it was deleted"
                )
    if not remotes[-1].unpack:
        files[-1].replace(folder / files[-1].name)
    else:
        try:
            unpack(files[-1], folder)
        except FormatError:
            keep = False
            raise
        finally:
            for file in files if not keep else ():
                file.unlink(missing_ok=True)
    if not any(downloads.iterdir()):
        downloads.rmdir()


def _remotes(files: tuple[Remote, ...], mirror: str | None) -> list[Remote]:
    """Return every file to download; Zenodo records are asked for checksums that are not stated."""
    records: dict[str, dict[str, str]] = {}
    remotes = []
    for remote in files:
        if remote.md5:
            remotes.append(replace(remote, url=_address(remote.url, mirror)))
            continue
        match = _ZENODO.match(remote.url)
        if match is None:
            raise UsageError(
                f"{remote.name} has no published checksum and no Zenodo record that states one"
            )
        number = match[1]
        if number not in records:
            url = _address(f"https://zenodo.org/api/records/{number}", mirror)
            content = read_document(url, most=MAX_RECORD_BYTES)
            try:
                record = msgspec.json.decode(content, type=_Record)
            except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
                problem = f"{url} does not list its files as expected: {str(error)[:200]}"
                raise DownloadError(problem) from error
            records[number] = {f.key: f.checksum.removeprefix("md5:") for f in record.files}
        sums = records[number]
        names = sorted(name for name in sums if fnmatchcase(name, remote.name))
        if not names:
            listed = ", ".join(sorted(sums)[:SHOWN_FILES]) or "nothing"
            raise DownloadError(f"Zenodo record {number} has no file {remote.name}, but {listed}")
        page, source = remote.url.removesuffix(remote.name), f"record {number}"
        remotes += [
            Remote(name, _address(page + name, mirror), sums[name], remote.unpack, source)
            for name in names
        ]
    return remotes


def _address(url: str, mirror: str | None) -> str:
    """Return the address of a file: the official https address, or the same path on a mirror."""
    if mirror is not None:
        return mirror.rstrip("/") + urlsplit(url).path
    if not url.startswith("https://"):
        raise UsageError(f"{url} is not an https address")
    return url


def _md5(path: Path) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
