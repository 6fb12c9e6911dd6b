"""Run the benchmarks, keep their figures as JSON, and write the page and its pictures.

    python -m bench [--only PART ...] [--quick] [--out docs] [--page]

Parts that are not run keep the figures of an earlier run. Progress is on stderr.
"""

import argparse
import json
import sys
from pathlib import Path

from bench.page import figure_line, write_page
from bench.parts import describe_part, part_names, run_part
from bench.pictures import write_pictures
from bench.records import PartRecord


def main() -> int:
    """Run the parts that were asked for; return 1 if one broke (a bar that is not met is no error).

    Titles and descriptions are always those of the files as they are now, also of parts that are
    not run.
    """
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "bench.json"
    results = _load(file)
    names = [] if arguments.page else arguments.only or part_names()
    broken = False
    for number, name in enumerate(names, start=1):
        _report(f"[{number}/{len(names)}] {name} ...")
        result, failed = run_part(name, quick=arguments.quick)
        broken = broken or failed
        results[name] = result
        results = {part: results[part] for part in part_names() if part in results}
        _save(results, file)
        _report(f"[{number}/{len(names)}] {name}: {_outcome(result)} ({result['seconds']:.0f} s)")
        for figure in result["figures"]:
            _report(f"    {figure_line(figure)}")
    _save(results, file)
    pictures = write_pictures(results, arguments.out)
    write_page(results, arguments.out / "bench.md")
    _report(f"Written to {arguments.out}: " + ", ".join(["bench.json", "bench.md", *pictures]))
    return 1 if broken else 0


def _load(file: Path) -> dict[str, PartRecord]:
    results: dict[str, PartRecord] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    for name in results:
        if name in part_names():
            results[name]["title"], results[name]["about"] = describe_part(name)
    return results


def _save(results: dict[str, PartRecord], file: Path) -> None:
    file.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m bench", description=description)
    parser.add_argument("--only", nargs="+", choices=part_names(), metavar="PART",
                        help=f"run only these parts: {', '.join(part_names())}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a trial with small sizes")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="output folder (docs)")
    parser.add_argument("--page", action="store_true", help="run nothing; write the page again")
    return parser.parse_args()


def _outcome(result: PartRecord) -> str:
    if result["error"]:
        return f"could not run: {result['error']}"
    bars = [figure["met"] for figure in result["figures"] if figure["met"] is not None]
    missed = bars.count(False)
    return f"{len(result['figures'])} figures, " + (
        f"{missed} of {len(bars)} bars NOT MET" if missed else f"{len(bars)} bars met"
    )


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
