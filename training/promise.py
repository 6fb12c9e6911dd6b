"""What the default gains on label sets that it is not chosen on: `python -m training.promise`.

Reads the rows that the lab stored for the grid `report` (`--store`): five label sets, clean and in
the 15 test noises (additive mixing, 10 and 0 dB), or for the office sounds in their own real noise.
Writes `docs/promise.json` with one row per model, set and rule, and from these rows every figure
that is told elsewhere: the tables between markers in the documents of `FILES`, and the reason for
the default rule in each calibration (`classify -v`, the page). `--check` compares them instead.
"Cosine" is the paper's Base; nothing is standardised unless a rule says so. Intervals are paired
bootstraps over clips, 95 %; in `animals` every class counts the same (balanced accuracy).
"""

import argparse
import json
import re
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore import load_backbone
from driftscore.lab.conditions import Row, generator
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.truth import Truth
from driftscore.scoring.calibration import Calibration
from driftscore.scoring.rules import find_rule
from training.choose import BALANCED, CHOOSE, MODELS, NOISY_PART, REPORT, ROOT, STORED

FILES = ("README.md", "docs/noise.md", "docs/model-card.md", "docs/own-data.md")
NAMES = {
    "esc50": "ESC-50, 50 classes",
    "urban": "UrbanSound8K fold 2, 10 classes",
    "kitchen": "Kitchen20 folds 3 to 5, 20 classes",
    "office": "DCASE 2016 office sounds, 11 classes",
    "animals": "animals, 10 classes",
}
RESAMPLES = 2000
_MARKED = re.compile(r"(<!-- promise: (\w+) -->\n).*?(<!-- /promise -->)", re.DOTALL)
Line = dict[str, Any]
Shares = NDArray[np.float64]


class Outcomes:
    """Which clips a rule labels correctly, by SNR, with the weight of each clip."""

    def __init__(self) -> None:
        self.right: dict[float | None, list[Shares]] = defaultdict(list)
        self.clips: dict[float | None, list[NDArray[np.str_]]] = defaultdict(list)
        self.weights: dict[float | None, list[Shares]] = defaultdict(list)

    def add(self, snr_db: float | None, row: Row, truth: Truth, *, balanced: bool) -> None:
        """Add the outcomes of a row."""
        if row.outcomes is None:
            raise SystemExit(f"{row.cell.condition.title} has no outcomes: {row.error}")
        usable, classes = row.outcomes >= 0, truth.single
        sizes = np.bincount(classes[usable], minlength=len(truth.labels))
        weights = 1 / sizes[classes[usable]] if balanced else np.ones(int(usable.sum()))
        self.right[snr_db].append((row.outcomes == classes)[usable].astype(float))
        self.clips[snr_db].append(np.array(truth.ids)[usable])
        self.weights[snr_db].append(weights / weights.mean())

    def share(self, snr_db: float | None) -> float:
        """Return the accuracy at one SNR."""
        weights = np.concatenate(self.weights[snr_db])
        return float(weights @ np.concatenate(self.right[snr_db]) / weights.sum())

    def joined(self, *, noisy: bool) -> tuple[Shares, Shares, NDArray[np.str_]]:
        """Return outcomes, weights and clips: clean, or of all SNRs together."""
        snrs = [snr for snr in self.right if (snr is not None) == noisy]
        parts = [(self.right[snr], self.weights[snr], self.clips[snr]) for snr in snrs]
        right, weights, clips = (
            np.concatenate([array for part in parts for array in part[k]]) for k in range(3)
        )
        return right, weights, clips


def gain(ours: Outcomes, base: Outcomes, name: str, *, noisy: bool) -> tuple[list[float], Shares]:
    """Return the gain with its interval in points, and all resampled gains."""
    right, weights, clips = ours.joined(noisy=noisy)
    others, _, _ = base.joined(noisy=noisy)
    _, owner = np.unique(clips, return_inverse=True)
    gained = np.bincount(owner, weights=weights * (right - others))
    total = np.bincount(owner, weights=weights)
    rng = generator("promise", name, noisy)
    drawn = rng.multinomial(len(total), np.full(len(total), 1 / len(total)), size=RESAMPLES)
    resampled = 100 * (drawn @ gained) / (drawn @ total)
    low, high = np.quantile(resampled, [0.025, 0.975])
    values = [100 * float(gained.sum() / total.sum()), float(low), float(high)]
    return [round(value, 2) for value in values], resampled


def snr_of(row: Row, truth: Truth, clip: int) -> float | None:
    """Return the SNR of a clip in a row; office clips name theirs."""
    if row.cell.condition.dataset in NOISY_PART:
        return float(truth.ids[clip].split("_ebr_")[1].split("_")[0])
    return row.cell.condition.snr_db


