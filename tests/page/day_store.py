"""A store with three sources and a day of events, for tests and pictures of the page."""

import math
from datetime import datetime, timedelta
from pathlib import Path

from driftscore.decisions.records import LevelReport, SourceStatus, StoredEvent, Words, iso
from driftscore.decisions.store import DecisionStore
from driftscore.events.watchlist import WatchList

_DAY = (  # hour, minute, source, label, seconds, score, SNR
    (6, 12, "yard", "birds singing", 14.0, 4.8, 6.0),
    (6, 40, "yard", "birds singing", 21.5, 5.1, 8.0),
    (7, 3, "street", "car horn", 1.5, 3.6, -1.0),
    (7, 41, "street", "car horn", 2.0, 4.2, 2.0),
    (7, 58, "street", "jackhammer", 48.0, 6.3, 11.0),
    (8, 5, "street", "jackhammer", 95.0, 6.9, 12.0),
    (8, 20, "yard", "dog bark", 4.5, 5.5, 9.0),
    (8, 21, "yard", "dog bark", 6.0, 4.9, 7.0),
    (9, 2, "street", "siren", 18.0, 5.9, 3.0),
)
_WORDS = {
    "yard": ["dog bark", "birds singing", "wind"],
    "street": ["siren", "car horn", "jackhammer"],
    "back door": ["door knock", "doorbell"],
}
THRESHOLD = 3.0


class DayStore(DecisionStore):
    """The store of a listener that has run since this morning; it can be made to lose verdicts."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        now = datetime.now().astimezone()
        self.lost = False
        self.midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        for number, (hour, minute, source, label, seconds, score, snr_db) in enumerate(_DAY, 1):
            start = self.midnight + timedelta(hours=hour, minutes=minute, seconds=3.25)
            self.send(found(number, source, label, score, start, seconds, snr_db))
        began = self.midnight + timedelta(hours=5, minutes=58)
        for source, names in _WORDS.items():
            self.send(Words(source, WatchList.of(names)))
            self.send(SourceStatus(source, source != "back door", iso(began), _why(source)))
        for step in range(6 * now.hour):  # the level of the night and the day
            end = self.midnight + timedelta(minutes=10 * step)
            level = 36 + 6 * math.sin(step / 9) + 3 * math.sin(step * 1.7)
            self.send(LevelReport("yard", level, level + 3, level - 4, "dBA", 60.0, iso(end)))
        self.send(LevelReport("yard", 41.6, 44.2, 36.9, "dBA", 60.0, iso(now)))
        self.send(LevelReport("street", -38.2, -33.0, -47.8, "dBFS", 60.0, iso(now)))

    def review(self, event_id: int, verdict: str) -> bool:
        return not self.lost and super().review(event_id, verdict)

    def verdicts(self) -> dict[int, str]:
        """Return the verdicts by event, for those that have one."""
        return {event.id: event.verdict for event in self.events() if event.verdict}


def found(
    id: int, source: str, label: str, score: float, start: datetime, seconds: float, snr_db: float
) -> StoredEvent:
    """Return an event as a listener reports it."""
    start_s, offset = start.timestamp(), start.utcoffset()
    return StoredEvent(
        id, source, label, score, THRESHOLD, start_s, start_s + seconds,
        round(offset.total_seconds()) if offset else 0, -40.0, snr_db,
    )  # fmt: skip


def _why(source: str) -> str:
    return "unplugged" if source == "back door" else ""
