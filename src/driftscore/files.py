"""The cache folder, atomic writes, and files behind URLs.

A file is written beside its target and moved into place when it is complete, so that a crash leaves
the old file or the new one, never half of one. A URL with a scheme, such as s3://bucket/night.wav,
is read through fsspec (extra `remote`), which is imported when it is first needed.
"""

import hashlib
import os
import re
import secrets
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard, cast

from driftscore.errors import MissingExtraError, UsageError, WriteError

_URL = re.compile(r"[A-Za-z][\w+.:-]+://")  # two letters at least: C:// is a drive


def cache_home() -> Path:
    """Return the cache folder: `$DRIFTSCORE_CACHE`, or the usual place of the platform."""
    if given := os.environ.get("DRIFTSCORE_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~")).expanduser() / "driftscore"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/driftscore").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "driftscore"


def warn_of_cache(what: str, path: Path, error: Exception) -> None:
    """Warn that a cache cannot be used and that work continues without it."""
    warnings.warn(
        f"The {what} cache {path} cannot be used ({error}); continuing without it. "
        "Delete it, or set DRIFTSCORE_CACHE to a folder that can be written",
        stacklevel=3,
    )


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; move it there if the block succeeds.

    A file for a URL is written to this machine first and sent when it is complete.
    """
    if is_url(path):
        with _sending(path) as partial:
            yield partial
        return
    target = Path(path)
    if target.is_dir():
        raise UsageError(f"{target} is a folder; name a file to write")
    partial = target.with_name(f".{target.name}.{secrets.token_hex(6)}{target.suffix}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(target)
    except OSError as error:
        raise WriteError(f"Cannot write {target}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """Return the hex sha256 of a file, read in blocks."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def is_url(source: object) -> TypeGuard[str]:
    """Whether a source is a URL with a scheme, and not a path."""
    return isinstance(source, str) and _URL.match(source) is not None


def local_path(url: str) -> Path | None:
    """Return the path of a URL that is a file of this machine, as file:///tmp/a.wav is."""
    system, inside = _file_system(url)
    return Path(inside) if "file" in _protocols(system) else None


def open_url(url: str) -> BinaryIO:
    """Open the file behind a URL for reading; it can be sought in."""
    system, inside = _file_system(url)
    return cast(BinaryIO, system.open(inside, "rb"))


def url_stamp(url: str) -> tuple[str, bool]:
    """Return what a remote store says about a file, and whether it would show a change."""
    system, inside = _file_system(url)
    about = system.info(inside)
    marks = {key: str(about[key]) for key in sorted(about) if key.lower() in _VERSIONS}
    return f"{about.get('size')} {marks}", bool(marks)


_VERSIONS = {"etag", "mtime", "lastmodified", "last_modified", "updated", "created", "generation",
             "md5hash", "content_md5", "versionid"}  # fmt: skip
"""Names of the properties that change with the content of a file, in various stores."""


def list_url(url: str, suffixes: Collection[str]) -> list[str] | None:
    """Return the files of a URL with a glob or of a folder; None for the URL of a file.

    A URL with the suffix of a sound file is not looked up: that would cost a request each.
    """
    if any(sign in url for sign in "*?["):
        system, inside = _file_system(url)
        found = [path for path, about in system.glob(inside, detail=True).items()
                 if about["type"] == "file"]  # fmt: skip
    elif Path(url).suffix.lower() in suffixes:
        return None
    else:
        system, inside = _file_system(url)
        if not system.isdir(inside):
            return None
        found = [path for path in system.find(inside) if Path(path).suffix.lower() in suffixes]
    return sorted(system.unstrip_protocol(path) for path in found)


@contextmanager
def _sending(url: str) -> Iterator[Path]:
    if (local := local_path(url)) is not None:
        with replacing(local) as partial:
            yield partial
        return
    system, inside = _file_system(url)
    with tempfile.TemporaryDirectory() as folder:
        partial = Path(folder) / Path(inside).name
        yield partial
        try:
            system.put_file(str(partial), inside)
        except OSError as error:
            raise WriteError(f"Cannot write {url}: {error.strerror or error}") from error


def _file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingExtraError(f"Reaching {url}", "remote") from error
    try:
        system, inside = url_to_fs(url)
    except (ImportError, ValueError) as error:  # the driver of a store is missing or unknown
        raise UsageError(f"{url} cannot be reached: {error}") from error
    return system, inside


def _protocols(system: Any) -> tuple[str, ...]:
    named = system.protocol
    return (named,) if isinstance(named, str) else tuple(named)
