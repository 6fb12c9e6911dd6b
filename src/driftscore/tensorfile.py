"""Safetensors files of ours: arrays, what kind of thing they are, and all that made them.

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

Array = NDArray[np.float32]


def write_tensors(
    path: str | PathLike[str], tensors: Mapping[str, Array], *, kind: str, about: Mapping[str, Any]
) -> None:
    """Write arrays with their kind and their JSON description, whole or not at all."""
    from safetensors.numpy import save_file

    whole = {name: np.ascontiguousarray(array, np.float32) for name, array in tensors.items()}
    text = json.dumps(about, sort_keys=True, ensure_ascii=False)
    with replacing(path) as partial:
        save_file(whole, partial, metadata={"driftscore": kind, "about": text})


def read_tensors(
    path: str | PathLike[str], *, kind: str, needs: Sequence[str]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read the arrays in `needs` and the description of a file of this kind."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FormatError(f"There is no {kind} at {Path(path)}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("driftscore") != kind:
                found = metadata.get("driftscore", "not made by driftscore")
                raise FormatError(f"{Path(path)} is not a driftscore {kind} (it is: {found})")
            tensors = {name: file.get_tensor(name) for name in needs}
            return tensors, json.loads(metadata["about"])
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        raise FormatError(f"{Path(path)} is not a whole {kind} file: {error}") from error
