"""Decisions of requests in an audit log; uploads are kept only if the log keeps audio.

A decision that cannot be recorded is not given out: the request is answered with 503.
"""

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from fastapi import Response

from driftscore.audio import Audio
from driftscore.audit import (
    AuditLog,
    DecidedBy,
    EventAudit,
    judged_decision,
    label_decision,
)
from driftscore.audit.keeping import KeptRecording
from driftscore.detector import Detector
from driftscore.errors import AuditError
from driftscore.events import Event
from driftscore.result import Result
from driftscore.service.work import BusyError
from driftscore.vectors import Vector

HEADER = "X-Request-Id"
"""Names the request in its answer as in the audit."""
_RETRY_S = 60


class RequestAudit:
    """Records the decisions of one request."""

    def __init__(self, log: AuditLog, source: str, content: bytes) -> None:
        self._log = log
        self._source = source
        self._content = content

    def label(self, result: Result, by: DecidedBy, threshold: float | None = None) -> None:
        """Record the best label, or the labels above a threshold."""
        with _recording():
            decision = label_decision(Result(self._source, result.labels, result.scores), threshold)
            self._log.record(decision, by, self._kept)

    def fitting(self, detector: Detector, embedding: Vector) -> None:
        """Record the labels that fit."""
        with _recording():
            decision = judged_decision(detector, self._source, embedding, every=True)
            self._log.record(decision, DecidedBy.of(detector), self._kept)

    def events(self, detector: Detector, audio: Audio) -> Iterator[Event]:
        """Yield the events of the recording, also rejected ones, and record each."""
        with _recording():
            audit = EventAudit(self._log, detector)
            yield from audit.events(audio, source=self._source, kept=self._kept)

    @cached_property
    def _kept(self) -> KeptRecording:
        return self._log.keep(self._content)


class Requests:
    """Gives each request of an audited service a name."""

    def __init__(self, log: AuditLog | None) -> None:
        self._log = log

    def named(self, path: str, response: Response) -> str:
        """Return the name of a request, which its answer carries; empty without an audit."""
        if self._log is None:
            return ""
        name = uuid.uuid4().hex
        response.headers[HEADER] = name
        return f"{path} {name}"

    def audit(self, source: str, content: bytes) -> RequestAudit | None:
        """Return what records the decisions of a request; None without an audit."""
        return None if self._log is None else RequestAudit(self._log, source, content)


@contextmanager
def _recording() -> Iterator[None]:
    try:
        yield
    except AuditError as error:
        print(f"error: {error}", file=sys.stderr)  # it names folders, which clients need not know
        raise BusyError(
            "The decision cannot be recorded, so it is not given; try again later", _RETRY_S
        ) from error
