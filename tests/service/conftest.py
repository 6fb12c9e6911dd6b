"""Services for the tests: in this process, and as a process of its own."""

import io
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import soundfile
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from driftscore import Audio, Backbone
from driftscore.embedder import Embedder
from driftscore.service.app import create_app
from driftscore.service.settings import ServiceSettings
from driftscore.service.state import ServiceState
from tests.conftest import noise_clip

LOCAL = "http://localhost"
TOKEN = "0123456789abcdef0123456789abcdef"


def sound(audio: Audio, format: str = "WAV", subtype: str | None = None) -> bytes:
    """Return the bytes of a sound file."""
    out = io.BytesIO()
    soundfile.write(out, audio.samples, audio.rate, format=format, subtype=subtype)
    return out.getvalue()


def clip_bytes(seconds: float = 1.0, seed: int = 0) -> bytes:
    """Return a short wav of noise."""
    return sound(noise_clip(seconds, seed=seed))


@contextmanager
def serving(settings: ServiceSettings, base_url: str = LOCAL) -> Iterator[TestClient]:
    """Yield a client of a service in this process, once it is ready."""
    with TestClient(create_app(settings), base_url=base_url) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def state_of(client: TestClient) -> ServiceState:
    """Return the shared state of a service in this process."""
    state = client.app.state.service  # type: ignore[attr-defined]
    assert isinstance(state, ServiceState)
    return state


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something to become true."""
    due = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < due, f"still not true after {seconds} s"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def fake_client(fake: Backbone) -> Iterator[TestClient]:
    """Return a client of a service with the fake model."""
    with serving(ServiceSettings(backbone=Embedder(fake, text_cache=False))) as client:
        yield client


@pytest.fixture(scope="session")
def mini_client(mini: Backbone) -> Iterator[TestClient]:
    """Return a client of a service with the model that comes with driftscore."""
    with serving(ServiceSettings(backbone=Embedder(mini, text_cache=False))) as client:
        yield client


@dataclass(frozen=True)
class Service:
    """A service in a process of its own."""

    process: "subprocess.Popen[str]"
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def memory_mb(self) -> float:
        """Return the resident memory."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) / 1000

    def open_files(self) -> list[str]:
        """Return what the process has open."""
        folder = Path(f"/proc/{self.process.pid}/fd")
        return [os.readlink(entry) for entry in folder.iterdir() if entry.is_symlink()]  # noqa: PTH115


@contextmanager
def started(*options: str, env: dict[str, str] | None = None) -> Iterator[Service]:
    """Start `driftscore serve` at a free port, and yield it once it has an address."""
    command = [sys.executable, "-m", "driftscore", "serve", "--port", "0", *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, line + process.stderr.read()
        yield Service(process, found[0])
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def silence(seconds: float, rate: int = 8000) -> Audio:
    """Return digital silence."""
    return Audio(np.zeros(round(seconds * rate), np.float32), rate)


@contextmanager
def threaded(app: FastAPI) -> Iterator[str]:
    """Serve an application in a thread of this process, and yield its URL once it is ready."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)  # as `serve` does
    config = uvicorn.Config(app, http="h11", ws="none", log_level="warning", lifespan="on")
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    state: ServiceState = app.state.service
    try:
        wait_until(lambda: server.started and not state.reason_not_ready)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        state.stopping = True
        server.should_exit = True
        thread.join()
        listener.close()
