"""Choose when a word counts as not understood: `python -m training.word_doubts`.

For limits on the share of a word's three nearest tags (`driftscore.scoring.meaning`), prints how
many words are reported as unclear, how many of those have a wrong first tag, and how many of all
words with a wrong first tag are reported: for the held-out keys of the lexicon, on which the limit
is chosen, then for the word test and for the label names of public sets. A word that the model can
only spell counts as unclear at every limit.
"""

import argparse
from pathlib import Path

import numpy as np

from driftscore.backbones.onnx.sessions import without_known_words
from driftscore.scoring.meaning import MIN_SHARE, NEAREST
from training.export_text import OUT
from training.lexicon import read_lexicon
from training.text_anchors import read_tags
from training.text_corpus import CLEAN, SHARED
from training.text_evaluate import ShippedTower
from training.text_names import held_out_keys
from training.word_lists import LABEL_TEST, WORD_TEST, Entry, read_entries

LIMITS = sorted({0.0, 0.3, 0.4, 0.5, 0.6, MIN_SHARE, 0.7})


def main() -> None:
    """Print one table per file of words."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, default=OUT, help="folder of an exported edition")
    folder = parser.parse_args().model
    names = [tag.name for tag in read_tags(SHARED / "text")]
    tower, pieces = ShippedTower(folder), (folder / "tokenizer.json").read_text("utf-8")
    held = [
        Entry("", key, tuple(line.tags)) for line in read_lexicon() for key in held_out_keys(line)
    ]
    lists = {path.stem: read_entries(path) for path in (WORD_TEST, LABEL_TEST)}
    for stem, entries in {"held-out keys": held, **lists}.items():
        phrases = [entry.phrase for entry in entries]
        rows = tower.encode([CLEAN.format(c=phrase) for phrase in phrases], "embedding")
        right = np.array(
            [names[row.argmax()] in e.tags for e, row in zip(entries, rows, strict=True)]
        )
        share = np.sort(rows / rows.sum(axis=1, keepdims=True), axis=1)[:, -NEAREST:].sum(axis=1)
        spelt = np.isin(phrases, without_known_words(pieces, phrases))
        print(f"\n{stem}: {len(entries)} words, {1 - right.mean():.1%} with a wrong first tag")
        print("| limit | unclear | of them wrong | of all wrong ones | right ones reported |")
        print("| --- | --- | --- | --- | --- |")
        for limit in LIMITS:
            unclear = spelt | (share < limit)
            wrong = (unclear & ~right).sum()
            of_unclear = f"{wrong / max(1, unclear.sum()):.0%}"
            of_wrong = f"{wrong / max(1, (~right).sum()):.0%}"
            reported = f"{(unclear & right).sum() / right.sum():.0%}"
            print(f"| {limit} | {unclear.sum()} | {of_unclear} | {of_wrong} | {reported} |")


if __name__ == "__main__":
    main()
