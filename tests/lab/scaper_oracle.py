"""Make soundscapes with pip `scaper`, for comparison: run in an environment of its own.

usage: python scaper_oracle.py cases.json
Each case names its files, times and levels and the .npy to write (float64, mono).
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scaper
from numpy.typing import NDArray


def soundscape(case: dict[str, Any]) -> NDArray[np.float64]:
    """Return the samples that Scaper makes of a case."""
    maker = scaper.Scaper(case["seconds"], case["foreground"], case["backgrounds"], random_state=0)
    maker.sr, maker.ref_db = case["rate"], case["ref_db"]
    background = Path(case["background"])
    maker.add_background(
        ("const", background.parent.name),
        ("const", str(background)),
        ("const", case["background_time"]),
    )
    for file, time in zip(case["events"], case["times"], strict=True):
        maker.add_event(
            label=("const", Path(file).parent.name),
            source_file=("const", file),
            source_time=("const", 0),
            event_time=("const", time),
            event_duration=("const", 1000),
            snr=("const", case["snr_db"]),
            pitch_shift=None,
            time_stretch=None,
        )
    audio, _, _, _ = maker.generate(reverb=case["reverb"], disable_instantiation_warnings=True)
    mono: NDArray[np.float64] = audio[:, 0]
    return mono


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for one in json.loads(Path(sys.argv[1]).read_text()):
        np.save(one["out"], soundscape(one))
