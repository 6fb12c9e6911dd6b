"""Read a torch state dict without torch, and without running code from the file.

A `.pt` file is a zip: `*/data.pkl` describes tensors by name, shape and stride, and `*/data/<key>`
has their numbers. The unpickler accepts the few names below and refuses every other, so a malicious
file cannot call anything.
"""

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import FormatError

TorchArray = NDArray[np.generic]

_DTYPES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
}


class _Storage:
    """The element type of a storage, as the pickle names it."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


class _TensorUnpickler(pickle.Unpickler):
    """An unpickler that builds tensors and dictionaries of tensors, and nothing else."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(io.BytesIO(archive.read(f"{root}data.pkl")))
        self._archive, self._root = archive, root

    def find_class(self, module: str, name: str) -> type | Callable[..., object] | _Storage:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
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


def _rebuild(
    storage: TorchArray, offset: int, shape: Sequence[int], stride: Sequence[int], *_: object
) -> TorchArray:
    """Return the tensor at an offset of a storage; strides are in items."""
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if offset < 0 or min((*stride, 0)) < 0 or (0 not in shape and last >= storage.size):
        raise pickle.UnpicklingError("a tensor reaches outside its storage")
    steps = [step * storage.itemsize for step in stride]
    view = np.lib.stride_tricks.as_strided(storage[offset:], tuple(shape), steps, writeable=False)
    return np.ascontiguousarray(view)


def read_tensors(path: Path) -> Mapping[str, TorchArray]:
    """Return the tensors of a state dict by name; a file of any other kind is an error."""
    try:
        with zipfile.ZipFile(path) as archive:
            pickles = [n for n in archive.namelist() if n.endswith("data.pkl")]
            if len(pickles) != 1:
                raise FormatError(
                    f"{path} is a zip but not a torch file: it must have exactly one data.pkl."
                )
            state = _TensorUnpickler(archive, pickles[0].removesuffix("data.pkl")).load()
    except (zipfile.BadZipFile, pickle.UnpicklingError, KeyError, ValueError, EOFError) as error:
        raise FormatError(
            f"{path} can't be read as a torch state dict: {error}. Nothing in it was run."
        ) from error
    if not isinstance(state, dict) or not all(isinstance(v, np.ndarray) for v in state.values()):
        raise FormatError(f"{path} is not a dictionary of tensors.")
    return dict(state)
