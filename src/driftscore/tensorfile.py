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

FileTensor = NDArray[np.generic]
FileContent = tuple[dict[str, NDArray[Any]], dict[str, Any]]
"""The arrays of a file by name, and its JSON description."""


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
    path: str | PathLike[str], *, kind: str, needs: Sequence[str], may: Sequence[str] = ()
) -> FileContent:
    """Read the arrays in `needs`, those in `may` that exist, and the description of a file."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FormatError(f"There is no {kind} at {Path(path)}")
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get("driftscore", "{}"))
            if about.get("kind") != kind:
                found = about.get("kind", "not made by driftscore")
                raise FormatError(f"{Path(path)} is not a driftscore {kind} (it is: {found})")
            present = [name for name in may if name in file.keys()]  # noqa: SIM118
            return {name: file.get_tensor(name) for name in (*needs, *present)}, about
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        raise FormatError(f"{Path(path)} is not a complete {kind} file: {error}") from error
