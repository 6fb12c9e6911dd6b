"""A random generator from a key: the same key gives the same draws on any machine.

The key is whatever identifies the work (dataset, noise, clip, seed), so that order, retries and
the number of workers change nothing.
"""

import hashlib
import json

import numpy as np


def generator(*key: str | int | float | None) -> np.random.Generator:
    """Return the generator that belongs to `key`."""
    text = json.dumps(key, ensure_ascii=False, allow_nan=False)
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))
