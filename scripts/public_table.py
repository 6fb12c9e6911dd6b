"""Make the tables of `driftscore lab run public` from its rows: `python scripts/public_table.py`.

    driftscore data get esc50
    driftscore lab run public --store STORE
    python scripts/public_table.py --store STORE      rows -> docs/public.json -> tables
    python scripts/public_table.py                    docs/public.json -> tables
    python scripts/public_table.py --check            ends with 1 if a table is not that of the rows

docs/public.json has one row per model, noise, SNR and rule: accuracy and gain over cosine in
percent, the gain with its 95 % interval (paired bootstrap over clips). Tables stand between
`<!-- public: NAME -->` and `<!-- /public -->` in README.md and docs/.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from driftscore.classifier import Classifier
from driftscore.lab.runs.store import Store

PROJECT = Path(__file__).resolve().parent.parent
ROWS = PROJECT / "docs" / "public.json"
PAGES = ("README.md", "docs/noise.md", "docs/model-card.md", "docs/public.md")
NOISES = {"esc50_noise": "sounds of ESC-50", "synthetic": "synthetic noise"}
COMMAND = "driftscore lab run public"
_MARKED = re.compile(r"(<!-- public: (\w+) -->\n).*?(<!-- /public -->)", re.DOTALL)
Line = dict[str, Any]


def stored(store: Path) -> dict[str, Any]:
    """Return the rows of the newest edition of each model in a store, with the rule by default."""
    with Store(store) as opened:
        rows = [row for row in opened.rows() if row.cell.condition.dataset == "esc50_public"]
    models = {row.cell.condition.backbone for row in rows}
    lines: list[Line] = []
    defaults = {}
    for model in sorted(models):
        classifier = Classifier(["siren", "rain"], backbone=model).fit()
        defaults[model] = classifier.rule_.name
        fingerprint = classifier.embedder_.backbone.fingerprint
        for row in rows:
            condition, scoring = row.cell.condition, row.cell.scoring
            if condition.backbone != model or condition.model != fingerprint or row.error:
                continue
            gain = row.gain
            lines.append({
                "model": model, "noise": condition.noise or "", "snr_db": condition.snr_db,
                "rule": scoring.name, "clips": row.n, "accuracy": round(100 * float(row.value), 2),
                "gain": None if gain is None else
                [round(100 * value, 2) for value in (gain.difference, gain.low, gain.high)],
            })  # fmt: skip
    return {"command": COMMAND, "defaults": defaults, "rows": sorted(lines, key=order)}


def condition_of(line: Line) -> tuple[str, float]:
    """Return noise and SNR of a row such that they sort: clean first, then falling SNRs."""
    return line["noise"], float("-inf") if line["snr_db"] is None else -line["snr_db"]


def order(line: Line) -> tuple[str, tuple[str, float], str]:
    """Return what rows are sorted by."""
    return line["model"], condition_of(line), line["rule"]


def signed(values: list[float] | None) -> str:
    """Return a gain with its interval."""
    if values is None:
        return ""
    gain, low, high = values
    return f"{gain:+.1f} ({low:+.1f} to {high:+.1f})"


def full_table(content: dict[str, Any]) -> str:
    """Return the table of all rules: accuracy by noise and SNR, and the gain at 0 dB."""
    blocks = []
    for model, default in content["defaults"].items():
        lines = [line for line in content["rows"] if line["model"] == model]
        conditions = sorted({condition_of(one) for one in lines})
        rules = list(dict.fromkeys(["cosine", *(one["rule"] for one in lines)]))
        titles = [
            "clean" if not noise else f"{NOISES[noise]}, {-snr:.0f} dB" for noise, snr in conditions
        ]
        rows = [["rule", *titles, "gain over cosine at 0 dB, both noises"]]
        for rule in rules:
            own = {condition_of(one): one for one in lines if one["rule"] == rule}
            cells = [f"{own[c]['accuracy']:.1f}" if c in own else "" for c in conditions]
            hardest = [signed(own[c]["gain"]) for c in conditions if c[1] == 0 and c in own]
            name = f"`{rule}`" + (" (default)" if rule == default else "")
            rows.append([name, *cells, "; ".join(text for text in hardest if text)])
        clips = max(one["clips"] for one in lines)
        blocks.append(f"`{model}`, {clips} clips, accuracy in %:\n\n{markdown(rows)}")
    return "\n\n".join(blocks)


def short_table(content: dict[str, Any]) -> str:
    """Return cosine, DAS and the default of each model, at three SNRs."""
    rows = [["", "clean", "10 dB", "0 dB", "default over cosine at 0 dB (95 %)"]]
    for model, default in content["defaults"].items():
        lines = {
            (one["noise"], one["snr_db"], one["rule"]): one
            for one in content["rows"] if one["model"] == model
        }  # fmt: skip
        rules = list(dict.fromkeys(["cosine", "das", default]))
        for noise, title in NOISES.items():
            cells = []
            for where in (("", None), (noise, 10.0), (noise, 0.0)):
                values = [lines[(*where, rule)]["accuracy"] for rule in rules]
                cells.append(" / ".join(
                    f"**{value:.1f}**" if value == max(values) else f"{value:.1f}"
                    for value in values
                ))  # fmt: skip
            gain = signed(lines[noise, 0.0, default]["gain"])
            rows.append([f"`{model}` in {title}: {' / '.join(rules)}", *cells, gain])
    return markdown(rows)


def markdown(rows: list[list[str]]) -> str:
    """Return rows as a table, the first one its head."""
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TABLES = {"full": full_table, "short": short_table}


def written(page: str, content: dict[str, Any]) -> str:
    """Return a page with its tables as the rows have them."""

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}{TABLES[match[2]](content)}\n{match[3]}"

    return _MARKED.sub(table, page)


def main() -> int:
    """Write the rows and the tables, or compare the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--store", type=Path, help="a store of the lab to take the rows from")
    parser.add_argument("--check", action="store_true", help="only compare")
    arguments = parser.parse_args()
    if arguments.store is not None:
        content = stored(arguments.store)
        lines = ",\n".join(json.dumps(line) for line in content.pop("rows"))
        text = json.dumps(content)[:-1] + f', "rows": [\n{lines}\n]}}'
        ROWS.write_text(text + "\n", encoding="utf-8")
    content = json.loads(ROWS.read_text(encoding="utf-8"))
    wrong = []
    for name in PAGES:
        path = PROJECT / name
        if not path.is_file():
            continue
        page = path.read_text(encoding="utf-8")
        if page != (new := written(page, content)):
            wrong.append(name)
            if not arguments.check:
                path.write_text(new, encoding="utf-8")
    if arguments.check and wrong:
        print(f"not as the rows have it: {', '.join(wrong)}", file=sys.stderr)
    return int(arguments.check and bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
