"""Uploads in memory, for as long as someone works with them: recordings of the page, and examples.

A store is bounded in number and in bytes (what was not used for longest goes first), and what is
not used for `expiry_s` is dropped. Nothing is written to disk.
"""

import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.exceptions import HTTPException

from driftscore.errors import UsageError

Value = TypeVar("Value")


@dataclass(eq=False)
class MemoryStore(Generic[Value]):
    """Values by id: a bounded store whose content expires."""

    what: str
    """What a value is called in messages."""
    max_count: int
    max_bytes: int
    """The most bytes of all values."""
    expiry_s: float
    """Seconds after its last use at which a value is dropped."""

    def __post_init__(self) -> None:
        # Value, bytes and time of the last use; the oldest use first.
        self._entries: OrderedDict[str, tuple[Value, int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, value: Value, size: int, key: str = "") -> str:
        """Keep a value and return its id, by default a random one; others may have to go."""
        if size > self.max_bytes:
            raise UsageError(
                f"The {self.what} takes {size / 1e6:.0f} MB of memory, and the service may keep "
                f"{self.max_bytes / 1e6:.0f} MB; give a shorter one"
            )
        key = key or secrets.token_urlsafe(16)
        with self._lock:
            self._drop_expired()
            self._entries.pop(key, None)
            self._entries[key] = (value, size, time.monotonic())
            sizes = [one for _, one, _ in self._entries.values()]
            while len(sizes) > self.max_count or sum(sizes) > self.max_bytes:
                self._entries.popitem(last=False)
                sizes.pop(0)
        return key

    def get(self, key: str) -> Value:
        """Return a value by its id; this counts as a use of it."""
        with self._lock:
            self._drop_expired()
            if key not in self._entries:
                raise HTTPException(
                    404,
                    f"The server no longer has this {self.what}: it is kept in memory only, until "
                    f"it is unused for {self.expiry_s / 60:.0f} minutes or others need the room; "
                    "give it again",
                )
            value, size, _ = self._entries.pop(key)
            self._entries[key] = (value, size, time.monotonic())
            return value

    def __contains__(self, key: str) -> bool:
        with self._lock:
            self._drop_expired()
            return key in self._entries

    def __len__(self) -> int:
        with self._lock:
            self._drop_expired()
            return len(self._entries)

    def _drop_expired(self) -> None:
        limit = time.monotonic() - self.expiry_s
        while self._entries and next(iter(self._entries.values()))[2] <= limit:
            self._entries.popitem(last=False)
