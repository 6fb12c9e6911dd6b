"""Every deliberate error: one root, few children.

A message says what is wrong, what was given and what to do next. The command
turns `UsageError` into exit status 2 and every other child into 1.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class DriftscoreError(Exception):
    """Root of all errors that driftscore raises on purpose."""


class UsageError(DriftscoreError, ValueError):
    """What was asked for makes no sense: a wrong name, number or combination."""


class AudioError(DriftscoreError):
    """A recording that cannot be used; one such file never ends a batch."""


class FormatError(DriftscoreError):
    """A bank, head, pack or embedding file that is damaged or of another kind."""


class MismatchError(DriftscoreError):
    """Two things that were made by different models, or of different widths."""


class StoreError(DriftscoreError):
    """The lab's store cannot be used: the one failure that ends a run."""


class MissingExtraError(DriftscoreError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'driftscore[{extra}]'")


def unknown(kind: str, given: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that is not one of `known`, with the nearest one."""
    names = sorted(known)
    near = get_close_matches(given, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return UsageError(f"No {kind} called {given!r}; {hint}")
