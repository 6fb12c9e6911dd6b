"""Generate soundscapes with pip `scaper` on request; run by `mixing` in scaper's own old Python.

usage: python scaper_child.py cases.json

The first line on stdout holds the versions as JSON. Then each line on stdin is the number of a
case: scaper generates it in memory, its samples are saved where the case says (the first time),
and the seconds that `generate` took are printed.
"""

import json
import os
import platform
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scaper


def specify(case: "dict[str, Any]") -> scaper.Scaper:
    """Return a Scaper with the background and event of a case, not yet generated."""
    made = scaper.Scaper(case["seconds"], case["foreground"], case["backgrounds"], random_state=0)
    made.sr, made.ref_db = case["rate"], case["ref_db"]
    background, event = Path(case["background"]), Path(case["event"])
    made.add_background(
        ("const", background.parent.name),
        ("const", str(background)),
        ("const", case["background_time"]),
    )
    made.add_event(
        label=("const", event.parent.name),
        source_file=("const", str(event)),
        source_time=("const", 0),
        event_time=("const", case["event_time"]),
        event_duration=("const", 1000),
        snr=("const", case["snr_db"]),
        pitch_shift=None,
        time_stretch=None,
    )
    return made


def main() -> None:
    """Answer each line of stdin until it ends."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # stdout is for answers: what scaper prints goes to stderr
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = {"scaper": scaper.__version__, "numpy": np.__version__}
    print(json.dumps({**found, "python": platform.python_version()}), file=answers)
    for line in sys.stdin:
        case = cases[int(line)]
        made = specify(case)
        start = time.perf_counter()
        audio, _, _, _ = made.generate(disable_instantiation_warnings=True)
        seconds = time.perf_counter() - start
        if not Path(case["out"]).exists():
            np.save(case["out"], audio[:, 0])
        print(seconds, file=answers)


if __name__ == "__main__":
    main()
