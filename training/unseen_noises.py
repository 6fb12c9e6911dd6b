"""The gain of the default rule in noises that its calibration has and in those that it has not.

`python -m training.unseen_noises STORE` reads the rows of the grid `here` (`driftscore lab run
training/grids/here.toml --store STORE`): single-label events at 20, 10, 6 and 0 dB, both mixings.
The recordings of `audio/noise` are among the noises of the shipped calibrations, those of
`noise_unclear_licence` are not. Intervals are paired bootstraps over clips.
"""

import argparse
from collections import defaultdict

import numpy as np

from driftscore import load_backbone
from driftscore.lab.conditions import Condition, Row, generator
from driftscore.lab.metrics import accuracy_difference
from driftscore.lab.runs.embedding import load_embeddings
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.truth import Truth
from driftscore.scoring.calibration import Calibration
from training.calibration import rows as manifest_rows

SNRS_DB = (20.0, 10.0, 6.0, 0.0)
Outcome = tuple[str, bool, bool]
"""A clip, and whether the default and cosine label it correctly."""


def default_rule(backbone: str) -> str:
    """Return the default rule of a model."""
    model = load_backbone(backbone)
    if model.calibration_file is None:
        raise SystemExit(f"{backbone} comes without a calibration")
    return Calibration.load(model.calibration_file).default_rule


def outcomes(store: Store) -> dict[tuple[str, str], list[Outcome]]:
    """Return the outcomes of every mix, by model and by whether its noise was calibrated with."""
    seen = {row["environment"].replace("_", " ") for row in manifest_rows("noise")}
    truths = {key[0]: Truth.from_content(value) for key, value in store.all_json("sets").items()}
    by_rule: dict[Condition, dict[str, Row]] = defaultdict(dict)
    for row in store.rows():
        condition = row.cell.condition
        if condition.dataset == "shared_events" and condition.snr_db in SNRS_DB:
            by_rule[condition][row.cell.scoring.name] = row
    rules = {backbone: default_rule(backbone) for backbone in {c.backbone for c in by_rule}}
    found: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for condition, rows in by_rule.items():
        truth = truths[condition.set_name]
        embedded = load_embeddings(store, condition, truth.ids)
        ours, base = rows[rules[condition.backbone]].outcomes, rows["cosine"].outcomes
        if embedded is None or ours is None or base is None:
            raise SystemExit("The store is incomplete: run the grid again")
        right, other = ours == truth.single, base == truth.single
        for clip, place, a, b in zip(truth.ids, embedded.environments, right, other, strict=True):
            group = "in the calibration" if place in seen else "in no calibration"
            found[condition.backbone, group].append((clip, bool(a), bool(b)))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("store", help="the folder of the lab's results")
    with Store(parser.parse_args().store) as store:
        found = outcomes(store)
    print("| model | noises | mixes | cosine | default | gain (95 % interval) |")
    print("|" + " --- |" * 6)
    for (backbone, group), mixes in sorted(found.items()):
        clips = [clip for clip, _, _ in mixes]
        ours, base = (np.array([mix[k] for mix in mixes], float) for k in (1, 2))
        gain = accuracy_difference(
            np.ones(len(mixes), np.int64),
            np.stack([1 - ours, ours], axis=1),
            np.stack([1 - base, base], axis=1),
            groups=clips,
            rng=generator("unseen", backbone, group),
        )
        low, high = 100 * gain.low, 100 * gain.high
        shares = f"{100 * base.mean():.1f} | {100 * ours.mean():.1f}"
        interval = f"{100 * gain.difference:+.1f} ({low:+.1f} to {high:+.1f})"
        print(f"| {backbone} | {group} | {len(mixes):,} | {shares} | {interval} |")


if __name__ == "__main__":
    main()
