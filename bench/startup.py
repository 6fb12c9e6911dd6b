"""Start-up time: one clip with `mini`, from the shell to the answer.

A 10 s wav file at 44.1 kHz and 5 labels. Warm: the label texts are in the cache from an earlier
run. Cold: the cache is empty. For comparison, in turns: `--help` and the imports alone.
"""

import tempfile
from pathlib import Path

from bench.clips import LABELS, write_noise
from bench.figures import Figure, in_turns, scaled
from bench.shell import driftscore, python

BAR_S, FIRST_BAR_S = 0.5, 1.5


def measure(*, quick: bool) -> list[Figure]:
    """Run each command several times."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        clip = write_noise(home / "clip.wav", 10, rate=44_100)
        empty_caches = (home / f"cold-{number}" for number in range(1000))

        def classify(cache: Path) -> None:
            driftscore("classify", clip, "-l", LABELS, cache=cache)

        seconds = in_turns(
            {
                "warm": lambda: classify(home / "warm"),
                "cold": lambda: classify(next(empty_caches)),
                "help": lambda: driftscore("--help", cache=home),
                "import": lambda: python("-c", "import driftscore", cache=home),
                "numpy": lambda: python("-c", "import numpy", cache=home),
            },
            2 if quick else 11,
        )
    found = {name: scaled(values, 1.0) for name, values in seconds.items()}
    bar, first_bar = f"<= {BAR_S:g} s", f"< {FIRST_BAR_S:g} s"
    return [
        Figure("driftscore classify, one clip, mini, texts cached", found["warm"], "s",
               bar=bar, met=found["warm"].median <= BAR_S),
        Figure("the same with an empty cache: the texts of 5 labels are encoded", found["cold"],
               "s", bar=first_bar, met=found["cold"].median < FIRST_BAR_S),
        Figure("driftscore --help", found["help"], "s"),
        Figure("python -c 'import driftscore'", found["import"], "s",
               peer="import numpy", theirs=found["numpy"]),
    ]  # fmt: skip
