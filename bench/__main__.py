"""`make bench`: run every part, keep the figures as JSON, write the page and its pictures.

    python -m bench [--only PART ...] [--quick] [--out docs] [--page]

Parts that are not run keep what an earlier run found. Progress is on stderr.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench.page import write_page
from bench.parts import PARTS, part_names, run_part
from bench.pictures import write_pictures


def main() -> int:
    """Run what was asked for; 1 if a part broke, which is not the same as a bar not met."""
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = arguments.out / "bench.json"
    results: dict[str, Any] = json.loads(kept.read_text("utf-8")) if kept.is_file() else {}
    names = [] if arguments.page else arguments.only or part_names()
    broken = []
    for number, name in enumerate(names, start=1):
        _say(f"[{number}/{len(names)}] {name} ...")
        result = run_part(name, quick=arguments.quick)
        failed = result.pop("failed")
        broken += [name] * failed
        results[name] = result
        results = {part: results[part] for part in PARTS if part in results}
        kept.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        _say(f"[{number}/{len(names)}] {name}: {_outcome(result)} ({result['seconds']:.0f} s)")
    pictures = write_pictures(results, arguments.out)
    write_page(results, arguments.out / "bench.md")
    _say(f"written to {arguments.out}: " + ", ".join(["bench.json", "bench.md", *pictures]))
    return 1 if broken else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=part_names(), metavar="PART",
                        help=f"run these parts alone: {', '.join(part_names())}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="small sizes: a trial, no figures")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder to write to (docs)")
    parser.add_argument("--page", action="store_true", help="run nothing: write the page anew")
    return parser.parse_args()


def _outcome(result: dict[str, Any]) -> str:
    if result["error"]:
        return f"could not run: {result['error']}"
    bars = [figure["met"] for figure in result["figures"] if figure["met"] is not None]
    missed = bars.count(False)
    return f"{len(result['figures'])} figures, " + (
        f"{missed} of {len(bars)} bars NOT MET" if missed else f"{len(bars)} bars met"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
