"""The page: its files and the endpoints that only the page uses."""

from fastapi import APIRouter

from driftscore.service.state import ServiceState


def router(state: ServiceState) -> APIRouter:
    """Return the routes of the page."""
    return APIRouter(include_in_schema=False)
