"""Soundscapes of 10 s with two or three of the shared events each: several labels a clip.

Made by us from the 400 event clips, so that mean average precision has real rows here. Scene
k draws its classes, its clips and when they begin from its own number; all its events stand
at one loudness, with nothing behind them. The scenes are made once and kept in the cache.
"""

from pathlib import Path

import numpy as np
import soundfile

from driftscore.audio import Audio
from driftscore.files import cache_home, replacing, sha256
from driftscore.lab import sounds
from driftscore.lab.corpora import About, Clip, root
from driftscore.lab.datasets import shared_events
from driftscore.lab.loudness import LoudnessMeter
from driftscore.lab.mixing import REF_DB, draw_scaper, mix
from driftscore.lab.seeds import generator
from driftscore.lab.sounds import Sound
from driftscore.prompts import words

ABOUT = About(
    title="Shared scenes",
    page=shared_events.ABOUT.page,
    licence=shared_events.ABOUT.licence,
    citation=f"driftscore, from: {shared_events.ABOUT.citation}",
    multi_label=True,
)
SCENES = 200
RATE = 44_100
LEVEL_DB = 10.0  # over the reference: loud enough for 16 bits
_LATEST_S = 5.0
_PEAK = 0.99
_VERSION = 1


def default_home() -> Path:
    """Return the folder of the shared recordings."""
    return shared_events.default_home()


def clips(home: str | Path) -> list[Clip]:
    """Return the scenes, making those that are not in the cache yet."""
    events = shared_events.clips(home)
    folder = _folder(home)
    meter = LoudnessMeter(cache_home() / "loudness.sqlite")
    found = []
    for number in range(SCENES):
        chosen, times = _draw(events, number)
        path = folder / f"scene-{number:03d}.flac"
        if not path.is_file():
            _write(path, _scene(chosen, times, meter))
        found.append(Clip(path, tuple(c.labels[0] for c in chosen), None, path.stem))
    return found


def labels(home: str | Path) -> tuple[str, ...]:
    """Return the classes, by the alphabet."""
    return shared_events.labels(home)


def missing(home: str | Path) -> list[str]:
    """Return what the folder of events lacks."""
    return shared_events.missing(home)


def _folder(home: str | Path) -> Path:
    manifest = root(home, "manifest.csv") / "manifest.csv"
    return cache_home() / "scenes" / f"{_VERSION}-{sha256(manifest)[:12]}"


def _draw(events: list[Clip], number: int) -> tuple[list[Clip], list[float]]:
    """Choose a scene's clips, no two of one class, and the second at which each begins."""
    rng = generator("shared_scenes", _VERSION, number)
    wanted = min(int(rng.integers(2, 4)), len({words(e.labels[0]) for e in events}))
    chosen: list[Clip] = []
    while len(chosen) < wanted:
        event = events[int(rng.integers(len(events)))]
        if event.labels[0] not in {other.labels[0] for other in chosen}:
            chosen.append(event)
    return chosen, [float(rng.uniform(0, _LATEST_S)) for _ in chosen]


def _scene(chosen: list[Clip], times: list[float], meter: LoudnessMeter) -> Audio:
    parts = [Sound(str(c.path), sounds.load(str(c.path), RATE), c.labels[0]) for c in chosen]
    rng = np.random.default_rng(0)  # nothing is left to draw
    record = draw_scaper(
        parts, None, snr_db=LEVEL_DB, placement=times, ref_db=REF_DB, meter=meter, rng=rng
    )
    audio = mix(record).audio
    peak = float(np.abs(audio.samples).max())
    return audio if peak <= _PEAK else Audio(audio.samples * (_PEAK / peak), audio.rate)


def _write(path: Path, audio: Audio) -> None:
    with replacing(path) as partial:
        soundfile.write(partial, audio.samples, audio.rate, subtype="PCM_16", format="FLAC")
