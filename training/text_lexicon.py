"""Fit tag anchors in MiniLM's space to the lexicon: how far the meaning of words alone goes.

MiniLM knows meanings, not sounds. The 527 anchors move from their place (`training.text_anchors`)
to where softmax(tau * S . anchor) gives the lexicon's tags for its keys in the product's prompt.
They stay unit vectors, and a penalty holds them near the start, so that other words profit from
their neighbours. No part of the package: a reference for `training.word_test --minilm --anchors`.

    python -m training.text_lexicon --out anchors.npz
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from driftscore.backbones.mn04.tagspace import load_space
from training.lexicon import read_lexicon
from training.text_anchors import read_tags
from training.text_corpus import CLEAN, SHARED
from training.text_teacher import Teacher

TAU = 50.0
HOLD = 1.0
"""Weight of the anchors' squared distance to their start."""
FIT_STEPS = 400
FIT_RATE = 0.01
START_SHARE = 0.3
"""Share of examples that are the anchors' start, so that tags with few keys keep their place."""
FIT_NOISE = 1.0
"""Length of the noise that is added to a vector while the anchors are fitted."""


def fit_anchors(vectors: np.ndarray, weights: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return unit anchors that give the texts their tags and stay near `start`.

    Tags with many texts count less than in proportion. Settings were chosen on a fifth of the
    lexicon's keys and on clips of `train/esc50`, not on the word test.
    """
    torch.manual_seed(1)
    begin = torch.from_numpy(start)
    anchors = begin.clone().requires_grad_()
    x = torch.from_numpy(np.concatenate([vectors, start]))
    wanted = torch.from_numpy(np.concatenate([weights, np.eye(len(start), dtype=np.float32)]))
    first_tags = wanted[: len(vectors)].argmax(1)
    share = first_tags.bincount(minlength=len(start))[first_tags].double().rsqrt()
    begins = torch.full((len(start),), START_SHARE / len(start)).double()
    share = torch.cat([share / share.sum() * (1 - START_SHARE), begins])
    optimiser = torch.optim.Adam([anchors], lr=FIT_RATE)
    for step in range(FIT_STEPS):
        optimiser.param_groups[0]["lr"] = FIT_RATE * (1 - step / FIT_STEPS)
        rows = share.multinomial(1024, replacement=True)
        noise = torch.randn(1024, x.shape[1]) * (FIT_NOISE / x.shape[1] ** 0.5)
        given = functional.normalize(x[rows] + noise, dim=1)
        unit = functional.normalize(anchors, dim=1)
        likelihood = (TAU * given @ unit.T).log_softmax(1)
        loss = -(wanted[rows] * likelihood).sum(1).mean()
        loss = loss + HOLD * (unit - begin).square().sum(1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return functional.normalize(anchors.detach(), dim=1).numpy()


def main() -> None:
    """Write the fitted anchors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    names = [tag.name for tag in read_tags(options.shared / "text")]
    lines = read_lexicon()
    weights = np.zeros((len(lines), len(names)), np.float32)
    for number, line in enumerate(lines):
        for tag, weight in line.tags.items():
            weights[number, names.index(tag)] = weight
    weights /= weights.sum(1, keepdims=True)
    rows = [number for number, line in enumerate(lines) for _ in line.keys]
    prompts = [CLEAN.format(c=key) for line in lines for key in line.keys]
    start = load_space().anchors.astype(np.float32)
    start /= np.linalg.norm(start, axis=1, keepdims=True)
    anchors = fit_anchors(Teacher(options.threads).encode(prompts), weights[rows], start)
    np.savez(options.out, anchors=anchors)


if __name__ == "__main__":
    main()
