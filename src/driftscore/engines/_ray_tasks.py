"""Ray itself: connect to a cluster, run tasks, and run them again when a worker is lost."""

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from driftscore.errors import DriftscoreError, MissingExtraError, UsageError, WorkerError

Item = TypeVar("Item")
Answer = TypeVar("Answer")

TRIES = 3
"""How often an item may lose its worker before it is split or given up."""

AHEAD = 2
"""Items submitted for each that can run: one running, one waiting."""

_CONNECT_S = 10.0


@dataclass(frozen=True)
class Lost:
    """Takes the place of an answer: every worker that had the item died."""

    reason: str


def run_tasks(
    function: Callable[[Item], Answer],
    items: Iterable[Item],
    *,
    address: str | None = None,
    cores: int = 1,
    split: Callable[[Item], Sequence[Item]] = lambda item: (),
    wait: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Item, Answer | Lost]]:
    """Yield items with the result of `function` on the cluster, as they are done.

    Only a few more than the cluster has cores for are taken from `items` at a time, and none
    while `wait()` is true. An item whose worker is lost is submitted again; after `TRIES` losses
    the parts that `split` returns take its place, or the answer is `Lost`. A deliberate error in
    a worker ends the run and names the node.
    """
    with connected(address) as ray:
        _check_cores(ray, cores)
        tasks = _Tasks(ray, function, cores)
        waiting = iter(items)
        try:
            while True:
                room = AHEAD * max(1, slots(ray, cores)) - len(tasks.submitted)
                while room > 0 and not (tasks.submitted and wait()):
                    for item in islice(waiting, 1):
                        tasks.submit(item)
                    room -= 1
                if not tasks.submitted:
                    return
                yield from tasks.next_result(split)
        finally:
            tasks.cancel()


class _Tasks(Generic[Item, Answer]):
    """The items that were submitted to a cluster, each with how often it lost its worker."""

    def __init__(self, ray: Any, function: Callable[[Item], Answer], cores: int) -> None:
        self.submitted: dict[Any, tuple[Item, int]] = {}
        self._ray, self._function = ray, function
        self._lost = _losses(ray)
        # Ray's own retries are off: they would neither be counted nor split an item.
        self._task = ray.remote(num_cpus=cores, max_retries=0)(_answered)

    def submit(self, item: Item, losses: int = 0) -> None:
        """Send an item to the cluster."""
        reference = self._task.remote(self._function, item, _working_folder())
        self.submitted[reference] = (item, losses)

    def next_result(
        self, split: Callable[[Item], Sequence[Item]]
    ) -> Iterator[tuple[Item, Answer | Lost]]:
        """Wait for one item; yield its result, or submit it again if its worker was lost."""
        (reference, *_), _ = self._ray.wait(list(self.submitted), num_returns=1)
        item, losses = self.submitted.pop(reference)
        try:
            answer = self._ray.get(reference)
        except self._lost as error:
            if losses + 1 < TRIES:
                self.submit(item, losses + 1)
            elif parts := split(item):
                for part in parts:
                    self.submit(part)
            else:
                yield item, Lost(_first_line(error))
            return
        except self._ray.exceptions.RayError as error:
            raise _refused(error) from error
        if isinstance(answer, _Refusal):
            raise answer.error
        yield item, answer

    def cancel(self) -> None:
        """Cancel everything that is not done."""
        for reference in self.submitted:
            self._ray.cancel(reference)


@contextmanager
def connected(address: str | None = None) -> Iterator[Any]:
    """Yield Ray, connected: as it is if it is connected already, else until the block ends.

    Without an address it is the cluster of `RAY_ADDRESS`, or one that `ray start` began on this
    machine; if there is none, a local one is started, and stopped at the end.
    """
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    given = address or os.environ.get("RAY_ADDRESS", "")
    _check_reachable(given)
    with _quiet_logs():
        try:
            _connect(ray, given)
            if not slots(ray, 1):
                _message("The Ray cluster has no machine yet; waiting for one")
            yield ray
        finally:
            ray.shutdown()


def node() -> str:
    """Return the name of this machine for messages."""
    return socket.gethostname()


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("The ray engine", "ray") from error
    return ray


