"""The application: every route and middleware of the service, its health checks and metrics.

Metrics are in the text format of Prometheus: answers by code, durations, queue, heads. Their paths
are those of the routes, never those of requests: labels of clients do not end up there.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftscore.errors import DriftscoreError
from driftscore.service import catalogue, embeddings, huggingface, page, scoring, streams
from driftscore.service.bodies import BodyLimit
from driftscore.service.problems import answer_of, documented, handle
from driftscore.service.security import Guard, SecurityHeaders
from driftscore.service.settings import ServiceSettings
from driftscore.service.state import ServiceState, State
from driftscore.service.work import BusyError
from driftscore.version import __version__

operation = APIRouter(tags=["operation"])


# Is the process alive, is it ready for work: two checks, since they ask for different cures.
@operation.get("/livez")
async def livez() -> dict[str, str]:
    """Answer as long as the process works; if it does not, restart it."""
    return {"status": "ok"}


@operation.get("/readyz", responses=documented(503))
async def readyz(state: State) -> dict[str, str]:
    """Answer 200 if work is accepted, 503 while the model is loaded or the service stops."""
    if reason := state.reason_not_ready:
        raise BusyError(reason)
    return {"status": "ok"}


@operation.get(
    "/metrics",
    response_class=Response,
    responses={
        **documented(401, 403),
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
    },
)
async def metrics(request: Request) -> Response:
    """Return the metrics for Prometheus."""
    return Response(generate_latest(request.app.state.metrics), media_type=CONTENT_TYPE_LATEST)


def create_app(settings: ServiceSettings) -> FastAPI:
    """Return the application; its state is `app.state.service`."""
    state = ServiceState(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        state.start()
        yield
        state.close()

    app = FastAPI(
        title="driftscore",
        version=__version__,
        description="Zero-shot audio classification that keeps working in noise.",
        docs_url=None,  # the pages of FastAPI load scripts from a CDN
        redoc_url=None,
        lifespan=lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.service = state
    app.state.metrics = registry = CollectorRegistry()
    for name, text, value in (
        ("running", "Requests in work.", lambda: state.work.admitted - state.work.waiting),
        ("waiting", "Requests that wait for their turn.", lambda: state.work.waiting),
        ("heads", "Heads that are kept.", lambda: len(state.heads)),
        ("subscribers", "Clients that follow live events.", lambda: state.subscribers),
        ("ready", "1 if work is accepted.", lambda: not state.reason_not_ready),
    ):
        Gauge(f"driftscore_{name}", text, registry=registry).set_function(value)
    for kind in (DriftscoreError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, handle)
    for room in (scoring, huggingface, embeddings, catalogue, streams):
        app.include_router(room.routes)
    app.include_router(operation)
    app.include_router(page.routes)
    # The last one added is the first that a request meets.
    app.add_middleware(BodyLimit, limits=settings.limits)
    app.add_middleware(Guard, token=settings.token)
    app.add_middleware(Measured, registry=registry)
    app.add_middleware(SecurityHeaders)
    return app


class Measured:
    """Middleware that counts and times answers, and turns what no one foresaw into a 500."""

    def __init__(self, app: ASGIApp, *, registry: CollectorRegistry) -> None:
        self.app = app
        self.answers = Counter(
            "driftscore_answers", "Answers by path and code.", ("path", "code"), registry=registry
        )
        self.seconds = Histogram(
            "driftscore_answer_seconds",
            "Time until an answer began.",
            ("path",),
            registry=registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and count its answer when it begins."""
        start, begun = time.perf_counter(), False

        async def counted(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                path = str(getattr(scope.get("route"), "path", "other"))  # parameters by name
                self.answers.labels(path, str(message["status"])).inc()
                self.seconds.labels(path).observe(time.perf_counter() - start)
            await send(message)

        try:
            await self.app(scope, receive, counted)
        except Exception as error:
            if begun or scope["type"] != "http":
                raise
            await answer_of(error)(scope, receive, counted)
