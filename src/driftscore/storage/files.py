"""The cache folder, atomic writes, the error boundary of readers, and files behind URLs.

A file is written beside its target and moved into place when it is complete, so that a crash leaves
the old file or the new one, never half of one. Devices and pipes are written to, never replaced.
Files of our own formats come from other people and other machines: a reader runs inside `reading`,
which turns whatever a damaged file raises into one `FormatError` that names the file, and only
regular files of a bounded size are opened, because a pipe or a device would never end. A URL with a
scheme, such as s3://bucket/night.wav, is read through fsspec (extra `remote`), which is imported
when it is first needed.
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

from driftscore.errors import (
    DriftscoreError,
    FormatError,
    MismatchError,
    MissingExtraError,
    UsageError,
    WriteError,
)

_URL = re.compile(r"[A-Za-z][\w+.:-]+://")  # two letters at least: C:// is a drive


def cache_home() -> Path:
    """Return the cache folder: `$DRIFTSCORE_CACHE`, or the usual place of the platform.

    For a user without a home folder, as in many containers, it is one for temporary files. Anyone
    may make a folder of its name, or a link, before we do; one of another user is refused.
    """
    with suppress(RuntimeError):  # there is no home folder
        if chosen := os.environ.get("DRIFTSCORE_CACHE"):
            return Path(chosen).expanduser()
        parents = [os.environ.get("XDG_CACHE_HOME"), "~/.cache"]
        if sys.platform in ("win32", "darwin"):
            local = os.environ.get("LOCALAPPDATA", "~")
            parents = [local if sys.platform == "win32" else "~/Library/Caches"]
        for parent in parents:
            # A relative one is none: the folder would depend on where the command is run.
            if parent and (home := Path(parent).expanduser()).is_absolute():
                return home / "driftscore"
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


def chosen_home(name: str) -> Path:
    """Return the folder `name` of the cache folder, or the one that `$DRIFTSCORE_NAME` says."""
    chosen = os.environ.get(f"DRIFTSCORE_{name.upper()}")
    return Path(chosen).expanduser() if chosen else cache_home() / name


def warn_of_cache(what: str, path: Path, error: Exception) -> None:
    """Warn that a cache cannot be used and that work continues without it."""
    warnings.warn(
        f"The {what} cache {path} cannot be used "
        f"({getattr(error, 'strerror', None) or error}); continuing without it. "
        "Delete it, or set DRIFTSCORE_CACHE to a folder that can be written",
        stacklevel=3,
    )


MAX_TEXT_BYTES = 1_000_000
"""The largest TOML file that is read, in bytes; the largest one of ours has 12 kB."""
MIN_FREE_BYTES = 10_000_000
"""What must be free on a disk before work for an output on it begins."""
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
        path = local_path(path) or path
    if is_url(path) or is_stream(path):
        with tempfile.TemporaryDirectory() as folder, writing_to(path):
            partial = Path(folder) / f"content{Path(path).suffix[:20]}"
            yield partial
            if is_url(path):
                system, inside = _file_system(path)
                try:
                    system.put_file(str(partial), inside)
                except Exception as error:  # each store has errors of its own
                    kept = tempfile.mkstemp(partial.suffix, "driftscore-")[1]
                    shutil.copyfile(partial, kept)
                    raise WriteError(
                        f"Cannot write {path}: {first_line(error)}. The content is in {kept}"
                    ) from error
                return
            with open(partial, "rb") as content:
                if os.fspath(path) == STDOUT:
                    shutil.copyfileobj(content, sys.stdout.buffer)
                    sys.stdout.flush()
                    return
                with open(path, "ab", buffering=0) as out:
                    shutil.copyfileobj(content, out)
        return
    with writing_to(path):  # the working directory may be gone
        target = Path(os.path.realpath(path))
    suffix = target.suffix if len(target.suffix) < 20 else ""
    partial = target.with_name(f".driftscore-{secrets.token_hex(6)}{suffix}")
    try:
        with writing_to(path):
            target.parent.mkdir(parents=True, exist_ok=True)
            old = target.stat() if os.path.lexists(target) else None
            if old is not None and not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            # Made here, so that a new file has the mode that the umask asks for: some libraries
            # write files that only their owner can read.
            mode = 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o777
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode | 0o200))
            new = partial.stat()
            mode = stat.S_IMODE((old or new).st_mode)
            yield partial
            partial.chmod(mode)
            if (
                old
                and hasattr(os, "chown")
                and (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid)
            ):
                with suppress(OSError):  # the owner stays, where that is allowed
                    os.chown(partial, old.st_uid, old.st_gid)
                    partial.chmod(mode)
            partial.replace(target)
    finally:
        with suppress(OSError):
            partial.unlink()


def check_output(path: str | os.PathLike[str], *endings: str) -> None:
    """Refuse an output that cannot be written, before any work is done for it.

    Its ending must be one of `endings`, if there are any; its folder, or the one that this would be
    made in, must take a file and have `MIN_FREE_BYTES`.
    """
    if is_url(path):
        path = local_path(path) or path
    if not is_url(path) and is_stream(path):
        return
    if endings and Path(path).suffix.lower() not in endings:
        raise UsageError(f"{path} must end in {' or '.join(endings)}")
    if is_url(path):
        _file_system(path)
        return
    with writing_to(path):
        target = Path(os.path.realpath(path))
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        folder = next(parent for parent in target.parents if parent.exists())
        with tempfile.TemporaryFile(dir=folder):
            pass
        if shutil.disk_usage(folder).free < MIN_FREE_BYTES:
            raise OSError(errno.ENOSPC, f"Less than {MIN_FREE_BYTES // 10**6} MB are free there")


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
        about = Path(path).stat()
    except OSError:  # it does not exist yet, or cannot be reached: writing will tell
        return False
    except ValueError as error:
        raise UsageError(f"{os.fspath(path)!r} is not the name of a file: {error}") from error
    if stat.S_ISDIR(about.st_mode):
        raise UsageError(f"{path} is a folder; name a file to write")
    with suppress(OSError):
        if os.path.samestat(about, os.fstat(1)):  # what stdout is redirected to, as /dev/stdout is
            return True
    return not stat.S_ISREG(about.st_mode)


def output_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder to write files into; refuse what can only be a stream or a file."""
    name = os.fspath(path)
    is_file = os.path.exists(name) and not os.path.isdir(name)  # noqa: PTH110, PTH112 (never raise)
    if is_url(path) or name in ("", STDOUT) or is_file:
        raise UsageError(f"{name!r} is not a folder; name a folder to write into")
    return Path(path)


