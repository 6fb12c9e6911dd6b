"""Check the values of TOML and JSON content, and name the key and what was expected there.

A check is a function of a value and of the key that it was found at; it raises a FormatError or
returns nothing. Checks are built from each other:

    PRESET = table(optional={"title": text, "rules": mapping(mapping(anything))})
    validate(content, PRESET, where="The preset mine.toml")

Written by hand instead of taken from a library: this is all that packs, presets, grids and the
descriptions of our tensor files need, and a start of the program does not pay for an import.
"""

import math
import re
import tomllib
from collections.abc import Callable, Mapping

from driftscore.errors import FormatError, unknown

Check = Callable[[object, str], None]

_SHOWN = 60
_DEEP_KEY = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){32}""",
)
_TYPES = {str: "a text", bool: "true or false", int: "a number", float: "a number",
          list: "a list", dict: "a table", type(None): "nothing"}  # fmt: skip


def validate(value: object, check: Check, *, where: str) -> None:
    """Raise a FormatError that begins with `where` if a value does not pass a check."""
    try:
        check(value, "")
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from None


def parse_toml(written: str, check: Check, *, where: str) -> dict[str, object]:
    """Return the content of a TOML text that passes a check; `where` begins an error."""
    if _DEEP_KEY.search(written):  # the time that tomllib takes grows with the square of the depth
        raise FormatError(f"{where} has a key of more than 32 parts; use fewer dots")
    try:
        content = tomllib.loads(written)
    except RecursionError:
        raise FormatError(f"{where} is not valid TOML: it is nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"{where} is not valid TOML: {error}") from error
    validate(content, check, where=where)
    return content


def finite_number(written: str) -> float | None:
    """Return the finite number that a text states; None for any other text."""
    try:
        value = float(written)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def anything(value: object, key: str) -> None:
    """Accept every value."""


def text(value: object, key: str) -> None:
    """Accept a text that can be written as UTF-8."""
    if not isinstance(value, str):
        raise _wrong(key, "a text", value)
    if not value.isascii() and any("\ud800" <= sign <= "\udfff" for sign in value):
        raise _wrong(key, "a text of valid Unicode", value)


def filled_text(value: object, key: str) -> None:
    """Accept a text that has more than white space."""
    text(value, key)
    if isinstance(value, str) and not value.strip():
        raise _wrong(key, "a text that is not empty", value)


def flag(value: object, key: str) -> None:
    """Accept true or false."""
    if not isinstance(value, bool):
        raise _wrong(key, "true or false", value)


def number(low: float = -math.inf, high: float = math.inf) -> Check:
    """Return a check for a finite number from `low` to `high`."""
    limits = f" from {low:g} to {high:g}" if math.isfinite(low) and math.isfinite(high) else ""

    def check(value: object, key: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(key, f"a number{limits}", value)
        if not (low <= value <= high and abs(value) <= 1e300):
            raise _wrong(key, f"a finite number{limits}", value)

    return check


def count(value: object, key: str) -> None:
    """Accept a whole number that is not negative and fits into 63 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise _wrong(key, "a whole number of at least 0", value)


def choice(*names: str) -> Check:
    """Return a check for one of some texts."""

    def check(value: object, key: str) -> None:
        if not isinstance(value, str) or value not in names:
            raise _wrong(key, " or ".join(repr(name) for name in names), value)

    return check


def either(first: Check, second: Check, *, words: str) -> Check:
    """Return a check for a value that passes one of two checks; `words` describes both."""

    def check(value: object, key: str) -> None:
        for one in (first, second):
            try:
                one(value, key)
            except FormatError:
                continue
            return
        raise _wrong(key, words, value)

    return check


def optional(of: Check) -> Check:
    """Return a check for null, or a value that passes a check."""

    def check(value: object, key: str) -> None:
        if value is not None:
            of(value, key)

    return check


def items(of: Check, *, fewest: int = 0, most: int = 1_000_000) -> Check:
    """Return a check for a list whose items pass a check."""

    def check(value: object, key: str) -> None:
        if not isinstance(value, list):
            raise _wrong(key, "a list", value)
        if not fewest <= len(value) <= most:
            raise FormatError(
                f"{key or 'the list'} must have {fewest:,} to {most:,} items, got {len(value):,}"
            )
        for index, item in enumerate(value):
            of(item, f"{key}[{index}]")

    return check


def mapping(of: Check) -> Check:
    """Return a check for a table with any keys, whose values pass a check."""

    def check(value: object, key: str) -> None:
        for name, inner in _table(value, key).items():
            of(inner, _join(key, name))

    return check


def table(
    required: Mapping[str, Check] | None = None,
    optional: Mapping[str, Check] | None = None,
    *,
    open_: bool = False,
) -> Check:
    """Return a check for a table with these keys; other keys are accepted if it is `open_`."""
    needs, known = dict(required or {}), {**(required or {}), **(optional or {})}

    def check(value: object, key: str) -> None:
        content = _table(value, key)
        for name in needs:
            if name not in content:
                raise FormatError(f"{_join(key, name)} is missing")
        for name, inner in content.items():
            if name in known:
                known[name](inner, _join(key, name))
            elif not open_:
                raise FormatError(f"{key or 'the file'}: {unknown('key', name, known)}")

    return check


def _table(value: object, key: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _wrong(key, "a table", value)
    return value


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _wrong(key: str, expected: str, value: object) -> FormatError:
    """Return the error for a value; a long one is shortened."""
    kind = _TYPES.get(type(value), f"a {type(value).__name__}")
    shown = "" if isinstance(value, dict | list) else f" {_short(value)}"
    given = "nothing" if value is None else f"{kind}{shown}"
    return FormatError(f"{key or 'the content'} must be {expected}, got {given}")


def _short(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return "of very many digits"
    written = repr(value)
    return written if len(written) <= _SHOWN else f"{written[:_SHOWN]}..."
