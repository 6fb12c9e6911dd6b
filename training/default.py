"""Calibrate, choose and report the default rule of a model: `python -m training.default mini`.

Runs the commands of training/README.md, "Choosing and reporting the default", in order. All state
is in the training folder (`$DRIFTSCORE_TRAINING`): the pool, the sets and the lab's store. The lab
does nothing twice, so it can be stopped at any time.
"""

import argparse
import subprocess
import sys

from training.collect import WORK


def commands(models: list[str]) -> list[list[str]]:
    """Return the commands, as arguments of the interpreter."""
    store, grid = str(WORK / "lab"), "training/grids/{}.toml".format
    lab = ["-m", "driftscore", "lab", "run", "--workers", "2", "--store", store]
    only = [part for model in models for part in ("--backbone", model)]
    return [
        ["-m", "training.sets"],
        ["-m", "training.calibration", *models],
        [*lab, grid("choose")],
        ["-m", "training.choose", *models, "--store", store, "--write"],
        [*lab, grid("report")],
        [*lab, grid("das")],
        ["-m", "training.choose", *models, "--store", store, "--left-out"],
        ["-m", "training.promise", *models, "--store", store],
        # A store of its own: it has other SNRs and sizes of the same sets.
        [*lab[:-1], f"{store}-examples", *only, grid("examples")],
        ["-m", "training.examples", *models, "--store", f"{store}-examples"],
    ]


def main() -> None:
    """Run the commands."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("models", nargs="*", default=["mini", "mn04"])
    for arguments in commands(parser.parse_args().models):
        print("==", *arguments, flush=True)
        subprocess.run([sys.executable, *arguments], check=True)


if __name__ == "__main__":
    main()
