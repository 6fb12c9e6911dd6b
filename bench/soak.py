"""Listen for a long time at many times real time: memory, threads and descriptors.

    python -m bench.soak --minutes 30 --speed 20
    python -m bench.soak --faults --minutes 120 --sources 4

Two sources play a scene with sounds of the demo again and again. Events go to the store, lines of
JSON, clips and an audit in a temporary folder. Memory is sampled every few seconds
(`bench/memory_slope.py`), its rows are in `memory.csv` in the folder `--out`. On a machine that is
too slow for the speed the sources wait, and the speed that was reached is stated. With `--faults`
things break in between (`bench/faults.py`).
"""

import argparse
import ctypes
import gc
import itertools
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.memory_slope import HOUR_S, MemoryLog, MemoryRow
from driftscore import Classifier, Embedder
from driftscore.audio.recordings import Samples, read
from driftscore.decisions import DecisionStore
from driftscore.events.watchlist import WatchList
from driftscore.live.blocks import AudioBlock, SourceError
from driftscore.live.clips import EventClips
from driftscore.live.listener import Listener, ListenSettings
from driftscore.live.outputs import Output
from driftscore.live.outputs.delivery import Delivery
from driftscore.live.outputs.jsonl import JsonLines
from driftscore.live.outputs.mqtt import Mqtt
from driftscore.live.outputs.webhook import Webhook
from driftscore.system.process import bound_heaps

RATE, SAMPLE_S, BLOCK_S = 32_000, 5.0, 0.1
LABELS = ("siren", "alarm clock", "church bell", "dog bark", "glass breaking")
SOUNDS = Path(__file__).resolve().parent.parent / "demo" / "sounds"


class Loop:
    """A scene that is played again and again, faster than real time."""

    endless = True

    def __init__(self, samples: Samples, speed: float, *, waits: bool) -> None:
        self._samples = samples
        self._speed = speed
        self.waits = waits
        self.drops = threading.Event()
        """Set to make the source fail once."""

    def describe(self) -> str:
        """Return what it is called in messages."""
        return "the loop"

    def blocks(self, stop: threading.Event) -> Iterator[AudioBlock]:
        """Yield blocks without an end."""
        begun, step, position = time.monotonic(), round(BLOCK_S * RATE), 0
        while True:
            first = position % (len(self._samples) - step)
            due = begun + (position + step) / RATE / self._speed
            if stop.wait(max(0.0, due - time.monotonic())):
                return
            if self.drops.is_set():
                self.drops.clear()
                raise SourceError("the loop was interrupted")
            yield AudioBlock(self._samples[first : first + step], RATE, begun + position / RATE)
            position += step


def scene(seconds: float = 300.0) -> Samples:
    """Return quiet noise with a sound every 20 s."""
    samples = 0.01 * np.random.default_rng(0).standard_normal(round(seconds * RATE))
    names = ("siren", "alarm_clock", "church_bell", "speech")
    for number, at_s in enumerate(range(10, round(seconds) - 10, 20)):
        sound = read(SOUNDS / f"{names[number % len(names)]}.flac", rate=RATE, seconds=5).samples
        first = at_s * RATE
        samples[first : first + len(sound)] += 0.5 * sound / np.abs(sound).max()
    return samples.astype(np.float32)


def memory_mb() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class _MallInfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                     "uordblks", "fordblks", "keepcost")
    )  # fmt: skip


