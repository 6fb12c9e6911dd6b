"""Read the one torch file of mn04 without torch, and without running code from the file.

The file is known by its sha256, which is compared before anything in it is read; every other file
is refused. A `.pt` file is a zip: `*/data.pkl` describes tensors by name, shape and stride, and
`*/data/<key>` has their numbers. The reader resolves only the names that this file needs.
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
from driftscore.storage.files import reading, regular_size

TorchArray = NDArray[np.generic]

_DTYPES = {"FloatStorage": "<f4", "LongStorage": "<i8"}
_MAX_BYTES = 100_000_000  # the file has 4 MB
_WHAT = "torch state dict"


class _TensorUnpickler(pickle.Unpickler):  # noqa: S301 (it loads names of our own list only)
    """An unpickler that builds tensors and dictionaries of tensors, and nothing else."""

    def __init__(self, archive: zipfile.ZipFile, description: str) -> None:
        super().__init__(io.BytesIO(archive.read(description)))
        self._archive, self._root = archive, description.removesuffix("data.pkl")

    def find_class(self, module: str, name: str) -> Callable[..., object] | str:
        if (module, name) == ("collections", "OrderedDict"):
            return dict  # the hooks of each tensor: none
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not part of a tensor")

    def persistent_load(self, pid: tuple[str, str, str, str, int]) -> TorchArray:
        kind, storage, key, _device, _count = pid
        if kind != "storage" or storage not in _DTYPES.values():
            raise pickle.UnpicklingError(f"it refers to a {kind!r}, which is not a storage")
        return np.frombuffer(self._archive.read(f"{self._root}data/{key}"), storage)


def _rebuild(
    storage: TorchArray, offset: int, shape: Sequence[int], stride: Sequence[int], *_: object
) -> TorchArray:
    """Return the tensor at an offset of a storage; strides are in items."""
    if math.prod(shape) > storage.size or min(stride, default=0) < 0:
        raise pickle.UnpicklingError("a tensor is larger than its storage")
    steps = [step * storage.itemsize for step in stride]
    start = offset * storage.itemsize
    # numpy refuses a view that reaches outside the storage.
    return np.ascontiguousarray(np.ndarray(shape, storage.dtype, storage.data, start, steps))


def read_tensors(path: Path, *, sha256: str) -> Mapping[str, TorchArray]:
    """Return the tensors by name of the file with this checksum; any other file is an error."""
    size = regular_size(path, _WHAT)
    if size > _MAX_BYTES:
        raise FormatError(f"{path} has {size:,} bytes and is not the published file")
    with reading(path, _WHAT):
        content = path.read_bytes()  # once: what is checked is what is read
    if (actual := hashlib.sha256(content).hexdigest()) != sha256:
        raise FormatError(
            f"{path} is not the published file (sha256 {actual[:12]}..., expected "
            f"{sha256[:12]}...): it is damaged or another file. Nothing in it was read."
        )
    with (
        reading(path, _WHAT, advice="nothing in it was run"),
        zipfile.ZipFile(io.BytesIO(content)) as archive,
    ):
        [description] = [name for name in archive.namelist() if name.endswith("data.pkl")]
        state: object = _TensorUnpickler(archive, description).load()
    if not isinstance(state, dict) or not all(isinstance(v, np.ndarray) for v in state.values()):
        raise FormatError(f"{path} is not a dictionary of tensors.")
    return {str(name): tensor for name, tensor in state.items()}
