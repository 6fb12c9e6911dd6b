"""Listen for a long time while things break: `python -m bench.soak --faults`.

A child process listens to four sources that play the same scene again and again, and reports to a
broker (mosquitto), to a webhook, to a store, and as lines of JSON to this process. Every few
minutes one thing breaks, in turns: the broker is stopped for a while, the child is killed with
SIGKILL and started again, the disk is full (no file may be written), the clock jumps by an hour, a
source drops, the webhook is away. At the end it is stopped with SIGTERM, and these are compared:

    lost       events that the child has reported, and the store, the broker or the webhook lacks
    doubled    events that one of them has twice, by their ids
    wrong      events that are not those of the scene, in their order: what each source reports
               must be the events of the scene from its beginning, again after each interruption

An event that is cut by a fault may differ, and is then the last one before a new beginning. What
waited is sent again after SIGKILL, so a message may come twice if the child died between the answer
and its note of it: such doubles are counted as doubled. Memory and descriptors are those of the
child, from one SIGKILL to the next (`bench/memory_slope.py`).
"""

import json
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

from bench.figures import NotHereError
from bench.memory_slope import HOUR_S, MemoryLog, MemoryRow

FAULTS = ("broker", "kill", "disk", "clock", "drop", "webhook")
Sequence = list[tuple[str, float]]
"""Labels and scores of events, in order."""


