"""The application: every route and middleware of the service, made from its settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from driftscore.service import catalogue, health, hub, metrics, page, scoring, streams, vectors
from driftscore.service.answers import add_error_answers
from driftscore.service.bodies import BodyLimit
from driftscore.service.security import Guard, SecurityHeaders
from driftscore.service.settings import ServiceSettings
from driftscore.service.state import ServiceState
from driftscore.version import __version__

_ROUTERS = (
    scoring.router,
    hub.router,
    vectors.router,
    catalogue.router,
    streams.router,
    health.router,
    page.router,
)


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
    add_error_answers(app)
    for router in _ROUTERS:
        app.include_router(router(state))
    figures = CollectorRegistry()
    app.include_router(metrics.router(state, figures))
    # The last one added is the first that a request meets.
    app.add_middleware(BodyLimit, limits=settings.limits)
    app.add_middleware(Guard, token=settings.token)
    app.add_middleware(metrics.Measured, registry=figures)
    app.add_middleware(SecurityHeaders)
    return app
