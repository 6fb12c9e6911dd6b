"""What the routes of the service share: the model, the heads, the queue, the limits, the metrics.

The model is loaded in a thread when the service starts. Until then, and again while it shuts down,
the service is alive but not ready, and work is refused with the time after which to try again.
"""

import uuid
from collections.abc import Awaitable, Callable
from functools import wraps
from threading import Thread
from typing import Annotated, ParamSpec, TypeVar, cast

from fastapi import Depends, Request, Response

from driftscore.audio.recordings import Audio
from driftscore.embedder import Embedder
from driftscore.engines.protocol import thread_count
from driftscore.errors import DriftscoreError
from driftscore.service import uploads
from driftscore.service.heads import PROBE, HeadCache
from driftscore.service.memory import MemoryStore
from driftscore.service.settings import ServiceSettings
from driftscore.service.work import BusyError, WorkQueue
from driftscore.text.cache import MemoryTextCache

Arguments = ParamSpec("Arguments")
Outcome = TypeVar("Outcome")


class ServiceState:
    """The shared objects of one running service."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.limits, self.audit = settings.limits, settings.audit
        self.events, self.opened, self.archive = (
            settings.event_store, settings.opened, settings.archive,
        )  # fmt: skip
        embedder = settings.backbone
        if not isinstance(embedder, Embedder):
            embedder = Embedder(embedder, text_cache=False)
        if embedder.text_cache is None:  # labels of strangers are not kept on disk
            embedder.text_cache = MemoryTextCache()
        self.embedder = embedder
        self.heads = HeadCache(embedder, settings)
        """Of label sets; used only in a thread of `run`."""
        self.clips = MemoryStore[Audio](
            "recording", max_count=32, max_bytes=256_000_000, expiry_s=30 * 60.0
        )
        """Recordings of the page."""
        self.work = WorkQueue(workers=thread_count(embedder.threads), waiting=settings.queue)
        self.subscribers = 0
        """Clients that follow live events."""
        self.failure: DriftscoreError | None = None
        """Why the model could not be loaded."""
        self.failed: Callable[[], None] = lambda: None
        """Called when the model could not be loaded."""
        self.loaded = False
        self.stopping = False
        """Whether no more work is taken; what is running may finish."""

    @property
    def reason_not_ready(self) -> str:
        """Why work is refused for now; empty if the service is ready."""
        if self.stopping:
            return "The service is shutting down"
        if self.failure is not None:
            return f"The model cannot be loaded: {self.failure}"
        return "" if self.loaded else "The model is being loaded"

    def start(self) -> None:
        """Load the model in a thread of its own."""

        def load() -> None:
            try:
                self.embedder.start()
                if self.archive is not None:
                    self.archive.check(self.embedder.backbone)
                self.heads.get(PROBE)  # the text side as well
                self.loaded = True
            except DriftscoreError as error:
                self.failure = error
                self.failed()

        Thread(target=load, name="driftscore-load", daemon=True).start()

    def close(self) -> None:
        """Finish what is running, and end all threads."""
        self.stopping = True
        self.work.close()
        self.embedder.close()
        if self.audit is not None:
            self.audit.close()

    def decode(self, content: bytes) -> Audio:
        """Return the samples of a sound file at the model's rate; only in a thread of `run`."""
        return uploads.decode(content, rate=self.embedder.backbone.rate, limits=self.limits)

    def name_request(self, path: str, response: Response) -> str:
        """Name a request in the audit and in its answer; the name is empty without an audit."""
        if self.audit is None:
            return ""
        number = uuid.uuid4().hex
        response.headers["X-Request-Id"] = number
        return f"{path} {number}"

    def check_ready(self) -> None:
        """Refuse a request while the service is not ready."""
        if reason := self.reason_not_ready:
            raise BusyError(f"{reason}; try again in a moment")

    def check_admission(self) -> None:
        """Refuse a request before its body is read: while the service is not ready or too busy."""
        self.check_ready()
        self.work.check_room()

    async def run(self, function: Callable[[], Outcome]) -> Outcome:
        """Run a function in the queue; refuse it while the service is not ready or too busy."""
        self.check_ready()
        return await self.work.run(function)


async def service_state(request: Request) -> ServiceState:
    """Return the state of the service that a request came to."""
    return request.app.state.service


State = Annotated[ServiceState, Depends(service_state)]
"""The parameter by which a route gets the state of its service."""


async def admitted_body(request: Request, state: State) -> bytes:
    """Return the body of a request; it is not read while the service is not ready or too busy."""
    state.check_admission()
    return await request.body()


Body = Annotated[bytes, Depends(admitted_body)]
"""The parameter by which a route gets the body of its request."""


def queued(route: Callable[Arguments, Outcome]) -> Callable[Arguments, Awaitable[Outcome]]:
    """Run a route in a thread of the queue; it has the parameter `state`."""

    @wraps(route)
    async def run(*values: Arguments.args, **named: Arguments.kwargs) -> Outcome:
        state = cast(ServiceState, named["state"])
        return await state.run(lambda: route(*values, **named))

    return run
