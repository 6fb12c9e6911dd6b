"""What the routes of the service share: the model, the heads, the queue, the limits, the metrics.

The model is loaded in a thread when the service starts. Until then, and again while it shuts down,
the service is alive but not ready, and work is refused with the time after which to try again.
"""

from collections.abc import Callable
from threading import Event as Flag
from threading import Thread
from typing import TypeVar

from driftscore.audio import Audio
from driftscore.detector import Detector
from driftscore.embedder import Embedder
from driftscore.engines.protocol import thread_count
from driftscore.errors import DriftscoreError
from driftscore.events import Detection
from driftscore.service import recordings
from driftscore.service.auditing import Requests
from driftscore.service.heads import PROBE, CompiledHead, HeadCache, HeadSpec
from driftscore.service.live import EventLog, EventStore
from driftscore.service.settings import ServiceSettings
from driftscore.service.texts import MemoryTextCache
from driftscore.service.work import BusyError, WorkQueue

Outcome = TypeVar("Outcome")


class ServiceState:
    """The shared objects of one running service."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.limits = settings.limits
        given = settings.backbone
        # Labels of strangers are not kept on disk.
        self.embedder = (
            given
            if isinstance(given, Embedder)
            else Embedder(
                given, runtime=settings.runtime, threads=settings.threads, text_cache=False
            )
        )
        if self.embedder.text_cache is None:
            self.embedder.text_cache = MemoryTextCache()
        self.heads = HeadCache(
            self.embedder,
            size=settings.heads,
            calibration=settings.calibration,
            texts=settings.limits.texts,
        )
        workers = thread_count(self.embedder.threads)
        self.work = WorkQueue(workers=workers, waiting=settings.queue)
        self.failure: DriftscoreError | None = None
        """Why the model could not be loaded."""
        self.failed: Callable[[], None] = lambda: None
        """Called when the model could not be loaded."""
        self.events: EventStore = settings.event_store or EventLog()
        """Where live events are read from."""
        self.requests = Requests(settings.audit)
        """Names of requests, and the audit of their decisions."""
        self.subscribers = 0
        """Clients that follow live events."""
        self._loaded = Flag()
        self._stopping = Flag()

    @property
    def stopping(self) -> bool:
        """Whether the service was asked to end."""
        return self._stopping.is_set()

    @property
    def reason_not_ready(self) -> str:
        """Why work is refused for now; empty if the service is ready."""
        if self._stopping.is_set():
            return "The service is shutting down"
        if self.failure is not None:
            return f"The model cannot be loaded: {self.failure}"
        return "" if self._loaded.is_set() else "The model is being loaded"

    def start(self) -> None:
        """Load the model in a thread of its own."""
        Thread(target=self._load, name="driftscore-load", daemon=True).start()

    def stop(self) -> None:
        """Take no more work; what is running may finish."""
        self._stopping.set()

    def close(self) -> None:
        """Finish what is running, and end all threads."""
        self.stop()
        self.work.close()
        self.embedder.close()
        if self.settings.audit is not None:
            self.settings.audit.close()

    def decode(self, content: bytes) -> Audio:
        """Return the samples of a sound file at the model's rate; only in a thread of `run`."""
        return recordings.decode(content, rate=self.embedder.backbone.rate, limits=self.limits)

    def head(self, spec: HeadSpec) -> CompiledHead:
        """Return the head of a spec within the limits; only in a thread of `run`."""
        return self.heads.get(spec.checked(self.limits))

    def detector(self, spec: HeadSpec, settings: Detection) -> Detector:
        """Return the detector of a spec within the limits; only in a thread of `run`."""
        return self.heads.detector(spec.checked(self.limits), settings)

    def check_ready(self) -> None:
        """Refuse a request while the service is not ready."""
        if reason := self.reason_not_ready:
            raise BusyError(f"{reason}; try again in a moment")

    def check_admission(self) -> None:
        """Refuse a request while the service is not ready or too busy; before its body is read."""
        self.check_ready()
        self.work.check_room()

    async def run(self, function: Callable[[], Outcome]) -> Outcome:
        """Run a function in the queue; refuse it while the service is not ready or too busy."""
        self.check_admission()
        return await self.work.run(function)

    def _load(self) -> None:
        try:
            self.embedder.start()
            self.heads.get(PROBE)  # the text side as well
        except DriftscoreError as error:
            self.failure = error
            self.failed()
        else:
            self._loaded.set()
