"""Choose the settings of `anchor` on several label sets, by the worst: `python -m training.choose`.

Reads the embeddings that the lab stored for the grids `choose` and `report` (`--store`), compiles
every candidate with the model's calibration and compares it with plain cosine on each set, clean
and in noise (10 and 0 dB together). The worst set decides: of the candidates whose worst gain is
within a point of the best one, the gentlest is chosen (the lowest weight, then the lowest
amount, then the best worst gain). The mean decided differently: it prefers settings that gain much
on one set and lose on others. The three sets `*_choose` decide; their noises are in no calibration.

With `--write` the settings are written into the calibration. `--left-out` shows what the choice is
worth for labels that were never seen: for each set that is reported on, settings are chosen on all
other sets, and the gain on this one is printed and stored in `docs/promise.json`.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore import Backbone, ClassBank, build_bank, compile_head, load_backbone
from driftscore.backbones.vectors import Matrix
from driftscore.lab.runs.embedding import load_embeddings
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.truth import Truth
from driftscore.scoring.calibration import Calibration

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "src" / "driftscore" / "models" / "calibrations"
STORED = ROOT / "docs" / "promise.json"
"""Every figure that is told elsewhere; see `training.promise`."""
CHOOSE = ("esc50_choose", "urban_choose", "kitchen_choose")
REPORT = ("esc50", "urban", "kitchen", "office", "animals")
BALANCED = ("animals",)
"""Sets whose classes have very different sizes: every class counts the same."""
NOISY_PART = {"office_noisy": "office"}
"""Sets whose clips are in real noise, and the set whose noise they are."""
TOLERANCE = 0.01  # less than the standard error of a gain on 200 clips
AXES: dict[str, tuple[float, ...]] = {
    "weight": (0.1, 0.15, 0.2),
    "amount": (0.05, 0.075, 0.1),
    "sharpness": (1.0, 1.5, 2.0),
}
"""The gentle settings: stronger anchors and weaker whitening lose on some sets."""
Settings = dict[str, float]
Gains = dict[str, tuple[float, float]]
"""By set: the gain over cosine, clean and in noise, as a share."""


@dataclass
class SetRows:
    """The embeddings of a label set: clean, and of all noisy conditions together."""

    bank: ClassBank
    rows: dict[bool, list[Matrix]]
    truth: dict[bool, list[NDArray[np.int64]]]
    balanced: bool

    def accuracy(self, weights: Matrix, *, noisy: bool) -> float:
        """Return the share of clips that a head labels correctly."""
        right = [
            (rows @ weights.T).argmax(axis=1) == truth
            for rows, truth in zip(self.rows[noisy], self.truth[noisy], strict=True)
        ]
        hits, classes = np.concatenate(right), np.concatenate(self.truth[noisy])
        if not self.balanced:
            return float(hits.mean())
        return float(np.mean([hits[classes == c].mean() for c in np.unique(classes)]))


def load_sets(store: Store, backbone: Backbone, name: str) -> dict[str, SetRows]:
    """Return the stored sets of a model, each with its bank."""
    truths = {key[0]: Truth.from_content(value) for key, value in store.all_json("sets").items()}
    conditions = {row.cell.condition for row in store.rows() if row.cell.condition.backbone == name}
    sets: dict[str, SetRows] = {}
    for condition in sorted(conditions, key=lambda c: c.key):
        dataset = NOISY_PART.get(condition.dataset, condition.dataset)
        truth = truths[condition.set_name]
        if dataset not in CHOOSE + REPORT or truth.multi_label:
            continue
        if condition.model != backbone.fingerprint:
            continue  # an earlier edition of the model
        embedded = load_embeddings(store, condition, truth.ids)
        if embedded is None:
            raise SystemExit(f"The embeddings of {condition.title} are incomplete; run the grid")
        if dataset not in sets:
            bank = build_bank(truth.labels, backbone, drifts=False)
            sets[dataset] = SetRows(
                bank, {False: [], True: []}, {False: [], True: []}, dataset in BALANCED
            )
        noisy = not condition.clean or condition.dataset in NOISY_PART
        sets[dataset].rows[noisy].append(embedded.rows[embedded.usable])
        sets[dataset].truth[noisy].append(truth.single[embedded.usable])
    return sets


def gains(sets: dict[str, SetRows], calibration: Calibration, settings: Settings) -> Gains:
    """Return the gain of `anchor` with these settings over cosine on each set."""
    found = {}
    for name, data in sets.items():
        head = compile_head(data.bank, "anchor", settings, calibration=calibration)
        clean, noise = (
            data.accuracy(head.weights, noisy=noisy)
            - data.accuracy(data.bank.prototypes, noisy=noisy)
            for noisy in (False, True)
        )
        found[name] = (clean, noise)
    return found


def chosen(table: Sequence[tuple[Settings, Gains]], names: Iterable[str]) -> tuple[Settings, Gains]:
    """Return the gentlest candidate whose worst gain on these sets is close to the best."""
    listed = list(names)

    def worst(entry: tuple[Settings, Gains]) -> float:
        return min(value for name in listed for value in entry[1][name])

    best = max(map(worst, table))
    close = [entry for entry in table if worst(entry) >= best - TOLERANCE]
    return min(close, key=lambda e: (e[0]["weight"], e[0]["amount"], -worst(e)))


def shown(gained: Gains, names: Iterable[str]) -> str:
    """Return the gains in points: clean / noise of each set."""
    return ", ".join(f"{n} {100 * gained[n][0]:+.1f} / {100 * gained[n][1]:+.1f}" for n in names)


def main() -> None:
    """Choose, and write if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("models", nargs="*", default=["mini", "mn04"])
    parser.add_argument("--store", required=True, help="the folder of the lab's results")
    parser.add_argument("--calibrations", type=Path, default=MODELS)
    parser.add_argument("--write", action="store_true", help="write the settings that are chosen")
    parser.add_argument("--left-out", action="store_true", help="leave each set out in turn")
    parser.add_argument("--all", action="store_true", help="print every candidate")
    options = parser.parse_args()
    stored: dict[str, Any] = {"defaults": {}, "rows": [], "left_out": []}
    if STORED.exists():
        stored = json.loads(STORED.read_text(encoding="utf-8"))
    for model in options.models:
        path = options.calibrations / f"{model}.safetensors"
        backbone, calibration = load_backbone(model), Calibration.load(path)
        with Store(options.store) as store:
            sets = load_sets(store, backbone, model)
        table = []
        for values in product(*AXES.values()):
            settings = dict(zip(AXES, values, strict=True))
            table.append((settings, gains(sets, calibration, settings)))
            if options.all:
                print(model, settings, shown(table[-1][1], sets), flush=True)
        best, gained = chosen(table, CHOOSE)
        print(f"{model}: {best}; {shown(gained, sets)}")
        if options.left_out:
            lines = [line for line in stored["left_out"] if line["model"] != model]
            for name in REPORT:
                others = [n for n in (*CHOOSE, "office", "animals") if n.split("_")[0] != name]
                settings, gained = chosen(table, others)
                print(f"{model}, {name} left out: {settings}; {shown(gained, [name])}")
                clean, noise = (round(100 * value, 2) for value in gained[name])
                lines.append(
                    {
                        "model": model,
                        "set": name,
                        "settings": settings,
                        "clean": clean,
                        "noise": noise,
                    }
                )
            stored["left_out"] = lines
            STORED.write_text(json.dumps(stored, indent=0) + "\n", encoding="utf-8")
        if options.write:
            kept = {**calibration.settings, "anchor": best}
            replace(calibration, settings=kept, default_rule="anchor").save(path)


if __name__ == "__main__":
    main()
