"""Accuracy with words and a few examples: `python -m training.examples --store FOLDER`.

Reads the rows that the lab stored for the grid `examples`: 0, 1, 3, 5 and 10 clean examples per
label, five draws, every label set that is reported on, clean to 0 dB. Writes `docs/examples.json`,
the table between the markers of docs/own-examples.md, and the figure. Gains are over words alone,
with paired bootstraps over clips; the draws of a clip stay together. "Noise" is the mean of 10 and
0 dB, and of all SNRs for the office sounds, which are in their own noise.

`--choose` compares settings of the blend on the sets to choose on instead (the grids `choose` and
`examples`), in noises of no calibration, by balanced accuracy. Examples and tests share no source
recording. The worst set and number of examples decides; `--write` puts the choice into the
calibration.
"""

import argparse
import json
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore import Backbone, Classifier, Head, load_backbone
from driftscore.backbones.vectors import Matrix
from driftscore.lab.conditions import Condition, generator
from driftscore.lab.runs.embedding import load_embeddings
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.truth import Truth
from driftscore.scoring import examples as blend
from driftscore.scoring.calibration import Calibration
from driftscore.text.prompts import words
from training.choose import CHOOSE, MODELS, NOISY_PART, ROOT

STORED = ROOT / "docs" / "examples.json"
PAGE, FIGURE = ROOT / "docs" / "own-examples.md", ROOT / "docs" / "examples.svg"
NAMES = {
    "esc50": "ESC-50",
    "urban": "UrbanSound8K",
    "kitchen": "Kitchen20",
    "office": "office sounds",
    "animals": "animals",
}
NOISY = ("10", "0")
"""The SNRs whose mean is called "noise"."""
PARTS = {"clean": ("clean",), "noise": NOISY}
COUNTS = (0, 1, 3, 5, 10)
SETTINGS = {"ridge": (3.0, 5.0, 10.0), "shrinkage": (1.0, 3.0)}
DRAWS = 3
MIN_SOURCES = 4
"""Labels with fewer source recordings are left out where settings are compared."""
TOLERANCE = 1.0
"""Points within which settings count as equally good; the ones that ship are then kept."""
_MARKED = re.compile(r"(<!-- examples -->\n).*?(<!-- /examples -->)", re.DOTALL)
Line = dict[str, Any]
Hits = NDArray[np.float64]


def collect(store: Store, model: str) -> dict[tuple[str, int], dict[str, Hits]]:
    """Return by set and number of examples, and by SNR, in how many draws each clip is right."""
    backbone = load_backbone(model)
    digest = Calibration.load(MODELS / f"{model}.safetensors", backbone).digest[:16]
    truths = {key[0]: Truth.from_content(value) for key, value in store.all_json("sets").items()}
    draws: dict[tuple[str, int], dict[str, list[Hits]]] = defaultdict(lambda: defaultdict(list))
    for row in store.rows():
        condition, scoring, outcomes = row.cell.condition, row.cell.scoring, row.outcomes
        dataset = condition.dataset.removesuffix("_test")
        is_ours = scoring.rule == "anchor" and NOISY_PART.get(dataset, dataset) in NAMES
        made_with = f"{digest}; {blend.SETTINGS}" if scoring.examples else digest
        if condition.model != backbone.fingerprint or scoring.calibration != made_with:
            continue  # an earlier edition of the model, an earlier calibration or blend
        if not is_ours or outcomes is None:
            continue
        truth = truths[condition.set_name]
        right = np.where(outcomes < 0, np.nan, outcomes == truth.single)  # a clip that failed
        if dataset in NOISY_PART:
            levels = np.array([name.split("_ebr_")[1].split("_")[0] for name in truth.ids])
            for level in np.unique(levels):
                key = (NOISY_PART[dataset], scoring.examples)
                draws[key][f"{level} real"].append(right[levels == level])
        else:
            snr = "clean" if condition.snr_db is None else f"{condition.snr_db:g}"
            draws[dataset, scoring.examples][snr].append(right)
    return {
        key: {snr: np.mean(rights, axis=0) for snr, rights in by_snr.items()}
        for key, by_snr in draws.items()
    }


