"""Measure the text side: settings of tag space, and the tower compared with its teacher.

    python -m training.text_evaluate space     grid and class-wise cross-validation on train/esc50
    python -m training.text_evaluate tower     held-out prompts, drifts, zero-shot accuracy
    python -m training.text_evaluate speed     208 x 50 prompts

The tower measured is the exported one. Zero-shot figures use mn04's logits of the 5 s clips and the
statistics of tag space, or those of licensed train clips if they do not exist yet. Intervals are
95 %, bootstrap over prompts or clips.
"""

import argparse
import csv
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from driftscore.audio import recordings as audio
from driftscore.backbones.mn04 import RATE, load_tagger
from driftscore.backbones.mn04.minilm import load_encoder
from driftscore.backbones.mn04.tagspace import logits_to_tags, sentences_to_tags
from driftscore.backbones.vectors import Matrix
from training.export_text import OUT
from training.text_anchors import Settings, make_anchors, read_tags
from training.text_corpus import CLEAN, COMPOSED, PRODUCT_PHRASES, SHARED, WORK

NON_COMMERCIAL = ("CC-BY-NC", "CC-Sampling+", "")
SEED = 7
DRAWS = 2000


@dataclass(frozen=True)
class Clips:
    """Labelled clips in tag space."""

    rows: Matrix
    labels: np.ndarray


