"""The boundary of file readers: whatever a damaged file raises becomes one `FormatError`.

Files of our own formats come from other people and other machines. A reader runs inside `reading`,
so that its callers see an error of driftscore that names the file and says what is wrong with it.
Only regular files of a bounded size are opened: a pipe or a device would never end.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driftscore.errors import DriftscoreError, FormatError, MismatchError, UsageError

MOST_TEXT = 1_000_000
"""The largest TOML file that is read, in bytes; the largest one of ours has 12 kB."""


@contextmanager
def reading(path: Path, what: str, *, advice: str = "") -> Iterator[None]:
    """Turn every error inside the block into a FormatError about the file `path`, a `what`."""
    hint = f"; {advice}" if advice else ""
    try:
        yield
    except (UsageError, MismatchError) as error:
        raise FormatError(f"{path} is not a valid {what}: {_sentence(error)}{hint}") from error
    except DriftscoreError:
        raise
    except MemoryError as error:
        raise FormatError(f"{path} needs more memory than there is{hint}") from error
    except RecursionError as error:
        raise FormatError(f"{path} is not a valid {what}: it is nested too deeply{hint}") from error
    except OSError as error:
        said = error.strerror or _sentence(error)
        raise FormatError(f"{path} cannot be read as {what}: {said}{hint}") from error
    except Exception as error:  # parsers raise many kinds of errors on damaged files
        raise FormatError(
            f"{path} is not a {what}, or is damaged: "
            f"{_sentence(error) or type(error).__name__}{hint}"
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
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def is_folder(name: str | Path) -> bool:
    """Return whether a text is the path of a folder; impossible names are not."""
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        return False


def read_text(path: Path, what: str, *, most: int = MOST_TEXT) -> str:
    """Return the text of a UTF-8 file of at most `most` bytes."""
    size = regular_size(path, what)
    if size > most:
        raise FormatError(
            f"{path} has {size:,} bytes; a {what} has at most {most:,}, so this is another file"
        )
    with reading(path, what, advice="it must be a UTF-8 text"), open(path, "rb") as file:
        return file.read(most).decode("utf-8")


def _sentence(error: Exception) -> str:
    """Return the first line of what an error says, without its full stop."""
    lines = str(error).strip().splitlines()
    return lines[0][:300].rstrip(".") if lines else ""
