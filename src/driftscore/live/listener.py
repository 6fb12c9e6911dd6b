"""Listener: sources, a model and a watch list -> events, until it is stopped.

    with Listener(classifier, WatchList.of(["dog bark"]), {"yard": Microphone("usb")}) as listener:
        listener.wait()

Each source has a thread that reads and one that works; the model is shared. One more gives freed
memory back to the system; a process that runs for weeks calls `bound_heaps` before that. With
`learn_s` another learns from the verdicts in the store, at the start and then at most that often.
What is learnt is kept nowhere: it follows from the verdicts, and a listener without `learn_s` works
as before them.
"""

import copy
import gc
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from msgspec import structs

from driftscore.classifier import Classifier
from driftscore.decisions.learning import AnsweredEvent, EventSound, LearntLabel, answers_of, learn
from driftscore.decisions.records import RIGHT, StoredEvent, Words
from driftscore.decisions.store import MAX_CLIP_S, DecisionStore
from driftscore.detector import Detector
from driftscore.errors import DriftscoreError, UsageError
from driftscore.events.watchlist import WatchedLabel, WatchList
from driftscore.live.outputs import Output, Outputs, SourceView
from driftscore.live.policy import Policy
from driftscore.live.sources import Source
from driftscore.live.speech import SpeechGuard
from driftscore.live.worker import ListenSettings, Worker
from driftscore.text.prompts import split_labels

__all__ = ["ListenSettings", "Listener", "changed_watch"]