class ShippedTower:
    """The exported text tower."""

    def __init__(self, folder: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            str(folder / "text.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(self, texts: list[str], output: str = "sentence", threads: int = 2) -> Matrix:
        """Return `sentence` or `embedding` of each text."""

        def encode_one(ids: list[int]) -> np.ndarray:
            row: np.ndarray = self.session.run([output], {"ids": np.array([ids], np.int64)})[0][0]
            return row

        with ThreadPoolExecutor(threads) as pool:
            encoded = self.tokenizer.encode_batch(texts)
            return np.stack(list(pool.map(encode_one, [e.ids for e in encoded])))


def cached(path: Path, texts: list[str], encode: Callable[[list[str]], Matrix]) -> Matrix:
    """Return the rows that a file holds for these texts, or encode them and write it."""
    if path.exists() and list((stored := np.load(path))["texts"]) == texts:
        return np.asarray(stored["rows"], np.float32)
    rows = encode(texts)
    np.savez(path, texts=texts, rows=rows)
    return rows


def label_clips(shared: Path, work: Path) -> dict[str, np.ndarray]:
    """Return mn04's logits of `train` and `events` with file, label, split and licence."""
    path = work / "mn04_logits.npz"
    if not path.exists():
        with (shared / "audio" / "manifest.csv").open(encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["split"] in ("train", "events")]
        tagger = load_tagger(shared / "models" / "mn04")
        clips = (audio.read(shared / "audio" / row["file"], rate=RATE).samples for row in rows)
        logits = np.stack([tagger.logits(samples[: 10 * RATE]) for samples in clips])
        columns = {"files": "file", "labels": "label", "split": "split", "licence": "licence"}
        facts = {name: np.array([row[key] for row in rows]) for name, key in columns.items()}
        np.savez(path, logits=logits, **facts)
    return dict(np.load(path))


def read_labels(shared: Path) -> list[str]:
    """Return ESC-50's labels as words."""
    names = json.loads((shared / "text" / "ESC50_class_labels_indices.json").read_text("utf-8"))
    return [name.replace("_", " ") for name in names]


def load_clips(shared: Path, work: Path) -> dict[str, Clips]:
    """Return the clips of `train/esc50` and `events` in tag space."""
    labelled = label_clips(shared, work)
    statistics = work.parent / "mn04_stats.npz"
    if statistics.exists():
        stored = np.load(statistics)
        mu, sigma = stored["mu"], stored["sigma"]
    else:
        used = (labelled["split"] == "train") & ~np.isin(labelled["licence"], NON_COMMERCIAL)
        mu, sigma = labelled["logits"][used].mean(0), labelled["logits"][used].std(0)
    print(f"statistics: {statistics.name if statistics.exists() else 'licensed train clips'}")
    labels = read_labels(shared)
    index = np.array(
        [
            labels.index(name.replace("_", " ")) if name.replace("_", " ") in labels else -1
            for name in labelled["labels"]
        ]
    )
    chosen = {
        "train/esc50": np.char.startswith(labelled["files"], "train/esc50"),
        "events": labelled["split"] == "events",
    }
    return {
        name: Clips(logits_to_tags(labelled["logits"][rows], mu, sigma), index[rows])
        for name, rows in chosen.items()
    }


def interval(values: np.ndarray, statistic: Callable[..., np.ndarray]) -> str:
    """Return a statistic with its 95 % bootstrap interval."""
    rng = np.random.default_rng(SEED)
    drawn = values[rng.integers(0, len(values), (DRAWS, len(values)))]
    low, high = np.quantile(statistic(drawn, axis=1), [0.025, 0.975])
    return f"{statistic(values, axis=0):.4f} [{low:.4f}, {high:.4f}] n={len(values)}"


def cosines(left: Matrix, right: Matrix) -> np.ndarray:
    """Return the cosine of each pair of rows."""
    products = np.einsum("nd,nd->n", left, right)
    result: np.ndarray = products / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    return result


def compare_settings(shared: Path, work: Path) -> None:
    """Print clean zero-shot accuracy by setting, and on classes not used to choose."""
    clips = load_clips(shared, work)["train/esc50"]
    encoder = load_encoder()
    memory: dict[str, np.ndarray] = {}

    def encode(texts: list[str]) -> Matrix:
        for text in texts:
            if text not in memory:
                memory[text] = encoder.encode([text])[0]
        return np.stack([memory[text] for text in texts])

    tags = read_tags(shared / "text")
    prompts = encode([CLEAN.format(c=label) for label in read_labels(shared)])
    taus = (35, 40, 50, 60, 70, 85, 100, 130)
    right: dict[Settings, np.ndarray] = {}
    for split, weight in product((False, True), (0.0, 0.25, 0.5, 0.75, 1.0)):
        anchors = make_anchors(tags, encode, Settings(50, weight, split))
        for tau in taus:
            text = sentences_to_tags(prompts, anchors, tau=tau)
            guessed = (clips.rows @ text.T).argmax(1)
            right[Settings(tau, weight, split)] = guessed == clips.labels
        shown = [f"{right[Settings(tau, weight, split)].mean():.3f}" for tau in taus]
        print(f"split {split!s:5} weight {weight:.2f} tau {taus}: {' '.join(shown)}")
    rng = np.random.default_rng(SEED)
    choices = list(right)
    table = np.stack([right[choice] for choice in choices]).astype(float)
    chosen, fixed = [], []
    for _ in range(200):
        seen = np.isin(clips.labels, rng.permutation(50)[:25])
        chosen.append(table[table[:, seen].mean(1).argmax()][~seen].mean())
        fixed.append(table[choices.index(Settings())][~seen].mean())
    print(
        f"other 25 classes: best of grid on 25 classes {np.mean(chosen):.3f}, "
        f"shipped settings {np.mean(fixed):.3f}"
    )


def measure_held_out(tower: ShippedTower, work: Path, anchors: Matrix, tau: float) -> None:
    """Print the cosine to the teacher on prompts with words that no training text contains."""
    with (work / "heldout_prompts.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    texts = [row["text"] for row in rows]
    teacher = cached(work / "teacher_heldout.npz", texts, load_encoder().encode)
    student = tower.encode(texts)
    sentence = cosines(student, teacher)
    tags = cosines(
        sentences_to_tags(student, anchors, tau=tau), sentences_to_tags(teacher, anchors, tau=tau)
    )
    count = [len(e.ids) for e in tower.tokenizer.encode_batch([row["word"] for row in rows])]
    print(
        "held-out prompts, median cosine to MiniLM: sentence space", interval(sentence, np.median)
    )
    print("held-out prompts, median cosine to MiniLM: tag space     ", interval(tags, np.median))
    splits = {
        "template": [row["template"] for row in rows],
        "stratum": [row["stratum"] for row in rows],
        "pieces": [str(min(n, 3)) + ("+" if n >= 3 else "") for n in count],
        "spelt": ["whole" if n == 1 else "from fragments" for n in count],
    }
    for name, keys in splits.items():
        for key in sorted(set(keys)):
            mask = np.array([k == key for k in keys])
            print(
                f"  {name} {key!r}: sentence {np.median(sentence[mask]):.3f}, "
                f"tags {np.median(tags[mask]):.3f}, n={mask.sum()}"
            )
    print("  10th percentile: sentence", f"{np.quantile(sentence, 0.1):.3f}")


def drift_prompts(labels: list[str]) -> list[str]:
    """Return the clean prompt of each label followed by its 208 composed prompts."""
    return [
        text
        for label in labels
        for text in (
            CLEAN.format(c=label),
            *(t.format(c=label, p=p) for p in PRODUCT_PHRASES for t in COMPOSED),
        )
    ]


def measure_downstream(
    tower: ShippedTower, shared: Path, work: Path, anchors: Matrix, tau: float
) -> None:
    """Print accuracy with either text side, their agreement, and the cosine of their drifts."""
    labels = read_labels(shared)
    texts = drift_prompts(labels)
    teacher = cached(work / "teacher_drifts.npz", texts, load_encoder().encode)
    wanted = sentences_to_tags(teacher, anchors, tau=tau).reshape(len(labels), -1, len(anchors))
    made = tower.encode(texts, "embedding").reshape(wanted.shape)
    sides = {"MiniLM": wanted, "mini": made}
    for name, clips in load_clips(shared, work).items():
        guesses = {s: (clips.rows @ rows[:, 0].T).argmax(1) for s, rows in sides.items()}
        for side, guess in guesses.items():
            right = (guess == clips.labels).astype(float)
            print(f"{name}, mn04 audio, {side} text: accuracy", interval(right, np.mean))
        gap = (guesses["mini"] == clips.labels).astype(float) - (guesses["MiniLM"] == clips.labels)
        print(f"{name}: mini - MiniLM", interval(gap, np.mean))
        same = (guesses["mini"] == guesses["MiniLM"]).mean()
        print(f"{name}: both text sides choose the same label for {same:.3f} of the clips")
    print(
        "clean prompts, cosine in tag space: median",
        f"{np.median(cosines(made[:, 0], wanted[:, 0])):.3f}",
    )
    drifts = {side: (rows[:, 1:] - rows[:, :1]).mean(1) for side, rows in sides.items()}
    similarity = cosines(drifts["mini"], drifts["MiniLM"])
    centred = {side: rows - rows.mean(0) for side, rows in drifts.items()}
    print(
        "drift d_c, cosine mini to MiniLM over classes: mean",
        interval(similarity, np.mean),
        f"lowest {similarity.min():.3f} ({labels[int(similarity.argmin())]})",
    )
    print(
        "  the same without the part common to all classes: mean",
        interval(cosines(centred["mini"], centred["MiniLM"]), np.mean),
    )
    ratio = np.linalg.norm(drifts["mini"], axis=1) / np.linalg.norm(drifts["MiniLM"], axis=1)
    print(f"  drift radius mini / MiniLM: median {np.median(ratio):.3f}")


def measure_speed(tower: ShippedTower, shared: Path) -> None:
    """Print the time for 208 x 50 prompts, and whether a batch changes any bit."""
    texts = [t for t in drift_prompts(read_labels(shared)) if not t.startswith("the sound of ")]
    texts += [t for t in drift_prompts(read_labels(shared)) if " mixed with " in t]
    tower.encode(texts[:50], "embedding")
    began, used = time.perf_counter(), time.process_time()
    rows = tower.encode(texts, "embedding", threads=2)
    wall, cpu = time.perf_counter() - began, time.process_time() - used
    print(f"{len(texts)} prompts: {wall:.2f} s on two threads, {cpu:.2f} s of processor time")
    alone = np.concatenate([tower.encode([text], "embedding", threads=1) for text in texts[::40]])
    print("same bits alone and in a batch:", bool(np.array_equal(alone, rows[::40])))


def main() -> None:
    """Run one of the three measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("space", "tower", "speed"))
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--model", type=Path, default=OUT)
    options = parser.parse_args()
    if options.what == "space":
        compare_settings(options.shared, options.work)
        return
    tower = ShippedTower(options.model)
    if options.what == "speed":
        measure_speed(tower, options.shared)
        return
    stored = np.load(options.work / "anchors.npz")
    anchors, tau = stored["anchors"].astype(np.float32), float(stored["tau"])
    measure_held_out(tower, options.work, anchors, tau)
    measure_downstream(tower, options.shared, options.work, anchors, tau)


if __name__ == "__main__":
    main()
