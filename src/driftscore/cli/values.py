"""The values of options as typer passes them on, without pydantic where nothing is to convert.

typer converts every value, also one that was not given, with a pydantic adapter. Importing pydantic
and making the adapters takes a tenth of a second, and ours are texts, paths and flags.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import typer
import typer.core

Process = Callable[[typer.Context, object], object]


class Parameter(Protocol):
    """The part of an option or argument of typer that is used."""

    @property
    def required(self) -> bool:
        """Whether a value must be given."""

    @property
    def callback(self) -> Callable[..., object] | None:
        """What is called with the context, the parameter and its value."""


class PlainCommand(typer.core.TyperCommand):
    """A command that takes texts and paths as they are, and leaves everything else to typer."""

    def parse_args(  # type: ignore[override]  # the context of typer's own copy of click
        self, ctx: typer.Context, args: list[str]
    ) -> list[str]:
        """Parse the arguments of the command."""
        _take_plain_values(self, ctx)
        return super().parse_args(ctx, args)


class PlainGroup(typer.core.TyperGroup):
    """A group of commands whose own options are taken as they are."""

    def parse_args(  # type: ignore[override]  # the context of typer's own copy of click
        self, ctx: typer.Context, args: list[str]
    ) -> list[str]:
        """Parse the options of the group."""
        _take_plain_values(self, ctx)
        return super().parse_args(ctx, args)


def _take_plain_values(
    command: typer.core.TyperCommand | typer.core.TyperGroup, context: typer.Context
) -> None:
    for parameter in command.get_params(context):
        # Versions of typer without pydantic have no such attribute, and need no help.
        kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
        if kind is not None:
            process = partial(_process, parameter, parameter.process_value, kind)
            parameter.process_value = process  # type: ignore[method-assign]


def _process(
    parameter: Parameter, process: Process, kind: object, context: typer.Context, given: object
) -> object:
    """Return a value as an option of some kind has it; what is not plain is left to `process`."""
    plain, value = _plain(kind, given)
    if not plain or (parameter.required and not value):
        return process(context, given)
    return value if parameter.callback is None else parameter.callback(context, parameter, value)


def _plain(kind: object, given: object) -> tuple[bool, object]:
    """Return whether a value needs no conversion, and the value."""
    if given is None:
        return kind in (bool, str, Path, list[str]), [] if kind == list[str] else None
    if kind is Path and isinstance(given, str):
        return _is_usable(given), Path(given)
    if kind == list[str] and isinstance(given, (list, tuple)):
        return all(isinstance(item, str) for item in given), list(given)
    return kind is str and isinstance(given, str), given


def _is_usable(path: str) -> bool:
    """Return whether typer has nothing to say about a path: it refuses what cannot be read."""
    return not os.path.exists(path) or os.access(path, os.R_OK)  # noqa: PTH110
