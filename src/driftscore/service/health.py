"""Is the process alive, is it ready for work: two checks, since they ask for different cures."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from driftscore.service.answers import documented, problem
from driftscore.service.state import ServiceState


class Health(BaseModel):
    """That all is well."""

    status: str = "ok"


def router(state: ServiceState) -> APIRouter:
    """Return the routes of the health checks."""
    routes = APIRouter(tags=["operation"])

    @routes.get("/livez", response_model=Health)
    async def livez() -> JSONResponse:
        """Answer as long as the process works; if it does not, restart it."""
        return JSONResponse({"status": "ok"})

    @routes.get("/readyz", response_model=Health, responses=documented(503))
    async def readyz() -> JSONResponse:
        """Answer 200 if work is accepted, 503 while the model is loaded or the service stops."""
        if reason := state.reason_not_ready:
            return problem(503, reason, {"Retry-After": "1"})
        return JSONResponse({"status": "ok"})

    return routes
