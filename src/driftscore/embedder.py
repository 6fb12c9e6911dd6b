"""Embedder: recordings in, window embeddings out; the one way from audio to embeddings.

    with Embedder("mini", audio_cache=True) as embedder:
        for embedded in embedder.embed(["a.wav", "b.flac"]):
            embedded.rows      # one unit row per window

It holds a model and an engine. The model is loaded when it is first needed, once, however many
threads ask for it; the engine's threads live until `close`. Several threads may call `embed` at the
same time. Classifier, the command, the lab and the service all embed through it.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from os import PathLike, fspath, getpid
from threading import RLock, Thread
from typing import cast

from driftscore.audio.recordings import Recording
from driftscore.backbones import (
    DEFAULT_BACKBONE,
    DEFAULT_RUNTIME,
    Backbone,
    MinimalBackbone,
    check_backbone,
)
from driftscore.backbones.devices import device_name, split_runtime
from driftscore.engines import (
    DEFAULT_ENGINE,
    Embedded,
    Engine,
    EngineModule,
    EngineSettings,
    ModelSpec,
)
from driftscore.engines import KIND as ENGINE
from driftscore.engines.protocol import thread_count
from driftscore.engines.window_stream import WindowEmbedding, embed_windows, sliding_embeddings
from driftscore.errors import UsageError
from driftscore.system.plugins import find
from driftscore.text.cache import TextCache

__all__ = ["Embedded", "Embedder"]


class Embedder:
    """A model and the engine that runs it.

    Parameters
    ----------
        backbone: the name or path of a model (see `load_backbone`), or a loaded one.
        runtime: what a CLAP runs in: "auto", "torch" or "onnx".
        engine: where recordings are embedded: "local", "ray" or the name of another engine.
        address: the cluster, for an engine that has one.
        audio_cache: keep embeddings on disk, by the content of the recordings.
        threads: windows in work at the same time; None for the number of cores.
        text_cache: keep the embeddings of texts on disk.
        device: where the model runs: "auto" (a GPU if torch sees one), "cpu", "cuda", "cuda:1",
            "mps" or the number of a GPU.
        batch_size: windows per call; None for one on the CPU, and by its memory on a GPU.

    Only `backbone`, `runtime`, `device` and `batch_size` can change a number.

    """

    def __init__(
        self,
        backbone: str | PathLike[str] | MinimalBackbone = DEFAULT_BACKBONE,
        *,
        runtime: str | None = None,
        engine: str = DEFAULT_ENGINE,
        address: str | None = None,
        audio_cache: bool = False,
        threads: int | None = None,
        text_cache: bool = True,
        device: object = None,
        batch_size: int | None = None,
    ) -> None:
        find(ENGINE, engine)
        thread_count(threads)
        self.runtime = None if runtime == DEFAULT_RUNTIME else runtime
        if device is not None:
            self.runtime = f"{split_runtime(runtime)[0] or DEFAULT_RUNTIME}:{device_name(device)}"
        self.batch_size = batch_size
        self.engine = engine
        self.address = address
        self.audio_cache = audio_cache
        self.threads = threads
        self.text_cache = TextCache() if text_cache else None
        self.spec = fspath(backbone) if isinstance(backbone, (str, PathLike)) else ""
        """The name or path that the model was asked for by; empty if it was given loaded."""
        self._backbone: Backbone | None = None
        if not isinstance(backbone, (str, PathLike)):
            self._backbone = check_backbone(backbone)
            if self.runtime is not None or batch_size is not None:
                raise UsageError(
                    "A runtime or device is chosen when a model is loaded; this one is loaded"
                )
        self._running: Engine | None = None
        self._lock = RLock()
        self._pid = getpid()

    @property
    def backbone(self) -> Backbone:
        """The model, loaded when it is first asked for."""
        with self._locked():
            if self._backbone is None:
                self._backbone = self._model().load()
            return self._backbone

    def _model(self) -> ModelSpec:
        return ModelSpec(self.spec, self.runtime, self.batch_size)

    def embed(self, recordings: Iterable[Recording]) -> Iterator[Embedded]:
        """Yield the window embeddings of each recording, or its error, in the order given."""
        blocks = self.start().embed(recordings)
        return (embedded for block in blocks for embedded in block)

    def slide(
        self, recording: Recording, *, window_s: float = 4.0, hop_s: float = 0.5
    ) -> Iterator[WindowEmbedding]:
        """Yield start, end and embedding of windows at a fine hop (see `sliding`), as a stream."""
        return sliding_embeddings(recording, self.backbone, window_s=window_s, hop_s=hop_s)

    def windows(
        self, recordings: Iterable[Recording], *, window_s: float, hop_s: float
    ) -> Iterator[Embedded]:
        """Yield the windows of each recording at a fine hop, or its error, in the order given.

        The windows that `embed` yields, if the length and the hop are theirs.
        """
        backbone = self.backbone
        if (window_s, hop_s) == (backbone.seconds, backbone.seconds / 2):
            return self.embed(recordings)
        if self.engine != DEFAULT_ENGINE or self.audio_cache:
            raise UsageError(
                f"Windows of {window_s:g} s every {hop_s:g} s are embedded on this machine and not "
                "cached; leave out the engine and the cache, or use the model's own windows: "
                f"--window {backbone.seconds:g} --hop {backbone.seconds / 2:g}"
            )
        return embed_windows(
            recordings, backbone, window_s=window_s, hop_s=hop_s, threads=thread_count(self.threads)
        )

    def prepare(self) -> None:
        """Load the model, and let a thread open what embedding needs meanwhile.

        With an audio cache perhaps no recording needs to be embedded, so nothing is opened.
        """
        backbone = self.backbone

        def open_ahead() -> None:
            with suppress(Exception):  # whoever embeds meets the same error
                backbone.prepare()

        if not self.audio_cache and self.engine == DEFAULT_ENGINE:
            Thread(target=open_ahead, name="driftscore-prepare").start()

    def start(self) -> Engine:
        """Load the model and start the engine, unless that is done already; return the engine."""
        with self._locked():
            if self._running is None:
                model = self._model() if self.spec else None
                settings = EngineSettings(
                    self.backbone, model, self.audio_cache, self.address, self.threads
                )
                engine = cast(EngineModule, find(ENGINE, self.engine))
                self._running = engine.open_engine(settings)
            return self._running

    def close(self) -> None:
        """Stop the engine; the model stays loaded, and `embed` starts the engine again."""
        with self._locked():
            running, self._running = self._running, None
        if running is not None:
            running.close()

    def _locked(self) -> AbstractContextManager[object]:
        """Return the lock; a forked process has none of the threads that its parent started."""
        if self._pid != getpid():
            self._running, self._lock, self._pid = None, RLock(), getpid()
        return self._lock

    def __enter__(self) -> "Embedder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, object]:
        """Leave out the engine, the lock, and a model that can be loaded again."""
        state = {**self.__dict__, "_running": None, "_lock": None}
        if self.spec:
            state["_backbone"] = None
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock = RLock()

    def __repr__(self) -> str:
        return f"Embedder({self.spec or self.backbone.name!r}, engine={self.engine!r})"
