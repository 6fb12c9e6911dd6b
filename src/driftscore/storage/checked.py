"""TOML and JSON content -> typed values; an error names the key, what it must be and what it is.

    class Label(Struct, forbid_unknown_fields=True):
        name: FilledText
        threshold: float | None = None

    decode(parse(written, where="The list mine.toml"), Label, where="The list mine.toml")

The types are msgspec's. It says neither the value nor the nearest key, which is added here.
"""

import math
import re
import tomllib
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import Meta

from driftscore.errors import FormatError, unknown

Kind = TypeVar("Kind")
Text = Annotated[str, Meta(pattern="^[^\ud800-\udfff]*$")]
"""A text that can be written as UTF-8."""
FilledText = Annotated[str, Meta(pattern=r"\S")]
"""A text that has more than white space."""

_SHOWN_CHARS = 60
_DEEP_KEY = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){32}""",
)
_TYPES = {str: "a text", bool: "true or false", int: "a number", float: "a number",
          list: "a list", dict: "a table", type(None): "nothing"}  # fmt: skip


def decode(content: object, kind: type[Kind], *, where: str) -> Kind:
    """Return content as a type of msgspec; `where` begins an error."""
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise FormatError(f"{where}: {_explained(str(error), content, kind)}") from None
    except UnicodeEncodeError as error:
        raise FormatError(f"{where}: a text is not valid Unicode: {error.object!r}") from None


def _explained(message: str, content: object, kind: object, above: str = "") -> str:
    """Return an error of msgspec in words, with the value (shortened) and the nearest key."""
    said, _, path = message.rstrip("`").partition(" - at `$")
    value: Any = content
    key = above
    for name, index in re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", path):
        if name:
            value, key = value[name], _join(key, name)
            kind = next(field.type for field in _fields(kind) if field.encode_name == name)
        elif index == "...":  # of a table with any keys msgspec does not say which one is wrong
            kind = get_args(_plain(kind))[1]
            for other, inner in value.items():
                try:
                    msgspec.convert(inner, kind)
                except msgspec.ValidationError as error:
                    return _explained(str(error), inner, kind, _join(key, other))
        else:
            value, key = value[int(index)], f"{key}[{index}]"
            kind = get_args(_plain(kind))[0]
    field = said.split("`")[1] if "`" in said else ""
    if said.startswith("Object missing"):
        return f"{_join(key, field)} is missing"
    if said.startswith("Object contains unknown field"):
        names = [known.encode_name for known in _fields(kind)]
        return f"{key or 'the file'}: {unknown('key', field, names)}"
    if said.startswith("Invalid enum value"):
        expected = " or ".join(map(repr, get_args(_plain(kind))))
    else:
        words = {"str": "a text", "bool": "true or false", "int": "a whole number",
                 "float": "a number", "array": "a list", "object": "a table"}  # fmt: skip
        expected = said.removeprefix("Expected ").partition(", got")[0]
        expected = re.sub(r"`(\w+)[^`]*`", lambda match: words.get(match[1], match[1]), expected)
        expected = expected.replace(r"matching regex '\\S'", "that is not empty")
        expected = re.sub("matching regex .*", "of valid Unicode", expected)
        expected = expected.replace("Number out of range", "a finite number")
    description = _TYPES.get(type(value), f"a {type(value).__name__}")
    if isinstance(value, int) and value.bit_length() > 200:  # too many to be written
        description += " of very many digits"
    elif value is not None and not isinstance(value, dict | list):
        written = repr(value)
        cut = "..." if len(written) > _SHOWN_CHARS else ""
        description += f" {written[:_SHOWN_CHARS]}{cut}"
    return f"{key or 'the content'} must be {expected}, got {description}"


def _fields(kind: object) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(_plain(kind))  # type: ignore[arg-type]


def _plain(kind: object) -> object:
    """Return a type without its bounds, and without None."""
    if hasattr(kind, "__metadata__") or type(None) in get_args(kind):
        return _plain(get_args(kind)[0])
    return kind


def parse(written: str, *, where: str) -> dict[str, object]:
    """Return the content of a TOML text; `where` begins an error."""
    if _DEEP_KEY.search(written):  # the time that tomllib takes grows with the square of the depth
        raise FormatError(f"{where} has a key of more than 32 parts; use fewer dots")
    try:
        return tomllib.loads(written)
    except RecursionError:
        raise FormatError(f"{where} is not valid TOML: it is nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"{where} is not valid TOML: {error}") from error


def finite_number(written: str) -> float | None:
    """Return the finite number that a text states; None for any other text."""
    try:
        value = float(written)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
