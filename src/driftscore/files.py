"""The cache folder, atomic writes, and files behind URLs.

A file is written beside its target and moved into place when it is complete, so that a crash leaves
the old file or the new one, never half of one. Devices and pipes are written to, never replaced.
A URL with a scheme, such as s3://bucket/night.wav, is read through fsspec (extra `remote`), which
is imported when it is first needed.
"""

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard, cast

from driftscore.errors import DriftscoreError, MissingExtraError, UsageError, WriteError

_URL = re.compile(r"[A-Za-z][\w+.:-]+://")  # two letters at least: C:// is a drive


def cache_home() -> Path:
    """Return the cache folder: `$DRIFTSCORE_CACHE`, or the usual place of the platform."""
    try:
        return _usual_cache_home()
    except RuntimeError:  # a user without a home folder, as in many containers
        return _temporary_cache_home()


def _temporary_cache_home() -> Path:
    """Return a folder for temporary files that belongs to this user and to nobody else.

    Anyone may make a folder of this name, or a link, before we do; one of another user is refused.
    """
    user = os.getuid() if hasattr(os, "getuid") else "user"
    home = Path(tempfile.gettempdir()) / f"driftscore-{user}"
    with suppress(OSError):  # it exists, or cannot be made: using it will tell
        home.mkdir(mode=0o700)
    try:
        about = home.lstat()
    except OSError:
        return home
    private = stat.S_ISDIR(about.st_mode) and not stat.S_IMODE(about.st_mode) & 0o022
    if user != "user" and not (private and about.st_uid == user):
        raise UsageError(
            f"The cache folder {home} is not a folder that only you can write; set "
            "DRIFTSCORE_CACHE to one"
        )
    return home


def _usual_cache_home() -> Path:
    if given := os.environ.get("DRIFTSCORE_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~")).expanduser() / "driftscore"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/driftscore").expanduser()
    for place in (os.environ.get("XDG_CACHE_HOME"), "~/.cache"):
        # A relative one is none: the folder would depend on where the command is run.
        if place and (home := Path(place).expanduser()).is_absolute():
            return home / "driftscore"
    raise RuntimeError("The home folder is not an absolute path")


def warn_of_cache(what: str, path: Path, error: Exception) -> None:
    """Warn that a cache cannot be used and that work continues without it."""
    warnings.warn(
        f"The {what} cache {path} cannot be used ({error}); continuing without it. "
        "Delete it, or set DRIFTSCORE_CACHE to a folder that can be written",
        stacklevel=3,
    )


STDOUT = "-"
"""The name that stands for stdout where a file is asked for."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path; move what was written there to `path` if the block succeeds.

    Only a regular file is replaced, and it keeps its mode; a symlink stays and its target is
    replaced. A device, a pipe and `-` (stdout) receive the content when it is complete, and so
    does a URL.
    """
    if is_url(path):
        placing = _sending(path)
    elif is_stream(path):
        placing = _streaming(path)
    else:
        placing = _moving(path)
    with placing as partial:
        yield partial


