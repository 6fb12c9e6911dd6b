"""What a listener reports: events, levels, and whether a source gives audio.

Times are `datetime` with a zone. The names of the JSON fields are a contract with users: they do
not change.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from driftscore.events import Event

Json = Mapping[str, str | float | int | bool | None]


@dataclass(frozen=True)
class EventRecord:
    """An event of a source, with the time of day.

    Attributes:
        id: rises with every event of a machine; milliseconds since 1970 where they are free.
        source: the name of the source.
        event: what was found; `event.rejected` says why it is not reported.
        start, end: from when to when.
        clip: the file with its audio; empty if there is none.
        withheld: why there is no clip although clips are kept.

    """

    id: int
    source: str
    event: Event
    start: datetime
    end: datetime
    clip: str = ""
    withheld: str = ""

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return round(self.event.end_s - self.event.start_s, 3)

    def fields(self) -> Json:
        """Return all fields, as a line of JSON has them."""
        event = self.event
        return {
            "id": str(self.id),
            "source": self.source,
            "label": event.label,
            "score": rounded(event.score),
            "threshold": rounded(event.threshold),
            "start": iso(self.start),
            "end": iso(self.end),
            "duration_s": self.duration_s,
            "snr_db": rounded(event.snr_db, 1),
            "level_db": rounded(event.level_db, 1),
            "rejected": event.rejected,
            "clip": self.clip,
            "withheld": self.withheld,
        }


@dataclass(frozen=True)
class LevelRecord:
    """The A-weighted level of a source over some seconds.

    Attributes:
        source: the name of the source.
        laeq: the level of the mean power.
        l10, l90: the levels that are exceeded for 10 % and for 90 % of the time.
        seconds: how long it was measured.
        end: when the measurement ended.
        calibrated: whether levels are dBA; if not, they are relative to full scale (dBFS).

    """

    source: str
    laeq: float
    l10: float
    l90: float
    seconds: float
    end: datetime
    calibrated: bool

    @property
    def unit(self) -> str:
        """The unit of the levels."""
        return "dBA" if self.calibrated else "dBFS"

    def fields(self) -> Json:
        """Return all fields, as a line of JSON has them."""
        return {
            "source": self.source,
            "laeq": rounded(self.laeq, 1),
            "l10": rounded(self.l10, 1),
            "l90": rounded(self.l90, 1),
            "unit": self.unit,
            "seconds": self.seconds,
            "end": iso(self.end),
        }


@dataclass(frozen=True)
class SourceStatus:
    """Whether a source gives audio, since when, and if not, why."""

    source: str
    online: bool
    since: datetime
    why: str = ""

    def fields(self) -> Json:
        """Return all fields, as a line of JSON has them."""
        return {
            "source": self.source,
            "online": self.online,
            "since": iso(self.since),
            "why": self.why,
        }


@dataclass(frozen=True)
class SourceView:
    """What a source does now, for a display."""

    name: str
    online: bool
    why: str
    level_db: float | None
    current: Sequence[tuple[str, float]] = field(default=())
    active: frozenset[str] = frozenset()
    waiting_s: float = 0.0
    dropped_s: float = 0.0
    seconds: float = 0.0


class EventIds:
    """Numbers for events that rise, also after a restart."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def next(self) -> int:
        """Return the milliseconds since 1970, or one more than the last number."""
        with self._lock:
            self._last = max(self._last + 1, time.time_ns() // 1_000_000)
            return self._last


def local_now() -> datetime:
    """Return the time of day in the local zone."""
    return datetime.now(UTC).astimezone()


def iso(time: datetime) -> str:
    """Return a time as ISO 8601 with milliseconds and the zone."""
    return time.isoformat(timespec="milliseconds")


def rounded(value: float | None, digits: int = 3) -> float | None:
    """Return a number with few digits; None stays None."""
    return None if value is None else round(value, digits)
