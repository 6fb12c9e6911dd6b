"""A store of live events for tests and pictures: two sources and a day of events."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from driftscore.service.live import SourceStatus, StoredEvent, Verdict

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


class FakeEventStore:
    """Keeps its events in a list; the next verdict can be made to fail."""

    def __init__(self, day: datetime | None = None) -> None:
        now = datetime.now().astimezone() if day is None else day
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        self.kept: list[StoredEvent] = []
        for number, (hour, minute, source, label, seconds, score, snr_db) in enumerate(_DAY):
            start = midnight + timedelta(hours=hour, minutes=minute, seconds=3.25)
            end = start + timedelta(seconds=seconds)
            self.kept.append(StoredEvent(f"e{number}", source, label, start, end, score, snr_db))
        self.broken = False

    def events(self, since: datetime, limit: int) -> Sequence[StoredEvent]:
        found = [event for event in self.kept if event.start >= since]
        return sorted(found, key=lambda event: event.start, reverse=True)[:limit]

    def review(self, event_id: str, verdict: Verdict) -> bool:
        if self.broken:
            return False
        for place, event in enumerate(self.kept):
            if event.id == event_id:
                self.kept[place] = replace(event, verdict=verdict)
                return True
        return False

    def sources(self) -> Sequence[SourceStatus]:
        return [
            SourceStatus("yard", "running", -41.0, "dBFS", (("dog bark", 4.4), ("wind", 2.1))),
            SourceStatus("street", "running", 62.0, "dBA", (("car passing", 3.2),)),
            SourceStatus("back door", "stalled"),
        ]

    def counts_by_hour(self, since: datetime) -> Mapping[str, Sequence[int]]:
        counts: dict[str, list[int]] = {}
        for event in self.kept:
            if event.start >= since:
                counts.setdefault(event.label, [0] * 24)[event.start.hour] += 1
        return counts

    def verdicts(self) -> dict[str, str]:
        """Return the verdicts by event, for those that have one."""
        return {event.id: event.verdict for event in self.kept if event.verdict}