def collect(store: Store, model: str) -> tuple[dict[tuple[str, str], Outcomes], list[Line]]:
    """Return the outcomes of each set and rule of a model, and its rows about scenes."""
    backbone = load_backbone(model)
    calibration = Calibration.load(MODELS / f"{model}.safetensors", backbone)
    truths = {key[0]: Truth.from_content(value) for key, value in store.all_json("sets").items()}
    outcomes: dict[tuple[str, str], Outcomes] = defaultdict(Outcomes)
    scenes: list[Line] = []
    for row in store.rows():
        condition, scoring = row.cell.condition, row.cell.scoring
        dataset = NOISY_PART.get(condition.dataset, condition.dataset)
        current = scoring.calibration in ("", calibration.digest[:16])
        if condition.model != backbone.fingerprint or not current or row.error:
            continue  # an earlier edition of the model, an earlier calibration, or examples
        if dataset == "scenes" and row.gain is not None:
            values = (row.gain.difference, row.gain.low, row.gain.high)
            scenes.append({
                "model": model, "set": "scenes", "rule": scoring.name, "clips": row.n,
                "snr_db": condition.snr_db, "map": round(100 * float(row.value or 0), 2),
                "gain": [round(100 * value, 2) for value in values],
            })  # fmt: skip
        if dataset not in REPORT or scoring.beta not in (None, 0.25):
            continue
        truth = truths[condition.set_name]
        if condition.dataset in NOISY_PART and row.outcomes is not None:
            levels = np.array([snr_of(row, truth, clip) for clip in range(len(truth.ids))])
            for level in np.unique(levels):
                part = replace(row, outcomes=np.where(levels == level, row.outcomes, -1))
                outcomes[dataset, scoring.name].add(float(level), part, truth, balanced=False)
        else:
            outcomes[dataset, scoring.name].add(
                condition.snr_db, row, truth, balanced=dataset in BALANCED
            )
    return outcomes, scenes


def lines_of(store: Store, model: str) -> list[Line]:
    """Return the lines of a model: one per set and rule, and per rule their mean and worst."""
    outcomes, scenes = collect(store, model)
    rules = list(dict.fromkeys(rule for _, rule in outcomes))
    lines = []
    for rule in rules:
        drawn: dict[bool, list[Shares]] = {False: [], True: []}
        of_rule = []
        for dataset in REPORT:
            if (dataset, rule) not in outcomes:
                raise SystemExit(f"{model}: no rows of {rule} on {dataset}; run the grid report")
            ours, base = outcomes[dataset, rule], outcomes[dataset, "cosine"]
            line: Line = {
                "model": model,
                "set": dataset,
                "rule": rule,
                "clips": len(set(np.concatenate(ours.clips[None]))),
                "accuracy": {
                    "clean" if snr is None else f"{snr:g}": round(100 * ours.share(snr), 2)
                    for snr in sorted(ours.right, key=lambda s: 99 if s is None else s)[::-1]
                },
            }
            for noisy, name in ((False, "clean"), (True, "noise")):
                line[name], resampled = gain(ours, base, f"{model} {dataset}", noisy=noisy)
                drawn[noisy].append(resampled)
            of_rule.append(line)
        lines += of_rule
        mean: Line = {"model": model, "set": "mean", "rule": rule}
        for noisy, name in ((False, "clean"), (True, "noise")):
            both = np.mean(drawn[noisy], axis=0)
            low, high = np.quantile(both, [0.025, 0.975])
            value = float(np.mean([line[name][0] for line in of_rule]))
            mean[name] = [round(value, 2), round(float(low), 2), round(float(high), 2)]
        lines.append(mean)
    return lines + scenes + das_lines(store, model)


def das_lines(store: Store, model: str) -> list[Line]:
    """Return the mean gains of the variants of DAS on the sets to choose on (the grid `das`)."""
    backbone = load_backbone(model)
    digest = Calibration.load(MODELS / f"{model}.safetensors", backbone).digest[:16]
    gains: dict[tuple[str, float | None], dict[bool, list[float]]] = defaultdict(
        lambda: {False: [], True: []}
    )
    for row in store.rows():
        condition, scoring = row.cell.condition, row.cell.scoring
        is_das = scoring.rule in ("das", "das_measured", "anchor") and row.gain is not None
        current = scoring.calibration in ("", digest) and condition.model == backbone.fingerprint
        if is_das and current and condition.dataset in CHOOSE and row.gain is not None:
            by_noise = gains[scoring.name, scoring.beta]
            by_noise[not condition.clean].append(100 * row.gain.difference)
    return [
        {
            "model": model, "set": "choose", "rule": rule, "beta": beta,
            "clean": round(float(np.mean(by_noise[False])), 2),
            "noise": round(float(np.mean(by_noise[True])), 2),
        }
        for (rule, beta), by_noise in sorted(gains.items(), key=str)
        if by_noise[False] and by_noise[True]
    ]  # fmt: skip


