"""Ray itself: connect to a cluster, run tasks, and run them again when a worker is lost."""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from socket import create_connection, gethostname
from typing import Any, NamedTuple, TypeVar

from driftscore.errors import DriftscoreError, MissingExtraError, UsageError, WorkerError
from driftscore.storage.files import first_line, working_folder
from driftscore.system.process import environment

RayModule = Any
"""The package ray, which has no types that can be checked."""
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
    with connected() as ray:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        largest = max((int(node.get("CPU", 0)) for node in nodes), default=0)
        if 0 < largest < cores:  # Ray would wait forever
            raise UsageError(
                f"A task of {cores} threads fits on no machine of the Ray cluster: the largest has "
                f"{largest} cores"
            )
        errors = ray.exceptions
        losing = (errors.WorkerCrashedError, errors.NodeDiedError, errors.LocalRayletDiedError,
                  errors.OutOfMemoryError, errors.ObjectLostError)  # fmt: skip
        # Ray's own retries are off: they would neither be counted nor split an item.
        task = ray.remote(num_cpus=cores, max_retries=0)(_answered)
        waiting, folder = iter(items), working_folder()
        submitted: dict[Any, tuple[Item, int]] = {}
        """The items in work, each with how often it lost its worker."""

        def submit(item: Item, losses: int = 0) -> None:
            submitted[task.remote(function, item, folder)] = (item, losses)

        try:
            while True:
                room = AHEAD * max(1, slots(ray, cores)) - len(submitted)
                while room > 0 and not (submitted and wait()):
                    for item in islice(waiting, 1):
                        submit(item)
                    room -= 1
                if not submitted:
                    return
                (reference, *_), _ = ray.wait(list(submitted), num_returns=1)
                item, losses = submitted.pop(reference)
                try:
                    answer = ray.get(reference)
                except losing as error:
                    again = [item] if losses + 1 < TRIES else split(item)
                    for part in again:
                        submit(part, losses + 1 if part is item else 0)
                    if again:
                        continue
                    answer = Lost(first_line(error))
                except errors.RayError as error:
                    what = (str(error).strip() or type(error).__name__).splitlines()[-1]
                    if "failed to import" in str(error) or "No module named" in str(error):
                        raise WorkerError(
                            "A Ray worker cannot load driftscore; install the same version, with "
                            f"the same extras, on every node ({what})"
                        ) from error
                    raise WorkerError(f"A Ray worker failed: {what}") from error
                if isinstance(answer, _Refusal):
                    raise (UsageError if answer.usage else WorkerError)(answer.text)
                yield item, answer
        finally:
            for reference in submitted:
                ray.cancel(reference)


class _Refusal(NamedTuple):
    """A deliberate error in a worker, as text: not every exception can be pickled."""

    text: str
    usage: bool


def _answered(function: Callable[[Item], Answer], item: Item, folder: str) -> Answer | _Refusal:
    """Run one item in a worker, in the caller's folder if it exists: paths are relative."""
    with suppress(OSError):
        os.chdir(folder or os.curdir)
    try:
        return function(item)
    except DriftscoreError as error:
        return _Refusal(f"On the node {gethostname()}: {error}", isinstance(error, UsageError))


@contextmanager
def connected(address: str | None = None) -> Iterator[RayModule]:
    """Yield Ray, connected: as it is if it is connected already, else until the block ends.

    Without an address it is the cluster of `RAY_ADDRESS`, or one that `ray start` began on this
    machine; if there is none, a local one is started, and stopped at the end.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("The ray engine", "ray") from error
    if ray.is_initialized():
        yield ray
        return
    target = address or os.environ.get("RAY_ADDRESS", "")
    check_reachable(target)
    # Ray prints messages about lost workers to stdout, whatever `log_to_driver` is.
    inside: Any = sys.modules.get("ray._private.worker")
    printing = getattr(inside, "print_worker_logs", None)
    if printing:
        inside.print_worker_logs = lambda *_, **__: None
    try:
        with environment(RAY_USAGE_STATS_ENABLED="0"):  # of a cluster that is started here
            _connect(ray, target)
        if not slots(ray, 1):
            print("The Ray cluster has no machine yet; waiting for one", file=sys.stderr)
        yield ray
    finally:
        ray.shutdown()
        if printing:
            inside.print_worker_logs = printing


def slots(ray: RayModule, cores: int) -> int:
    """Return how many tasks the cluster can run at once; it may grow and shrink."""
    return int(ray.cluster_resources().get("CPU", 0) // cores)


def check_reachable(address: str) -> None:
    """Refuse an address at which nothing answers; Ray itself would try for a minute."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon:
        if address not in ("", "auto", "local"):
            raise UsageError(f"A Ray address is host:port or ray://host:port, got {address!r}")
        return
    try:
        create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise WorkerError(
            f"No Ray cluster answers at {address} ({error}); start one with `ray start --head`, "
            "or give the address that it printed"
        ) from error


def _connect(ray: RayModule, address: str) -> None:
    """Connect to a cluster, or start one on this machine if there is none."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address != "local":
            ray.init(address or "auto", **quiet)
            return
    except (ConnectionError, RuntimeError, ValueError) as error:
        if address or not isinstance(error, ConnectionError):
            why = first_line(error)
            cause: BaseException | None = error
            while cause is not None:  # it may be deep below what Ray raises
                if "AuthToken" in str(cause) or "Unauthenticated" in str(cause):
                    why = (
                        "it requires its token, as a cluster of `ray start` may by default; give "
                        "this process the settings of the cluster (RAY_AUTH_MODE=token, and the "
                        "token where Ray looks for it: see Ray's documentation on token "
                        "authentication)"
                    )
                cause = cause.__cause__ or cause.__context__
            where = address or "this machine"
            raise WorkerError(f"The Ray cluster at {where} cannot be used: {why}") from error
    print(
        "No Ray cluster is running here; starting one on this machine (else give --engine "
        "ray:HOST:PORT)",
        file=sys.stderr,
    )
    ray.init("local", include_dashboard=False, **quiet)