class Broker:
    """A mosquitto that can be stopped and started, and what a subscriber has received from it."""

    def __init__(self, home: Path) -> None:
        import paho.mqtt.client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
        if program is None:
            raise NotHereError("mosquitto is missing: apt install mosquitto")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        config = home / "mosquitto.conf"
        config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {home}/\nmax_queued_messages 100000\nuser root\n",
            encoding="utf-8",
        )
        self._command = [program, "-c", str(config)]
        self.received: list[str] = []
        self.start()
        # The broker keeps what comes while this client is away.
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id="observer", clean_session=False
        )
        self._client.on_connect = lambda client, *_: client.subscribe("driftscore/+/+/event", qos=1)
        self._client.on_message = lambda _client, _data, message: self.received.append(
            json.loads(message.payload)["id"]
        )
        self._client.reconnect_delay_set(1, 2)
        self._client.connect("127.0.0.1", self.port)
        self._client.loop_start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it; it writes down what its subscribers have not received."""
        self._process.terminate()
        self._process.wait(20)

    def close(self) -> None:
        """Stop the subscriber and the broker."""
        self._client.disconnect()
        self._client.loop_stop()
        self.stop()


class Receiver:
    """A webhook that can be away."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self._port = 0
        self.start()

    def start(self) -> None:
        """Begin to answer, at the same port as before."""
        received = self.received

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if fields["phase"] == "end":
                    received.append(fields["id"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_port
        self.url = f"http://127.0.0.1:{self._port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


class Child:
    """The listener, which can be killed and started again, and what it has said."""

    def __init__(self, command: list[str], memory: MemoryLog, log: IO[str]) -> None:
        self._command = command
        self._memory = memory
        self._log_file = log
        self.events: list[dict[str, Any]] = []
        self.log: list[str] = []
        self.lives = 0
        """How often it was started."""
        self.audio_h = 0.0
        """Hours of audio of all lives so far."""
        self._readers: list[threading.Thread] = []
        self.start()

    def start(self) -> None:
        """Start it and wait until its sources give audio."""
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(self._command, stdout=pipe, stderr=pipe, text=True)
        self.lives += 1
        self._begun, self._begun_h = time.monotonic(), self.audio_h
        self.online = threading.Event()
        self._readers = [
            threading.Thread(target=self._read_events, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self._read_log, args=(self.process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self.online.wait(120)

    def _read_events(self, lines: Iterator[str]) -> None:
        for line in lines:
            if not line.endswith("\n"):
                return  # it was killed within a line
            fields = json.loads(line)
            if fields["kind"] == "event":
                self.events.append(fields)
            if fields["kind"] == "status" and fields["online"]:
                self.online.set()

    def _read_log(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.log.append(line.rstrip())
            self._log_file.write(line)
            if line.startswith("soak: ") and line.endswith("\n"):
                self.audio_h += json.loads(line[6:])["audio_s"] / HOUR_S

    def sample(self) -> None:
        """Note its memory and its descriptors."""
        home = Path(f"/proc/{self.process.pid}")
        pages = int((home / "statm").read_text("utf-8").split()[1])
        megabytes = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        count = len(list((home / "fd").iterdir()))
        seconds, audio_h = time.monotonic() - self._begun, self.audio_h - self._begun_h
        self._memory.add(MemoryRow(self.lives, seconds, audio_h, megabytes, count))

    def end(self, number: signal.Signals) -> int:
        """Send a signal, wait for its end, and return its status."""
        self.process.send_signal(number)
        status = self.process.wait(120)
        for reader in self._readers:
            reader.join(30)
        return status


def run(
    home: Path, minutes: float, speed: float, sources: int, every_s: float, out: Path
) -> dict[str, Any]:
    """Run the soak; return what was lost, doubled or wrong, and what it cost.

    `out` gets the rows of memory and the log of the child while it runs.
    """
    memory = MemoryLog(out / "memory.csv", sources)
    with open(out / "log.txt", "w", encoding="utf-8", buffering=1) as log:
        result = _run(home, minutes, speed, sources, every_s, memory, log)
    memory.close()
    return {**result, **memory.summary()}


def _run(
    home: Path, minutes: float, speed: float, sources: int, every_s: float,
    memory: MemoryLog, log: IO[str],
) -> dict[str, Any]:  # fmt: skip
    broker, receiver, rng = Broker(home), Receiver(), random.Random(23)
    command = [sys.executable, "-m", "bench.soak", "--child", str(home), "--speed", str(speed),
               "--sources", str(sources), "--mqtt", f"mqtt://127.0.0.1:{broker.port}",
               "--webhook", receiver.url]  # fmt: skip
    child = Child(command, memory, log)
    begun, faults = time.monotonic(), Counter[str]()
    next_s, turn = every_s, 0
    while (now := time.monotonic() - begun) < 60 * minutes:
        time.sleep(min(2.0, every_s / 4))
        child.sample()
        if now < next_s or now > 60 * minutes - every_s:
            continue  # the last stretch is calm: everything that waits is delivered
        fault, turn = FAULTS[turn % len(FAULTS)], turn + 1
        faults[fault] += 1
        away_s = rng.uniform(0.2, 0.6) * every_s
        if fault == "drop":
            child.process.send_signal(signal.SIGUSR1)
        elif fault == "broker":
            broker.stop()
            time.sleep(away_s)
            broker.start()
        elif fault == "disk":
            _, hard = resource.prlimit(child.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(child.process.pid, resource.RLIMIT_FSIZE, (1, hard))
            time.sleep(away_s)
            resource.prlimit(child.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        elif fault == "clock":
            child.process.send_signal(signal.SIGUSR2)
        elif fault == "webhook":
            receiver.stop()
            time.sleep(away_s)
            receiver.start()
        else:
            child.end(signal.SIGKILL)
            child.start()
        next_s = time.monotonic() - begun + every_s
    status = child.end(signal.SIGTERM)
    time.sleep(1.0)  # what the broker has taken reaches its subscriber
    broker.close()
    receiver.stop()
    return compared(home, child, status, broker.received, receiver.received, faults, begun)


def compared(
    home: Path, child: Child, status: int, published: list[str], posted: list[str],
    faults: Counter[str], begun: float,
) -> dict[str, Any]:  # fmt: skip
    """Return what was lost, doubled or wrong."""
    with sqlite3.connect(home / "events.db") as db:
        # Not of `levels`: SQLite 3.40 takes a sound table without row ids for damaged.
        tables = ("events", "waiting", "sources")
        checks = {db.execute(f"PRAGMA integrity_check({name})").fetchone()[0] for name in tables}
        waiting = db.execute("SELECT COUNT(*) FROM waiting").fetchone()[0]
        stored = [str(id) for (id,) in db.execute("SELECT id FROM events")]
    reported = [event["id"] for event in child.events]
    places = {"store": stored, "broker": published, "webhook": posted}
    every = set(reported).union(*places.values())
    by_source: dict[str, Sequence] = {}
    for event in child.events:
        by_source.setdefault(event["source"], []).append((event["label"], event["score"]))
    wrong, beginnings = unlike_the_scene(list(by_source.values()))
    return {
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "faults": dict(faults),
        "events": len(every),
        "lost": {name: len(every - set(ids)) for name, ids in places.items()},
        "doubled": {name: len(ids) - len(set(ids)) for name, ids in places.items()},
        "wrong": wrong,
        "beginnings": beginnings,
        "status": status,
        "store": ", ".join(checks),
        "waiting": waiting,
        "audio_hours": round(child.audio_h, 2),
        "log_lines": len(child.log),
        "tracebacks": sum("Traceback" in line for line in child.log),
    }


def unlike_the_scene(sequences: list[Sequence]) -> tuple[int, int]:
    """Return how many events are not the next ones of the scene, and how often it began anew.

    The scene's events are those of the longest stretch that any source has reported without an
    interruption; every other stretch must begin with the same events.
    """
    first = Counter(sequence[0] for sequence in sequences if sequence).most_common(1)
    stretches: list[Sequence] = []
    for sequence in sequences:
        for event in sequence:
            if not stretches or event == first[0][0] or sequence[0] is event:
                stretches.append([])
            stretches[-1].append(event)
    scene = max(stretches, key=len, default=[])
    wrong = 0
    for stretch in stretches:
        # The last one may have been cut.
        wrong += sum(one != two for one, two in zip(stretch[:-1], scene, strict=False))
    return wrong, len(stretches)
