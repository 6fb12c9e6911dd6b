"""Listener: sources, a model and a watch list -> events, until it is stopped.

    with Listener(classifier, WatchList.of(["dog bark"]), {"yard": Microphone("usb")}) as listener:
        listener.wait()

Each source has a thread that reads and one that works; the model is shared.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from driftscore.audit import AuditLog
from driftscore.classifier import Classifier
from driftscore.errors import DriftscoreError
from driftscore.events import Detection
from driftscore.live.blocks import QUEUE_S, BlockQueue
from driftscore.live.clips import EventClips
from driftscore.live.merging import Merging
from driftscore.live.meter import INTERVAL_S
from driftscore.live.outputs import Output, Outputs
from driftscore.live.reader import SourceReader
from driftscore.live.records import EventIds, SourceStatus, SourceView, local_now
from driftscore.live.sources import Source
from driftscore.live.speech import SpeechGuard
from driftscore.live.worker import Worker, WorkSettings
from driftscore.prompts import split_labels
from driftscore.watchlist import WatchedLabel, WatchList

JOIN_S = 30.0
"""How long a thread may take to finish when the listener stops."""


@dataclass(frozen=True)
class ListenSettings:
    """How a listener works.

    Attributes:
        detection: how events are found; None for the defaults.
        spl_offset: dB that make levels dBA; None for levels relative to full scale.
        level_s: seconds of one level.
        queue_s: seconds of audio of a source that may wait; older audio is dropped.
        clips: where clips are written; None for nowhere.
        privacy: whether clips with speech are never written.
        audit: where decisions are recorded; None for nowhere.
        merge: whether a sound that several sources have at the same time is reported once.

    """

    detection: Detection | None = None
    spl_offset: float | None = None
    level_s: float = INTERVAL_S
    queue_s: float = QUEUE_S
    clips: EventClips | None = None
    privacy: bool = False
    audit: AuditLog | None = None
    merge: bool = False


class Listener:
    """Finds the events of live sources.

    Parameters
    ----------
        classifier: the model and how labels are scored.
        watch: what to look for.
        sources: the sources by their names.
        outputs: where everything is reported to.
        settings: how it works.
        notify: called with messages for people.

    """

    def __init__(
        self,
        classifier: Classifier,
        watch: WatchList,
        sources: Mapping[str, Source],
        outputs: Sequence[Output] = (),
        settings: ListenSettings | None = None,
        *,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._classifier = classifier
        self._settings = settings or ListenSettings()
        self._notify = notify
        self._stop = threading.Event()
        self._rebuilding = threading.Lock()
        self._counting = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._rebuilds: dict[str, int] = {}
        self._statuses: dict[str, SourceStatus] = {}
        self.outputs = Outputs(outputs, notify)
        detector = classifier.detector(watch, self._settings.detection)
        work = self._work_settings()
        self._queues = {name: BlockQueue(self._settings.queue_s) for name in sources}
        self._workers = {
            name: Worker(name, queue, detector, work) for name, queue in self._queues.items()
        }
        self._readers = {
            name: SourceReader(
                source, self._queues[name], on_status=self._on_status(name), notify=notify
            )
            for name, source in sources.items()
        }

    def start(self) -> "Listener":
        """Start the threads of all sources."""
        for name, worker in self._workers.items():
            self.outputs.words(name, worker.detector.watch)
            self._start(f"read {name}", partial(self._readers[name].run, self._stop))
            self._start(f"work {name}", worker.run)
        return self

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all sources have ended; return whether they have."""
        for thread in list(self._threads):
            thread.join(timeout_s)
            if thread.is_alive():
                return False
        return True

    def stop(self) -> None:
        """Stop reading, work on what was read, report the last events and close the outputs."""
        self._stop.set()
        for thread in self._threads:
            thread.join(JOIN_S)
        for name, status in list(self._statuses.items()):
            if status.online:
                self._on_status(name)(False, "stopped")
        self.outputs.close()

    def __enter__(self) -> "Listener":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def errors(self) -> dict[str, str]:
        """Why sources ended that failed and are not opened again."""
        return {name: reader.error for name, reader in self._readers.items() if reader.error}

    def views(self) -> list[SourceView]:
        """Return what each source does now."""
        return [self._view(name) for name in self._workers]

    def change_words(self, source: str, text: str) -> None:
        """Search a source for other labels, separated by commas, from its next block on.

        The detector is made in a thread of its own. A label that stays keeps its settings, and the
        negative words of the list stay as well. Words that cannot be used are reported, and the old
        ones stay.
        """
        with self._counting:
            number = self._rebuilds[source] = self._rebuilds.get(source, 0) + 1
        self._start(f"words {source}", lambda: self._rebuild(source, text, number))

    def _rebuild(self, source: str, text: str, number: int) -> None:
        worker = self._workers[source]
        with self._rebuilding:
            if self._rebuilds[source] != number:
                return  # there is a newer request
            try:
                watch = changed_watch(worker.detector.watch, text)
                detector = self._classifier.detector(watch, self._settings.detection)
            except DriftscoreError as error:
                self._notify(f"{source}: the words {text[:200]!r} cannot be used: {error}")
                self.outputs.words(source, worker.detector.watch)
                return
        worker.change(detector)

    def _start(self, name: str, work: Callable[[], None]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=self._guarded, args=(name, work), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        """Run a thread; an error that no one foresaw stops the listener instead of one thread."""
        try:
            work()
        except Exception as error:
            self.failure = f"{name}: {type(error).__name__}: {error}"
            self._notify(f"error: unexpected {self.failure}")
            self._stop.set()

    failure = ""
    """An unexpected error that stopped the listener."""

    def _work_settings(self) -> WorkSettings:
        given = self._settings
        guard = given.privacy and (given.clips is not None or given.audit is not None)
        return WorkSettings(
            self.outputs, EventIds(), self._notify, given.spl_offset, given.level_s, given.clips,
            SpeechGuard(self._classifier) if guard else None, given.audit,
            Merging() if given.merge else None,
        )  # fmt: skip

    def _on_status(self, name: str) -> Callable[[bool, str], None]:
        def changed(online: bool, why: str) -> None:
            before = self._statuses.get(name)
            self._statuses[name] = SourceStatus(name, online, local_now(), why)
            if before is None or before.online != online:
                self.outputs.status(self._statuses[name])

        return changed

    def _view(self, name: str) -> SourceView:
        worker, queue, status = self._workers[name], self._queues[name], self._statuses.get(name)
        return SourceView(
            name, status is not None and status.online, status.why if status else "opening",
            worker.level_db, worker.current, worker.active_labels, queue.waiting_s,
            queue.dropped_s, worker.seconds,
        )  # fmt: skip


def changed_watch(watch: WatchList, text: str) -> WatchList:
    """Return a watch list with other labels; those that stay keep what is asked of them."""
    known = {label.name.lower(): label for label in watch.labels}
    labels = [known.get(name.lower(), WatchedLabel(name)) for name in split_labels(text)]
    kept = {label.name.lower() for label in labels}
    negatives = tuple(word for word in watch.negatives if word.lower() not in kept)
    return replace(watch, labels=tuple(labels), negatives=negatives)
