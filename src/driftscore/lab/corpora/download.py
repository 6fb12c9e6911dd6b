"""Download a corpus from its official source: resumed, verified, safely unpacked.

A file is downloaded to `.downloads/NAME.part` in the folder of the corpus, resumed after an
interruption, verified by md5, then unpacked and deleted. The checksum is the one in the file of the
corpus, or the one that the Zenodo record states at download time; `downloads.json` records which
checksum was used and where it came from. Files that are complete are not downloaded again, unless
the folder lacks something although all of them are.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from driftscore.downloads import download, read_document
from driftscore.errors import DownloadError, FormatError, UsageError, WriteError, unknown
from driftscore.files import replacing
from driftscore.lab.corpora.about import About, Remote
from driftscore.lab.corpora.datasets import Dataset, dataset_names, find_dataset
from driftscore.lab.corpora.folders import require
from driftscore.lab.corpora.noises import Noise, find_noise, noise_names
from driftscore.lab.corpora.unpack import is_volume, unpack
from driftscore.reading import read_text
from driftscore.schema import items, table, text

_RECORD = "downloads.json"
_MOST_RECORD = 20_000_000  # bytes of a Zenodo record, and of our own
_LONGEST_NAME = 150
_SHOWN = 12
_LISTING = table({"files": items(table({"key": text, "checksum": text}, open_=True))}, open_=True)
"""What is read of a Zenodo record."""
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
    groups = _groups(_sources(about, mirror))
    wanted = [group for group in groups if any(done.get(s.name) != s.md5 for s in group)]
    if not wanted and corpus.missing(folder):  # complete once, but something was deleted since
        wanted = groups
    for group in wanted:
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
    try:
        if group[-1].unpack:
            _unpacked(files, folder, keep=keep)
        else:
            files[-1].replace(folder / group[-1].name)
        if not any(downloads.iterdir()):
            downloads.rmdir()
    except OSError as error:
        raise WriteError(f"Cannot write to {folder}: {error.strerror or error}") from error


def _unpacked(files: list[Path], folder: Path, *, keep: bool) -> None:
    """Unpack an archive, and delete it; one that is refused is deleted in any case."""
    refused = False
    try:
        unpack(files[-1], folder)
    except FormatError:
        refused = True
        raise
    finally:
        if refused or not keep:
            for file in files:
                file.unlink(missing_ok=True)


def _verified(source: _Source, downloads: Path, *, show: bool | None) -> Path:
    """Return a complete file with the right checksum, downloading what is missing of it."""
    target, part = downloads / source.name, downloads / f"{source.name}.part"
    if target.is_file() and _md5(target) == source.md5:
        return target
    resumed = part.is_file()
    download(source.url, part, what=source.name, show=show)
    found = _md5(part)
    if found != source.md5 and resumed:  # the part was of another edition: download all of it again
        part.unlink()
        download(source.url, part, what=source.name, show=show)
        found = _md5(part)
    if found != source.md5:
        part.unlink()
        raise DownloadError(
            f"{source.name} from {source.url} has md5 {found}, but {source.stated_by} states "
            f"{source.md5}: it is damaged or has changed; it was deleted"
        )
    part.replace(target)
    return target


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
        listed = ", ".join(sorted(sums)[:_SHOWN]) or "nothing"
        raise DownloadError(f"Zenodo record {record} has no file {remote.name}, but {listed}")
    page = remote.url.removesuffix(remote.name)
    return [
        _Source(name, _address(page + name, mirror), sums[name], f"record {record}", remote.unpack)
        for name in names
    ]


def _record_sums(number: str, mirror: str | None) -> dict[str, str]:
    """Return the md5 of each file of a Zenodo record, as the record states it now."""
    url = _address(f"https://zenodo.org/api/records/{number}", mirror)
    content = read_document(url, most=_MOST_RECORD)
    try:
        record = json.loads(content)
        _LISTING(record, "")
        return {_plain(file["key"]): _sum(file["checksum"]) for file in record["files"]}
    except (FormatError, ValueError) as error:
        problem = str(error)
    except RecursionError:
        problem = "it is nested too deeply"
    raise DownloadError(f"{url} does not list its files as expected: {problem[:200]}")


def _plain(name: str) -> str:
    """Return the name of a file in a record; a path, or a name of our own files, is an error."""
    safe = name.isprintable() and not set(name) & set("/\\:")
    if not safe or not name or name.startswith(".") or len(name) > _LONGEST_NAME:
        raise ValueError(f"{name[:80]!r} is not the name of a file")
    if name.casefold() == _RECORD:
        raise ValueError(f"{name[:80]!r} is not the name of a file")
    return name


def _sum(stated: str) -> str:
    """Return the md5 that a record states."""
    md5 = stated.removeprefix("md5:")
    if not re.fullmatch("[0-9a-f]{32}", md5):
        raise ValueError(f"{stated[:80]!r} is not an md5")
    return md5


def _address(url: str, mirror: str | None) -> str:
    """Return the address of a file: the official https address, or the same path on a mirror."""
    parts = urlsplit(url)
    if mirror is None:
        if parts.scheme != "https":
            raise UsageError(f"{url} is not an https address")
        return url
    if not _is_server(mirror):
        raise UsageError(f"A mirror must be an http or https address, got {mirror!r}")
    return mirror.rstrip("/") + parts.path


def _is_server(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, an address of IPv6 without its end
        return False


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


def _done(folder: Path) -> dict[str, object]:
    """Return the md5 of each file that was downloaded before."""
    return {name: source.get("md5") for name, source in _recorded(folder).items()}


def _record_done(folder: Path, group: list[_Source]) -> None:
    done = _recorded(folder) | {source.name: asdict(source) for source in group}
    with replacing(folder / _RECORD) as partial:
        partial.write_text(json.dumps(done, indent=1, sort_keys=True), encoding="utf-8")


def _recorded(folder: Path) -> dict[str, dict[str, object]]:
    """Return the record of earlier downloads; what is damaged in it counts as missing."""
    try:
        done = json.loads(read_text(folder / _RECORD, "record", most=_MOST_RECORD))
    except (FormatError, ValueError, RecursionError):
        return {}
    listed = done.items() if isinstance(done, dict) else ()
    return {name: dict(source) for name, source in listed if isinstance(source, dict)}


def _md5(path: Path) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
