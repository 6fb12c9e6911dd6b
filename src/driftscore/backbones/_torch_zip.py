"""Read a torch state dict without torch, and without running what a pickle may carry.

A `.pt` file is a zip: `*/data.pkl` describes tensors by name, shape and stride, and
`*/data/<key>` holds their numbers. The unpickler here knows four names and refuses
every other, so a hostile file cannot call anything.
"""

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftscore.errors import FormatError

Tensors = Mapping[str, npt.NDArray[Any]]

_DTYPES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
}


class _Storage:
    """The type of a storage, as the pickle names it."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


class _TensorUnpickler(pickle.Unpickler):
    """An unpickler that can build tensors and dictionaries of them, nothing else."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(io.BytesIO(archive.read(f"{root}data.pkl")))
        self._archive, self._root = archive, root

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild
        if module == "torch" and name in _DTYPES:
            return _Storage(_DTYPES[name])
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no tensor")

    def persistent_load(self, pid: Any) -> npt.NDArray[Any]:
        kind, storage, key, _device, count = pid
        if kind != "storage" or not isinstance(storage, _Storage):
            raise pickle.UnpicklingError(f"it refers to a {kind!r}, which is no storage")
        numbers = np.frombuffer(self._archive.read(f"{self._root}data/{key}"), storage.dtype)
        if numbers.size < count:
            raise pickle.UnpicklingError(f"storage {key} holds {numbers.size} of {count} numbers")
        return numbers


def _rebuild(
    storage: npt.NDArray[Any], offset: int, shape: Sequence[int], stride: Sequence[int], *_: Any
) -> npt.NDArray[Any]:
    """Return the tensor that lies in a storage at an offset with strides in items."""
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if offset < 0 or min((*stride, 0)) < 0 or (0 not in shape and last >= storage.size):
        raise pickle.UnpicklingError("a tensor reaches outside its storage")
    steps = [step * storage.itemsize for step in stride]
    view = np.lib.stride_tricks.as_strided(storage[offset:], tuple(shape), steps, writeable=False)
    return np.ascontiguousarray(view)


def read_tensors(path: Path) -> Tensors:
    """Return the tensors of a state dict by name; refuse anything that is not one."""
    try:
        with zipfile.ZipFile(path) as archive:
            pickles = [n for n in archive.namelist() if n.endswith("data.pkl")]
            if len(pickles) != 1:
                raise FormatError(
                    f"{path} is a zip but not a torch file: no single data.pkl in it."
                )
            state = _TensorUnpickler(archive, pickles[0].removesuffix("data.pkl")).load()
    except (zipfile.BadZipFile, pickle.UnpicklingError, KeyError, ValueError, EOFError) as error:
        raise FormatError(
            f"{path} can't be read as a torch state dict: {error}. Nothing in it was run."
        ) from error
    if not isinstance(state, dict) or not all(isinstance(v, np.ndarray) for v in state.values()):
        raise FormatError(f"{path} holds something other than a dictionary of tensors.")
    return dict(state)
