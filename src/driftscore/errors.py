"""Every deliberate error: one root, one class per kind of failure.

A message says what is wrong, what was given and what to do next. `exit_status` is what the
command exits with: 2 for wrong usage, 1 for everything else.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path


class DriftscoreError(Exception):
    """Root of all errors that driftscore raises on purpose."""

    exit_status = 1


class UsageError(DriftscoreError, ValueError):
    """Wrong usage: an unknown name, an invalid value or options that contradict each other."""

    exit_status = 2


class AudioError(DriftscoreError):
    """A recording that cannot be read or embedded; one such recording never ends a run."""


class LimitError(AudioError):
    """A recording that is longer or larger than whoever decodes it allows."""


class FormatError(DriftscoreError):
    """A bank, head, pack, grid or embedding file that is damaged or of another kind."""


class WriteError(DriftscoreError):
    """A file that cannot be written: no permission, no such folder, no space left."""


class AuditError(WriteError):
    """A decision that cannot be recorded in the audit; this ends a run."""


class MismatchError(DriftscoreError):
    """Two things that were made by different models, or that have different dimensions."""


class UndefinedMetricError(DriftscoreError):
    """A measurement that is not defined for the data given, such as AP without a positive."""


class DownloadError(DriftscoreError):
    """A file that cannot be downloaded, or whose checksum is wrong."""


class WorkerError(DriftscoreError):
    """A worker process or a cluster that failed or cannot be reached."""


class StoreError(DriftscoreError):
    """The lab's store cannot be read or written; this ends a run."""


class MissingExtraError(DriftscoreError, ImportError):
    """An optional dependency that is not installed; `command` is for one that is not an extra."""

    def __init__(self, what: str, extra: str = "", command: str = "") -> None:
        super().__init__(what, extra, command)  # all of them, so that the error can be pickled

    def __str__(self) -> str:
        what, extra, command = self.args
        return f"{what} needs an optional part: {command or install_command(extra)}"


def install_command(extra: str) -> str:
    """Return the line that adds an extra to this installation.

    It names what driftscore was installed from: a checkout, a wheel, or the package index.
    """
    from importlib import metadata  # here: only who lacks something needs them
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    checkout, origin = Path(__file__).parents[2], None
    if (checkout / "pyproject.toml").is_file():
        return f"pip install '{checkout}[{extra}]'"
    with suppress(metadata.PackageNotFoundError):
        origin = metadata.distribution("driftscore").read_text("direct_url.json")
    url = urlsplit(str(json.loads(origin or '{"url": ""}')["url"]))
    source = url2pathname(url.path) if url.scheme == "file" else "driftscore"
    return f"pip install '{source}[{extra}]'"


def unknown(kind: str, name: str, choices: Iterable[str]) -> UsageError:
    """Return the error for a name that is not one of `choices`, with the nearest one."""
    names = sorted(choices)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return UsageError(f"No {kind} called {name!r}; {hint}")
