"""A file played to the listener gives the events of the file: ten minutes, 20 times as fast.

A scene of quiet noise with a sound of the demo every 20 s goes through `driftscore listen` (a
played file, a reader, a queue, a worker) and through the detector as a file, with `mini`. Events
are compared exactly: label, start, end and score.
"""

import os
import tempfile
import time
from pathlib import Path

import soundfile

from bench.figures import Figure, Spread
from bench.soak import LABELS, RATE, scene
from driftscore import Classifier, Event
from driftscore.decisions.records import LiveReport, StoredEvent
from driftscore.decisions.store import DecisionStore
from driftscore.events.watchlist import WatchList
from driftscore.live.listener import Listener
from driftscore.live.sources import PlayedFile

SECONDS, QUICK_SECONDS, SPEED = 600.0, 60.0, 20.0


class KeptEvents(DecisionStore):
    """A store that also keeps the reported events as they came."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reported: list[StoredEvent] = []

    def send(self, report: LiveReport) -> None:
        """Keep an event."""
        super().send(report)
        if isinstance(report, StoredEvent) and not report.rejected:
            self.reported.append(report)


def facts(event: Event | StoredEvent, first: Event | StoredEvent) -> tuple[object, ...]:
    """Return an event with its times since the first one, to the millisecond."""
    times = (round(time_s - first.start_s, 3) for time_s in (event.start_s, event.end_s))
    return (event.label, *times, event.score)


def measure(*, quick: bool) -> list[Figure]:
    """Compare the events of both ways."""
    seconds = QUICK_SECONDS if quick else SECONDS
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ["DRIFTSCORE_CACHE"] = str(home / "cache")
        path = home / "scene.wav"
        soundfile.write(path, scene(seconds), RATE, subtype="PCM_16")
        classifier, watch = Classifier(LABELS), WatchList.of(LABELS)
        expected = list(classifier.events(path, watch))
        store = KeptEvents(home / "events.db")
        source = PlayedFile(str(path), speed=SPEED)
        begun = time.monotonic()
        with Listener(classifier, watch, {"file": source}, [store]) as listener:
            listener.wait()
            took = time.monotonic() - begun
            dropped = listener.views()[0].dropped_s
    live = sorted(store.reported, key=lambda event: (event.start_s, event.end_s, event.label))
    of_file = [facts(event, expected[0]) for event in expected]
    found = [facts(event, live[0]) for event in live]
    missing = [event for event in of_file if event not in found]
    extra = [event for event in found if event not in of_file]
    return [
        Figure(
            f"events of {seconds / 60:g} minutes at {SPEED:g} times speed that differ",
            Spread.of([float(len(missing) + len(extra))]),
            "events",
            bar="the events of classify on the file",
            met=found == of_file,
            note=f"{len(expected)} events of the file, {len(missing)} missing and {len(extra)} "
            f"more of the listener; {seconds / took:.1f} times real time; {dropped:g} s dropped",
        )
    ]
