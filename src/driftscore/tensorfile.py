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
from driftscore.files import replacing
from driftscore.reading import reading, regular_size
from driftscore.schema import Check, anything, validate

FileTensor = NDArray[np.generic]
FileContent = tuple[dict[str, NDArray[Any]], dict[str, Any]]
"""The arrays of a file by name, and its JSON description."""

_DTYPES = ("F16", "F32", "F64", "I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "BOOL")
"""Types that numpy has; bfloat16 and the 8-bit floats are not among them."""


def write_tensors(
    path: str | PathLike[str],
    tensors: Mapping[str, FileTensor],
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
    about: Check = anything,
) -> FileContent:
    """Read the arrays in `needs`, those in `may` that exist, and the description of a file.

    The description must pass the check `about`; arrays must be numbers, and finite.
    """
    from safetensors import safe_open

    where = Path(path)
    regular_size(where, kind)
    with reading(where, f"complete {kind} file", advice="make it again, or copy it again"):
        with safe_open(where, framework="numpy") as file:
            described = _described(file.metadata(), kind, where)
            validate(described, about, where=f"The description in {where}")
            present = set(file.keys())
            for name in needs:
                if name not in present:
                    raise FormatError(f"{where} is not a complete {kind} file: it lacks {name!r}")
            wanted = (*needs, *(name for name in may if name in present))
            for name in wanted:
                if (dtype := str(file.get_slice(name).get_dtype())) not in _DTYPES:
                    raise FormatError(
                        f"{where}: the array {name!r} has the type {dtype}; save it as float32"
                    )
            tensors = {name: file.get_tensor(name) for name in wanted}
        for name, tensor in tensors.items():
            if not np.isfinite(tensor).all():
                raise FormatError(f"{where}: the array {name!r} has NaN or infinite values")
    return tensors, described


def _described(metadata: Mapping[str, str] | None, kind: str, where: Path) -> dict[str, Any]:
    """Return the description of a file, if it is of this kind."""
    content = json.loads((metadata or {}).get("driftscore", "{}"))
    found = content.get("kind") if isinstance(content, dict) else None
    if found != kind:
        made = found if isinstance(found, str) else "not made by driftscore"
        raise FormatError(f"{where} is not a driftscore {kind} (it is: {made[:60]})")
    return dict(content)