def gain(ours: Hits, words_alone: Hits, *key: object) -> list[float]:
    """Return a mean gain in points with its 95 % interval, by a bootstrap over clips."""
    gained = 100 * (ours - words_alone)
    gained = gained[~np.isnan(gained)]
    rng = generator("examples interval", *map(str, key))
    means = gained[rng.integers(len(gained), size=(2000, len(gained)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return [round(float(value), 2) for value in (gained.mean(), low, high)]


def lines_of(store: Store, model: str) -> list[Line]:
    """Return one line per set and number of examples."""
    hits, lines = collect(store, model), []
    for dataset, count in product(NAMES, COUNTS):
        if (dataset, count) not in hits:
            raise SystemExit(f"{model}: no rows of {dataset} with {count}; run the grid examples")
        ours, base = hits[dataset, count], hits[dataset, 0]
        pairs = {"clean": (ours["clean"], base["clean"])}
        if real := [snr for snr in ours if snr.endswith("real")]:
            own, before = (np.concatenate([h[s] for s in real]) for h in (ours, base))
        else:
            own, before = (np.mean([h[s] for s in NOISY], axis=0) for h in (ours, base))
        pairs["noise"] = (own, before)
        lines.append({
            "model": model, "set": dataset, "clips": int((~np.isnan(ours["clean"])).sum()),
            "examples": count,
            "accuracy": {snr: round(100 * float(np.nanmean(h)), 2) for snr, h in ours.items()},
            "noise": round(100 * float(np.nanmean(pairs["noise"][0])), 2),
            "gain": {c: gain(*pair, model, dataset, count, c) for c, pair in pairs.items()},
        })  # fmt: skip
    return lines


def table(lines: list[Line]) -> str:
    """Return the table of the page: accuracy and gains over words alone, clean and in noise."""
    rows = ["| model, set (clips) | examples | clean | gain (95 %) | noise | gain (95 %) |"]
    rows.append("|" + " --- |" * 6)
    for line in lines:
        cells = []
        for condition, value in (("clean", line["accuracy"]["clean"]), ("noise", line["noise"])):
            mean, low, high = line["gain"][condition]
            shown = f"{mean:+.1f} ({low:+.1f} to {high:+.1f})" if line["examples"] else ""
            cells += [f"{value:.1f}", shown]
        name = f"`{line['model']}`, {NAMES[line['set']]} ({line['clips']})"
        rows.append(f"| {name} | {line['examples']} | {' | '.join(cells)} |")
    return "\n".join(rows)


def rendered(text: str, lines: list[Line]) -> str:
    """Return the page with the table of these lines."""
    return _MARKED.sub(lambda match: f"{match[1]}\n{table(lines)}\n\n{match[2]}", text)


def draw_figure(lines: list[Line], path: Path) -> None:
    """Draw accuracy against examples: one row per model, one panel per set, one line per SNR."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "driftscore"
    models = list(dict.fromkeys(line["model"] for line in lines))
    size = (11, 2.9 * len(models))
    figure, axes = pyplot.subplots(len(models), len(NAMES), figsize=size, squeeze=False)
    for (row, model), (column, name) in product(enumerate(models), enumerate(NAMES)):
        axis = axes[row][column]
        own = [line for line in lines if (line["model"], line["set"]) == (model, name)]
        for snr in ("clean", "20", "10", "0"):
            values = [line["accuracy"][snr] for line in own]
            axis.plot(range(len(own)), values, "o-", ms=3, label=snr + " dB" * (snr != "clean"))
        axis.set_xticks(range(len(own)), [str(line["examples"]) for line in own])
        axis.set(title=f"{NAMES[name]}, {model}")
        axis.title.set_fontsize(9)
        axis.grid(alpha=0.3)
    axes[-1][len(NAMES) // 2].set_xlabel("examples per label")
    axes[0][0].set_ylabel("accuracy, %")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower right", ncols=4, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def embedded(
    store: Store, backbone: Backbone, truths: dict[str, Truth]
) -> Iterator[tuple[Condition, Truth, Matrix]]:
    """Yield the stored conditions of the sets to choose on, and of the examples of ESC-50."""
    conditions = {row.cell.condition for row in store.rows()}
    scorings = {row.cell.scoring for row in store.rows()}
    for scoring in sorted({s for s in scorings if s.examples_from == "esc50_train"}, key=str)[:1]:
        conditions |= {
            replace(c.without_noise, dataset="esc50_train", data=scoring.examples_data, limit=0)
            for c in conditions
            if c.dataset == "esc50"
        }
    for condition in sorted(conditions, key=lambda c: c.key):
        if condition.model != backbone.fingerprint or condition.limit:
            continue
        if condition.dataset in CHOOSE:
            truth = truths[condition.set_name]
        elif condition.dataset == "esc50_train":
            from training.corpora.recordings import shared_audio
            from training.corpora.sets import esc50_train

            home = shared_audio()
            truth = Truth.of(esc50_train.clips(home), [words(n) for n in esc50_train.labels(home)])
        else:
            continue
        rows = load_embeddings(store, condition, truth.ids)
        if rows is None:
            raise SystemExit(f"The embeddings of {condition.title} are incomplete; run the grid")
        yield condition, truth, rows.rows


@dataclass(frozen=True, eq=False)
class Clips:
    """The label and the source recording of each clip of a set."""

    labels: NDArray[np.str_]
    sources: NDArray[np.str_]

    @staticmethod
    def of(dataset: str, truth: Truth) -> "Clips":
        """Return those of a set; a source is named in the name of a clip."""
        place = 0 if dataset.startswith("urban") else 1
        return Clips(
            np.array([words(truth.labels[number]) for number in truth.single]),
            np.array([Path(clip).stem.split("-")[place] for clip in truth.ids]),
        )


def choose(store: Store, model: str) -> dict[str, float]:
    """Print the gain of each setting over words alone, and return the best by the worst set."""
    backbone = load_backbone(model)
    calibration = Calibration.load(MODELS / f"{model}.safetensors", backbone)
    candidates = {
        pair: replace(
            calibration,
            settings={**calibration.settings, "examples": dict(zip(SETTINGS, pair, strict=True))},
        )
        for pair in product(*SETTINGS.values())
    }
    truths = {key[0]: Truth.from_content(value) for key, value in store.all_json("sets").items()}
    rows: dict[tuple[str, str], Matrix] = {}
    known: dict[str, Truth] = {}
    for condition, truth, matrix in embedded(store, backbone, truths):
        snr = "clean" if condition.snr_db is None else f"{condition.snr_db:g}"
        rows[condition.dataset, snr], known[condition.dataset] = matrix, truth
    gains: dict[tuple[float, ...], dict[tuple[str, int], float]] = defaultdict(dict)
    in_noise: dict[tuple[str, int], float] = {}
    for dataset in CHOOSE:
        source = "esc50_train" if "esc50" in dataset else dataset
        own, pool = (Clips.of(name, known[name]) for name in (dataset, source))
        labels = [
            label
            for label in dict.fromkeys(own.labels.tolist())
            if len(set(pool.sources[pool.labels == label])) >= MIN_SOURCES
        ]
        classifier = Classifier(labels, backbone=backbone, calibration=calibration, progress=False)

        def right(
            head: Head, tested: NDArray[np.bool_], dataset: str = dataset, own: Clips = own
        ) -> dict[str, float]:
            """Return the balanced accuracy of a head, clean and in noise."""
            found, truth = {}, own.labels[tested]
            for snr in ("clean", *NOISY):
                best = head.scores(rows[dataset, snr][tested]).argmax(axis=1)
                hits = np.array(head.labels)[best] == truth
                found[snr] = float(np.mean([hits[truth == label].mean() for label in set(truth)]))
            return {name: 100 * float(np.mean([found[s] for s in snrs]))
                    for name, snrs in PARTS.items()}  # fmt: skip

        words_head = classifier.fit().head_
        for count, draw in product(COUNTS[1:], range(DRAWS)):
            clips = list[int]()
            taken = set[str]()
            for label in labels:
                rng = generator("choose examples", dataset, label, draw)
                listed = np.flatnonzero(pool.labels == label)
                if source == dataset:  # half of the source recordings are left to be tested
                    names = rng.permutation(np.unique(pool.sources[listed]))
                    listed = listed[np.isin(pool.sources[listed], names[: len(names) // 2])]
                    taken.update(names[: len(names) // 2])
                clips += rng.permutation(listed)[:count].tolist()
            taken.update(pool.sources[clips])
            tested = np.isin(own.labels, labels) & ~np.isin(own.sources, list(taken))
            base = right(words_head, tested)
            for pair, candidate in candidates.items():
                classifier.set_params(calibration=candidate)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # about single examples
                    head = classifier.fit(rows[source, "clean"][clips], pool.labels[clips]).head_
                for name, value in right(head, tested).items():
                    key = (f"{dataset} {name}", count)
                    gained = gains[pair].get(key, 0.0) + (value - base[name]) / DRAWS
                    gains[pair][key] = gained
            if source == dataset:  # the examples in the noise of the tests as well
                both = np.concatenate([rows[source, snr][clips] for snr in ("clean", *NOISY)])
                classifier.set_params(calibration=candidates[blend.RIDGE, blend.SHRINKAGE])
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    head = classifier.fit(both, np.tile(pool.labels[clips], 3)).head_
                for name, value in right(head, tested).items():
                    key = (f"{dataset} {name}", count)
                    in_noise[key] = in_noise.get(key, 0.0) + (value - base[name]) / DRAWS
    shipped = (blend.RIDGE, blend.SHRINKAGE)
    for key in gains[shipped]:
        also = f"; examples also in noise {in_noise[key]:+.1f}" if key in in_noise else ""
        print(model, *key, f"{shipped}: {gains[shipped][key]:+.1f}{also}", flush=True)
    for count in COUNTS[1:]:
        worst = {s: min(v for (_, n), v in by.items() if n == count) for s, by in gains.items()}
        best = max(worst, key=lambda s: worst[s])
        print(f"{model}, {count} examples: best {best} {worst[best]:+.1f}; "
              f"{shipped} {worst[shipped]:+.1f} (worst set)", flush=True)  # fmt: skip
    overall = {s: min(by.values()) for s, by in gains.items()}
    means = {s: float(np.mean(list(by.values()))) for s, by in gains.items()}
    best = max(overall, key=lambda s: overall[s])
    for setting in sorted(overall, key=lambda s: -overall[s])[:8]:
        print(f"{model} {setting}: worst {overall[setting]:+.1f}, mean {means[setting]:+.1f}")
    if overall[shipped] >= overall[best] - TOLERANCE:
        best = shipped
    print(f"{model}: {dict(zip(SETTINGS, best, strict=True))}")
    return dict(zip(SETTINGS, best, strict=True))


def main() -> None:
    """Measure and write, or compare settings."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("models", nargs="*", default=["mini", "mn04"])
    parser.add_argument("--store", required=True, help="the folder of the lab's results")
    parser.add_argument("--choose", action="store_true", help="compare settings of the blend")
    parser.add_argument("--write", action="store_true", help="write the settings that are chosen")
    options = parser.parse_args()
    lines: list[Line] = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else []
    with Store(options.store) as store:
        for model in options.models:
            if not options.choose:
                lines = [line for line in lines if line["model"] != model]
                lines += lines_of(store, model)
                continue
            settings: dict[str, object] = {**choose(store, model)}
            path = MODELS / f"{model}.safetensors"
            calibration = Calibration.load(path)
            if options.write and dict(calibration.settings.get("examples", {})) != settings:
                changed = {**calibration.settings, "examples": settings}
                replace(calibration, settings=changed).save(path)
    if not options.choose:
        STORED.write_text(json.dumps(lines, indent=0) + "\n", encoding="utf-8")
        PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), lines), encoding="utf-8")
        draw_figure(lines, FIGURE)
        print(table(lines))


if __name__ == "__main__":
    main()
