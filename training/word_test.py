"""Measure how many words get an acceptable tag first.

A word is encoded in the product's prompt ("the sound of {c}"); its first tag is the largest of its
527 values. Entries and acceptable tags come from `word_test.toml` and `word_test_labels.toml`.
Intervals are 95 %, bootstrap over entries. JSON goes to stdout or `--out`, a summary to stderr.

    python -m training.word_test                     the shipped mini
    python -m training.word_test --model FOLDER      another edition: text.onnx, tokenizer.json
    python -m training.word_test --minilm            mn04's text side (MiniLM and tag space)
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from driftscore.backbones.vectors import Matrix
from training.export_text import OUT
from training.text_anchors import read_tags
from training.text_corpus import CLEAN, SHARED
from training.text_evaluate import ShippedTower
from training.word_lists import LABEL_TEST, WORD_TEST, Entry, read_entries

SEED = 7
DRAWS = 10_000
Encode = Callable[[list[str]], Matrix]


def first_tags(encode: Encode, phrases: Sequence[str], names: Sequence[str]) -> list[list[Any]]:
    """Return the three largest tags of each phrase as pairs of name and value."""
    rows = encode([CLEAN.format(c=phrase) for phrase in phrases])
    return [[[names[k], round(float(row[k]), 3)] for k in np.argsort(-row)[:3]] for row in rows]


def share(right: np.ndarray) -> dict[str, Any]:
    """Return the share of true values with its bootstrap interval."""
    drawn = np.random.default_rng(SEED).integers(0, len(right), (DRAWS, len(right)))
    low, high = np.quantile(right[drawn].mean(1), [0.025, 0.975])
    return {
        "share": round(float(right.mean()), 4),
        "interval": [round(float(low), 4), round(float(high), 4)],
        "entries": len(right),
    }


def measure(entries: Sequence[Entry], encode: Encode, names: Sequence[str]) -> dict[str, Any]:
    """Return the share of entries with an acceptable first tag, by area too, and the wrong ones."""
    tags = first_tags(encode, [entry.phrase for entry in entries], names)
    right = np.array([top[0][0] in entry.tags for entry, top in zip(entries, tags, strict=True)])
    areas = np.array([entry.area for entry in entries])
    return {
        **share(right),
        "areas": {area: share(right[areas == area]) for area in dict.fromkeys(areas.tolist())},
        "wrong": {
            f"{entry.area}: {entry.phrase}": {"got": top, "acceptable": entry.tags}
            for entry, top, good in zip(entries, tags, right, strict=True)
            if not good
        },
    }


def choose_encoder(options: argparse.Namespace) -> Encode:
    """Return the text side that the options name: texts to tag space."""
    if options.minilm:
        from driftscore.backbones.mn04.minilm import load_encoder
        from driftscore.backbones.mn04.tagspace import load_space

        space, encoder = load_space(), load_encoder()
        if options.anchors:
            space = replace(space, anchors=np.load(options.anchors)["anchors"])
        return lambda texts: space.embed_sentences(encoder.encode(texts))
    tower = ShippedTower(options.model)
    return lambda texts: tower.encode(texts, "embedding")


def main() -> None:
    """Measure one edition on both files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, default=OUT, help="folder of an exported edition")
    parser.add_argument("--minilm", action="store_true", help="measure mn04's text side")
    parser.add_argument(
        "--anchors", type=Path, help="with --minilm: anchors of training.text_lexicon"
    )
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names = [tag.name for tag in read_tags(options.shared / "text")]
    encode = choose_encoder(options)
    result: dict[str, Any] = {"model": "minilm" if options.minilm else str(options.model)}
    for path in (WORD_TEST, LABEL_TEST):
        result[path.stem] = measure(read_entries(path), encode, names)
        summary = {key: result[path.stem][key] for key in ("share", "interval", "entries")}
        print(path.stem, summary, file=sys.stderr)
    text = json.dumps(result, indent=1)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
