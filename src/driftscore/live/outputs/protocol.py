"""What a listener reports to. Methods are called from the threads of sources, one at a time."""

from collections.abc import Set
from typing import Protocol

from driftscore.live.records import EventRecord, LevelRecord, SourceStatus
from driftscore.watchlist import WatchList


class Output(Protocol):
    """Where events, levels and states go."""

    def words(self, source: str, watch: WatchList) -> None:
        """Take the labels that a source is searched for: at the start, and when they change."""

    def event(self, record: EventRecord) -> None:
        """Take an event that ended, also a rejected one."""

    def active(self, source: str, labels: Set[str]) -> None:
        """Take the labels that are present now, whenever they change."""

    def level(self, record: LevelRecord) -> None:
        """Take the level of the last interval."""

    def status(self, status: SourceStatus) -> None:
        """Take whether a source gives audio, whenever that changes."""

    def close(self) -> None:
        """Write what is left, and stop."""
