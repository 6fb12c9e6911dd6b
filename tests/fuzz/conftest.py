"""The world of the fuzz suite, and the numbers at the end of a run."""

from functools import lru_cache

import pytest

from driftscore.backbones import Backbone, load_backbone
from driftscore.engines import protocol

from .rule import COUNTS, KINDS
from .world import World, build_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Return the world, which is made once."""
    return build_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(autouse=True)
def no_network_and_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no case reach the network, and load each model once."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(101, "Network is unreachable")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(f"socket.socket.{name}", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr(protocol, "load_backbone", _load)


@lru_cache(maxsize=4)
def _load_once(spec: str) -> Backbone:
    return load_backbone(spec)


def _load(spec: str, *, runtime: str | None = None) -> Backbone:
    if spec in ("fake", "mini") and runtime is None:
        return _load_once(spec)
    return load_backbone(spec, runtime=runtime)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many cases were run, and how many broke the rule."""
    if COUNTS["cases"]:
        numbers = ", ".join(f"{COUNTS[kind]} {kind}" for kind in KINDS)
        terminalreporter.write_line(f"fuzz: {numbers}")
