"""Settings of the service as values: what is served, to whom, and within which limits."""

import ipaddress
from dataclasses import dataclass, field

from driftscore.backbones import DEFAULT_BACKBONE
from driftscore.decisions import DecisionStore
from driftscore.embedder import Embedder
from driftscore.errors import UsageError
from driftscore.service.page_archive import OpenedArchive
from driftscore.service.page_opened import OpenedRecording

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8765
MIN_TOKEN_CHARS = 16
"""Characters that a token needs; `openssl rand -hex 32` gives 64."""


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, and what all of them may hold at once.

    Attributes:
        body_bytes: the largest body of a request.
        in_flight_bytes: what the bodies of all requests may take together.
        body_s: the longest that a client may take to send its body, in seconds.
        seconds: the longest recording.
        decoded_bytes: the largest recording when it is decoded: 4 bytes per sample and channel.
        labels: the most labels of a request.
        label_chars: the longest label, prompt template or text.
        texts: the most texts that a head is made of: 209 per label with the rule das, else few.
        inputs: the most recordings or texts of a request for embeddings, and examples of a head.
        subscribers: the most clients that follow live events at the same time.

    """

    body_bytes: int = 32_000_000
    in_flight_bytes: int = 256_000_000
    body_s: float = 30.0
    seconds: float = 600.0
    decoded_bytes: int = 256_000_000
    labels: int = 100
    label_chars: int = 200
    texts: int = 10_500
    inputs: int = 64
    subscribers: int = 32

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise UsageError(f"The limit {name} must be positive, got {value!r}")


@dataclass(frozen=True)
class ServiceSettings:
    """What the service works with.

    Attributes:
        backbone: the name or path of the model, or an embedder that has it loaded.
        calibration: a calibration of the model by its path, "none", or None for its own.
        limits: what a request may ask for.
        queue: requests that may wait for their turn; one more is answered with 503.
        heads: label sets whose heads are kept.
        token: what a client has to send; None serves loopback addresses only.
        event_store: where live events are read from; None for nowhere.
        audit: where decisions are recorded; None for nowhere.
        opened: a recording that the page shows with its events; None for none.
        archive: windows that the page searches; None for none.

    """

    backbone: str | Embedder = DEFAULT_BACKBONE
    calibration: str | None = None
    limits: Limits = field(default_factory=Limits)
    queue: int = 32
    heads: int = 64
    token: str | None = field(default=None, repr=False)
    event_store: DecisionStore | None = None
    audit: DecisionStore | None = None
    opened: OpenedRecording | None = None
    archive: OpenedArchive | None = None

    def __post_init__(self) -> None:
        token = self.token
        if token is None:
            return
        if len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable():
            raise UsageError(
                f"A token must have at least {MIN_TOKEN_CHARS} printable ASCII characters, got "
                f"{len(token)}; `openssl rand -hex 32` makes one"
            )
        if " " in token:
            raise UsageError("A token must not contain spaces; `openssl rand -hex 32` makes one")


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
