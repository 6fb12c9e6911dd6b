"""A store of live events for tests and pictures: three sources and a day of events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from driftscore.service.live import LiveEvent
from driftscore.service.page_live import Verdict

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


@dataclass(frozen=True)
class KeptEvent(LiveEvent):
    """An event with its verdict."""

    verdict: str = ""


@dataclass(frozen=True)
class KeptSource:
    """A source."""

    name: str
    online: bool
    since: str
    why: str = ""
    words: str = ""


class FakeReviewStore:
    """Keeps a day of events in memory; it can be made to lose them."""

    def __init__(self) -> None:
        midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
        self.midnight = midnight
        self.since = (midnight + timedelta(hours=5, minutes=58)).isoformat()
        self.kept: dict[int, KeptEvent] = {}
        for number, (hour, minute, source, label, seconds, score, snr_db) in enumerate(_DAY, 1):
            start = midnight + timedelta(hours=hour, minutes=minute, seconds=3.25)
            self.add(KeptEvent(number, source, label, score, *_times(start, seconds), snr_db))
        self.lost = False

    def add(self, event: KeptEvent) -> None:
        """Keep one more event."""
        self.kept[event.id] = event

    def newest(self) -> int:
        return max(self.kept)

    def after(self, id: int, most: int) -> Sequence[LiveEvent]:
        return [event for number, event in self.kept.items() if number > id][:most]

    def events(self, since: datetime, limit: int) -> Sequence[KeptEvent]:
        return sorted(self._since(since), key=lambda event: event.start, reverse=True)[:limit]

    def review(self, event_id: int, verdict: Verdict) -> bool:
        if self.lost or event_id not in self.kept:
            return False
        self.kept[event_id] = replace(self.kept[event_id], verdict=verdict)
        return True

    def sources(self) -> Sequence[KeptSource]:
        since = self.since
        return [
            KeptSource("yard", True, since, words="dog bark, birds singing, wind"),
            KeptSource("street", True, since, words="siren, car horn, jackhammer"),
            KeptSource("back door", False, since, why="unplugged"),
        ]

    def counts_by_hour(self, since: datetime) -> Mapping[str, Sequence[int]]:
        counts: dict[str, list[int]] = {}
        for event in self._since(since):
            hour = datetime.fromisoformat(event.start).hour
            counts.setdefault(event.label, [0] * 24)[hour] += 1
        return counts

    def verdicts(self) -> dict[int, str]:
        """Return the verdicts by event, for those that have one."""
        return {number: event.verdict for number, event in self.kept.items() if event.verdict}

    def _since(self, since: datetime) -> list[KeptEvent]:
        return [e for e in self.kept.values() if datetime.fromisoformat(e.start) >= since]


def _times(start: datetime, seconds: float) -> tuple[str, str, float]:
    return start.isoformat(), (start + timedelta(seconds=seconds)).isoformat(), seconds