def _connect(ray: Any, address: str) -> None:
    """Connect to a cluster, or start one on this machine if there is none."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address != "local":
            ray.init(address or "auto", **quiet)
            return
    except (ConnectionError, RuntimeError, ValueError) as error:
        if address or not isinstance(error, ConnectionError):
            where = address or "this machine"
            raise WorkerError(
                f"The Ray cluster at {where} cannot be used: {_why(error)}"
            ) from error
    _message("No Ray cluster is running here; starting one on this machine (else give --address)")
    ray.init("local", include_dashboard=False, **quiet)


def _why(error: BaseException) -> str:
    """Return why a cluster refused; the cause may be deep below what Ray raises."""
    cause: BaseException | None = error
    while cause is not None:
        if "AuthToken" in str(cause) or "Unauthenticated" in str(cause):
            return (
                "it requires its token, as a cluster of `ray start` may by default; give this "
                "process the settings of the cluster (RAY_AUTH_MODE=token, and the token where "
                "Ray looks for it: see Ray's documentation on token authentication)"
            )
        cause = cause.__cause__ or cause.__context__
    return _first_line(error)


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Keep Ray's messages about lost workers off stdout, which `log_to_driver` does not."""
    inside: Any = sys.modules.get("ray._private.worker")
    printing = getattr(inside, "print_worker_logs", None)
    if printing is None:
        yield
        return
    inside.print_worker_logs = lambda *_, **__: None
    try:
        yield
    finally:
        inside.print_worker_logs = printing


def _check_reachable(address: str) -> None:
    """Refuse an address at which nothing answers; Ray itself would try for a minute."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon:
        if address not in ("", "auto", "local"):
            raise UsageError(f"A Ray address is host:port or ray://host:port, got {address!r}")
        return
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise WorkerError(
            f"No Ray cluster answers at {address} ({error}); start one with `ray start --head`, "
            "or give the address that it printed"
        ) from error


def slots(ray: Any, cores: int) -> int:
    """Return how many tasks the cluster can run at once; it may grow and shrink."""
    return int(ray.cluster_resources().get("CPU", 0) // cores)


def _check_cores(ray: Any, cores: int) -> None:
    """Refuse tasks that fit on no machine; Ray would wait forever."""
    sizes = [int(n["Resources"].get("CPU", 0)) for n in ray.nodes() if n["Alive"]]
    largest = max(sizes, default=0)
    if 0 < largest < cores:
        raise UsageError(
            f"A task of {cores} threads fits on no machine of the Ray cluster: the largest has "
            f"{largest} cores"
        )


def _losses(ray: Any) -> tuple[type[Exception], ...]:
    """Return the errors that mean a lost worker, node or answer, not a failed task."""
    known = ray.exceptions
    return (
        known.WorkerCrashedError,
        known.NodeDiedError,
        known.LocalRayletDiedError,
        known.OutOfMemoryError,
        known.ObjectLostError,
    )


@dataclass(frozen=True)
class _Refusal:
    """A deliberate error in a worker, as text: not every exception can be pickled."""

    text: str
    usage: bool

    @property
    def error(self) -> DriftscoreError:
        return UsageError(self.text) if self.usage else WorkerError(self.text)


def _answered(function: Callable[[Item], Answer], item: Item, folder: str) -> Answer | _Refusal:
    """Run one item in a worker, in the caller's folder if it exists: paths are relative."""
    with suppress(OSError):
        os.chdir(folder or os.curdir)
    try:
        return function(item)
    except DriftscoreError as error:
        return _Refusal(f"On the node {node()}: {error}", isinstance(error, UsageError))


def _working_folder() -> str:
    """Return the working directory; nothing if it no longer exists."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _refused(error: Exception) -> Exception:
    """Return the error of a worker that cannot run driftscore or failed in it."""
    if "failed to import" in str(error) or "No module named" in str(error):
        return WorkerError(
            "A Ray worker cannot load driftscore; install the same version, with the same "
            f"extras, on every node ({_last_line(error)})"
        )
    return WorkerError(f"A Ray worker failed: {_last_line(error)}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def _message(text: str) -> None:
    print(text, file=sys.stderr)