@contextmanager
def writing_to(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the errors of a full disk, a closed pipe or a read-only place into one sentence."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"Cannot write {path}: {error.strerror or error}") from error
    except DriftscoreError:
        raise
    except Exception as error:
        # Libraries in Rust, such as safetensors, have error classes of their own.
        code = re.search(r"\(os error (\d+)\)", str(error))
        if code is None:
            raise
        raise WriteError(f"Cannot write {path}: {os.strerror(int(code[1]))}") from error


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Return whether output goes into a stream: stdout, a device or a pipe. Refuse a folder."""
    if os.fspath(path) == "":
        raise UsageError("The name of the file to write is empty")
    if os.fspath(path) == STDOUT:
        return True
    try:
        found = Path(path).stat()
    except OSError:  # it does not exist yet, or cannot be reached: writing will tell
        return False
    except ValueError as error:
        raise UsageError(f"{os.fspath(path)!r} is not the name of a file: {error}") from error
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{path} is a folder; name a file to write")
    return not stat.S_ISREG(found.st_mode) or _is_own_stdout(found)


def _is_own_stdout(found: os.stat_result) -> bool:
    """Return whether a file is what stdout is redirected to, as /dev/stdout may be."""
    try:
        return os.path.samestat(found, os.fstat(1))
    except OSError:
        return False


def output_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder to write files into; refuse what can only be a stream or a file."""
    name = os.fspath(path)
    is_file = os.path.exists(name) and not os.path.isdir(name)  # noqa: PTH110, PTH112 (never raise)
    if is_url(path) or name in ("", STDOUT) or is_file:
        raise UsageError(f"{name!r} is not a folder; name a folder to write into")
    return Path(path)


@contextmanager
def _streaming(path: str | os.PathLike[str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        partial = Path(folder) / f"stream{Path(path).suffix}"
        with writing_to(path):
            yield partial
            if os.fspath(path) == STDOUT:
                with open(partial, "rb") as content:
                    shutil.copyfileobj(content, sys.stdout.buffer)
                sys.stdout.flush()
                return
            with open(partial, "rb") as content, open(path, "ab", buffering=0) as out:
                shutil.copyfileobj(content, out)


@contextmanager
def _moving(path: str | os.PathLike[str]) -> Iterator[Path]:
    with writing_to(path):  # the working directory may be gone
        target = Path(os.path.realpath(path))
    suffix = target.suffix if len(target.suffix) < 20 else ""
    partial = target.with_name(f".driftscore-{secrets.token_hex(6)}{suffix}")
    try:
        with writing_to(path):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                old = target.stat()
            except FileNotFoundError:
                old = None
            if old is not None and not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            # Made here, so that a new file has the mode that the umask asks for: some libraries
            # write files that only their owner can read.
            mode = 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o777
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode | 0o200))
            mode = partial.stat().st_mode if old is None else old.st_mode
            yield partial
            partial.chmod(stat.S_IMODE(mode))
            if old is not None:
                _give_to(partial, old)
            partial.replace(target)
    finally:
        with suppress(OSError):
            partial.unlink()


def _give_to(path: Path, old: os.stat_result) -> None:
    """Give a file the owner of the one that it replaces, where that is allowed."""
    now = path.stat()
    if hasattr(os, "chown") and (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        with suppress(OSError):
            os.chown(path, old.st_uid, old.st_gid)
            path.chmod(stat.S_IMODE(old.st_mode))


def sha256(path: Path) -> str:
    """Return the hex sha256 of a file, read in blocks."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def is_url(source: object) -> TypeGuard[str]:
    """Whether a source is a URL with a scheme, and not a path."""
    return isinstance(source, str) and "://" in source and _URL.match(source) is not None


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


MAC_PREFIX = "._"
"""How the files begin that macOS writes beside others on foreign disks: they hold no content."""


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
    named = (path for path in found if not Path(path).name.startswith(MAC_PREFIX))
    return sorted(system.unstrip_protocol(path) for path in named)


@contextmanager
def _sending(url: str) -> Iterator[Path]:
    if (local := local_path(url)) is not None:
        with replacing(local) as partial:
            yield partial
        return
    system, inside = _file_system(url)
    with tempfile.TemporaryDirectory() as folder:
        partial = Path(folder) / f"content{Path(inside).suffix[:20]}"
        yield partial
        try:
            system.put_file(str(partial), inside)
        except Exception as error:  # each store has errors of its own
            what = " ".join(str(error).split()) or type(error).__name__
            raise WriteError(f"Cannot write {url}: {what}") from error


def _file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingExtraError(f"Reaching {url}", "remote") from error
    try:
        system, inside = url_to_fs(url)
    except Exception as error:  # the driver of a store is missing, unknown or not configured
        what = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"{url} cannot be reached: {what}") from error
    return system, inside


def _protocols(system: Any) -> tuple[str, ...]:
    named = system.protocol
    return (named,) if isinstance(named, str) else tuple(named)
