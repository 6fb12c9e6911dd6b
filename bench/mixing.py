"""Mixing one clip beside pip scaper.

An event of 5 s put at 6 dB into 10 s of a 30 s background, 44.1 kHz, a dozen different
pairs. Scaper makes its soundscape in memory (`generate` without a path), in a process of its own
Python, and times `generate` alone; then it is our turn. Both get the same files and give the
same samples.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from bench.figures import Figure, NotHereError, ratio, scaled
from driftscore.audio import Audio, read
from driftscore.lab.loudness import LoudnessMeter
from driftscore.lab.mixing import REF_DB, SOUNDSCAPE_S, draw_scaper, mix
from driftscore.lab.sounds import Sound, Stretch

RATE, SNR_DB, BAR = 44_100, 6.0, 5
EVENT_S, BACKGROUND_S = 5, 30
EVENTS, BACKGROUNDS = 12, 3
WAYS = {
    "held": "mixing one clip of 10 s: sounds in memory, loudness cached",
    "lab": "as in a lab run: the event read from its file, the background in memory, cached",
    "read": "event and the whole background read from their files, loudness cached",
    "measured": "event and the whole background read, loudness measured",
}
_VARIABLE = "DRIFTSCORE_SCAPER_PYTHON"

Case = Mapping[str, Any]
Ask = Callable[[int], float]


def measure(*, quick: bool) -> list[Figure]:
    """Mix the same clips in turns: scaper, and ours in four states of what is at hand."""
    turns = 6 if quick else 60
    with tempfile.TemporaryDirectory() as folder:
        cases = _write_cases(Path(folder))
        held = _loaded(*{file for case in cases for file in _files(case)})
        meter = LoudnessMeter()
        ways: dict[str, Callable[[Case], Audio]] = {
            "held": lambda case: _mixed(case, held, meter),
            "lab": lambda case: _mixed(case, {**held, **_loaded(case["event"])}, meter),
            "read": lambda case: _mixed(case, _loaded(*_files(case)), meter),
            "measured": lambda case: _mixed(case, _loaded(*_files(case)), LoudnessMeter()),
        }
        with _scaper(cases) as (about, ask):
            for number, case in enumerate(cases):  # what is cached is so from here on
                ask(number)
                ways["held"](case)
            worst = max(_difference(case, ways["read"](case)) for case in cases)
            seconds = _in_turns(cases, ways, ask, turns)
    theirs = seconds.pop("scaper")
    told = f"scaper {about['scaper']} with numpy {about['numpy']}; largest difference {worst:.1e}"
    return [_figure(way, ours, theirs, told) for way, ours in seconds.items()]


def _figure(way: str, ours: list[float], theirs: list[float], told: str) -> Figure:
    """Return the figure of one way; the bar is for the first, which the others explain."""
    found, barred = ratio(theirs, ours), way == "held"
    return Figure(
        WAYS[way],
        scaled(ours, 1e3),
        "ms",
        peer="pip scaper, in memory",
        theirs=scaled(theirs, 1e3),
        ratio=found,
        bar=f">= {BAR}x" if barred else "",
        met=found.median >= BAR if barred else None,
        note=told if barred else "",
    )


def _in_turns(
    cases: list[Case], ways: Mapping[str, Callable[[Case], Audio]], ask: Ask, turns: int
) -> dict[str, list[float]]:
    """Time scaper and each of our ways on one case a turn; scaper times itself."""
    seconds: dict[str, list[float]] = {"scaper": [], **{name: [] for name in ways}}
    for turn in range(turns):
        number = turn % len(cases)
        order = list(seconds) if turn % 2 == 0 else list(seconds)[::-1]
        for name in order:
            if name == "scaper":
                seconds[name].append(ask(number))
                continue
            start = time.perf_counter()
            ways[name](cases[number])
            seconds[name].append(time.perf_counter() - start)
    return seconds


def _mixed(case: Case, sounds: Mapping[str, Audio], meter: LoudnessMeter) -> Audio:
    """Mix a case with ours, from its sounds to its samples."""
    event, background = (Sound(file, sounds[file]) for file in _files(case))
    record = draw_scaper(
        [event],
        Stretch(background, int(case["background_time"] * RATE), int(SOUNDSCAPE_S * RATE)),
        snr_db=SNR_DB,
        placement=[case["event_time"]],
        meter=meter,
        rng=np.random.default_rng(0),
    )
    return mix(record, read=lambda file, rate: sounds[file]).audio


def _files(case: Case) -> tuple[str, str]:
    return case["event"], case["background"]


def _loaded(*files: str) -> dict[str, Audio]:
    return {file: read(file, rate=RATE) for file in files}


def _difference(case: Case, ours: Audio) -> float:
    return float(np.abs(ours.samples - np.load(case["out"])).max())


def _write_cases(folder: Path) -> list[Case]:
    """Write the sounds and say how they are mixed."""
    rng = np.random.default_rng(0)

    def write(kind: str, label: str, number: int, seconds: int) -> str:
        path = folder / kind / label / f"{number}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, 0.1 * rng.standard_normal(seconds * RATE), RATE)
        return str(path)

    events = [write("fg", "dog", number, EVENT_S) for number in range(EVENTS)]
    places = [write("bg", "street", number, BACKGROUND_S) for number in range(BACKGROUNDS)]
    return [
        {
            "seconds": SOUNDSCAPE_S,
            "rate": RATE,
            "ref_db": REF_DB,
            "snr_db": SNR_DB,
            "foreground": str(folder / "fg"),
            "backgrounds": str(folder / "bg"),
            "event": event,
            "background": places[number % BACKGROUNDS],
            "event_time": 0.25 * number,
            "background_time": 1.5 * number,
            "out": str(folder / f"{number}.npy"),
        }
        for number, event in enumerate(events)
    ]


@contextmanager
def _scaper(cases: list[Case]) -> Iterator[tuple[dict[str, str], Ask]]:
    """Start scaper beside us; yield its versions, and what makes a case and tells its seconds."""
    if not (interpreter := os.environ.get(_VARIABLE)):
        raise NotHereError(f"scaper needs its own old Python: `make scaper-env`, then {_VARIABLE}")
    script, plan = Path(__file__).with_name("scaper_child.py"), Path(cases[0]["out"]).parent
    (plan / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    command = [interpreter, str(script), str(plan / "cases.json")]
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
    except OSError as error:
        raise NotHereError(f"{_VARIABLE} names no Python: {error.strerror}") from error
    with child:
        if child.stdin is None or child.stdout is None:
            raise RuntimeError("scaper's process has no pipes")
        tell, hear = child.stdin, child.stdout
        if not (first := hear.readline()):
            raise NotHereError(f"the Python of {_VARIABLE} cannot run scaper")

        def ask(number: int) -> float:
            print(number, file=tell, flush=True)
            return float(hear.readline())

        yield json.loads(first), ask
        tell.close()
