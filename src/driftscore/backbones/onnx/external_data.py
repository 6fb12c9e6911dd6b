"""Which other files an ONNX graph reads its weights from, found without the `onnx` package.

A graph may name any file on the machine as the place of a tensor. A runtime that opens such a graph
reads that file, so the names are checked before: only files beside the graph are allowed, and their
content is read by us. The scanner follows the fields of `onnx.proto` that can contain a tensor.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from driftscore.errors import FormatError

_TENSOR, _ENTRY = "tensor", "entry"
_INSIDE = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: _TENSOR, 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "training": {1: "graph", 2: "graph"},
    "node": {5: "attribute"},
    "attribute": {5: _TENSOR, 6: "graph", 10: _TENSOR, 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: _TENSOR, 2: _TENSOR},
    _TENSOR: {13: _ENTRY},
    _ENTRY: {},
}
"""Fields of each message that are messages in which a tensor can be."""
_DEEPEST = 64
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


def external_files(graph: bytes, *, where: str) -> tuple[str, ...]:
    """Return the names of the files that a graph refers to, sorted; damage is an error."""
    try:
        locations = {
            value for key, value in _entries(memoryview(graph), "model", 0) if key == "location"
        }
    except (IndexError, ValueError, UnicodeDecodeError) as error:
        raise FormatError(f"{where} is not an ONNX graph: {error}") from error
    return tuple(sorted(locations))


def check_no_external_data(graph: bytes, *, where: str) -> None:
    """Refuse a graph that refers to other files."""
    if names := external_files(graph, where=where):
        raise FormatError(f"{where} refers to another file ({names[0]!r}), which it must not")


def read_beside(graph: bytes, path: Path) -> dict[str, bytes]:
    """Return the content of the files that the graph at `path` refers to; all must be beside it."""
    names = external_files(graph, where=str(path))
    for name in names:
        parts = PurePosixPath(name).parts
        plain = len(parts) == 1 and parts[0] not in ("..", "/") and "\0" not in name
        if not plain or PureWindowsPath(name).name != name:
            raise FormatError(
                f"{path} refers to {name!r}, which is not a file beside it; such a graph could "
                "read any file of this machine and is refused"
            )
    try:
        return {name: (path.parent / name).read_bytes() for name in names}
    except OSError as error:
        raise FormatError(f"A file that {path} refers to cannot be read: {error}") from error


def _entries(message: memoryview, kind: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of the external data of all tensors in a message."""
    if depth > _DEEPEST:
        raise ValueError("its subgraphs are nested too deeply")
    if kind == _ENTRY:
        fields = {number: bytes(part) for number, part in _fields(message)}
        yield fields.get(1, b"").decode(), fields.get(2, b"").decode()
        return
    for number, part in _fields(message):
        if (inner := _INSIDE[kind].get(number)) is not None:
            yield from _entries(part, inner, depth + 1)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the number and the content of each field of a message that has a length."""
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            _, at = _varint(message, at)
        elif wire in (_EIGHT, _FOUR):
            at += 8 if wire == _EIGHT else 4
        elif wire == _BYTES:
            length, at = _varint(message, at)
            if length > end - at:
                raise ValueError("it ends in the middle of a field")
            yield number, message[at : at + length]
            at += length
        else:
            raise ValueError(f"a field has the unknown wire type {wire}")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins at a position, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number in it is too long")
