import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from .small_lab import WriteWav

PROJECT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _no_real_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test may touch the user's cache, data or proxy."""
    monkeypatch.setenv("DRIFTSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DRIFTSCORE_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def shared() -> Path:
    """The folder of recordings that lies beside the project, if it is there."""
    folder = Path(os.environ.get("DRIFTSCORE_SHARED", PROJECT.parent / "shared"))
    if not (folder / "audio" / "manifest.csv").is_file():
        pytest.skip(f"NOT RUN: no recordings at {folder}; set DRIFTSCORE_SHARED")
    return folder


@pytest.fixture
def write_wav() -> WriteWav:
    """Write noise, or given samples, as a wav and return its path."""

    def write(
        path: Path,
        samples: NDArray[np.float64] | NDArray[np.float32] | None = None,
        *,
        seconds: float = 0.5,
        rate: int = 16_000,
        subtype: str = "PCM_16",
        seed: int = 0,
    ) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        if samples is None:
            samples = np.random.default_rng(seed).normal(size=round(seconds * rate)) * 0.1
        soundfile.write(path, samples, rate, subtype=subtype)
        return path

    return write