JOIN_S = 30.0
"""How long a thread may take to finish when the listener stops."""


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
        self._threads: list[threading.Thread] = []
        self._endless: list[threading.Thread] = []
        """Threads that only `stop` ends: nobody waits for them."""
        self._requests: dict[str, object] = {}
        self.outputs = Outputs(outputs, notify)
        self.failure = ""
        """An unexpected error that stopped the listener."""
        work = self._settings
        self._store = next((one for one in outputs if isinstance(one, DecisionStore)), None)
        if work.learn_s is not None and (self._store is None or self._store.clips is None):
            raise UsageError("To learn from verdicts a listener needs a store, and clips of events")
        self._answers: dict[int, AnsweredEvent] = {}
        """What was learnt from, by the ids of the events."""
        self._watch = dict.fromkeys(sources, watch)
        """What each source is searched for, without what was learnt."""
        newest = 0 if self._store is None else self._store.newest()
        policy = Policy(merge=work.merge, newest=newest)
        detector = classifier.detector(watch, work.detection)
        guarded = work.privacy and (work.clips is not None or work.audit is not None)
        speech = SpeechGuard(classifier, notify=notify) if guarded else None
        self._workers = {
            name: Worker(name, source, detector, work, self.outputs, policy, speech)
            for name, source in sources.items()
        }

    def start(self) -> "Listener":
        """Start the threads of all sources."""
        gc.collect()  # else what the start has left is freed some time later, and memory moves
        for name, worker in self._workers.items():
            self.outputs.send(Words(name, worker.detector.watch))
            self._start(f"read {name}", partial(worker.reader.run, self._stop))
            self._start(f"work {name}", worker.run)
        if self._settings.learn_s is not None:
            learning = partial(self._keep_learning, self._settings.learn_s)
            self._start("learn", learning, endless=True)
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
        for thread in (*self._threads, *self._endless):
            thread.join(JOIN_S)
        for worker in self._workers.values():
            if worker.status is not None and worker.status.online:
                worker.set_status(False, "stopped")
        self.outputs.close()

    def __enter__(self) -> "Listener":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def errors(self) -> dict[str, str]:
        """Why sources ended that failed and are not opened again."""
        errors = {name: worker.reader.error for name, worker in self._workers.items()}
        return {name: why for name, why in errors.items() if why}

    def views(self) -> list[SourceView]:
        """Return what each source does now."""
        return [worker.view() for worker in self._workers.values()]

    def change_words(self, source: str, text: str) -> None:
        """Search a source for other labels, separated by commas, from its next block on.

        The detector is made in a thread of its own. A label that stays keeps its settings, and the
        negative words of the list stay as well. Words that cannot be used are reported, and the old
        ones stay.
        """
        worker = self._workers[source]
        request = self._requests[source] = object()

        def rebuild() -> None:
            with self._rebuilding:
                if self._requests[source] is not request:
                    return  # there is a newer request
                try:
                    watch = changed_watch(self._watch[source], text)
                    detector, _ = self._learnt(watch)
                except DriftscoreError as error:
                    self._notify(f"{source}: the words {text[:200]!r} cannot be used: {error}")
                    self.outputs.send(Words(source, worker.detector.watch))
                    return
                self._watch[source] = watch
            worker.change(detector)

        self._start(f"words {source}", rebuild)

    def answer(self, event_id: int, verdict: str) -> None:
        """Keep a verdict on an event in the store; what cannot be kept is reported."""
        try:
            if self._store is None:
                raise UsageError("A verdict is kept in the store: give --store FILE")
            if not self._store.review(event_id, verdict):
                raise UsageError(f"There is no event {event_id} in {self._store.path}")
        except DriftscoreError as error:
            self._notify(f"the verdict {verdict[:20]!r} is not kept: {error}")

    def _keep_learning(self, learn_s: float) -> None:
        """Learn from the verdicts in the store whenever there are others, at most so often."""
        learnt_from: list[tuple[int, str]] = []
        while self._store is not None:
            try:
                events = self._store.answered()
                if learnt_from != [(event.id, event.verdict) for event in events]:
                    learnt_from = [(event.id, event.verdict) for event in events]
                    self._learn(events)
            except DriftscoreError as error:
                self._notify(f"nothing was learnt: {error}")
            if self._stop.wait(learn_s):
                return

    def _learn(self, events: Sequence[StoredEvent]) -> None:
        """Learn from answered events, for every source, and say what has changed."""

        def clip(event: StoredEvent) -> EventSound | None:
            path = None if self._store is None else self._store.clip(event.id)
            return None if path is None else (path, 0.0, MAX_CLIP_S)

        first = next(iter(self._workers.values())).detector
        answers = {}
        for event in events:
            answer = self._answers.get(event.id)
            if answer is None:
                answer = next(iter(answers_of(
                    [event], clip, first.embedder, window_s=first.window_s, hop_s=first.hop_s
                )), None)  # fmt: skip
            if answer is not None:
                answers[event.id] = replace(answer, right=event.verdict == RIGHT)
        said: set[str] = set()
        with self._rebuilding:
            self._answers = answers
            for name, worker in self._workers.items():
                detector, summaries = self._learnt(self._watch[name])
                said |= set(map(str, summaries))
                worker.change(detector)
        self._notify(f"learnt from {len(answers)} answers; without --learn all is as before")
        for line in sorted(said):
            self._notify(line)

    def _learnt(self, watch: WatchList) -> tuple[Detector, list[LearntLabel]]:
        """Return the detector of a list that has learnt from the answers to its labels."""
        settings = self._settings.detection
        summaries: list[LearntLabel] = []
        answers = [answer for answer in self._answers.values() if answer.label in watch.names]
        classifier = copy.copy(self._classifier)  # it keeps what it has learnt
        if answers:
            watch, summaries = learn(classifier, watch, answers, settings=settings)
        return classifier.detector(watch, settings), summaries

    def _start(self, name: str, work: Callable[[], None], *, endless: bool = False) -> None:
        """Start a thread; an error that no one foresaw stops the listener instead of the thread."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self.failure = f"{name}: {type(error).__name__}: {error}"
                self._notify(f"error: unexpected {self.failure}")
                self._stop.set()

        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=guarded, name=name, daemon=True)
        (self._endless if endless else self._threads).append(thread)
        thread.start()


def changed_watch(watch: WatchList, text: str) -> WatchList:
    """Return a watch list with other labels; those that stay keep what is asked of them."""
    before = {label.name.lower(): label for label in watch.labels}
    labels = [before.get(name.lower(), WatchedLabel(name)) for name in split_labels(text)]
    names = {label.name.lower() for label in labels}
    negatives = tuple(word for word in watch.negatives if word.lower() not in names)
    return structs.replace(watch, labels=tuple(labels), negatives=negatives)
