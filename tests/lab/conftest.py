import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

PROJECT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _no_real_places(monkeypatch, tmp_path):
    """No test may touch the user's cache, data or proxy."""
    monkeypatch.setenv("DRIFTSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DRIFTSCORE_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def shared():
    """The folder of recordings that lies beside the project, if it is there."""
    folder = Path(os.environ.get("DRIFTSCORE_SHARED", PROJECT.parent / "shared"))
    if not (folder / "audio" / "manifest.csv").is_file():
        pytest.skip(f"NOT RUN: no recordings at {folder}; set DRIFTSCORE_SHARED")
    return folder


@pytest.fixture
def write_wav():
    """Write noise, or given samples, as a wav and return its path."""

    def write(path, samples=None, *, seconds=0.5, rate=16_000, subtype="PCM_16", seed=0):
        path.parent.mkdir(parents=True, exist_ok=True)
        if samples is None:
            samples = np.random.default_rng(seed).normal(size=round(seconds * rate)) * 0.1
        soundfile.write(path, samples, rate, subtype=subtype)
        return path

    return write
