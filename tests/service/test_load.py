"""Many clients at once: a short version of `python -m bench --only serving`."""

import asyncio
from pathlib import Path

import pytest

from bench.serving import CLIENTS, Load, figures, run_load, serving

pytestmark = pytest.mark.slow


def test_many_clients_get_a_result_or_are_asked_to_come_again(tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("the memory of the service is read from /proc, which Linux has")
    with serving(tmp_path) as (process, port):
        load = asyncio.run(run_load(process.pid, port, clients=CLIENTS, seconds=2.0))
    assert load.errors == 0, (load.statuses, load.broken)
    assert load.statuses[200] > 0
    assert load.statuses[503] > 0  # 34 of 64 fit into the work and the queue
    assert max(mb for _, mb in load.memory_mb) < 500


def test_errors_and_growth_are_counted() -> None:
    load = Load(seconds=[0.1, 0.2, 0.3])
    load.statuses.update({200: 3, 503: 5})
    load.memory_mb = [(float(second), 100.0 + max(0, second - 60) / 6) for second in range(121)]
    assert load.errors == 0
    assert load.growth_mb_per_minute() == pytest.approx(10.0)
    times, memory = figures(load, 120.0)
    assert (times.met, memory.met) == (True, False)
    load.statuses[500] += 1
    load.broken.append("reset")
    load.without_retry_after = 2
    assert load.errors == 4
    assert not figures(load, 120.0)[0].met
