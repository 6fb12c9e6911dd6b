"""Errors as answers: one sentence in JSON, as Hugging Face clients expect it: {"error": "..."}."""

import sys
import traceback
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from driftscore.errors import AudioError, DriftscoreError, LimitError, UsageError
from driftscore.service.heads import UnknownHeadError
from driftscore.service.recordings import NAME, NotSoundError
from driftscore.service.work import BusyError


class Problem(BaseModel):
    """Why a request could not be answered."""

    error: str = Field(description="What is wrong, what was given and what to do, in words.")


class TooLargeError(DriftscoreError):
    """A body that is larger than allowed."""


class SlowBodyError(DriftscoreError):
    """A body that took too long to arrive."""


class FormError(UsageError):
    """A value of a request that has the wrong form."""


STATUSES: Mapping[type[DriftscoreError], int] = {
    BusyError: 503,
    TooLargeError: 413,
    SlowBodyError: 408,
    LimitError: 413,
    NotSoundError: 415,
    AudioError: 422,
    UnknownHeadError: 404,
    FormError: 422,
    UsageError: 400,
}
"""The status of each kind of error; the first that fits. Every other error is one of ours: 500."""


def status_of(error: DriftscoreError) -> int:
    """Return the HTTP status of an error."""
    return next((code for kind, code in STATUSES.items() if isinstance(error, kind)), 500)


def problem(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return an answer that says what is wrong."""
    return JSONResponse({"error": message}, status, dict(headers or {}))


def answer_of(error: DriftscoreError) -> JSONResponse:
    """Return the answer for an error of ours."""
    headers = {"Retry-After": str(error.retry_after)} if isinstance(error, BusyError) else None
    message = str(error).replace("<audio>", NAME)
    return problem(status_of(error), message, headers)


def unexpected(error: Exception) -> JSONResponse:
    """Return the answer for an error that no one foresaw; its traceback goes to stderr."""
    traceback.print_exception(error, file=sys.stderr)
    return problem(500, "An unexpected error in driftscore; the log of the service has it")


def add_error_answers(app: FastAPI) -> None:
    """Let every error of a route become an answer in JSON."""

    async def ours(_: Request, error: Exception) -> JSONResponse:
        return answer_of(error) if isinstance(error, DriftscoreError) else unexpected(error)

    async def http(_: Request, error: Exception) -> JSONResponse:
        status = error.status_code if isinstance(error, HTTPException) else 500
        detail = error.detail if isinstance(error, HTTPException) else ""
        headers = error.headers if isinstance(error, HTTPException) else None
        return problem(status, str(detail), headers)

    async def invalid(_: Request, error: Exception) -> JSONResponse:
        found = error.errors() if isinstance(error, RequestValidationError) else []
        return problem(422, "; ".join(map(validation_message, found[:3])))

    app.add_exception_handler(DriftscoreError, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)


def validation_message(error: Mapping[str, object]) -> str:
    """Return one error of pydantic as words: where it is, and what is wrong."""
    place = error.get("loc", ())
    parts = place if isinstance(place, tuple) else (place,)
    where = ".".join(str(part)[:40] for part in parts if part not in ("body", "query"))
    return f"{where}: {error.get('msg')}" if where else str(error.get("msg"))


def documented(*statuses: int) -> dict[int | str, dict[str, object]]:
    """Return the error answers of a route for the OpenAPI document."""
    return {status: {"model": Problem, "description": _MEANINGS[status]} for status in statuses}


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