def heaps_mb() -> dict[str, float]:
    """Return the size of all heaps of glibc and what of it is free: a leak is in use, not free."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:  # another C library, or glibc before 2.33
        return {}
    mallinfo.restype = _MallInfo
    info = mallinfo()
    return {"heaps_mb": info.arena / 1e6, "free_mb": info.fordblks / 1e6}


def descriptors() -> int:
    """Return how many descriptors are open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def main() -> None:
    """Run the soak and print a line of JSON with what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--speed", type=float, default=20.0)
    parser.add_argument("--sources", type=int, default=2)
    parser.add_argument(
        "--drop", action="store_true", help="drop audio where the machine is too slow"
    )
    parser.add_argument("--faults", action="store_true", help="let things break in between")
    parser.add_argument("--every", type=float, default=180.0, help="seconds between two faults")
    parser.add_argument("--out", type=Path, default=Path("build/soak"), help="default: build/soak")
    for name in ("--child", "--mqtt", "--webhook"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        listen(Path(given.child), given.speed, given.sources, given.mqtt, given.webhook)
        return
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home, minutes, speed, sources = Path(folder), given.minutes, given.speed, given.sources
        if given.faults:
            from bench.faults import run

            result = run(home, minutes, speed, sources, given.every, given.out)
        else:
            result = soak(home, minutes, speed, sources, given.out, waits=not given.drop)
    line = json.dumps(result)
    (given.out / "result.json").write_text(line + "\n", encoding="utf-8")
    print(line)


def listen(home: Path, speed: float, count: int, mqtt: str, webhook: str) -> None:
    """Listen until SIGTERM; SIGUSR1 makes a source fail, SIGUSR2 sets the clock by an hour."""
    bound_heaps()
    os.environ["DRIFTSCORE_CACHE"] = str(home / "cache")
    jump_s, clock, clock_ns, stopped = [0.0], time.time, time.time_ns, threading.Event()
    time.time = lambda: clock() + jump_s[0]
    time.time_ns = lambda: clock_ns() + round(1e9 * jump_s[0])
    samples, labels = scene(), WatchList.of(LABELS)
    sources = {f"loop{n}": Loop(samples, speed, waits=True) for n in range(count)}
    turns = itertools.cycle(sources.values())

    def set_clock(*_: object) -> None:
        jump_s[0] = 3600.0 if jump_s[0] <= 0 else -3600.0

    signal.signal(signal.SIGUSR1, lambda *_: next(turns).drops.set())
    signal.signal(signal.SIGUSR2, set_clock)
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    store = DecisionStore(home / "events.db")
    broker = Mqtt(mqtt, "soak", frozenset(sources), calibrated=False, change_words=lambda *_: None)
    outputs: list[Output] = [
        *(Delivery(one, store=store, notify=_say) for one in (broker, Webhook(webhook))),
        store,
        JsonLines(),
    ]
    settings = ListenSettings(clips=EventClips(str(home / "clips"), keep_days=0.01))
    classifier = Classifier(LABELS, backbone=Embedder("mini"))
    audio_s = 0.0
    with Listener(classifier, labels, sources, outputs, settings, notify=_say) as listener:
        while not stopped.wait(SAMPLE_S) and not listener.failure:
            total_s = sum(view.seconds for view in listener.views())
            _say(f"soak: {json.dumps({'audio_s': total_s - audio_s, **heaps_mb()})}")
            audio_s = total_s
    sys.exit(1 if listener.failure or listener.outputs.undelivered else 0)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")  # in one piece: several threads say something
    sys.stderr.flush()


def soak(
    home: Path, minutes: float, speed: float, count: int, out: Path, *, waits: bool
) -> dict[str, object]:
    """Listen for some minutes; return memory, slope, threads and descriptors."""
    bound_heaps()
    os.environ["DRIFTSCORE_CACHE"] = str(home / "cache")
    classifier = Classifier(LABELS, backbone=Embedder("mini"))
    classifier.detector()
    samples = scene()
    gc.collect()
    before = threading.active_count(), descriptors()
    store = DecisionStore(home / "events.db")
    lines = JsonLines(str(home / "events.jsonl"), rejected=True)
    settings = ListenSettings(
        clips=EventClips(str(home / "clips"), keep_days=0.01),
        privacy=True,
        audit=store,
    )
    sources = {f"loop{n}": Loop(samples, speed, waits=waits) for n in range(count)}
    listener = Listener(
        classifier, WatchList.of(LABELS), sources, [store, lines], settings, notify=print
    )
    started, cpu = time.monotonic(), time.process_time()
    memory, most_threads = MemoryLog(out / "memory.csv", count), 0
    with listener:
        while (now := time.monotonic() - started) < minutes * 60:
            time.sleep(SAMPLE_S)
            audio_h = sum(view.seconds for view in listener.views()) / HOUR_S
            memory.add(MemoryRow(1, now + SAMPLE_S, audio_h, memory_mb(), descriptors()))
            most_threads = max(most_threads, threading.active_count())
        views = listener.views()
        events = store.newest() and len(store.events(limit=10**9))
    gc.collect()
    after = threading.active_count(), descriptors()
    audio_s, wall_s = sum(view.seconds for view in views), time.monotonic() - started
    memory.close()
    return {
        "minutes": round(wall_s / 60, 1),
        "sources": count,
        "audio_hours": round(audio_s / 3600, 2),
        "speed": round(audio_s / wall_s, 1),
        "cpu_share": round((time.process_time() - cpu) / audio_s, 4),
        "events": events,
        "dropped_s": round(sum(view.dropped_s for view in views), 1),
        "threads_before_after": [before[0], after[0]],
        "descriptors_before_after": [before[1], after[1]],
        "most_threads": most_threads,
        **memory.summary(),
    }


if __name__ == "__main__":
    main()
