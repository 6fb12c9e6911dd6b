"""Bodies of requests: bounded in size, time and total memory before anything looks at them.

A body that says it is too large is refused before a byte of it is read; one that does not say it is
refused at the first byte beyond the limit. Nothing is spooled to disk.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftscore.errors import UsageError
from driftscore.service.answers import (
    FormError,
    SlowBodyError,
    TooLargeError,
    answer_of,
    validation_message,
)
from driftscore.service.settings import Limits
from driftscore.service.work import BusyError

Content = TypeVar("Content", bound=BaseModel)
_MOST_VALUES = 10_000
_MOST_FIELDS = 200
_FIELD_BYTES = 64_000


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
            await answer_of(self._too_large())(scope, receive, send)
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


class _InMemory(MultiPartParser):
    """The multipart parser, with files that never leave memory: a limit bounds the body."""

    spool_max_size = 2**62


@dataclass(frozen=True)
class Upload:
    """A recording as it was sent, with the fields that came beside it."""

    content: bytes
    fields: Mapping[str, list[str]]


async def read_upload(request: Request) -> Upload:
    """Return the recording of a request: the part `file` of a form, or the body itself."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        return Upload(await request.body(), {})
    parser = _InMemory(
        request.headers, request.stream(), max_files=1, max_fields=_MOST_FIELDS,
        max_part_size=_FIELD_BYTES,
    )  # fmt: skip
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise UsageError(f"The form cannot be read: {error.message}") from error
    content: bytes | None = None
    fields: dict[str, list[str]] = {}
    async with _closing(form):
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                content = await value.read()
                if name != "file":
                    raise UsageError(f"The recording must be the part 'file', not {name[:40]!r}")
            else:
                fields.setdefault(name, []).append(value)
    if content is None:
        raise UsageError("The form has no recording; send it as the part 'file'")
    return Upload(content, fields)


@asynccontextmanager
async def _closing(form: FormData) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await form.close()


def parse_json(body: bytes) -> object:
    """Return the JSON value of a body; what would take far more memory than the body is refused.

    A recording in base64 has none of the counted characters, so a real request has few of them.
    """
    if sum(map(body.count, (b"[", b"{", b","))) > _MOST_VALUES:
        raise UsageError(f"The JSON has more than {_MOST_VALUES} values")
    try:
        value: object = json.loads(body, parse_constant=_refuse)
        if b"\\u" in body:  # half of a surrogate pair is no text, and cannot be answered either
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise UsageError(f"The body is not JSON: {what}") from error


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def parse_model(body: bytes, model: type[Content]) -> Content:
    """Return the JSON body of a request in the form that a model describes; takes its time."""
    try:
        return model.model_validate(parse_json(body))
    except ValidationError as error:
        found = "; ".join(validation_message(one) for one in error.errors()[:3])
        raise FormError(found) from error


def json_body(model: type[BaseModel]) -> dict[str, object]:
    """Return the description of a JSON body for the OpenAPI document."""
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}
