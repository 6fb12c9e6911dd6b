"""Graphs in onnxruntime, one thread per call, and the texts that go into them.

Results do not depend on the number of cores. Callers run several windows or texts at the same time
from their own threads; a session can be shared between threads.
"""

import hashlib
import os
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones.devices import CPU, onnx_providers
from driftscore.backbones.vectors import Matrix, unit
from driftscore.errors import DriftscoreError, FormatError
from driftscore.storage.files import first_line, reading
from driftscore.system.process import environment

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

InputArray = NDArray[np.generic]
Item = TypeVar("Item")
Answer = TypeVar("Answer")


def open_session(
    graph: bytes,
    data: Mapping[str, bytes] | None = None,
    *,
    where: str | Path = "A graph of the model",
    device: str = CPU,
) -> "InferenceSession":
    """Return an onnxruntime session that runs a graph on one thread of the CPU, or on a device.

    `data` is the content of the files that the graph refers to (see `external_data`), by name;
    `where` names the graph in an error.
    """
    # Its import writes an identifier of the device and opens a log unless this is set.
    with environment(ORT_DISABLE_TELEMETRY="1"):
        import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if data:
        sizes = [len(content) for content in data.values()]
        options.add_external_initializers_from_files_in_memory(
            list(data), list(data.values()), sizes
        )
    with _running(f"{where} cannot be loaded"):
        return onnxruntime.InferenceSession(graph, options, providers=onnx_providers(device))


@contextmanager
def _running(what: str) -> Iterator[None]:
    """Turn the errors of a runtime, which has classes of its own, into one of ours."""
    try:
        yield
    except DriftscoreError:
        raise
    except Exception as error:
        why = f"({first_line(error)}); the files of the model do not fit together"
        raise FormatError(f"{what} {why}") from error


class OnnxSession:
    """A session that is opened when it is first run, so it costs nothing if all rows are cached.

    `opening` returns the open session; a pickled or copied object holds it and opens it again. So
    does a forked process: a session that was running in another thread would never return there.
    """

    _all: ClassVar["WeakSet[OnnxSession]"] = WeakSet()
    _locked: ClassVar[list["OnnxSession"]] = []
    _abandoned: ClassVar[list["InferenceSession | None"]] = []

    def __init__(self, opening: Callable[[], "InferenceSession"]) -> None:
        self._opening = opening
        self._session: InferenceSession | None = None
        self._lock = threading.RLock()
        self._all.add(self)

    def __reduce__(self) -> tuple[type["OnnxSession"], tuple[object]]:
        return type(self), (self._opening,)

    @classmethod
    def before_fork(cls) -> None:
        """Wait until no session is being opened, and let none be."""
        cls._locked = list(cls._all)
        for session in cls._locked:
            session._lock.acquire()

    @classmethod
    def after_fork(cls, *, child: bool) -> None:
        """Let sessions be opened again; in the child, each is a new one."""
        for session in cls._locked:
            if child:
                cls._abandoned.append(session._session)  # closing it could wait for ever
                session._session = None
            session._lock.release()
        cls._locked = []

    def open(self) -> "InferenceSession":
        """Return the session, opened if it was not."""
        with self._lock:
            if self._session is None:
                self._session = self._opening()
            return self._session

    def run(self, output: str, inputs: Mapping[str, InputArray]) -> NDArray[np.float32]:
        """Return one output of the graph, by its name."""
        session = self.open()
        with _running("A graph of the model cannot be run"):
            rows: NDArray[np.float32] = session.run([output], inputs)[0]
        return rows


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=OnnxSession.before_fork,
        after_in_parent=partial(OnnxSession.after_fork, child=False),
        after_in_child=partial(OnnxSession.after_fork, child=True),
    )


def read_intact(path: Path, sha256: str | None, *, advice: str) -> bytes:
    """Return the content of a file, which must have this checksum; `advice` says what to do."""
    with reading(path, "file of the model", advice=advice):
        content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise FormatError(f"{path} is damaged or edited; {advice}")
    return content


def in_threads(
    function: Callable[[Item], Answer], items: Iterable[Item], *, parallel: int | None = None
) -> list[Answer]:
    """Return `function` of each item, in order, `parallel` (default: all cores) at a time."""
    with ThreadPoolExecutor(parallel or os.cpu_count() or 1) as pool:
        return list(pool.map(function, items))


def open_tokenizer(content: str, *, longest: int | None = None) -> "Tokenizer":
    """Return the tokenizer that a `tokenizer.json` describes.

    With `longest`, nothing is padded and a text is cut after that many tokens; without it, the
    file's own settings hold.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(content)
        if longest is not None:
            tokenizer.no_padding()
            tokenizer.enable_truncation(longest)
    except Exception as error:  # the library raises Exception itself
        raise FormatError(f"The tokenizer.json of the model is damaged: {error}") from error
    return tokenizer


def without_known_words(content: str, labels: Iterable[str]) -> list[str]:
    """Return the labels that a WordPiece `tokenizer.json` can only spell in pieces of words.

    The words are looked for in the text of the file, as BERT normalises them (lower case, without
    accents): opening the tokenizer takes a twentieth of a second, which a command with cached
    labels would otherwise not need.
    """
    unknown = []
    for label in labels:
        letters = unicodedata.normalize("NFD", label.lower())
        plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
        if not any(f'"{word}":' in content for word in re.findall(r"[^\W_]+", plain)):
            unknown.append(label)
    return unknown


def embed_alike(
    ids: Sequence[list[int]],
    embed: Callable[[NDArray[np.int64]], Matrix],
    *,
    rows: int,
    dim: int,
    parallel: int,
) -> Matrix:
    """Return one unit row per text, given its token ids: the same bits in any list.

    Matrix products of one shape give a row the same bits at every position; products of another
    shape may not. `embed` therefore gets `rows` texts at a time, all of one token length, and the
    first one fills the free rows.
    """
    order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
    batches: list[list[int]] = []
    for _, group in groupby(order, key=lambda row: len(ids[row])):
        alike = list(group)
        batches += [alike[at : at + rows] for at in range(0, len(alike), rows)]
    # The longest texts first: the last batch to finish should be a short one.
    batches.reverse()

    def embed_batch(batch: list[int]) -> Matrix:
        some = [ids[row] for row in batch]
        filled = np.array(some + [some[0]] * (rows - len(some)), np.int64)
        return unit(embed(filled)[: len(some)])

    together = np.zeros((len(ids), dim), np.float32)
    encoded = in_threads(embed_batch, batches, parallel=parallel)
    for batch, some in zip(batches, encoded, strict=True):
        together[batch] = some
    return together
