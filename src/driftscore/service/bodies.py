"""Bodies of requests: bounded in size, time and total memory before anything looks at them.

A body that says it is too large is refused before a byte of it is read; one that does not say it is
refused at the first byte beyond the limit. Nothing is spooled to disk.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import BaseModel
from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftscore.errors import UsageError
from driftscore.service.problems import Content, answer_of, parse
from driftscore.service.settings import Limits
from driftscore.service.work import BusyError

_MAX_VALUES = 10_000
_MAX_FIELDS = 200
_FIELD_BYTES = 64_000
_EXAMPLES = "examples:"
"""Begins the name of a part that is an example; the label follows."""


@dataclass(eq=False)
class BodyLimit:
    """Middleware that bounds the bodies of requests, each and all together."""

    app: ASGIApp
    limits: Limits
    in_flight: int = 0
    """Bytes of all bodies that are in memory."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a bounded body, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limits = self.limits
        most = f"{limits.body_bytes / 1e6:g} MB, the most that is allowed"
        too_large = HTTPException(413, f"The body is larger than {most}")
        stated = Headers(scope=scope).get("content-length", "0")
        if not stated.isdecimal() or int(stated[:20]) > limits.body_bytes:
            await answer_of(too_large)(scope, receive, send)
            return
        size, complete = 0, False
        due = asyncio.get_running_loop().time() + limits.body_s

        async def bounded() -> Message:
            """Return the next part; a disconnection may follow a complete body at any time."""
            nonlocal size, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(due):
                    message = await receive()
            except TimeoutError:
                late = f"The body took longer than {limits.body_s:g} s to arrive"
                raise HTTPException(408, late) from None
            complete = message["type"] != "http.request" or not message.get("more_body", False)
            part = len(message.get("body", b""))
            size += part
            self.in_flight += part
            if size > limits.body_bytes:
                raise too_large
            if self.in_flight > limits.in_flight_bytes:
                raise BusyError("Too many large requests at once; try again in a moment", 2)
            return message

        try:
            await self.app(scope, bounded, send)
        finally:
            self.in_flight -= size


class _InMemory(MultiPartParser):
    """The multipart parser, with files that never leave memory: a limit bounds the body."""

    spool_max_size = 2**62


class Upload(NamedTuple):
    """What a request brings."""

    content: bytes
    """Of the recording."""
    fields: Mapping[str, list[str]] = {}
    """Of the form that it was a part of."""
    examples: Sequence[tuple[str, str, bytes]] = ()
    """Label, name and content of each example."""


async def read_upload(request: Request, *, max_examples: int) -> Upload:
    """Return the recording of a request: the part `file` of its form, or the body itself.

    Parts that are called `examples:doorbell` are examples of that label.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        return Upload(await request.body())
    parser = _InMemory(
        request.headers, request.stream(), max_files=1 + max_examples, max_fields=_MAX_FIELDS,
        max_part_size=_FIELD_BYTES,
    )  # fmt: skip
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise UsageError(f"The form cannot be read: {error.message}") from error
    contents: list[bytes] = []
    fields: dict[str, list[str]] = {}
    examples: list[tuple[str, str, bytes]] = []
    try:
        for name, value in form.multi_items():
            if not isinstance(value, UploadFile):
                fields.setdefault(name, []).append(value)
            elif name == "file":
                contents.append(await value.read())
            elif name.startswith(_EXAMPLES):
                label = name.removeprefix(_EXAMPLES)
                examples.append((label, value.filename or "an example", await value.read()))
            else:
                raise UsageError(
                    "A file must be the part 'file' (the recording) or 'examples:LABEL', not "
                    f"{name[:40]!r}"
                )
    finally:
        await form.close()
    if len(contents) != 1:
        count = "several recordings" if contents else "no recording"
        raise UsageError(f"The form has {count}; send one, as the part 'file'")
    return Upload(contents[0], fields, examples)


def parse_json(model: type[Content], body: bytes) -> Content:
    """Return a body in the form that a model describes.

    What would take far more memory than the body is refused. A recording in base64 has none of the
    counted characters, so a real request has few of them.
    """
    if sum(map(body.count, (b"[", b"{", b","))) > _MAX_VALUES:
        raise UsageError(f"The JSON has more than {_MAX_VALUES} values")
    return parse(model.model_validate_json, body)


def json_body(model: type[BaseModel], **others: object) -> dict[str, object]:
    """Return the description of a JSON body for the OpenAPI document; others by their type."""
    content = {"application/json": {"schema": model.model_json_schema()}, **others}
    return {"requestBody": {"required": True, "content": content}}
