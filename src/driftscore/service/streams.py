"""`GET /v1/events/stream`: live events as server-sent events of the type `sound`.

A client that was away sends the id of the last event it got (Last-Event-ID, as browsers do), and
continues after it. With a store of a listener, messages of the type `source` say what each source
does, at the start and whenever that changes: whether it gives audio, the labels that are present,
and its last level. They have no id.
"""

import json
import time
from asyncio import sleep, to_thread
from collections.abc import AsyncIterator, Mapping
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from driftscore.decisions.records import StoredEvent, StoredSource
from driftscore.errors import DriftscoreError
from driftscore.service.problems import documented
from driftscore.service.state import ServiceState, State
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
    state: State,
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
    messages = follow(state, last_event_id, source)
    headers = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
    return StreamingResponse(messages, media_type="text/event-stream", headers=headers)


async def follow(state: ServiceState, last: int | None, source: str) -> AsyncIterator[str]:
    """Yield messages as events come, until the client leaves or the service stops."""
    state.subscribers += 1
    store, quiet, looked = state.events, 0.0, float("-inf")
    sources: dict[str, StoredSource] = {}
    try:
        yield "retry: 3000\n\n"
        while not state.stopping:
            events: list[StoredEvent] = []
            messages = []
            try:
                if store is not None:
                    if last is None:
                        last = await to_thread(store.newest)
                    events = await to_thread(store.after, last, _BLOCK)
                    if time.monotonic() - looked >= _SOURCES_S:
                        for one in await to_thread(store.sources):
                            if source in ("", one.name) and sources.get(one.name) != one:
                                sources[one.name] = one
                                messages.append(_message("source", vars(one)))
                        looked = time.monotonic()
            except DriftscoreError as error:
                yield _message("problem", {"error": str(error)})
                return  # the client connects again after the time of `retry`
            for event in events:
                last = event.id
                if source in ("", event.source):
                    messages.append(f"id: {event.id}\n{_message('sound', event.summary())}")
            for message in messages:
                yield message
            quiet = 0.0 if messages else quiet + _POLL_S
            if quiet >= _ALIVE_S:
                yield ": alive\n\n"
                quiet = 0.0
            if len(events) < _BLOCK:
                await sleep(_POLL_S)
    finally:
        state.subscribers -= 1


def _message(kind: str, fields: Mapping[str, object]) -> str:
    """Return a server-sent event; an id may stand before it."""
    return f"event: {kind}\ndata: {json.dumps(fields, ensure_ascii=False, allow_nan=False)}\n\n"