def points(values: list[float]) -> str:
    """Return a gain with its interval."""
    return f"{values[0]:+.1f} ({values[1]:+.1f} to {values[2]:+.1f})"


def select(lines: list[Line], **wanted: str) -> list[Line]:
    """Return the lines with these values."""
    return [line for line in lines if all(line.get(k) == v for k, v in wanted.items())]


def default_of(stored: dict[str, Any], model: str) -> str:
    """Return the default rule of a model."""
    return str(stored["defaults"][model]["rule"])


def readme_table(stored: dict[str, Any]) -> str:
    """Return the table of README: cosine, DAS and the default on every set."""
    rows = [
        "| model, set (clips) | clean | 10 dB (office: +6) | 0 dB | gain clean (95 %) "
        "| gain in noise (95 %) |",
        "|" + " --- |" * 6,
    ]
    for model in stored["defaults"]:
        default = default_of(stored, model)
        for dataset in REPORT:
            cosine, das, ours = (
                select(stored["rows"], model=model, set=dataset, rule=rule)[0]
                for rule in ("cosine", "das", default)
            )
            high = "6" if dataset == "office" else "10"
            cells = [
                " / ".join(
                    [f"{line['accuracy'][snr]:.1f}" for line in (cosine, das)]
                    + [f"**{ours['accuracy'][snr]:.1f}**"]
                )
                for snr in ("clean", high, "0")
            ]
            rows.append(
                f"| `{model}`, {NAMES[dataset]} ({ours['clips']}) | {' | '.join(cells)} | "
                f"{points(ours['clean'])} | {points(ours['noise'])} |"
            )
        mean = select(stored["rows"], model=model, set="mean", rule=default)[0]
        rows.append(
            f"| `{model}`, mean of the five | | | | {points(mean['clean'])} | "
            f"{points(mean['noise'])} |"
        )
    return "\n".join(rows)


def rules_table(stored: dict[str, Any]) -> str:
    """Return the gains of every rule on every set, the rule with the best worst set first."""
    rows = []
    for model in stored["defaults"]:
        rows += [
            f"| `{model}`, clean / noise | worst set | mean | {' | '.join(REPORT)} |",
            "|" + " --- |" * (3 + len(REPORT)),
        ]
        listed = []
        for rule in dict.fromkeys(
            line["rule"] for line in select(stored["rows"], model=model, set="mean")
        ):
            lines = [select(stored["rows"], model=model, set=s, rule=rule)[0] for s in REPORT]
            if rule == "cosine":
                continue
            worst = [min(line[name][0] for line in lines) for name in ("clean", "noise")]
            mean = select(stored["rows"], model=model, set="mean", rule=rule)[0]
            cells = [f"{points(line['clean'])} / {points(line['noise'])}" for line in lines]
            listed.append((
                -min(worst),
                f"| {'**' if rule == default_of(stored, model) else ''}`{rule}`"
                f"{'**' if rule == default_of(stored, model) else ''} | "
                f"{worst[0]:+.1f} / {worst[1]:+.1f} | {points(mean['clean'])} / "
                f"{points(mean['noise'])} | {' | '.join(cells)} |",
            ))  # fmt: skip
        rows += [row for _, row in sorted(listed)]
        rows.append("")
    return "\n".join(rows[:-1])


