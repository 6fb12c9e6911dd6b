"""Soundscapes against pip `scaper`, run in an environment of its own (make scaper-env)."""

import csv
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from driftscore.lab.corpora.folders import load
from driftscore.lab.mixing.loudness import LoudnessMeter
from driftscore.lab.mixing.record import mix
from driftscore.lab.mixing.sounds import Excerpt, Sound
from driftscore.lab.mixing.soundscape import REF_DB, draw_soundscape

from .small_lab import WriteWav

Case = dict[str, Any]
"""One soundscape: its files, times and levels."""


def scaper_cases(home: Path, write_wav: WriteWav) -> list[Case]:
    """Soundscapes that between them take every branch of Scaper's audio code."""
    rate = 44_100
    events = {
        name: write_wav(home / "fg" / "dog" / f"{name}.wav", seconds=seconds, rate=rate, seed=seed)
        for seed, (name, seconds) in enumerate(
            {"five": 5, "odd": 1.23457, "short": 0.3, "long": 13, "thin": 0.015}.items()
        )
    }
    places = {
        name: write_wav(
            home / "bg" / "street" / f"{name}.wav", seconds=seconds, rate=rate, seed=90 + seconds
        )
        for name, seconds in {"minute": 30, "loop": 4, "ten": 10}.items()
    }
    plans: list[tuple[list[str], list[float], str, float, float, float | None]] = [
        (["five"], [3.21987], "minute", 7.5, 0, None),
        (["five"], [3.21987], "minute", 7.5, 0, 0),  # zero is some reverb
        (["five"], [5.9], "minute", 0, 20, None),  # must be moved forward to fit
        (["short"], [0], "loop", 0, 6, None),  # both are repeated, for different reasons
        (["long"], [4], "ten", 0, 8, None),  # cut to the soundscape
        (["odd", "short", "five"], [1.1, 9.9, 0.3333], "minute", 2, -10, 0.5),
        (["thin"], [2], "minute", 19.5, 10, None),  # its two fades overlap
    ]
    return [
        scaper_case(rate, [str(events[n]) for n in names], times, places[place], at, snr, reverb)
        for names, times, place, at, snr, reverb in plans
    ]


def scaper_case(
    rate: int,
    files: Sequence[str],
    times: Sequence[float],
    place: Path,
    time: float,
    snr_db: float,
    reverb: float | None,
) -> Case:
    return {
        "seconds": 10.0,
        "foreground": str(Path(files[0]).parents[1]),
        "backgrounds": str(Path(place).parents[1]),
        "rate": rate,
        "ref_db": REF_DB,
        "background": str(place),
        "background_time": time,
        "events": files,
        "times": times,
        "snr_db": snr_db,
        "reverb": reverb,
    }


def scaper_python() -> str:
    python = os.environ.get("DRIFTSCORE_SCAPER_PYTHON")
    if not python:
        pytest.skip("NOT RUN: set DRIFTSCORE_SCAPER_PYTHON (make scaper-env) to compare to scaper")
    found = subprocess.run([python, "-c", "import scaper"], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"NOT RUN: {python} cannot import scaper: {found.stderr[-300:]}")
    return python


def worst_difference(cases: Sequence[Case], folder: Path) -> float:
    """Make every case with scaper and with ours, and return the largest difference."""
    python = scaper_python()
    cases = [case | {"out": str(folder / f"{n}.npy")} for n, case in enumerate(cases)]
    (folder / "cases.json").write_text(json.dumps(cases))
    script = Path(__file__).with_name("scaper_oracle.py")
    subprocess.run([python, str(script), str(folder / "cases.json")], check=True)
    worst = 0.0
    for case in cases:
        rate = case["rate"]
        place = Sound(case["background"], load(case["background"], rate))
        record = draw_soundscape(
            [Sound(file, load(file, rate)) for file in case["events"]],
            Excerpt(place, int(case["background_time"] * rate), 10 * rate),
            snr_db=case["snr_db"],
            times=case["times"],
            reverb=case["reverb"],
            meter=LoudnessMeter(),
            rng=np.random.default_rng(0),
        )
        ours, theirs = mix(record, load).audio.samples, np.load(case["out"])
        assert ours.shape == theirs.shape
        worst = max(worst, float(np.abs(ours - theirs).max()))
    print(f"worst difference to scaper in {len(cases)} soundscapes: {worst:.2e}")
    return worst


def test_soundscapes_are_scapers_to_a_millionth(tmp_path: Path, write_wav: WriteWav) -> None:
    assert worst_difference(scaper_cases(tmp_path, write_wav), tmp_path) < 1e-6


def test_soundscapes_of_real_recordings_are_scapers_to_a_millionth(
    tmp_path: Path, shared: Path
) -> None:
    rows = list(csv.DictReader((shared / "audio" / "manifest.csv").open()))
    places = []
    for row in rows:
        path = shared / "audio" / row["file"]
        if row["split"] == "noise" and soundfile.info(path).samplerate == 44_100:
            link = tmp_path / "bg" / "place" / path.name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
            places.append(link)
    files = [str(shared / "audio" / row["file"]) for row in rows if row["split"] == "events"]
    # Scaper's binding to SoX wraps samples beyond full scale round, so such clips are left out.
    usable = [file for file in files[::17] if np.abs(load(file, 44_100).samples).max() <= 1]
    assert len(usable) > 10
    cases = [
        scaper_case(
            44_100, [file], [n % 5 + 0.377], places[n % len(places)], 0, (0, 6, 20)[n % 3], None
        )
        for n, file in enumerate(usable)
    ]
    assert worst_difference(cases, tmp_path) < 1e-6
