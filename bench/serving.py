"""The service under load: 64 clients at once for two minutes, with `mini`.

Each client sends clips of 5 s (16 kHz wav, 160 kB) over one connection, one after another, and
waits as long as Retry-After says when it is refused. Clients and service share the machine. Times
are those of answers with a result; memory is that of the service, read twice per second.
"""

import asyncio
import io
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import soundfile

from bench.figures import Figure, NotHereError, Spread

CLIENTS, SECONDS, QUICK_SECONDS = 64, 120.0, 8.0
CLIP_S, RATE = 5.0, 16_000
FLAT_MB_PER_MINUTE = 2.0
_READY = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"
_TARGET = "/v1/classify?labels=dog%20bark,siren,rain,speech"


@dataclass
class Load:
    """What the clients got: the times of results, statuses, refusals, and memory over time."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    without_retry_after: int = 0
    broken: list[str] = field(default_factory=list)
    memory_mb: list[tuple[float, float]] = field(default_factory=list)

    @property
    def errors(self) -> int:
        """Answers that are neither a result nor a refusal that says when to come again."""
        other = sum(n for status, n in self.statuses.items() if status not in (200, 503))
        return other + self.without_retry_after + len(self.broken)

    def growth_mb_per_minute(self) -> float:
        """Return the slope of the memory in the second half."""
        times, memory = np.array(self.memory_mb).T
        half = times >= times[-1] / 2
        return float(60 * np.polyfit(times[half], memory[half], 1)[0])


def measure(*, quick: bool) -> list[Figure]:
    """Measure the service with `mini`."""
    if not Path("/proc/self/status").exists():
        raise NotHereError("the memory of the service is read from /proc, which Linux has")
    seconds = QUICK_SECONDS if quick else SECONDS
    with tempfile.TemporaryDirectory() as cache, serving(Path(cache)) as (process, port):
        load = asyncio.run(run_load(process.pid, port, clients=CLIENTS, seconds=seconds))
    return figures(load, seconds)


def figures(load: Load, seconds: float) -> list[Figure]:
    """Return the figures of a load."""
    p50, p99 = (1e3 * float(np.quantile(load.seconds, share)) for share in (0.5, 0.99))
    refused = load.statuses[503]
    memory = [mb for _, mb in load.memory_mb]
    growth = load.growth_mb_per_minute()
    return [
        Figure(
            f"{CLIENTS} clients for {seconds:g} s: time to a result",
            Spread.of([1e3 * one for one in load.seconds]),
            "ms",
            bar="no error but 503 with Retry-After",
            met=load.errors == 0,
            note=f"p50 {p50:.0f} ms, p99 {p99:.0f} ms; {len(load.seconds) / seconds:.1f} results "
            f"per second; {refused} refusals; {load.errors} errors; load of the machine "
            f"{os.getloadavg()[0]:.1f} at the end",
            details={
                "statuses": dict(load.statuses),
                "broken": dict(Counter(load.broken)),
                "p50_ms": p50,
                "p99_ms": p99,
            },
        ),
        Figure(
            f"memory of the service, {CLIENTS} clients",
            Spread.of(memory),
            "MB",
            bar=f"flat: < {FLAT_MB_PER_MINUTE:g} MB per minute in the second half",
            met=growth < FLAT_MB_PER_MINUTE,
            note=f"{growth:+.2f} MB per minute in the second half; from {memory[0]:.0f} MB at the "
            f"start to {memory[-1]:.0f} MB",
            details={"growth_mb_per_minute": growth},
        ),
    ]


@contextmanager
def serving(cache: Path, *, port: int = 0) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Start the service, at a free port if none is given; yield its process and its port."""
    command = [sys.executable, "-m", "driftscore", "serve", "--port", str(port)]
    env = os.environ | {"DRIFTSCORE_CACHE": str(cache), "DRIFTSCORE_TOKEN": ""}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            line = process.stderr.readline() if process.stderr else ""
            found = re.search(r"http://[^:]+:(\d+)", line)
            if found is None:
                raise RuntimeError(f"the service did not start: {line.strip()}")
            yield process, int(found[1])
        finally:
            process.terminate()


def wait_until_ready(port: int) -> None:
    """Wait until the service accepts work."""
    asyncio.run(_until_ready(port))


async def run_load(pid: int, port: int, *, clients: int, seconds: float) -> Load:
    """Let clients send clips for some time, and return what they got."""
    load = Load()
    await _until_ready(port)
    start = time.monotonic()
    due = start + seconds
    request = _request(_clip())
    watching = asyncio.create_task(_watch(pid, load, start))
    await asyncio.gather(*(_client(port, request, load, due) for _ in range(clients)))
    watching.cancel()
    return load


def _clip() -> bytes:
    out = io.BytesIO()
    samples = 0.1 * np.random.default_rng(0).standard_normal(round(CLIP_S * RATE))
    soundfile.write(out, samples, RATE, format="WAV")
    return out.getvalue()


def _request(body: bytes) -> bytes:
    head = f"POST {_TARGET} HTTP/1.1\r\nHost: localhost\r\nContent-Type: audio/wav\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _until_ready(port: int) -> None:
    for _ in range(600):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        status, _ = await _exchange(reader, writer, _READY)
        writer.close()
        if status == 200:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError("the service did not become ready within a minute")


async def _client(port: int, request: bytes, load: Load, due: float) -> None:
    """Send the clip again and again over one connection."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (now := time.monotonic()) < due:
            status, headers = await _exchange(reader, writer, request)
            load.statuses[status] += 1
            if status == 200:
                load.seconds.append(time.monotonic() - now)
            elif status == 503:
                load.without_retry_after += "retry-after" not in headers
                wait = float(headers.get("retry-after", 1))
                await asyncio.sleep(min(wait, max(0.0, due - time.monotonic())))
        writer.close()
    except (OSError, asyncio.IncompleteReadError) as error:
        load.broken.append(repr(error))


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, dict[str, str]]:
    """Send a request and return the status and the headers of its answer."""
    writer.write(request)
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
    await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split()[1]), headers


async def _watch(pid: int, load: Load, start: float) -> None:
    """Note the resident memory of a process, twice per second."""
    while True:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+(\d+)", text)
        if found:
            load.memory_mb.append((time.monotonic() - start, int(found[1]) / 1e3))
        await asyncio.sleep(0.5)
