"""Ray itself: reach a cluster, hand work out, and hand it out again when a worker is lost."""

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from driftscore.errors import DriftscoreError, MissingExtraError, UsageError

Item = TypeVar("Item")
Answer = TypeVar("Answer")

TRIES = 3
"""How often an item may lose its worker before it is taken apart or given up."""

AHEAD = 2
"""Items in flight for each that can be worked on: one at work, one waiting."""

_REACH_S = 10.0


@dataclass(frozen=True)
class Lost:
    """Stands in place of an answer: every worker that had the item died."""

    reason: str


def work(
    function: Callable[[Item], Answer],
    items: Iterable[Item],
    *,
    address: str | None = None,
    cores: int = 1,
    split: Callable[[Item], Sequence[Item]] = lambda item: (),
    wait: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Item, Answer | Lost]]:
    """Yield items with what `function` makes of them on the cluster, as they are done.

    Few more than the cluster has cores for are taken from `items` at a time, and none while
    `wait()` holds. An item whose worker is lost is handed out again; after `TRIES` losses the
    parts that `split` makes of it take its place, or the answer is `Lost`. A deliberate error
    in a worker ends the work and names the node.
    """
    with connected(address) as ray:
        _check_cores(ray, cores)
        lost = _losses(ray)
        # Ray's own retries are off: they would neither be counted nor take an item apart.
        task = ray.remote(num_cpus=cores, max_retries=0)(_answered)
        flying: dict[Any, tuple[Item, int]] = {}

        def send(item: Item, losses: int = 0) -> None:
            flying[task.remote(function, item, str(Path.cwd()))] = (item, losses)

        waiting = iter(items)
        try:
            while True:
                room = AHEAD * max(1, lanes(ray, cores)) - len(flying)
                while room > 0 and not (flying and wait()):
                    for item in islice(waiting, 1):
                        send(item)
                    room -= 1
                if not flying:
                    return
                (ref, *_), _ = ray.wait(list(flying), num_returns=1)
                item, losses = flying.pop(ref)
                try:
                    answer = ray.get(ref)
                except lost as error:
                    if losses + 1 < TRIES:
                        send(item, losses + 1)
                    elif parts := split(item):
                        for part in parts:
                            send(part)
                    else:
                        yield item, Lost(_first_line(error))
                    continue
                except ray.exceptions.RayError as error:
                    raise _refused(error) from error
                if isinstance(answer, _Refusal):
                    raise answer.error
                yield item, answer
        finally:
            for ref in flying:
                ray.cancel(ref)


@contextmanager
def connected(address: str | None = None) -> Iterator[Any]:
    """Yield Ray, connected: as it is if it is so already, else until the block ends.

    Without an address it is the cluster of `RAY_ADDRESS`, or one that `ray start` began on
    this machine; where there is none, a local one is started, and stopped at the end.
    """
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    given = address or os.environ.get("RAY_ADDRESS", "")
    _reach(given)
    with _hushed():
        try:
            _connect(ray, given)
            if not lanes(ray, 1):
                _say("The Ray cluster has no machine yet; waiting for one")
            yield ray
        finally:
            ray.shutdown()


def node() -> str:
    """Return how this machine is called in a message."""
    return socket.gethostname()


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("The ray engine", "ray") from error
    return ray


def _connect(ray: Any, address: str) -> None:
    """Connect to a cluster, or start one on this machine where there is none to be found."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address != "local":
            ray.init(address or "auto", **quiet)
            return
    except (ConnectionError, RuntimeError, ValueError) as error:
        if address or not isinstance(error, ConnectionError):
            where = address or "this machine"
            raise DriftscoreError(
                f"The Ray cluster at {where} cannot be used: {_why(error)}"
            ) from error
    _say("No Ray cluster is running here; starting one on this machine (else give --address)")
    # What is started unasked must not phone home.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init("local", include_dashboard=False, **quiet)


def _why(error: BaseException) -> str:
    """Return why a cluster refused, which may lie deep below what Ray raises."""
    cause: BaseException | None = error
    while cause is not None:
        if "AuthToken" in str(cause) or "Unauthenticated" in str(cause):
            return (
                "it asks for its token, as one of `ray start` may by default; give this "
                "process what the cluster's owner set (RAY_AUTH_MODE=token, and the token where "
                "Ray looks for it: see Ray's documentation on token authentication)"
            )
        cause = cause.__cause__ or cause.__context__
    return _first_line(error)


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep Ray's notices of lost workers off stdout, which is data: `log_to_driver` does not."""
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


def _reach(address: str) -> None:
    """Refuse an address at which nothing answers: Ray itself would try for a minute."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon:
        if address not in ("", "auto", "local"):
            raise UsageError(f"A Ray address is host:port or ray://host:port, not {address!r}")
        return
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_S).close()
    except (OSError, ValueError) as error:
        raise DriftscoreError(
            f"No Ray cluster answers at {address} ({error}); start one with `ray start --head`, "
            "or give the address that it printed"
        ) from error


def lanes(ray: Any, cores: int) -> int:
    """Return how many tasks the cluster can do at once; it may grow and shrink."""
    return int(ray.cluster_resources().get("CPU", 0) // cores)


def _check_cores(ray: Any, cores: int) -> None:
    """Refuse tasks larger than every machine: Ray would wait for one for ever."""
    sizes = [int(n["Resources"].get("CPU", 0)) for n in ray.nodes() if n["Alive"]]
    largest = max(sizes, default=0)
    if 0 < largest < cores:
        raise UsageError(
            f"A task of {cores} threads fits on no machine of the Ray cluster: the largest has "
            f"{largest} cores"
        )


def _losses(ray: Any) -> tuple[type[Exception], ...]:
    """Return the errors that mean a lost worker, node or answer, and no fault of the work."""
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
    """A deliberate error in a worker: as text, for not every exception survives the way."""

    text: str
    usage: bool

    @property
    def error(self) -> DriftscoreError:
        return UsageError(self.text) if self.usage else DriftscoreError(self.text)


def _answered(function: Callable[[Item], Answer], item: Item, folder: str) -> Answer | _Refusal:
    """Do one item in a worker, in the folder of who asked if it is there: names are relative."""
    with suppress(OSError):
        os.chdir(folder)
    try:
        return function(item)
    except DriftscoreError as error:
        return _Refusal(f"On the node {node()}: {error}", isinstance(error, UsageError))


def _refused(error: Exception) -> Exception:
    """Return what to raise for an error that is no loss: a worker that cannot run driftscore."""
    if "failed to import" in str(error) or "No module named" in str(error):
        return DriftscoreError(
            "A Ray worker cannot load driftscore; install the same version, with the same "
            f"extras, on every node ({_last_line(error)})"
        )
    return DriftscoreError(f"A Ray worker failed: {_last_line(error)}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def _say(text: str) -> None:
    print(text, file=sys.stderr)
