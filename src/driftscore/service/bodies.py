"""Bodies of requests: bounded in size, time and total memory before anything looks at them.

A body that says it is too large is refused before a byte of it is read; one that does not say it is
refused at the first byte beyond the limit. Nothing is spooled to disk.
"""

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftscore.service.answers import SlowBodyError, TooLargeError, answer_of
from driftscore.service.settings import Limits
from driftscore.service.work import BusyError


class BodyLimit:
    """Middleware that bounds the bodies of requests, each and all together."""

    def __init__(self, app: ASGIApp, *, limits: Limits) -> None:
        self.app = app
        self.limits = limits
        self.in_flight = 0
        """Bytes of all bodies that are in memory."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a bounded body, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        stated = Headers(scope=scope).get("content-length", "0")
        if not stated.isdecimal() or int(stated[:20]) > self.limits.body_bytes:
            answer = answer_of(self._too_large())
            answer.headers["Connection"] = "close"
            await answer(scope, receive, send)
            return
        body = _Body(self, receive)
        try:
            await self.app(scope, body.receive, send)
        finally:
            self.in_flight -= body.size

    def take(self, size: int, total: int) -> None:
        """Count a part of a body; refuse it beyond a limit."""
        self.in_flight += size
        if total > self.limits.body_bytes:
            raise self._too_large()
        if self.in_flight > self.limits.in_flight_bytes:
            raise BusyError("Too many large requests at once; try again in a moment", 2)

    def _too_large(self) -> TooLargeError:
        most = self.limits.body_bytes / 1e6
        return TooLargeError(f"The body is larger than {most:g} MB, the most that is allowed")


class _Body:
    """The body of one request while it arrives."""

    def __init__(self, limit: BodyLimit, receive: Receive) -> None:
        self.size = 0
        self._limit = limit
        self._receive = receive
        self._complete = False
        self._due = asyncio.get_running_loop().time() + limit.limits.body_s

    async def receive(self) -> Message:
        """Return the next part; what follows a complete body is a disconnection, at any time."""
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._due):
                message = await self._receive()
        except TimeoutError:
            most = self._limit.limits.body_s
            raise SlowBodyError(f"The body took longer than {most:g} s to arrive") from None
        if message["type"] != "http.request":
            self._complete = True
            return message
        part = len(message.get("body", b""))
        self.size += part
        self._complete = not message.get("more_body", False)
        self._limit.take(part, self.size)
        return message
