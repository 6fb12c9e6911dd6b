"""What an output format is: a function that writes rows, and whether its rows need times.

A format is a module (or any object) with

    write(rows, out, *, title="", columns=()) -> None     write the rows to a text stream
    SPANS = True                                          optional: its rows are spans of time
    LENGTHS = True                                        optional: it needs the length of each
                                                          recording, also of one without an event

or a plain function like `write`. A format of spans receives rows with the keys file, start_s,
end_s, label, score and error; every other one receives the rows of the command as they are.
A span may also have time (the clock time of its start in ISO 8601, or ""), threshold, level_db and
snr_db (None if unknown), and of its recording duration_s and rate. With LENGTHS a recording without
an event has one row with an empty label.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol, cast, runtime_checkable

from driftscore.errors import UsageError
from driftscore.registry import summary

OutputValue = str | float | Sequence[str] | Mapping[str, str | float] | None
"""One value of a row: text, a number, a list of labels, or the scores of all labels."""
OutputRow = Mapping[str, OutputValue]
"""One row; the rows of one output have the same keys in the same order."""


class Write(Protocol):
    """The function that writes rows in one format."""

    def __call__(
        self,
        rows: Iterable[OutputRow],
        out: IO[str],
        *,
        title: str = "",
        columns: Sequence[str] = (),
    ) -> None:
        """Write rows to a text stream; `columns` names the keys in case there is no row."""


@runtime_checkable
class FormatModule(Protocol):
    """A module, or an object, that defines an output format."""

    write: Write


@dataclass(frozen=True)
class Format:
    """An output format with everything that the command asks about it."""

    name: str
    summary: str
    write: Write
    spans: bool = False
    """Whether each row must be a label with its start and end."""
    lengths: bool = False
    """Whether rows need the length of their recording, and recordings without an event a row."""


def describe_format(name: str, plugin: object) -> Format:
    """Return the format that a module, an object or a function defines."""
    write = plugin.write if isinstance(plugin, FormatModule) else plugin
    if not callable(write):
        raise UsageError(
            f"The format {name!r} is neither a function nor a module that defines write(rows, ...)"
        )
    spans = bool(getattr(plugin, "SPANS", False))
    lengths = bool(getattr(plugin, "LENGTHS", False))
    return Format(name, summary(plugin), cast(Callable[..., None], write), spans, lengths)