@contextmanager
def reading(path: Path, what: str, *, advice: str = "") -> Iterator[None]:
    """Turn every error inside the block into a FormatError about the file `path`, a `what`."""
    hint = f"; {advice}" if advice else ""
    try:
        yield
    except (UsageError, MismatchError) as error:
        raise FormatError(f"{path} is not a valid {what}: {first_line(error)}{hint}") from error
    except DriftscoreError:
        raise
    except MemoryError as error:
        raise FormatError(f"{path} needs more memory than there is{hint}") from error
    except RecursionError as error:
        raise FormatError(f"{path} is not a valid {what}: it is nested too deeply{hint}") from error
    except OSError as error:
        said = error.strerror or first_line(error)
        raise FormatError(f"{path} cannot be read as {what}: {said}{hint}") from error
    except Exception as error:  # parsers raise many kinds of errors on damaged files
        raise FormatError(
            f"{path} is not a {what}, or is damaged: {first_line(error)}{hint}"
        ) from error


def regular_size(path: Path, what: str) -> int:
    """Return the size of a regular file in bytes; anything else is an error."""
    try:
        if path.is_file():
            return path.stat().st_size
        exists = path.exists()
    except (OSError, ValueError) as error:  # no permission, a name that is too long or has a NUL
        raise FormatError(f"{str(path)!r} cannot be read as {what}: {error}") from error
    if exists:
        raise FormatError(f"{path} is not a regular file; name a file that holds a {what}")
    raise FormatError(f"There is no {what} at {path}")


def is_file(name: str) -> bool:
    """Return whether a text is the path of a regular file; impossible names are not."""
    return os.path.isfile(name)  # noqa: PTH113 (never raises)


def is_folder(name: str | Path) -> bool:
    """Return whether a text is the path of a folder; impossible names are not."""
    return os.path.isdir(name)  # noqa: PTH112 (never raises)


def read_text(path: Path, what: str, *, most: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a UTF-8 file of at most `most` bytes."""
    size = regular_size(path, what)
    if size > most:
        raise FormatError(
            f"{path} has {size:,} bytes; a {what} has at most {most:,}, so this is another file"
        )
    with reading(path, what, advice="it must be a UTF-8 text"), open(path, "rb") as file:
        return file.read(most).decode("utf-8")


def working_folder() -> str:
    """Return the working directory; nothing if it no longer exists."""
    try:
        return os.getcwd()  # noqa: PTH109 (a text, as paths of recordings are)
    except OSError:
        return ""


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
    named = system.protocol
    return Path(inside) if "file" in ([named] if isinstance(named, str) else named) else None


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
        paths = [path for path, about in system.glob(inside, detail=True).items()
                 if about["type"] == "file"]  # fmt: skip
    elif Path(url).suffix.lower() in suffixes:
        return None
    else:
        system, inside = _file_system(url)
        if not system.isdir(inside):
            return None
        paths = [path for path in system.find(inside) if Path(path).suffix.lower() in suffixes]
    named = (path for path in paths if not Path(path).name.startswith(MAC_PREFIX))
    return sorted(system.unstrip_protocol(path) for path in named)


def _file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingExtraError(f"Reaching {url}", "remote") from error
    try:
        system, inside = url_to_fs(url)
    except Exception as error:  # the driver of a store is missing, unknown or not configured
        raise UsageError(f"{url} cannot be reached: {first_line(error)}") from error
    return system, inside


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, without its full stop, or its class."""
    lines = str(error).strip().splitlines()
    return lines[0][:300].rstrip(".") if lines else type(error).__name__
