"""Metrics in the text format of Prometheus: answers by code, durations, queue, heads, memory.

Paths are those of the routes, never those of requests: labels of clients do not end up here.
"""

import time

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client import generate_latest as text_of
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftscore.service.answers import documented, unexpected
from driftscore.service.state import ServiceState

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


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
            buckets=_SECONDS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and count its answer when it begins."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, begun = time.perf_counter(), False

        async def counted(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                path = _path(scope)
                self.answers.labels(path, str(message["status"])).inc()
                self.seconds.labels(path).observe(time.perf_counter() - start)
            await send(message)

        try:
            await self.app(scope, receive, counted)
        except Exception as error:
            if begun:
                raise
            await unexpected(error)(scope, receive, counted)


def _path(scope: Scope) -> str:
    """Return the path of the route that answers, with its parameters as names."""
    return str(getattr(scope.get("route"), "path", "other"))


def gauges(state: ServiceState, registry: CollectorRegistry) -> None:
    """Add the figures that are read when they are asked for."""
    for name, text, value in (
        ("running", "Requests in work.", lambda: state.work.running),
        ("waiting", "Requests that wait for their turn.", lambda: state.work.waiting),
        ("heads", "Heads that are kept.", lambda: len(state.heads)),
        ("subscribers", "Clients that follow live events.", lambda: state.subscribers),
        ("ready", "1 if work is accepted.", lambda: not state.reason_not_ready),
    ):
        Gauge(f"driftscore_{name}", text, registry=registry).set_function(value)


def router(state: ServiceState, registry: CollectorRegistry) -> APIRouter:
    """Return the route of the metrics."""
    gauges(state, registry)
    routes = APIRouter(tags=["operation"])

    @routes.get(
        "/metrics",
        response_class=Response,
        responses={
            **documented(401, 403),
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        },
    )
    async def metrics() -> Response:
        """Return the metrics for Prometheus."""
        return Response(text_of(registry), media_type=CONTENT_TYPE_LATEST)

    return routes
