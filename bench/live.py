"""What listening costs: the share of one core at real time, and the memory of the command.

Noise at 48 kHz goes through a listener with one source, block by block, one thread: `mini` at a hop
of 0.5 s, and a random CLAP with the shape of clap-htsat-unfused at its own hop of 2 s (windows of
4 s). The share is the processor time per second of audio; audio is played faster than real time,
which changes the cost of a block only by what stays in the caches.
"""

import os
import tempfile
import time
from pathlib import Path

from bench.checkpoints import LABELS, write_checkpoint
from bench.clips import write_noise
from bench.figures import Figure, Spread
from driftscore import Classifier, Embedder
from driftscore.events.watchlist import WatchList
from driftscore.live.listener import Listener
from driftscore.live.sources import PlayedFile

THREADS = 1
RATE, MOST_SHARE = 48_000, 0.10


def measure(*, quick: bool) -> list[Figure]:
    """Measure both models."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ["DRIFTSCORE_CACHE"] = str(home / "cache")
        long = write_noise(home / "long.wav", 30 if quick else 240, rate=RATE)
        short = write_noise(home / "short.wav", 8 if quick else 30, rate=RATE)
        clap = home / "clap"
        write_checkpoint("clap-htsat-unfused", clap)
        return [
            _figure("mini, hop of 0.5 s", Embedder("mini"), long, bar=True),
            _figure("CLAP (htsat-unfused shape), hop of 2 s", Embedder(clap), short, bar=False),
        ]


def share(embedder: Embedder, path: Path, *, speed: float = 0.0) -> float:
    """Return the processor time per second of audio."""
    # The rule changes what is encoded once at the start, not what a window costs.
    classifier = Classifier(LABELS[:10], backbone=embedder, rule="cosine")
    source = PlayedFile(str(path), speed=speed)
    listener = Listener(classifier, WatchList.of(LABELS[:10]), {"file": source})
    begun = time.process_time()
    with listener:
        listener.wait()
        spent = time.process_time() - begun
    return spent / listener.views()[0].seconds


def _figure(name: str, embedder: Embedder, path: Path, *, bar: bool) -> Figure:
    found = [share(embedder, path) for _ in range(3)][1:]  # the first one warms up
    spread = Spread.of([100 * value for value in found])
    return Figure(
        f"listening at real time: {name}",
        spread,
        "% of one core",
        bar=f"< {MOST_SHARE:.0%} of one core" if bar else "",
        met=spread.median < 100 * MOST_SHARE if bar else None,
        note="processor time per second of audio, 48 kHz, 10 labels",
    )
