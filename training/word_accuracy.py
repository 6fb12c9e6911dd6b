"""Zero-shot accuracy of the teacher's embeddings with a text tower's words: what the words cost.

For the clean clips of the validation sets (`python -m training.validation` makes them), with plain
cosine and the product's prompt. Nothing is written.

    python -m training.word_accuracy [--model FOLDER]
"""

import argparse
from pathlib import Path

import numpy as np

from driftscore.backbones.mn04.tagspace import load_space
from training.collect import WORK as TRAINING
from training.export_text import OUT
from training.text_corpus import CLEAN
from training.text_evaluate import ShippedTower
from training.validation import SETS


def main() -> None:
    """Print one line per set."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, default=OUT, help="folder of an exported edition")
    tower, space = ShippedTower(parser.parse_args().model), load_space()
    listed = np.load(TRAINING / "text_rows.npz")
    for name in SETS:
        with np.load(TRAINING / f"validation_{name}.npz") as stored:
            clean = np.isnan(stored["snr_db"].astype(np.float32))
            logits = stored["logits"][clean].astype(np.float32)
            answers = stored["answers"][clean]
        labels = [str(label).replace("_", " ") for label in listed[f"{name}_names"]]
        words = tower.encode([CLEAN.format(c=label) for label in labels], "embedding")
        rows = (logits - space.mu) / space.sigma
        right = (rows @ words.T).argmax(1) == answers
        print(f"{name}: {100 * right.mean():.1f} % of {len(right)} clips")


if __name__ == "__main__":
    main()
