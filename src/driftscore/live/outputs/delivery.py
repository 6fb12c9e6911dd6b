"""Every event is delivered once and in order, also by an output that is away for a while.

An output that can be away (`Transport`: MQTT, a webhook, a program) takes one message after the
other, in a thread of its own. If it fails, that is reported at once, it is tried again after 1 s
and twice as long each time, up to a minute, and messages wait: in the store if there is one, from
where the next run sends them, and in memory. Those that had to wait have `"late": true`. A message
that the other side answers and refuses `MAX_REFUSALS` times is given up and counted, since it
would hold up all that follow. The start of an event is not sent any more once its end is known.
"""

import contextlib
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Protocol

from driftscore.decisions.records import (
    END,
    JsonFields,
    LiveReport,
    OutputStatus,
    Started,
    StoredEvent,
)
from driftscore.decisions.store import DecisionStore
from driftscore.errors import StoreError

FIRST_WAIT_S, MAX_WAIT_S = 1.0, 60.0
CLOSE_S = 5.0
"""How long an output may take for one message when the listener stops."""
MAX_IN_MEMORY, MAX_IN_STORE = 1000, 10_000
MAX_REFUSALS = 5
SHOWN_LOSSES = 10
"""How many messages that are given up are reported one by one."""


class UndeliveredError(Exception):
    """A message that was not taken; `refused` if the other side has answered."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


class Transport(Protocol):
    """What delivers messages to another program or machine.

    A subclass need not begin, and gets states only if it shows them.
    """

    name: str
    """What it is called in messages and in the status, without secrets."""
    key: str
    """What it is called in the store: messages that waited are those of this output."""

    def begin(self, failed: Callable[[str], None], ready: Callable[[], None]) -> None:
        """Connect, or raise `UndeliveredError`; both functions may be called at any later time."""
        return

    def show(self, report: LiveReport) -> None:
        """Take a state, which is not worth a wait: levels, what is present, what a source does."""
        return

    def deliver(self, fields: JsonFields) -> None:
        """Deliver a message and return when it was taken, or raise `UndeliveredError`."""

    def close(self) -> None:
        """Disconnect."""


@dataclass(eq=False)
class _Message:
    fields: JsonFields
    row: int | None = None
    """Its number in the store."""
    late: bool = False
    refusals: int = 0


class _Waiting:
    """Messages that wait, oldest first; mirrored in the store where there is one."""

    def __init__(self, key: str, store: DecisionStore | None, sources: Set[str] | None) -> None:
        self._key, self._store = key, store
        self._max = MAX_IN_MEMORY if store is None else MAX_IN_STORE
        self._messages: deque[_Message] = deque()
        self._obsolete: list[int] = []  # rows that a full disk could not delete
        self._lock = threading.Lock()
        for row, text in [] if store is None else store.waiting(key):
            fields = json.loads(text)
            if sources is None or fields["source"] in sources:  # else of another listener
                self._messages.append(_Message(fields, row, late=True))

    @property
    def events(self) -> int:
        """How many events wait; a start that waits is not one."""
        with self._lock:
            return sum(message.fields["phase"] == END for message in self._messages)

    def add(self, fields: JsonFields, *, late: bool) -> bool:
        """Add a message; return whether there was room for it."""
        with self._lock:
            # The end of an event replaces a start that still waits; the first may be on its way.
            start = fields["start_id"]
            for message in list(self._messages)[1:]:
                if start is not None and message.fields["start_id"] == start:
                    self._messages.remove(message)
                    self._forget(message)
            if len(self._messages) >= self._max:
                return False
            row = None
            if self._store is not None:
                with contextlib.suppress(StoreError):  # a full disk: it waits in memory
                    row = self._store.wait(self._key, json.dumps(fields))
            self._messages.append(_Message(fields, row, late))
            return True

    def first(self) -> _Message | None:
        with self._lock:
            return self._messages[0] if self._messages else None

    def remove(self, message: _Message) -> None:
        with self._lock:
            self._messages.remove(message)
            self._forget(message)

    def delay(self) -> None:
        """Mark all that wait as late."""
        with self._lock:
            for message in self._messages:
                message.late = True

    def _forget(self, message: _Message) -> None:
        if message.row is not None and self._store is not None:
            self._obsolete.append(message.row)
            with contextlib.suppress(StoreError):  # tried again with the next one
                self._store.delivered(self._obsolete)
                self._obsolete = []


@dataclass(eq=False)
class Delivery:
    """The output that delivers messages through a transport."""

    transport: Transport
    store: DecisionStore | None = None
    """Where messages wait, if there is a store."""
    sources: Set[str] | None = None
    """Whose messages of earlier runs are sent from the store; None for those of all."""
    notify: Callable[[str], None] = lambda _: None
    """Called with messages for people."""

    def __post_init__(self) -> None:
        self._waiting = _Waiting(self.transport.key, self.store, self.sources)
        self._report: Callable[[LiveReport], None] = lambda _: None
        self._problem = ""
        self._lost = 0
        self._closing = self._closed = False
        self._progress = 0.0  # when the last message was taken
        self._added, self._retry = threading.Event(), threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"deliver {self.transport.name}", daemon=True
        )

    def begin(self, report: Callable[[LiveReport], None]) -> None:
        """Begin to deliver; `report` is given what becomes of this output."""
        self._report = report
        self._thread.start()

    def send(self, report: LiveReport) -> None:
        """Show a state, and deliver an event, its start, or that its start is withdrawn."""
        self.transport.show(report)
        if isinstance(report, (StoredEvent, Started)) and report.is_sent:
            if not self._waiting.add(report.message(), late=bool(self._problem)):
                self._lose(report.message(), "no more events can wait")
            self._added.set()

    def close(self) -> int:
        """Deliver what is left; return how many events could not be delivered."""
        self._closing, self._progress = True, time.monotonic()
        self._added.set()
        self._retry.set()
        while self._thread.is_alive() and time.monotonic() < self._progress + CLOSE_S:
            self._thread.join(0.05)
        self._closed = True
        self.transport.close()
        count = self._waiting.events
        if count and not self._problem:
            self.notify(f"{self.transport.name} took no event for {CLOSE_S:g} s")
        if count and self.store is not None:
            events = "1 event" if count == 1 else f"{count} events"
            self.notify(f"{self.transport.name} gets {events} from the next run with the store")
        return self._lost + count

    def _run(self) -> None:
        wait_s = FIRST_WAIT_S
        try:
            self.transport.begin(self._failed, self._ready)
        except UndeliveredError as error:
            self._failed(str(error))
        while True:
            self._added.clear()
            self._retry.clear()
            message = self._waiting.first()
            if message is None:
                if self._closing:
                    return
                self._added.wait()
                continue
            late: JsonFields = {"late": True} if message.late else {}
            try:
                self.transport.deliver({**message.fields, **late})
            except Exception as error:  # also one that no one foresaw must not end this thread
                if self._closed:
                    return
                message.refusals += not isinstance(error, UndeliveredError) or error.refused
                if message.refusals >= MAX_REFUSALS:
                    self._waiting.remove(message)
                    self._lose(message.fields, str(error))
                    continue
                self._failed(str(error))
                self._retry.wait(0.1 if self._closing else wait_s)
                wait_s = min(2 * wait_s, MAX_WAIT_S)
            else:
                self._waiting.remove(message)
                self._progress, wait_s = time.monotonic(), FIRST_WAIT_S
                self._ready()

    def _lose(self, fields: JsonFields, why: str) -> None:
        self._lost += fields["phase"] == END
        if self._lost <= SHOWN_LOSSES:
            name = f"{fields['phase']} of event {fields['id']}"
            self.notify(f"error: {self.transport.name}: the {name} is given up: {why}")

    def _failed(self, problem: str) -> None:
        """Say what is wrong with the output, once while it stays the same."""
        self._waiting.delay()
        if problem != self._problem and not self._closing:
            self._problem = problem
            self.notify(f"{self.transport.name} {problem}; it is tried again, and its events wait")
            self._report(OutputStatus(self.transport.name, problem))

    def _ready(self) -> None:
        if self._problem:
            self._problem = ""
            count = self._waiting.events
            self.notify(f"{self.transport.name} is there again; late events: {count}")
            if not self._closing:
                self._report(OutputStatus(self.transport.name, ""))
        self._retry.set()


def connection_problem(host: str, port: int) -> str:
    """Return why no connection can be made; empty if one can."""
    try:
        socket.create_connection((host, port), CLOSE_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