def scenes_table(stored: dict[str, Any]) -> str:
    """Return mean average precision on scenes of two or three events."""
    rows = ["| model | rule | clean | 10 dB | 0 dB |", "|" + " --- |" * 5]
    for model in stored["defaults"]:
        for rule in ("cosine", "das", default_of(stored, model)):
            lines = select(stored["rows"], model=model, set="scenes", rule=rule)
            by_snr = {line["snr_db"]: line for line in lines}
            cells = [
                f"{by_snr[snr]['map']:.1f}"
                + ("" if rule == "cosine" else f", {points(by_snr[snr]['gain'])}")
                for snr in (None, 10.0, 0.0)
                if snr in by_snr
            ]
            rows.append(f"| `{model}` | `{rule}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def esc50_table(stored: dict[str, Any]) -> str:
    """Return how cosine, DAS and the default of `mini` do on one set."""
    rows = ["| Rule | clean | 10 dB | 0 dB | gain in noise, 95 % |", "|" + " --- |" * 5]
    for rule in ("cosine", "das", default_of(stored, "mini")):
        line = select(stored["rows"], model="mini", set="esc50", rule=rule)[0]
        cells = [f"{line['accuracy'][snr]:.1f}" for snr in ("clean", "10", "0")]
        gained = "" if rule == "cosine" else points(line["noise"])
        rows.append(f"| `{rule}` | {' | '.join(cells)} | {gained} |")
    return "\n".join(rows)


def das_table(stored: dict[str, Any]) -> str:
    """Return the mean gains of the variants of DAS, clean and in noise."""
    rows = ["| model | rule | beta | clean | noise |", "|" + " --- |" * 5]
    for line in select(stored["rows"], set="choose"):
        beta = "" if line["beta"] is None else f"{line['beta']:g}"
        gained = f"{line['clean']:+.1f} | {line['noise']:+.1f}"
        rows.append(f"| `{line['model']}` | `{line['rule']}` | {beta} | {gained} |")
    return "\n".join(rows)


def why(stored: dict[str, Any], model: str) -> str:
    """Return why the default of a model is what it is, in one sentence with its figures."""
    default = default_of(stored, model)
    lines = [select(stored["rows"], model=model, set=s, rule=default)[0] for s in REPORT]
    clean, noise = (min(lines, key=lambda line: line[name][0]) for name in ("clean", "noise"))
    mean = select(stored["rows"], model=model, set="mean", rule=default)[0]
    return (
        "chosen on three label sets by the worst of them; on five others in 15 noises that are in "
        f"no calibration {mean['clean'][0]:+.1f} points over cosine clean and "
        f"{mean['noise'][0]:+.1f} in noise at 10 and 0 dB, worst {clean['clean'][0]:+.1f} "
        f"({clean['set']}) and {noise['noise'][0]:+.1f} ({noise['set']})"
    )


def sentence(stored: dict[str, Any]) -> str:
    """Return the reason for the default of each model."""
    return "\n".join(
        f"- `{model}`: `{default_of(stored, model)}` with "
        f"{json.dumps(stored['defaults'][model]['settings'])}, {why(stored, model)}."
        for model in stored["defaults"]
    )


def left_out_table(stored: dict[str, Any]) -> str:
    """Return what settings that were chosen on all other sets gain on each set."""
    rows = ["| model | set left out | settings chosen on the others | clean | noise |"]
    rows.append("|" + " --- |" * 5)
    for line in stored.get("left_out", []):
        settings = ", ".join(f"{name} {value:g}" for name, value in line["settings"].items())
        rows.append(
            f"| `{line['model']}` | {line['set']} | {settings} | {line['clean']:+.1f} | "
            f"{line['noise']:+.1f} |"
        )
    return "\n".join(rows)


PARTS = {
    "readme": readme_table,
    "rules": rules_table,
    "scenes": scenes_table,
    "esc50": esc50_table,
    "das": das_table,
    "why": sentence,
    "left_out": left_out_table,
}


def rendered(text: str, stored: dict[str, Any]) -> str:
    """Return a document with the text between its markers made from the stored rows."""
    return _MARKED.sub(lambda m: f"{m[1]}\n{PARTS[m[2]](stored)}\n\n{m[3]}", text)


def main() -> None:
    """Write the rows and every text that follows from them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("models", nargs="*", default=["mini", "mn04"])
    parser.add_argument("--store", help="the folder of the lab's results; without it only texts")
    parser.add_argument("--check", action="store_true", help="only compare the texts")
    options = parser.parse_args()
    stored: dict[str, Any] = {"defaults": {}, "rows": [], "left_out": []}
    if STORED.exists():
        stored = json.loads(STORED.read_text(encoding="utf-8"))
    if options.store:
        with Store(options.store) as store:
            for model in options.models:
                calibration = Calibration.load(MODELS / f"{model}.safetensors")
                rule = calibration.default_rule
                stored["defaults"][model] = {
                    "rule": rule,
                    "settings": dict(calibration.settings.get(rule, {})),
                    "needs": find_rule(rule).needs.name,
                    "calibration": calibration.digest,
                    "fingerprint": calibration.made_by["fingerprint"],
                    "clips": len(calibration.clean),
                }
                others = [line for line in stored["rows"] if line["model"] != model]
                stored["rows"] = others + lines_of(store, model)
    wrong = []
    for name in FILES:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        if (new := rendered(text, stored)) != text:
            wrong.append(name)
            if not options.check:
                path.write_text(new, encoding="utf-8")
    for model in stored["defaults"]:
        path = MODELS / f"{model}.safetensors"
        calibration = Calibration.load(path)
        if calibration.made_by.get("default_why") != why(stored, model):
            wrong.append(path.name)
            if not options.check:
                made_by = {**calibration.made_by, "default_why": why(stored, model)}
                replace(calibration, made_by=made_by).save(path)
    if options.check and wrong:
        raise SystemExit(f"Not as the stored rows say: {', '.join(wrong)}")
    if not options.check:
        STORED.write_text(json.dumps(stored, indent=0) + "\n", encoding="utf-8")
        print(f"{len(stored['rows'])} rows in {STORED}; written: {', '.join(wrong) or 'none'}")


if __name__ == "__main__":
    main()
