"""Read the one torch file of mn04 without torch, and without running code from the file.

The file is known by its sha256, which is compared before anything in it is read; every other file
is refused. A `.pt` file is a zip: `*/data.pkl` describes tensors by name, shape and stride, and
`*/data/<key>` has their numbers. Should the checksum ever be wrong, the reader still accepts only
the opcodes, names and sizes that this file needs.
"""

import hashlib
import io
import math
import pickle
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import FormatError
from driftscore.reading import reading, regular_size

TorchArray = NDArray[np.generic]

_DTYPES = {"FloatStorage": "<f4", "LongStorage": "<i8"}
_OPCODES = frozenset(
    [
        "PROTO",
        "EMPTY_DICT",
        "MARK",
        "SETITEMS",
        "STOP",
        "GLOBAL",
        "REDUCE",
        "BINPERSID",
        "BINUNICODE",
        "BININT",
        "BININT1",
        "BININT2",
        "NEWFALSE",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "BINPUT",
        "LONG_BINPUT",
        "BINGET",
    ]
)
"""What the pickle of mn04 consists of. BUILD, which sets attributes, is not among them."""
_MOST_BYTES = 100_000_000  # the file has 4 MB
_MOST_DESCRIPTION = 1_000_000  # its data.pkl has 35 kB
_WHAT = "torch state dict"


class _Storage:
    """The element type of a storage, as the pickle names it."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


class _TensorUnpickler(pickle.Unpickler):  # noqa: S301 (it loads names of our own list only)
    """An unpickler that builds tensors and dictionaries of tensors, and nothing else."""

    def __init__(self, archive: zipfile.ZipFile, root: str, description: bytes) -> None:
        super().__init__(io.BytesIO(description))
        self._archive, self._root = archive, root

    def find_class(self, module: str, name: str) -> Callable[..., object] | _Storage:
        if (module, name) == ("collections", "OrderedDict"):
            return _no_hooks
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild
        if module == "torch" and name in _DTYPES:
            return _Storage(_DTYPES[name])
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not part of a tensor")

    def persistent_load(self, pid: tuple[str, object, str, str, int]) -> TorchArray:
        kind, storage, key, _device, count = pid
        if kind != "storage" or not isinstance(storage, _Storage):
            raise pickle.UnpicklingError(f"it refers to a {kind!r}, which is not a storage")
        numbers = np.frombuffer(self._archive.read(f"{self._root}data/{key}"), storage.dtype)
        if numbers.size < count:
            raise pickle.UnpicklingError(f"storage {key} holds {numbers.size} of {count} numbers")
        return numbers


def _no_hooks() -> None:
    """Stand for the empty OrderedDict of hooks that each tensor has."""


def _rebuild(
    storage: TorchArray, offset: int, shape: Sequence[int], stride: Sequence[int], *_: object
) -> TorchArray:
    """Return the tensor at an offset of a storage; strides are in items."""
    numbers = (offset, *shape, *stride)
    if not isinstance(storage, np.ndarray) or any(type(n) is not int or n < 0 for n in numbers):
        raise pickle.UnpicklingError("a tensor has a negative size or none")
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if math.prod(shape) > storage.size or (0 not in shape and last >= storage.size):
        raise pickle.UnpicklingError("a tensor reaches outside its storage")
    steps = [step * storage.itemsize for step in stride]
    view = np.lib.stride_tricks.as_strided(storage[offset:], tuple(shape), steps, writeable=False)
    return np.ascontiguousarray(view)


def read_tensors(path: Path, *, sha256: str) -> Mapping[str, TorchArray]:
    """Return the tensors by name of the file with this checksum; any other file is an error."""
    size = regular_size(path, _WHAT)
    if size > _MOST_BYTES:
        raise FormatError(f"{path} has {size:,} bytes and is not the published file")
    with reading(path, _WHAT):
        content = path.read_bytes()  # once: what is checked is what is read
    if (actual := hashlib.sha256(content).hexdigest()) != sha256:
        raise FormatError(
            f"{path} is not the published file (sha256 {actual[:12]}..., expected "
            f"{sha256[:12]}...): it is damaged or another file. Nothing in it was read."
        )
    with reading(path, _WHAT, advice="nothing in it was run"):
        state = _state(content)
    if not isinstance(state, dict) or not all(isinstance(v, np.ndarray) for v in state.values()):
        raise FormatError(f"{path} is not a dictionary of tensors.")
    return {str(name): tensor for name, tensor in state.items()}


def _state(content: bytes) -> object:
    """Return what the pickle in a torch file describes."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        if any(m.compress_type != zipfile.ZIP_STORED or m.flag_bits & 1 for m in members):
            raise pickle.UnpicklingError("it is compressed or encrypted, which torch files are not")
        found = [m for m in members if m.filename.endswith("data.pkl")]
        if len(found) != 1 or found[0].file_size > _MOST_DESCRIPTION:
            raise pickle.UnpicklingError("it must have exactly one data.pkl of a usual size")
        description = archive.read(found[0])
        _check_opcodes(description)
        root = found[0].filename.removesuffix("data.pkl")
        return _TensorUnpickler(archive, root, description).load()


def _check_opcodes(description: bytes) -> None:
    """Refuse a pickle with an opcode that the description of mn04's tensors does not have."""
    from pickletools import genops

    for opcode, argument, _ in genops(description):
        if opcode.name == "GLOBAL" and argument not in _GLOBALS:
            raise pickle.UnpicklingError(f"it asks for {argument}, which is not part of a tensor")
        if opcode.name not in _OPCODES:
            raise pickle.UnpicklingError(f"it has the opcode {opcode.name}, which tensors need not")
        if opcode.name == "LONG_BINPUT" and int(str(argument)) > _MOST_DESCRIPTION:
            raise pickle.UnpicklingError("it asks for a table of many gigabytes")


_GLOBALS = frozenset(
    ("collections OrderedDict", "torch._utils _rebuild_tensor_v2")
    + tuple(f"torch {name}" for name in _DTYPES)
)
