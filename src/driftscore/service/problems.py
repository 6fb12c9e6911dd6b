"""Errors as answers: one sentence in JSON, as Hugging Face clients expect it: {"error": "..."}."""

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException

from driftscore.errors import AudioError, AuditError, DriftscoreError, LimitError, UsageError
from driftscore.service.uploads import NAME
from driftscore.service.work import BusyError

Content = TypeVar("Content", bound=BaseModel)
Given = TypeVar("Given")


class Problem(BaseModel):
    """Why a request could not be answered."""

    error: str = Field(description="What is wrong, what was given and what to do, in words.")


_STATUSES = {LimitError: 413, AudioError: 422, UsageError: 400}
"""The status of each kind of error; the first that fits. Every other error is one of ours: 500."""
_MEANINGS = {
    400: "The request is wrong; the message says how.",
    401: "The token is missing or wrong.",
    403: "A page of another origin may not use the service.",
    404: "There is no such thing.",
    408: "The body took too long to arrive.",
    413: "The body or the recording is too large or too long.",
    415: "The body is not a sound file in a known format.",
    422: "The recording cannot be decoded, or a value has the wrong form.",
    503: "The service is busy or not ready; Retry-After says when to try again.",
}


def documented(*statuses: int) -> dict[int | str, dict[str, object]]:
    """Return the error answers of a route for the OpenAPI document."""
    return {status: {"model": Problem, "description": _MEANINGS[status]} for status in statuses}


def problem(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return an answer that says what is wrong."""
    return JSONResponse({"error": message}, status, dict(headers or {}))


def status_of(error: DriftscoreError) -> int:
    """Return the status with which an error is answered."""
    return next((code for kind, code in _STATUSES.items() if isinstance(error, kind)), 500)


async def handle(_: Request, error: Exception) -> JSONResponse:
    """Return the answer for an error of a route."""
    return answer_of(error)


def answer_of(error: Exception) -> JSONResponse:
    """Return the answer for an error; the traceback of one that no one foresaw goes to stderr."""
    if isinstance(error, RequestValidationError):
        return problem(422, _in_words(error.errors()))
    if isinstance(error, AuditError):
        print(f"error: {error}", file=sys.stderr)  # it names folders, which clients need not know
        reason = "The decision cannot be recorded, so it is not given; try again later"
        error = BusyError(reason, 60)
    if isinstance(error, HTTPException):
        return problem(error.status_code, str(error.detail), error.headers)
    if isinstance(error, DriftscoreError):
        return problem(status_of(error), str(error).replace("<audio>", NAME))
    traceback.print_exception(error, file=sys.stderr)
    return problem(500, "An unexpected error in driftscore; the log of the service has it")


def parse(validate: Callable[[Given], Content], values: Given) -> Content:
    """Return values of a request as a model validates them."""
    try:
        return validate(values)
    except ValidationError as error:
        raise HTTPException(422, _in_words(error.errors())) from error


def _in_words(errors: Sequence[ErrorDetails]) -> str:
    """Return the first errors of pydantic as words: where each is, and what is wrong."""
    messages = []
    for error in errors[:3]:
        where = [str(part)[:40] for part in error["loc"] if part not in ("body", "query")]
        messages.append(": ".join([".".join(where), error["msg"]] if where else [error["msg"]]))
    return "; ".join(messages)
