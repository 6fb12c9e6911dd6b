"""No test touches the network, the real cache or the working directory of who runs it."""

import hashlib
import importlib
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

# One thread: the suite runs beside other work, and OpenMP threads that compete are slow.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, settings

from driftscore import Audio, Backbone, ClassBank, build_bank, load_backbone
from driftscore.audio.recordings import Recording, Samples, Window, sounding_windows
from driftscore.backbones import Features
from driftscore.backbones.vectors import Matrix, Vector, unit, unit_mean
from driftscore.scoring.calibration import Calibration
from driftscore.scoring.rules import Needs, find_rule
from driftscore.system import plugins as registry

# The same examples in every run, however long they take: `make fuzz` looks for new ones.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize="DRIFTSCORE_FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("suite")

PROJECT = Path(__file__).resolve().parent.parent
LABELS = ("dog bark", "Sea_Waves", "siren")
Run = Callable[..., tuple[int, str, str]]
"""The fixture `run`: arguments of the command -> exit status, stdout, stderr."""
Speak = Callable[..., tuple[int, str, str]]
"""The fixture `speak`: an encoding, arguments of the command -> exit status, stdout, stderr."""
Install = Callable[[str, str, str], None]
"""The fixture `install`: a module's name, its source, the text of its entry_points.txt."""
WriteWav = Callable[..., str]
"""The fixture `wav`: name, seconds and seed of a clip -> the path of its file."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of one file in one process, so that what they start is started once."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.relative_to(PROJECT).as_posix()))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file whose tests will not be run: every process would import all of them."""
    if not collection_path.match("test_*.py"):
        return None
    source, chosen = collection_path.read_text(encoding="utf-8"), config.option.markexpr
    only_slow = re.search(r"^pytestmark = .*mark\.slow", source, re.MULTILINE) is not None
    return (
        (chosen == "slow" and "mark.slow" not in source)
        or (chosen == "not slow" and only_slow)
        or None
    )


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.option.markexpr == "not slow":
        terminalreporter.write_line("The slow tests were not run: make test-slow")


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a cache folder of its own."""
    monkeypatch.setenv("DRIFTSCORE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of shared material, or skip with the reason."""
    home = Path(os.environ.get("DRIFTSCORE_SHARED", PROJECT.parent / "shared"))
    if not (home / "audio").is_dir():
        pytest.skip(f"SHARED MATERIAL ABSENT: {home} (set DRIFTSCORE_SHARED)")
    return home


@pytest.fixture(scope="session")
def fake() -> Backbone:
    return load_backbone("fake")


@pytest.fixture(scope="session")
def mini() -> Backbone:
    return load_backbone("mini")


@pytest.fixture(scope="session")
def bank(fake: Backbone) -> ClassBank:
    return build_bank(LABELS, fake)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261115)


class Lazily:
    """A module that is imported when a test uses it; without its library a file is skipped.

    Every process of pytest-xdist collects all files: torch, transformers and mteb took half of it.
    """

    def __init__(self, module: str, *, library: str = "") -> None:
        self._module = module
        if find_spec(library or module) is None:
            pytest.skip(f"{(library or module).upper()} IS NOT INSTALLED", allow_module_level=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)


