"""The server process: an address, the application, and a clean end on SIGTERM.

On SIGTERM no new connection is accepted, `/readyz` says so, live streams end, and requests that are
in work are answered before the process ends.
"""

import asyncio
import signal
import socket
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import uvicorn

from driftscore.errors import UsageError
from driftscore.scoring.meaning import UnclearWordWarning
from driftscore.service.app import create_app
from driftscore.service.settings import ServiceSettings, is_loopback
from driftscore.service.state import ServiceState
from driftscore.system.process import Interrupted

_DRAIN_S = 30
"""Seconds that requests in work may take after SIGTERM."""
_IDLE_S = 75
"""A connection is kept for longer than a client is asked to wait before it tries again."""
_HEADER_BYTES = 64_000
_BACKLOG = 512


class _Server(uvicorn.Server):
    """A server that tells the service when it is asked to end."""

    def __init__(self, config: uvicorn.Config, state: ServiceState) -> None:
        super().__init__(config)
        self.state = state
        self.signal = 0
        """The signal that ended the process."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop the service; uvicorn then waits for the requests in work."""
        self.signal = self.signal or sig
        self.state.stopping = True
        super().handle_exit(sig, frame)


def serve(settings: ServiceSettings, *, host: str, port: int, report: Callable[[str], None]) -> int:
    """Serve until a signal ends it, and return the exit status."""
    if settings.token is None and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines, so a token is needed: --token-file FILE "
            "(`openssl rand -hex 32` makes one), or use --host 127.0.0.1"
        )
    warnings.simplefilter("ignore", UnclearWordWarning)  # the answer says it, to whom it concerns
    app = create_app(settings)
    state: ServiceState = app.state.service
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,  # its lines would hold the labels of clients
        server_header=False,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        timeout_graceful_shutdown=_DRAIN_S,
        timeout_keep_alive=_IDLE_S,
        proxy_headers=False,
    )
    server = _Server(config, state)
    state.failed = lambda: setattr(server, "should_exit", True)
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise UsageError(
            f"Cannot listen at {host}:{port}: {error.strerror or error}; choose another --host or "
            "--port"
        ) from error
    # Connections inherit it; without it every answer waits 40 ms for an acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    with listener:
        name, port = listener.getsockname()[:2]
        name = f"[{name}]" if ":" in name else name
        report(f"serving at http://{name}:{port} (Ctrl-C ends it)")
        # At its end uvicorn raises the signal again.
        with suppress(Interrupted, KeyboardInterrupt):
            asyncio.run(server.serve(sockets=[listener]))
    if state.failure is not None:
        raise state.failure
    report("stopped")
    return 128 + signal.SIGINT if server.signal == signal.SIGINT else 0
