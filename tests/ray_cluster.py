"""Recordings for tests on a real Ray: some of them kill the worker that decodes them.

A program that takes the place of ffmpeg, first on the path of tests and workers, decodes files that
end in .odd: `deadly` ones kill the process that asks, as a decoder that crashes does; for `slow`
ones the first process that asks waits until it is killed.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import soundfile

from .conftest import noise_clip

FFMPEG = """#!/bin/sh
for word; do case "$word" in *.odd) file="$word" ;; esac; done
case "$file" in
*deadly*) kill -9 $PPID ;;
*slow*) if mkdir "$file.met" 2> /dev/null; then
    echo $PPID > "$file.part" && mv "$file.part" "$file.pid"
    while kill -0 $PPID 2> /dev/null; do sleep 0.05; done
fi ;;
esac
cat "$file.au"
"""


@contextmanager
def running_cluster(home: Path) -> Iterator[str]:
    """Start a Ray of two workers and yield its address."""
    ray = pytest.importorskip("ray", reason="RAY IS NOT INSTALLED: pip install 'driftscore[ray]'")
    (home / "ffmpeg").write_text(FFMPEG)
    (home / "ffmpeg").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{home}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("DRIFTSCORE_CACHE", str(home / "cache"))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        for attempts_left in (2, 1, 0):  # on a busy machine Ray gives itself up after 30 s
            try:
                ray.init(
                    "local",
                    num_cpus=2,
                    include_dashboard=False,
                    log_to_driver=False,
                    object_store_memory=100_000_000,
                )
                break
            except Exception as error:
                ray.shutdown()
                if not attempts_left or "timed out during startup" not in str(error):
                    raise
        try:
            yield str(ray.get_runtime_context().gcs_address)
        finally:
            ray.shutdown()


def odd(path: Path) -> Path:
    """Write a recording that only the program in place of ffmpeg can decode."""
    path.write_bytes(b"no sound that libsndfile knows")
    clip = noise_clip(3.0, seed=99)
    soundfile.write(f"{path}.au", clip.samples, clip.rate, "FLOAT", "BIG", "AU")
    return path


def kill_the_slow(path: Path) -> None:
    """Wait until a worker is at a slow recording, and kill it."""
    marker, deadline = Path(f"{path}.pid"), time.monotonic() + 120
    while not marker.exists():
        assert time.monotonic() < deadline, "no worker came to the slow recording"
        time.sleep(0.02)
    os.kill(int(marker.read_text()), signal.SIGKILL)


def gone(path: Path) -> bool:
    """Return whether the worker that was first at a slow recording has ended."""
    return not Path(f"/proc/{Path(f'{path}.pid').read_text().strip()}").exists()
