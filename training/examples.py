"""Accuracy with words and a few examples: `python -m training.examples --sets DIR --work DIR`.

0, 1, 3, 5 and 10 examples per label, five draws, clean and at 20, 10 and 0 dB, for every label set
of `training.example_sets`, with the default rule. Examples are clean clips of the choosing part,
tests are the reporting part. Intervals are paired bootstraps over clips; the draws of a clip stay
together. Writes the rows as JSON and the figure of the docs. `--choose` compares settings of the
blend on the choosing parts instead: examples and tests from it, without common source recordings.
"""

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore import Classifier, Embedder
from driftscore.lab.conditions import generator
from driftscore.scoring import examples as blend
from training.example_sets import PARTS, SETS, SNRS_DB, Condition, Part, load_part

COUNTS = (0, 1, 3, 5, 10)
DRAWS = 5
NOISY = (10.0, 0.0)
"""The SNRs whose mean is called "noise"."""
RIDGES, SHRINKAGES = (1.0, 3.0, 10.0), (0.1, 0.3, 1.0, 3.0)
Line = dict[str, object]
Hits = NDArray[np.float64]


def drawn(part: Part, labels: list[str], count: int, draw: int, name: str) -> list[int]:
    """Return the clips of one draw: up to `count` per label."""
    chosen: list[int] = []
    for label in labels:
        indices = np.flatnonzero(part.labels == label)
        rng = generator("examples", name, label, str(draw))
        chosen += rng.permutation(indices)[:count].tolist()
    return chosen


def hits(
    name: str, source: Part, test: Part, embedder: Embedder, count: int, *, apart: bool
) -> dict[Condition, Hits]:
    """Return, for each clip and SNR, the share of draws in which it gets its label.

    With `apart` clips of a source recording that examples came from are left out of a draw.
    """
    labels = sorted(set(test.labels.tolist()))
    truth = np.array([labels.index(label) for label in test.labels])
    classifier = Classifier(labels, backbone=embedder, progress=False)
    draws: dict[Condition, list[Hits]] = {snr_db: [] for snr_db in test.rows}
    for draw in range(DRAWS if count else 1):
        chosen = drawn(source, labels, count, draw, name)
        if chosen:
            classifier.fit(source.rows[None][chosen], source.labels[chosen])
        else:
            classifier.fit()
        out = np.isin(test.sources, source.sources[chosen]) if apart else np.zeros(len(truth), bool)
        for snr_db, rows in test.rows.items():
            right = (classifier.head_.scores(rows).argmax(axis=1) == truth).astype(np.float64)
            draws[snr_db].append(np.where(out, np.nan, right))
    return {snr_db: np.stack(rights) for snr_db, rights in draws.items()}


def interval(gains: Hits, *key: object) -> tuple[float, float]:
    """Return the 95 % interval of a mean gain, by a bootstrap over clips."""
    rng = generator("examples interval", *key)
    picks = rng.integers(len(gains), size=(2000, len(gains)))
    low, high = np.quantile(gains[picks].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


def measure(embedder: Embedder, home: Path, work: Path) -> list[Line]:
    """Return one line per set, number of examples and condition, "noise" among them."""
    lines: list[Line] = []
    for name in SETS:
        source, test = (load_part(name, part, embedder, home, work) for part in PARTS)
        base: dict[object, Hits] = {}
        for count in COUNTS:
            right = hits(name, source, test, embedder, count, apart=False)
            means: dict[object, Hits] = {s: 100 * rows.mean(axis=0) for s, rows in right.items()}
            means["noise"] = np.mean([means[snr_db] for snr_db in NOISY], axis=0)
            base = base or means
            for condition, values in means.items():
                low, high = interval(values - base[condition], name, count, condition)
                lines.append({
                    "backbone": embedder.backbone.name, "set": name, "clips": len(values),
                    "examples": count, "condition": "clean" if condition is None else condition,
                    "accuracy": float(values.mean()),
                    "gain": float((values - base[condition]).mean()), "low": low, "high": high,
                })  # fmt: skip
            print(name, count, {str(c): round(float(v.mean()), 1) for c, v in means.items()},
                  flush=True)  # fmt: skip
    return lines


def choose(embedder: Embedder, home: Path, work: Path) -> None:
    """Print the accuracy of each setting on the choosing parts, clean and in noise."""
    parts = {name: load_part(name, "choose", embedder, home, work) for name in SETS}
    for ridge, shrinkage, count in product(RIDGES, SHRINKAGES, (1, 3, 5)):
        blend.RIDGE, blend.SHRINKAGE = ridge, shrinkage
        cells, sums = [], []
        for name, part in parts.items():
            right = hits(name, part, part, embedder, count, apart=True)
            values = [100 * float(np.nanmean(right[None])),
                      100 * float(np.nanmean([right[snr_db] for snr_db in NOISY]))]  # fmt: skip
            cells.append(f"{name} {values[0]:.1f} / {values[1]:.1f}")
            sums.append(values)
        mean = np.mean(sums, axis=0)
        print(
            f"ridge {ridge:g}, shrinkage {shrinkage:g}, {count} examples: {', '.join(cells)}; "
            f"mean {mean[0]:.1f} / {mean[1]:.1f}",
            flush=True,
        )


def draw_figure(lines: list[Line], path: Path) -> None:
    """Draw accuracy against examples, one panel per set and one line per condition."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "driftscore"
    figure, axes = pyplot.subplots(1, len(SETS), figsize=(9, 3.2))
    titles = {"esc50": "ESC-50", "urban": "UrbanSound8K", "kitchen": "Kitchen20"}
    for axis, name in zip(axes, SETS, strict=True):
        for snr_db in SNRS_DB:
            condition = "clean" if snr_db is None else snr_db
            own = [line for line in lines if line["set"] == name and line["condition"] == condition]
            label = "clean" if snr_db is None else f"{snr_db:g} dB"
            axis.plot(range(len(own)), [line["accuracy"] for line in own], "o-", label=label)
        axis.set_xticks(range(len(COUNTS)), [str(count) for count in COUNTS])
        axis.set(title=titles[name], xlabel="examples per label")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy, %")
    axes[-1].legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def table(lines: list[Line]) -> str:
    """Return the rows for the docs: gains over words alone, clean and in noise."""
    rows = ["| set (clips) | examples | clean | gain | noise | gain |", "|" + " --- |" * 6]
    for name in SETS:
        for count in COUNTS:
            cells = []
            for condition in ("clean", "noise"):
                line = next(o for o in lines if (o["set"], o["examples"], o["condition"]) ==
                            (name, count, condition))  # fmt: skip
                gain = f"{line['gain']:+.1f} ({line['low']:+.1f} to {line['high']:+.1f})"
                cells += [f"{line['accuracy']:.1f}", gain if count else ""]
            rows.append(f"| {name} ({line['clips']}) | {count} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Measure and write, or compare settings."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--backbone", default="mini")
    parser.add_argument("--sets", type=Path, required=True, help="folder of urban and kitchen")
    parser.add_argument("--work", type=Path, required=True, help="folder of embeddings")
    parser.add_argument("--choose", action="store_true", help="compare settings of the blend")
    parser.add_argument("--out", type=Path, help="write the lines as JSON")
    parser.add_argument("--figure", type=Path, help="draw the figure of the docs")
    options = parser.parse_args()
    with Embedder(options.backbone) as embedder:
        if options.choose:
            choose(embedder, options.sets, options.work)
            return
        lines = measure(embedder, options.sets, options.work)
    print(table(lines))
    if options.out:
        options.out.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
    if options.figure:
        draw_figure(lines, options.figure)


if __name__ == "__main__":
    main()
