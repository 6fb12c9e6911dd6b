"""Where driftscore keeps what it computed, and how it writes a file.

A file is written beside its target and moved into place when whole, so that a crash
leaves the old file or the new one, never half of one.
"""

import hashlib
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driftscore.errors import UsageError


def cache_home() -> Path:
    """Return the cache folder: `$DRIFTSCORE_CACHE`, or the platform's own place."""
    if given := os.environ.get("DRIFTSCORE_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~")).expanduser() / "driftscore"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/driftscore").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "driftscore"


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; move it there if the block succeeds."""
    target = Path(path)
    if target.is_dir():
        raise UsageError(f"{target} is a folder; name a file to write")
    partial = target.with_name(f".{target.name}.{secrets.token_hex(6)}{target.suffix}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(target)
    except OSError as error:
        raise UsageError(f"Cannot write {target}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """Return the hex sha256 of a file, read in blocks."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