def restore_sigint() -> None:
    """Let a child process be interrupted also where the suite ignores it: `nohup make test &`."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def noise_clip(seconds: float, rate: int = 16_000, seed: int = 0) -> Audio:
    """Return a clip of coloured noise whose spectrum depends on the seed."""
    rng = np.random.default_rng(seed)
    samples = rng.standard_normal(round(seconds * rate)).astype(np.float32)
    smooth = np.convolve(samples, np.ones(2 + seed % 7) / (2 + seed % 7), mode="same")
    return Audio((0.1 * smooth).astype(np.float32), rate)


def changing_noise(*seeds: int) -> Audio:
    """Return four seconds of each of some noises: the fake model finds events in it."""
    parts = [noise_clip(4.0, seed=seed).samples for seed in seeds]
    return Audio(np.concatenate(parts), 16_000)


def embed_windows(recording: Recording, backbone: Backbone) -> Iterator[tuple[Window, Vector]]:
    """Yield each window of a recording with its embedding, one after another: the reference."""
    for window in sounding_windows(recording, rate=backbone.rate, seconds=backbone.seconds):
        yield window, backbone.embed_audio([Audio(window.samples, backbone.rate)])[0]


def embed_recording(recording: Recording, backbone: Backbone) -> Vector:
    """Return the embedding of a recording, one window after another: the reference."""
    return unit_mean(row for _, row in embed_windows(recording, backbone))


class Counting(Backbone):
    """Another backbone that counts the windows and notes the texts that it encodes."""

    def __init__(self, inner: Backbone) -> None:
        self.inner = inner
        self.name, self.fingerprint = inner.name, inner.fingerprint
        self.dim, self.rate, self.seconds = inner.dim, inner.rate, inner.seconds
        self.key = inner.cache_key
        self.windows = 0
        self.texts: list[str] = []
        self._lock = Lock()

    @property
    def cache_key(self) -> str:
        return self.key

    def features(self, samples: Samples) -> Features:
        return self.inner.features(samples)

    def encode(self, features: Features) -> Vector:
        with self._lock:
            self.windows += 1
        return self.inner.encode(features)

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        self.texts += texts
        return self.inner.embed_text(texts)


class Hashed(Backbone):
    """A model that makes an embedding of the digest of a text: quick, with thousands of texts."""

    name, dim, rate, seconds = "hashed", 64, 8000, 1.0

    def __init__(self, salt: str = "") -> None:
        self.salt = salt
        self.fingerprint = f"hashed/{salt}"

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        digests = b"".join(hashlib.sha512((self.salt + t).encode()).digest() for t in texts)
        return unit(np.frombuffer(digests, np.int8).reshape(-1, 64).astype(np.float32) + 0.5)

    def encode(self, features: Features) -> Vector:
        raise NotImplementedError


def leaning_clips(dim: int) -> Matrix:
    """Return 300 unit embeddings that lean towards a common direction, as real ones do."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((300, dim)) + 2 * rng.standard_normal(dim)
    return unit(rows.astype(np.float32))


def supplies(rule: str, backbone: Backbone) -> tuple[dict[str, Any], Calibration | None]:
    """Return the embeddings that a rule is given as settings, and its calibration."""
    found = find_rule(rule)
    rng = np.random.default_rng(1)
    clips = leaning_clips(backbone.dim)
    known = {
        "noise": (Needs.NOISE, clips[:40]),
        "pool": (Needs.POOL, clips[:40]),
        "background": (Needs.BACKGROUND, clips[:1]),
    }
    settings = {name: rows for name, (need, rows) in known.items() if need in found.needs}
    if Needs.CALIBRATION not in found.needs:
        return settings, None
    made_by = {"backbone": backbone.name, "fingerprint": backbone.fingerprint}
    noise = 0.05 * rng.standard_normal((200, backbone.dim))
    noisy = unit((clips[:200] + noise).astype(np.float32))
    return settings, Calibration(clips[:200], noisy, made_by=made_by)


@pytest.fixture
def counting(fake: Backbone) -> Counting:
    """Return the fake model, counting what it encodes."""
    return Counting(fake)


@pytest.fixture
def wav(tmp_path: Path) -> WriteWav:
    """Return a function that writes a clip as a sound file and gives its path."""

    def write(name: str = "clip.wav", seconds: float = 3.0, seed: int = 0, **options: str) -> str:
        clip = noise_clip(seconds, seed=seed)
        path = tmp_path / name
        soundfile.write(path, clip.samples, clip.rate, **options)
        return str(path)

    return write


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that installs a package for one test: its module and its entry points."""

    def add(module: str, source: str, entry_points: str) -> None:
        (tmp_path / f"{module}.py").write_text(source)
        about = tmp_path / f"{module}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(entry_points)
        monkeypatch.syspath_prepend(str(tmp_path))
        registry._entry_points.cache_clear()

    yield add
    registry._entry_points.cache_clear()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the command and gives its status, stdout and stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        from driftscore.cli.app import main

        monkeypatch.setattr(sys, "argv", ["driftscore", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return int(stop.value.code or 0), out, err

    return call


@pytest.fixture
def speak(monkeypatch: pytest.MonkeyPatch) -> Speak:
    """Return a function that runs the command with streams of an encoding."""
    from driftscore.cli.app import main

    monkeypatch.setenv("COLUMNS", "400")

    def call(encoding: str, *arguments: object) -> tuple[int, str, str]:
        streams = [io.BytesIO(), io.BytesIO()]
        for stream, name in zip(streams, ("stdout", "stderr"), strict=True):
            text = io.TextIOWrapper(stream, encoding=encoding, errors="strict", write_through=True)
            monkeypatch.setattr(sys, name, text)
        monkeypatch.setattr(sys, "argv", ["driftscore", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = (stream.getvalue().decode(encoding) for stream in streams)
        assert "Traceback" not in err
        assert "unexpected" not in err
        return int(stop.value.code or 0), out, err

    return call
