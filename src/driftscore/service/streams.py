"""`GET /v1/events/stream`: live events as server-sent events of the type `sound`.

A client that was away sends the id of the last event it got (Last-Event-ID, as browsers do), and
continues after it. With a store of a listener, messages of the type `source` say what each source
does, at the start and whenever that changes: whether it gives audio, the labels that are present,
and its last level. They have no id.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from driftscore.errors import DriftscoreError
from driftscore.live.store import SqliteEvents, StoredSource
from driftscore.service.answers import documented
from driftscore.service.live import LiveEvent
from driftscore.service.state import ServiceState
from driftscore.service.work import BusyError

_POLL_S = 0.25
_SOURCES_S = 1.0
"""How often the state of the sources is read."""
_ALIVE_S = 15.0
"""A comment is sent after this time without an event, so that proxies keep the connection."""
_BLOCK = 200
"""Events read at once."""


_TEXT = {"type": "string"}
_MESSAGE = {
    "type": "object",
    "description": "`data` is JSON: an event (sound), a source (source) or an error (problem).",
    "properties": {"id": _TEXT, "event": {"enum": ["sound", "source", "problem"]}, "data": _TEXT},
}


def message(event: LiveEvent) -> str:
    """Return an event as a server-sent event."""
    return f"id: {event.id}\nevent: sound\ndata: {_json(asdict(event))}\n\n"


def source_message(source: StoredSource) -> str:
    """Return what a source does as a server-sent event."""
    return f"event: source\ndata: {_json(asdict(source))}\n\n"


def _json(fields: dict[str, object]) -> str:
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


class SourceChanges:
    """What is new about the sources of a store since it was last asked for."""

    def __init__(self, store: object, only: str = "") -> None:
        self._store = store if isinstance(store, SqliteEvents) else None
        self._only = only
        self._known: dict[str, StoredSource] = {}

    def messages(self) -> list[str]:
        """Return a message for each source that is new or has changed."""
        found = []
        for source in [] if self._store is None else self._store.sources():
            if self._only in ("", source.name) and self._known.get(source.name) != source:
                self._known[source.name] = source
                found.append(source_message(source))
        return found


async def follow(state: ServiceState, after: int | None, source: str) -> AsyncIterator[str]:
    """Yield events as they come, until the client leaves or the service stops."""
    state.subscribers += 1
    try:
        yield "retry: 3000\n\n"
        async for text in _messages(state, after, source):
            yield text
    finally:
        state.subscribers -= 1


async def _messages(state: ServiceState, after: int | None, source: str) -> AsyncIterator[str]:
    quiet, looked, store = 0.0, float("-inf"), state.events
    changes = SourceChanges(store, source)
    last = await asyncio.to_thread(store.newest) if after is None else after
    while not state.stopping:
        try:
            events = await asyncio.to_thread(store.after, last, _BLOCK)
            changed: list[str] = []
            if time.monotonic() - looked >= _SOURCES_S:
                changed, looked = await asyncio.to_thread(changes.messages), time.monotonic()
        except DriftscoreError as error:
            yield f"event: problem\ndata: {_json({'error': str(error)})}\n\n"
            return  # the client connects again after the time of `retry`
        for text in changed:
            yield text
        for event in events:
            last = event.id
            if source in ("", event.source):
                yield message(event)
        quiet = 0.0 if events or changed else quiet + _POLL_S
        if quiet >= _ALIVE_S:
            yield ": alive\n\n"
            quiet = 0.0
        if len(events) < _BLOCK:
            await asyncio.sleep(_POLL_S)


def router(state: ServiceState) -> APIRouter:
    """Return the route of live events."""
    routes = APIRouter(prefix="/v1", tags=["live"])

    @routes.get(
        "/events/stream",
        response_class=StreamingResponse,
        responses={
            **documented(401, 403, 404, 422, 503),
            200: {"content": {"text/event-stream": {"schema": _MESSAGE}}},
        },
    )
    async def stream(
        source: Annotated[str, Query(description="Only events of this source.")] = "",
        last_event_id: Annotated[
            int | None, Header(ge=0, le=2**63 - 1, description="Continue after this event.")
        ] = None,
    ) -> StreamingResponse:
        """Follow live events (`sound`) and what sources do (`source`) as server-sent events."""
        if state.stopping:
            raise BusyError("The service is shutting down; try again in a moment")
        if state.subscribers >= state.limits.subscribers:
            raise BusyError(f"{state.subscribers} clients follow already; try again later", 10)
        events = follow(state, last_event_id, source)
        headers = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    return routes
