"""Turn the lexicon into training texts with corrected targets, and fit the tag anchors to it.

MiniLM knows meanings, not sounds. Two corrections, both in its sentence space, bring the sound in:

1. Anchors: the 527 anchors move from their place (`training.text_anchors`) to where
   softmax(tau * S . anchor) gives the lexicon's tags for its keys and descriptions. They stay unit
   vectors, and a penalty holds them near the start, so other words profit from their neighbours.
2. Targets: a text whose tags are still wrong gets a corrected sentence vector: S(text) moved along
   the gradient of its tags' likelihood until they are right. A composed prompt ("{c} with {p}")
   gets the shift of its clean prompt, which leaves the drift as it was.

The tower's vectors differ from MiniLM's, most for words spelt from fragments. Its own anchors are
therefore fitted to its own vectors of the clean prompts; `training.text_finetune` starts from them.

The start is the exported tower. All output goes to `tuned` in the work folder, with the start's
pieces and tokenizer, as `training.text_finetune` and `training.export_text` expect them.

    python -m training.text_lexicon --work WORK [--without-public]
"""

import argparse
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from training.export_text import OUT, read_exported
from training.lexicon import Line, read_lexicon
from training.text_anchors import read_tags
from training.text_corpus import CLEAN, COMPOSED, PRODUCT_PHRASES, SEED, SHARED, SINGLE, WORK
from training.text_evaluate import ShippedTower
from training.text_teacher import BLOCK, Teacher

TUNED = "tuned"
"""Default subfolder of the work folder for everything that depends on the lexicon."""
TAU = 50.0
HOLD = 1.0
"""Weight of the anchors' squared distance to their start."""
FIT_STEPS = 400
FIT_RATE = 0.01
START_SHARE = 0.3
"""Share of examples that are the anchors' start, so that tags with few keys keep their place."""
FIT_NOISE = 1.0
"""Length of the noise that is added to a vector while the anchors are fitted."""
ENOUGH = 0.97
"""A target is moved until its tags have this cosine to the lexicon's."""
MOVES = 80
MOVE_RATE = 0.04


def compose_texts(
    lines: Sequence[Line], names: Sequence[str], *, public: bool
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return texts, the clean prompt of each composed text (or -1), and tag weights (n, tags).

    Without `public`, keys that are names in public test sets are left out, and so are the
    descriptions of lines that have no other key.
    """
    texts: list[str] = []
    clean: list[int] = []
    rows: list[int] = []
    for number, line in enumerate(lines):
        keys = [key for key in line.keys if public or key not in line.public]
        for key in keys:
            rng = random.Random(f"{SEED} {key}")  # the same texts whatever is left out
            first = len(texts)
            composed = rng.choice(COMPOSED).format(c=key, p=rng.choice(PRODUCT_PHRASES))
            texts += [CLEAN.format(c=key), key, rng.choice(SINGLE[5:]).format(c=key), composed]
            clean += [-1, -1, -1, first]
        if keys:
            texts.append(line.description)
            clean.append(-1)
        rows += [number] * (len(texts) - len(rows))
    weights = np.zeros((len(lines), len(names)), np.float32)
    for number, line in enumerate(lines):
        for tag, weight in line.tags.items():
            weights[number, names.index(tag)] = weight
    weights /= weights.sum(1, keepdims=True)
    return texts, np.array(clean), weights[rows]


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


def correct(vectors: np.ndarray, weights: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """Return the vectors, moved along the gradient where their tags are not the wanted ones."""
    x, wanted, a = (torch.from_numpy(v) for v in (vectors.copy(), weights, anchors))
    rows = torch.arange(len(x))
    for _ in range(MOVES):
        tags = (TAU * x[rows] @ a.T).softmax(1)
        wrong = functional.cosine_similarity(tags, wanted[rows], dim=1) < ENOUGH
        rows, tags = rows[wrong], tags[wrong]
        if not len(rows):
            break
        x[rows] = functional.normalize(x[rows] + MOVE_RATE * (wanted[rows] - tags) @ a, dim=1)
    moved: np.ndarray = x.numpy()
    return moved


def encode(path: Path, texts: Sequence[str], threads: int) -> np.ndarray:
    """Return MiniLM's vectors; the file `path` keeps those that were computed before."""
    vectors: dict[str, np.ndarray] = {}
    if path.exists():
        stored = np.load(path)
        vectors = dict(zip(stored["texts"].tolist(), stored["vectors"], strict=True))
    missing = sorted({text for text in texts if text not in vectors}, key=len)
    teacher = Teacher(threads)
    for first in range(0, len(missing), BLOCK):
        block = missing[first : first + BLOCK]
        vectors |= zip(block, teacher.encode(block), strict=True)
        np.savez(path, texts=list(vectors), vectors=np.stack(list(vectors.values())))
        print(f"{min(first + BLOCK, len(missing))} of {len(missing)} encoded", flush=True)
    return np.stack([vectors[text] for text in texts])


def main() -> None:
    """Write `lexicon.npz`, the fitted anchors, and the pieces and tokenizer of the start."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--start", type=Path, default=OUT, help="folder of the exported tower")
    parser.add_argument("--out", type=Path, help="folder for the output; default: WORK/tuned")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--without-public", action="store_true", help="leave names of public test sets out"
    )
    options = parser.parse_args()
    out = options.out or options.work / TUNED
    out.mkdir(parents=True, exist_ok=True)
    names = [tag.name for tag in read_tags(options.shared / "text")]
    lines = read_lexicon()
    public = not options.without_public
    texts, clean, weights = compose_texts(lines, names, public=public)
    vectors = encode(options.work / "lexicon_vectors.npz", texts, options.threads)
    exported, tables = read_exported(options.start / "text.onnx")
    start = tables["anchors"] / np.linalg.norm(tables["anchors"], axis=1, keepdims=True)
    plain = clean < 0
    anchors = fit_anchors(vectors[plain], weights[plain], start)
    targets = vectors.copy()
    targets[plain] = correct(vectors[plain], weights[plain], anchors)
    shift = (targets - vectors)[clean[~plain]]
    targets[~plain] = vectors[~plain] + shift
    targets /= np.linalg.norm(targets, axis=1, keepdims=True)
    np.savez(
        out / "lexicon.npz",
        texts=texts, clean=clean, targets=targets.astype(np.float16),
        weights=weights.astype(np.float16), anchors=anchors, public=public,
    )  # fmt: skip
    prompts = np.unique(clean[~plain])
    own = ShippedTower(options.start).encode([texts[row] for row in prompts], threads=1)
    own_anchors = fit_anchors(own, weights[prompts], start)
    np.savez(out / "anchors.npz", anchors=own_anchors.astype(np.float16), tau=TAU)
    np.savez(out / "pieces.npz", packed=tables["packed"], scale=tables["scale"])
    tower = {name: torch.tensor(value) for name, value in exported.items()}
    torch.save({"average": tower}, out / "tower.pt")
    shutil.copyfile(options.start / "tokenizer.json", out / "tokenizer.json")
    for name, rows in (("start", start), ("fitted", anchors)):
        right = (vectors[plain] @ rows.T).argmax(1) == weights[plain].argmax(1)
        print(f"{name} anchors, MiniLM: first tag right for {right.mean():.3f} of the texts")
    distance = np.einsum("nd,nd->n", targets, vectors)
    print(f"{len(texts)} texts; corrected targets: median cosine {np.median(distance):.3f}, "
          f"lowest {distance.min():.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
