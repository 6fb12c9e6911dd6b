"""Hostile bodies: 200 requests that no honest client sends, while a normal client is served.

The requests are those of `tests/service/hostile.py`: truncated and mislabelled files, headers that
lie, NaN, archives, ten hours of silence in a few kB. They are sent one after another; the normal
client classifies clips of 1 s over another connection the whole time.
"""

import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Figure, NotHereError, Spread
from bench.serving import serving, wait_until_ready

BAR_S = 2.0
QUICK_STEP = 10
"""With `--quick` every tenth request is sent."""


def measure(*, quick: bool) -> list[Figure]:
    """Send all requests and time the answers."""
    try:
        import httpx2 as httpx

        from tests.service.conftest import clip_bytes
        from tests.service.hostile import CLASSIFY, Hostile, requests
    except ImportError as error:
        raise NotHereError(f"{error.name} is not installed: make setup") from error
    cases = requests()[:: QUICK_STEP if quick else 1]
    normal: list[tuple[int, float]] = []
    ended = threading.Event()
    clip = clip_bytes()

    def timed(client: httpx.Client, case: Hostile) -> tuple[int, float]:
        begun = time.monotonic()
        answer = client.post(case.path, content=case.body, headers=case.headers)
        return answer.status_code, time.monotonic() - begun

    def serve_normal(url: str) -> None:
        with httpx.Client(base_url=url, timeout=60) as client:
            while not ended.is_set():
                normal.append(timed(client, Hostile("a clip", clip, CLASSIFY)))

    with tempfile.TemporaryDirectory() as cache, serving(Path(cache)) as (_, port):
        wait_until_ready(port)
        url = f"http://127.0.0.1:{port}"
        thread = threading.Thread(target=serve_normal, args=(url,))
        thread.start()
        with httpx.Client(base_url=url, timeout=60) as client:
            found = [(case.what, *timed(client, case)) for case in cases]
        ended.set()
        thread.join()
    return [_hostile_figure(found), _normal_figure(normal)]


def _hostile_figure(found: Sequence[tuple[str, int, float]]) -> Figure:
    slowest = max(found, key=lambda one: one[2])
    wrong = [what for what, status, _ in found if not 400 <= status < 500]
    return Figure(
        f"{len(found)} hostile bodies: time to the answer",
        Spread.of([1e3 * seconds for _, _, seconds in found]),
        "ms",
        bar=f"4xx within {BAR_S:g} s each",
        met=not wrong and slowest[2] < BAR_S,
        note=f"slowest {1e3 * slowest[2]:.0f} ms ({slowest[0]}); {len(wrong)} answers are not 4xx",
        details={"not_4xx": wrong},
    )


def _normal_figure(normal: Sequence[tuple[int, float]]) -> Figure:
    refused = sum(status != 200 for status, _ in normal)
    slowest = max(seconds for _, seconds in normal)
    return Figure(
        "a normal client meanwhile: time to a result",
        Spread.of([1e3 * seconds for _, seconds in normal]),
        "ms",
        bar="every request gets its result",
        met=refused == 0,
        note=f"{len(normal)} requests, {refused} without a result; slowest {1e3 * slowest:.0f} ms",
    )
