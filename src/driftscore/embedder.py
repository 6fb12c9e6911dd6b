"""Embedder: recordings in, window embeddings out; the one way from audio to embeddings.

    with Embedder("mini", audio_cache=True) as embedder:
        for embedded in embedder.embed(["a.wav", "b.flac"]):
            embedded.rows      # one unit row per window

It holds a model and an engine. The model is loaded when it is first needed, once, however many
threads ask for it; the engine's threads live until `close`. Several threads may call `embed` at the
same time. Classifier, the command, the lab and the service all embed through it.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from os import PathLike, fspath
from threading import RLock, Thread

from driftscore.audio import Recording
from driftscore.backbones import (
    DEFAULT_BACKBONE,
    DEFAULT_RUNTIME,
    Backbone,
    check_backbone,
    load_backbone,
)
from driftscore.engines import (
    DEFAULT_ENGINE,
    Embedded,
    EmbeddedBlock,
    Engine,
    EngineSettings,
    ModelSpec,
    find_engine,
)
from driftscore.engines.protocol import thread_count
from driftscore.errors import UsageError
from driftscore.sliding import WindowEmbedding, sliding_embeddings
from driftscore.textcache import TextCache

__all__ = ["Embedded", "EmbeddedBlock", "Embedder"]


class Embedder:
    """A model and the engine that runs it.

    Parameters
    ----------
        backbone: the name or path of a model (see `load_backbone`), or a loaded one.
        runtime: what a CLAP runs in: "auto", "torch", "onnx" or "openvino".
        engine: where recordings are embedded: "local", "ray" or the name of another engine.
        address: the cluster, for an engine that has one.
        audio_cache: keep embeddings on disk, by the content of the recordings.
        threads: windows in work at the same time; None for the number of cores.
        text_cache: keep the embeddings of texts on disk.

    Only `backbone` and `runtime` can change a number.

    """

    def __init__(
        self,
        backbone: str | PathLike[str] | Backbone = DEFAULT_BACKBONE,
        *,
        runtime: str | None = None,
        engine: str = DEFAULT_ENGINE,
        address: str | None = None,
        audio_cache: bool = False,
        threads: int | None = None,
        text_cache: bool = True,
    ) -> None:
        find_engine(engine)
        thread_count(threads)
        self.runtime = None if runtime == DEFAULT_RUNTIME else runtime
        self.engine = engine
        self.address = address
        self.audio_cache = audio_cache
        self.threads = threads
        self.text_cache = TextCache() if text_cache else None
        self._model: ModelSpec | None = None
        self._backbone: Backbone | None = None
        if isinstance(backbone, (str, PathLike)):
            self._model = ModelSpec(fspath(backbone), self.runtime)
        else:
            self._backbone = check_backbone(backbone)
            if self.runtime is not None:
                raise UsageError("A runtime is chosen when a model is loaded; this one is loaded")
        self._running: Engine | None = None
        self._lock = RLock()

    @property
    def spec(self) -> str:
        """The name or path that the model was asked for by; empty if it was given loaded."""
        return self._model.spec if self._model is not None else ""

    @property
    def backbone(self) -> Backbone:
        """The model, loaded when it is first asked for."""
        with self._lock:
            if self._backbone is None:
                assert self._model is not None  # noqa: S101 (one of the two is always set)
                self._backbone = load_backbone(self._model.spec, runtime=self._model.runtime)
            return self._backbone

    def embed(self, recordings: Iterable[Recording]) -> Iterator[Embedded]:
        """Yield the window embeddings of each recording, or its error, in the order given."""
        return _flat(self.blocks(recordings))

    def blocks(self, recordings: Iterable[Recording]) -> Iterator[EmbeddedBlock]:
        """Yield the same in blocks of recordings that are ready together."""
        return self._started_engine().embed(recordings)

    def slide(
        self, recording: Recording, *, window_s: float = 4.0, hop_s: float = 0.5
    ) -> Iterator[WindowEmbedding]:
        """Yield start, end and embedding of windows at a fine hop (see `sliding`), as a stream."""
        return sliding_embeddings(recording, self.backbone, window_s=window_s, hop_s=hop_s)

    def prepare(self) -> None:
        """Load the model, and let a thread open what embedding needs meanwhile.

        With an audio cache perhaps no recording needs to be embedded, so nothing is opened.
        """
        backbone = self.backbone
        if not self.audio_cache and self.engine == DEFAULT_ENGINE:
            Thread(target=_prepare, args=(backbone,), name="driftscore-prepare").start()

    def start(self) -> "Embedder":
        """Load the model and start the engine, unless that is done already."""
        self._started_engine()
        return self

    def close(self) -> None:
        """Stop the engine; the model stays loaded, and `embed` starts the engine again."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            running.close()

    def __enter__(self) -> "Embedder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, object]:
        """Leave out the engine, the lock, and a model that can be loaded again."""
        state = {**self.__dict__, "_running": None, "_lock": None}
        if self._model is not None:
            state["_backbone"] = None
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock = RLock()

    def __repr__(self) -> str:
        model = self._model.spec if self._model else self.backbone.name
        return f"Embedder({model!r}, engine={self.engine!r})"

    def _started_engine(self) -> Engine:
        with self._lock:
            if self._running is None:
                settings = EngineSettings(
                    self.backbone, self._model, self.audio_cache, self.address, self.threads
                )
                self._running = find_engine(self.engine).open_engine(settings)
            return self._running


def _flat(blocks: Iterator[EmbeddedBlock]) -> Iterator[Embedded]:
    for block in blocks:
        yield from block


def _prepare(backbone: Backbone) -> None:
    with suppress(Exception):  # whoever embeds meets the same error
        backbone.prepare()
