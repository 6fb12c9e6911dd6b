"""A store of live events for tests and pictures: two sources and a day of events."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from driftscore.service.live import LiveEvent
from driftscore.service.page_live import ReviewedEvent, SourceStatus, Verdict

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


class FakeReviewStore:
    """Keeps a day of events in memory; it can be made to lose them."""

    def __init__(self) -> None:
        midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
        self.kept: dict[int, ReviewedEvent] = {}
        for number, (hour, minute, source, label, seconds, score, snr_db) in enumerate(_DAY, 1):
            start = midnight + timedelta(hours=hour, minutes=minute, seconds=3.25)
            end = start + timedelta(seconds=seconds)
            times = (start.isoformat(), end.isoformat(), seconds)
            self.kept[number] = ReviewedEvent(
                LiveEvent(number, source, label, score, *times, snr_db)
            )
        self.lost = False

    def newest(self) -> int:
        return max(self.kept)

    def after(self, id: int, most: int) -> Sequence[LiveEvent]:
        return [one.event for number, one in self.kept.items() if number > id][:most]

    def events(self, since: datetime, limit: int) -> Sequence[ReviewedEvent]:
        return sorted(self._since(since), key=lambda one: one.event.start, reverse=True)[:limit]

    def review(self, event_id: int, verdict: Verdict) -> bool:
        if self.lost or event_id not in self.kept:
            return False
        self.kept[event_id] = ReviewedEvent(self.kept[event_id].event, verdict)
        return True

    def sources(self) -> Sequence[SourceStatus]:
        return [
            SourceStatus("yard", "running", -41.0, "dBFS", (("dog bark", 4.4), ("wind", 2.1))),
            SourceStatus("street", "running", 62.0, "dBA", (("car passing", 3.2),)),
            SourceStatus("back door", "stalled"),
        ]

    def counts_by_hour(self, since: datetime) -> Mapping[str, Sequence[int]]:
        counts: dict[str, list[int]] = {}
        for one in self._since(since):
            hour = datetime.fromisoformat(one.event.start).hour
            counts.setdefault(one.event.label, [0] * 24)[hour] += 1
        return counts

    def verdicts(self) -> dict[int, str]:
        """Return the verdicts by event, for those that have one."""
        return {number: one.verdict for number, one in self.kept.items() if one.verdict}

    def _since(self, since: datetime) -> list[ReviewedEvent]:
        return [
            one for one in self.kept.values() if datetime.fromisoformat(one.event.start) >= since
        ]
