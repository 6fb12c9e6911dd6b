"""No test touches the network, the real cache or the working directory of who runs it."""

import os
import sys
from pathlib import Path

# One thread: the suite runs beside other work, and OpenMP threads that fight for a core crawl.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pytest
import soundfile

from driftscore import Audio, build_bank, load_backbone

PROJECT = Path(__file__).resolve().parent.parent
LABELS = ("dog bark", "Sea_Waves", "siren")


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    """Give each test a cache folder of its own."""
    monkeypatch.setenv("DRIFTSCORE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def shared():
    """Return the folder of shared material, or skip with the reason."""
    home = Path(os.environ.get("DRIFTSCORE_SHARED", PROJECT.parent / "shared"))
    if not (home / "audio").is_dir():
        pytest.skip(f"SHARED MATERIAL ABSENT: {home} (set DRIFTSCORE_SHARED)")
    return home


@pytest.fixture(scope="session")
def fake():
    return load_backbone("fake")


@pytest.fixture(scope="session")
def bank(fake):
    return build_bank(LABELS, fake)


@pytest.fixture
def rng():
    return np.random.default_rng(20261115)


def noise_clip(seconds: float, rate: int = 16_000, seed: int = 0) -> Audio:
    """Return a clip of coloured noise whose spectrum depends on the seed."""
    rng = np.random.default_rng(seed)
    samples = rng.standard_normal(round(seconds * rate)).astype(np.float32)
    smooth = np.convolve(samples, np.ones(2 + seed % 7) / (2 + seed % 7), mode="same")
    return Audio((0.1 * smooth).astype(np.float32), rate)


@pytest.fixture
def wav(tmp_path):
    """Return a function that writes a clip as a sound file and gives its path."""

    def write(name: str = "clip.wav", seconds: float = 3.0, seed: int = 0, **options) -> str:
        clip = noise_clip(seconds, seed=seed)
        path = tmp_path / name
        soundfile.write(path, clip.samples, clip.rate, **options)
        return str(path)

    return write


@pytest.fixture
def run(capsys, monkeypatch):
    """Return a function that runs the command and gives its status, stdout and stderr."""

    def call(*arguments):
        from driftscore import cli

        monkeypatch.setattr(sys, "argv", ["driftscore", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return stop.value.code or 0, out, err

    return call
