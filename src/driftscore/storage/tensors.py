"""Our safetensors files: arrays, what kind of file they are, and everything that made them.

The metadata is one JSON text with sorted keys: the same content makes the same bytes.
"""

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import FormatError
from driftscore.storage.files import reading, regular_size, replacing

FileContent = tuple[dict[str, NDArray[Any]], dict[str, Any]]
"""The arrays of a file by name, and its JSON description."""

_DTYPES = ("F16", "F32", "F64", "I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "BOOL")
"""Types that numpy has; bfloat16 and the 8-bit floats are not among them."""


def write_tensors(
    path: str | PathLike[str],
    tensors: Mapping[str, NDArray[np.generic]],
    *,
    kind: str,
    about: Mapping[str, object],
) -> None:
    """Write arrays with their kind and their JSON description, completely or not at all."""
    from safetensors.numpy import save_file

    complete = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    # One key: safetensors writes several in an order that changes from run to run.
    text = json.dumps({"kind": kind, **about}, sort_keys=True, ensure_ascii=False)
    with replacing(path) as partial:
        save_file(complete, partial, metadata={"driftscore": text})


def read_tensors(
    path: str | PathLike[str],
    *,
    kind: str,
    needs: Sequence[str],
    may: Sequence[str] = (),
) -> FileContent:
    """Read the arrays in `needs`, those in `may` that exist, and the description of a file.

    Arrays must be numbers, and finite.
    """
    from safetensors import safe_open

    where = Path(path)
    regular_size(where, kind)
    with reading(where, f"complete {kind} file", advice="make it again, or copy it again"):
        with safe_open(where, framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get("driftscore", "{}"))
            stated = about.get("kind") if isinstance(about, dict) else None
            if stated != kind:
                other = stated if isinstance(stated, str) else "not made by driftscore"
                raise FormatError(f"{where} is not a driftscore {kind} (it is: {other[:60]})")
            present = set(file.keys())
            for name in needs:
                if name not in present:
                    raise FormatError(f"{where} is not a complete {kind} file: it lacks {name!r}")
            names = (*needs, *(name for name in may if name in present))
            for name in names:
                if (dtype := str(file.get_slice(name).get_dtype())) not in _DTYPES:
                    raise FormatError(
                        f"{where}: the array {name!r} has the type {dtype}; save it as float32"
                    )
            tensors = {name: file.get_tensor(name) for name in names}
        for name, tensor in tensors.items():
            if not np.isfinite(tensor).all():
                raise FormatError(f"{where}: the array {name!r} has NaN or infinite values")
    return tensors, about
