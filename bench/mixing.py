"""Mixing one clip beside pip scaper.

An event of 5 s is mixed at 6 dB into 10 s of a 30 s background, at 44.1 kHz, for a dozen different
pairs. Scaper generates its soundscape in memory (`generate` without a path) in a process of its own
Python, and only `generate` is timed; then our own mixing runs. Both read the same files and give
the same samples.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

import numpy as np
import soundfile

from bench.figures import Figure, NotHereError, ratio, scaled
from driftscore.audio.recordings import Audio, read
from driftscore.lab.mixing.loudness import LoudnessMeter
from driftscore.lab.mixing.record import mix
from driftscore.lab.mixing.sounds import Excerpt, Sound
from driftscore.lab.mixing.soundscape import REF_DB, SOUNDSCAPE_S, draw_soundscape

THREADS = 1
RATE, SNR_DB, BAR = 44_100, 6.0, 5
EVENT_S, BACKGROUND_S = 5, 30
EVENTS, BACKGROUNDS = 12, 3
WAYS = {
    "memory": "mixing one clip of 10 s: sounds in memory, loudness cached",
    "lab": "as in a lab run: event read from its file, background in memory, loudness cached",
    "read": "event and complete background read from their files, loudness cached",
    "measured": "event and complete background read, loudness measured",
}
_VARIABLE = "DRIFTSCORE_SCAPER_PYTHON"


class Case(TypedDict):
    """One mix: what scaper_child.py and our own mixing are given."""

    seconds: float
    rate: int
    ref_db: float
    snr_db: float
    foreground: str
    backgrounds: str
    event: str
    background: str
    event_time: float
    background_time: float
    out: str


Generate = Callable[[int], float]
"""Has scaper generate the case of a number; returns the seconds that it took."""


def measure(*, quick: bool) -> list[Figure]:
    """Mix the same clips in turns: scaper, and ours with more or less already in memory."""
    turns = 6 if quick else 60
    with tempfile.TemporaryDirectory() as folder:
        cases = _write_cases(Path(folder))
        ways = _ways(cases)
        with _scaper(cases) as (versions, generate):
            for number, case in enumerate(cases):  # fills the caches of both
                generate(number)
                ways["memory"](case)
            worst = max(_difference(case, ways["read"](case)) for case in cases)
            seconds = _in_turns(cases, ways, generate, turns)
    theirs = seconds.pop("scaper")
    note = (
        f"scaper {versions['scaper']} with numpy {versions['numpy']}; "
        f"largest difference of a sample {worst:.1e}"
    )
    return [_figure(way, ours, theirs, note) for way, ours in seconds.items()]


def _ways(cases: list[Case]) -> dict[str, Callable[[Case], Audio]]:
    """Return our mixing with more or less of its input already in memory."""
    loaded = _load(*{file for case in cases for file in _files(case)})
    meter = LoudnessMeter()
    return {
        "memory": lambda case: _mix(case, loaded, meter),
        "lab": lambda case: _mix(case, {**loaded, **_load(case["event"])}, meter),
        "read": lambda case: _mix(case, _load(*_files(case)), meter),
        "measured": lambda case: _mix(case, _load(*_files(case)), LoudnessMeter()),
    }


def _figure(way: str, ours: list[float], theirs: list[float], note: str) -> Figure:
    """Return the figure of one way; only the first has a bar, the others explain it."""
    found, barred = ratio(theirs, ours), way == "memory"
    return Figure(
        WAYS[way],
        scaled(ours, 1e3),
        "ms",
        peer="pip scaper, in memory",
        theirs=scaled(theirs, 1e3),
        ratio=found,
        bar=f">= {BAR}x" if barred else "",
        met=found.median >= BAR if barred else None,
        note=note if barred else "",
    )


def _in_turns(
    cases: list[Case], ways: Mapping[str, Callable[[Case], Audio]], generate: Generate, turns: int
) -> dict[str, list[float]]:
    """Time scaper and each of our ways on one case per turn; scaper times itself."""
    seconds: dict[str, list[float]] = {"scaper": [], **{name: [] for name in ways}}
    for turn in range(turns):
        number = turn % len(cases)
        order = list(seconds) if turn % 2 == 0 else list(seconds)[::-1]
        for name in order:
            if name == "scaper":
                seconds[name].append(generate(number))
                continue
            start = time.perf_counter()
            ways[name](cases[number])
            seconds[name].append(time.perf_counter() - start)
    return seconds


def _mix(case: Case, sounds: Mapping[str, Audio], meter: LoudnessMeter) -> Audio:
    """Return our mix of a case."""
    event, background = (Sound(file, sounds[file]) for file in _files(case))
    record = draw_soundscape(
        [event],
        Excerpt(background, int(case["background_time"] * RATE), int(SOUNDSCAPE_S * RATE)),
        times=[case["event_time"]],
        snr_db=SNR_DB,
        meter=meter,
        rng=np.random.default_rng(0),
    )
    return mix(record, read=lambda file, rate: sounds[file]).audio


def _files(case: Case) -> tuple[str, str]:
    return case["event"], case["background"]


def _load(*files: str) -> dict[str, Audio]:
    return {file: read(file, rate=RATE) for file in files}


def _difference(case: Case, ours: Audio) -> float:
    return float(np.abs(ours.samples - np.load(case["out"])).max())


def _write_cases(folder: Path) -> list[Case]:
    """Write the sounds, and return how they are mixed."""
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
def _scaper(cases: list[Case]) -> Iterator[tuple[dict[str, str], Generate]]:
    """Start scaper in its own process; yield its versions and the function that asks it."""
    with _scaper_process(cases) as child:
        if child.stdin is None or child.stdout is None:
            raise RuntimeError("scaper's process has no pipes")
        requests, answers = child.stdin, child.stdout
        if not (first := answers.readline()):
            raise NotHereError(f"the Python of {_VARIABLE} cannot run scaper")

        def generate(number: int) -> float:
            print(number, file=requests, flush=True)
            return float(answers.readline())

        yield json.loads(first), generate
        requests.close()


def _scaper_process(cases: list[Case]) -> "subprocess.Popen[str]":
    if not (interpreter := os.environ.get(_VARIABLE)):
        raise NotHereError(
            f"scaper needs its own old Python: run `make scaper-env`, then set {_VARIABLE}"
        )
    script, plan = Path(__file__).with_name("scaper_child.py"), Path(cases[0]["out"]).parent
    (plan / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    command = [interpreter, str(script), str(plan / "cases.json")]
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
    except OSError as error:
        raise NotHereError(f"{_VARIABLE} is not a Python: {error.strerror}") from error
