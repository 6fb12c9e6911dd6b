"""The service is killed and started again: what is lost, and for how long.

Clients classify clips of 1 s with the id of a head that was made before. The process gets SIGKILL
in the middle of that and is started again at the same port. Each client may lose the request that
it has under way; the id of the head must give the same scores as before, also to a new process.
"""

import json
import signal
import tempfile
import threading
import time
from pathlib import Path

from bench.figures import Figure, NotHereError, Spread
from bench.serving import serving, wait_until_ready

CLIENTS, SECONDS, QUICK_SECONDS = 8, 20.0, 3.0
_HEAD = {"labels": ["siren", "rain"], "rule": "das", "settings": {"beta": 0.3}}
_TRY_S = 0.1


class Client(threading.Thread):
    """Sends one clip again and again; notes answers, and requests that broke."""

    def __init__(self, url: str, head: str, clip: bytes) -> None:
        super().__init__(daemon=True)
        self._target = f"{url}/v1/classify?head={head}"
        self._clip = clip
        self.ended = threading.Event()
        self.answers: list[tuple[float, str]] = []
        """When each answer came, and its scores."""
        self.broken: list[float] = []
        """When requests broke that had reached the service."""
        self.refused = 0

    def run(self) -> None:
        """Send until the end."""
        import httpx2 as httpx

        while not self.ended.is_set():
            try:
                answer = httpx.post(self._target, content=self._clip, timeout=60)
            except httpx.ConnectError:
                self.refused += 1
                time.sleep(_TRY_S)
            except httpx.HTTPError:
                self.broken.append(time.monotonic())
            else:
                if answer.status_code == 200:
                    scores = json.dumps(answer.json(), sort_keys=True)
                    self.answers.append((time.monotonic(), scores))
                else:
                    self.refused += 1
                    time.sleep(_TRY_S)


def measure(*, quick: bool) -> list[Figure]:
    """Kill the service once, in the middle."""
    try:
        import httpx2 as httpx

        from tests.service.conftest import clip_bytes
    except ImportError as error:
        raise NotHereError(f"{error.name} is not installed: make setup") from error
    seconds = QUICK_SECONDS if quick else SECONDS
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name)
        with serving(cache) as (process, port):
            wait_until_ready(port)
            url = f"http://127.0.0.1:{port}"
            head = httpx.post(f"{url}/v1/heads", json=_HEAD, timeout=60).json()["id"]
            clients = [Client(url, head, clip_bytes()) for _ in range(CLIENTS)]
            for client in clients:
                client.start()
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
            killed = time.monotonic()
            process.wait()
        with serving(cache, port=port):
            wait_until_ready(port)
            ready = time.monotonic()
            time.sleep(seconds)
            for client in clients:
                client.ended.set()
            for client in clients:
                client.join()
    return figures(clients, killed, ready)


def figures(clients: list[Client], killed: float, ready: float) -> list[Figure]:
    """Return what was lost."""
    answers = [answer for client in clients for answer in client.answers]
    after = [at for at, _ in answers if at > ready]
    broken = [len(client.broken) for client in clients]
    same = len({scores for _, scores in answers}) == 1
    return [
        Figure(
            "kill -9: requests that each client lost",
            Spread.of(list(map(float, broken))),
            "requests",
            bar="at most the one in hand, and the same scores after the restart",
            met=max(broken) <= 1 and same and bool(after),
            note=f"{len(answers)} answers, {len(after)} of them after the restart, "
            f"{'all equal' if same else 'NOT ALL EQUAL'}; {sum(broken)} requests lost by "
            f"{len(clients)} clients; ready again {ready - killed:.1f} s after the kill",
        )
    ]
