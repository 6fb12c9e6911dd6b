"""Train `mini`'s text tower (`training.text_net`), distilled from MiniLM.

Loss: 1 - cosine to the teacher, the same in tag space, and two terms on drifts (composed prompt
minus its clean prompt), because scoring uses these differences and small errors of both prompts can
reverse the sign of their difference. The learning rate depends on the time spent, so a run of
`--minutes` ends with a low rate however busy the machine is. A run continues from `tower.pt`. After
the first pass the last layers are set to their optimum in closed form (doing so later gains nothing
and makes drifts worse). The curve is written to `tower_curve.csv`.

    python -m training.text_tower --minutes 40
"""

import argparse
import csv
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from training.text_corpus import WORK
from training.text_net import HIDDEN, SENTENCE, Tower
from training.text_teacher import read_texts
from training.text_vocabulary import unpack
from training.word_lists import WORD_TEST, PhraseFinder, read_entries

TEXTS_PER_BATCH = 128
PEAK_RATE = 1e-3
SKIP_SHARE = 0.2
"""Factor on the learning rate of the linear path, which starts at its optimum."""
SAVE_EVERY_S = 90.0
REFIT_TEXTS = 40_000
# Gradients of the tag-space terms are about five times as large as their values suggest (tau 50),
# hence the small weights. Scoring uses tags and drifts, so they count more in the last 40 %.
WEIGHTS = {"cosine": 1.0, "tags": 0.12, "drift": 0.15, "tag_drift": 0.06}
LATE_WEIGHTS = {"cosine": 1.0, "tags": 0.3, "drift": 0.2, "tag_drift": 0.2}


@dataclass(frozen=True)
class Batch:
    """Texts with their teacher vectors; `clean` is the row of a text's clean prompt, or -1."""

    ids: Tensor
    mask: Tensor
    target: Tensor
    clean: Tensor


class Corpus:
    """The corpus as piece ids; a group is never split between batches.

    Groups with a text that contains one of the `excluded` phrases are left out; by default these
    are the entries of the word test.
    """

    def __init__(
        self, work: Path, excluded: PhraseFinder | None = None, tokenizer: Path | None = None
    ) -> None:
        rows = read_texts(work / "corpus.tsv")
        finder = excluded or PhraseFinder(entry.phrase for entry in read_entries(WORD_TEST))
        left_out = {row["group"] for row in rows if finder.find(row["text"])}
        pieces = Tokenizer.from_file(str(tokenizer or work / "tokenizer.json"))
        self.work = work
        self.ids = [e.ids for e in pieces.encode_batch([row["text"] for row in rows])]
        numbers = np.array([int(row["group"]) for row in rows])
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        self.groups = [
            (a, b)
            for a, b in zip(starts, np.append(starts[1:], len(rows)), strict=True)
            if rows[a]["group"] not in left_out
        ]
        self.drift = np.array([row["drift"] == "1" for row in rows])
        self.targets: dict[int, np.ndarray] = {}

    def encoded(self) -> int:
        """Load the teacher's blocks that exist; return how many texts they contain."""
        while (path := self.work / "teacher" / f"{len(self.targets):05d}.npy").exists():
            self.targets[len(self.targets)] = np.load(path)
        return sum(map(len, self.targets.values()))

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield one pass over all encoded groups, batched by similar length."""
        ready = self.encoded()
        targets = np.concatenate([self.targets[n] for n in sorted(self.targets)])
        groups = [(a, b) for a, b in self.groups if b <= ready]
        longest = np.array([max(len(self.ids[i]) for i in range(a, b)) for a, b in groups])
        order = np.argsort(longest + rng.uniform(-0.5, 0.5, len(groups)), kind="stable")
        chunks: list[list[tuple[int, int]]] = [[]]
        held = 0
        for index in order:
            a, b = groups[index]
            if held + b - a > TEXTS_PER_BATCH:
                chunks.append([])
                held = 0
            chunks[-1].append((a, b))
            held += b - a
        for chunk in rng.permutation(len(chunks)):
            yield self.batch(chunks[chunk], targets)

    def batch(self, groups: list[tuple[int, int]], targets: np.ndarray) -> Batch:
        """Return the padded batch of some groups."""
        rows = [row for a, b in groups for row in range(a, b)]
        clean: list[int] = []
        for a, b in groups:
            first = len(clean)
            clean += [-1] + [first if self.drift[a] else -1] * (b - a - 1)
        length = max(len(self.ids[row]) for row in rows)
        ids = np.zeros((len(rows), length), np.int64)
        mask = np.zeros((len(rows), length), bool)
        for line, row in enumerate(rows):
            ids[line, : len(self.ids[row])] = self.ids[row]
            mask[line, : len(self.ids[row])] = True
        target = functional.normalize(torch.from_numpy(targets[rows].astype(np.float32)), dim=1)
        return Batch(torch.from_numpy(ids), torch.from_numpy(mask), target, torch.tensor(clean))


def fit_skip(
    corpus: Corpus, stored: Mapping[str, np.ndarray], held_out: set[str]
) -> tuple[Tensor, Tensor]:
    """Return weight and bias of the best linear map from a text's mean piece to the teacher.

    Fitted to some of the corpus and to the pieces on their own, without the held-out words. Words
    of the word test are among the pieces, with MiniLM's meaning and without a sound.
    """
    table = unpack(stored["packed"], stored["scale"])
    use = np.array([piece not in held_out for piece in stored["pieces"]])
    ready = min(corpus.encoded(), 60_000)
    rows = [row for a, b in corpus.groups for row in range(a, b) if row < ready]
    means = np.stack([table[corpus.ids[row]].mean(0) for row in rows])
    given = np.concatenate([means, table[use]])
    given = np.concatenate([given, np.ones((len(given), 1), np.float32)], 1)
    texts = np.concatenate([corpus.targets[n] for n in sorted(corpus.targets)])[rows]
    wanted = np.concatenate([texts, stored["vectors"][use]]).astype(np.float32)
    # Scaled to values of about one, so that one learning rate suits all layers (the entries of a
    # unit vector are about 0.05). The final norm removes the scale.
    solved = np.linalg.solve(given.T @ given, given.T @ wanted) * SENTENCE**0.5
    return torch.from_numpy(solved[:-1].T.copy()), torch.from_numpy(solved[-1].copy())


@torch.no_grad()
def refit(tower: Tower, corpus: Corpus, count: int, rng: np.random.Generator) -> None:
    """Set the last layers to their optimum, in closed form, on about `count` texts.

    Least squares to the teacher's unit vectors, regularised towards the current weights. After the
    first pass this raises the cosine by about 0.01.
    """
    size = HIDDEN + tower.skip.in_features + 1
    gram = torch.zeros(size, size, dtype=torch.float64)
    moment = torch.zeros(size, SENTENCE, dtype=torch.float64)
    seen = 0
    for batch in corpus.batches(rng):
        ones = torch.ones(len(batch.ids), 1)
        given = torch.cat([*tower.pool(batch.ids, batch.mask), ones], 1)
        gram += (given.T @ given).double()
        moment += (given.T @ batch.target).double()
        seen += len(batch.ids)
        if seen >= count:
            break
    bias = tower.leave.bias + tower.skip.bias
    now = torch.cat([tower.leave.weight, tower.skip.weight, bias[:, None]], 1).T.double()
    pull = torch.eye(size, dtype=torch.float64) * seen / 20_000
    solved = torch.linalg.solve(gram + pull, moment * SENTENCE**0.5 + pull @ now).float()
    tower.leave.weight.copy_(solved[:HIDDEN].T)
    tower.skip.weight.copy_(solved[HIDDEN:-1].T)
    tower.leave.bias.copy_(solved[-1])
    tower.skip.bias.zero_()


def to_tags(sentences: Tensor, anchors: Tensor, tau: float) -> Tensor:
    """Return unit-norm tag-space vectors of unit-norm sentence vectors."""
    return functional.normalize((tau * sentences @ anchors.T).softmax(1), dim=1)


def drift_loss(made: Tensor, wanted: Tensor, clean: Tensor) -> tuple[Tensor, Tensor]:
    """Return 1 - cosine of single drifts and of each class's mean drift."""
    rows = torch.nonzero(clean >= 0)[:, 0]
    if len(rows) == 0:
        return made.new_zeros(()), made.new_zeros(())
    first = clean[rows]
    a, b = made[rows] - made[first], wanted[rows] - wanted[first]
    single = 1 - functional.cosine_similarity(a, b, dim=1, eps=1e-4).mean()
    classes, index = torch.unique(first, return_inverse=True)
    empty = made.new_zeros(len(classes), made.shape[1])
    mean_a, mean_b = empty.index_add(0, index, a), empty.index_add(0, index, b)
    return single, 1 - functional.cosine_similarity(mean_a, mean_b, dim=1, eps=1e-4).mean()


def losses(
    tower: Tower, batch: Batch, anchors: Tensor, tau: float, *, late: bool
) -> dict[str, Tensor]:
    """Return the parts of the loss and their weighted sum, `all`."""
    made = tower(batch.ids, batch.mask)
    tags_made, tags_wanted = (to_tags(x, anchors, tau) for x in (made, batch.target))
    single, _ = drift_loss(made, batch.target, batch.clean)
    _, mean = drift_loss(tags_made, tags_wanted, batch.clean)
    parts = {
        "cosine": 1 - (made * batch.target).sum(1).mean(),
        "tags": 1 - (tags_made * tags_wanted).sum(1).mean(),
        "drift": single,
        "tag_drift": mean,
    }
    weights = LATE_WEIGHTS if late else WEIGHTS
    total = sum((weights[name] * part for name, part in parts.items()), made.new_zeros(()))
    return {**parts, "all": total}


def rate_at(progress: float) -> float:
    """Return the learning rate: rising for 3 % of the time, then falling along a cosine."""
    if progress < 0.03:
        return PEAK_RATE * max(progress / 0.03, 0.02)
    return PEAK_RATE * 0.5 * (1 + math.cos(math.pi * min((progress - 0.03) / 0.97, 1.0)))


def load_anchors(work: Path) -> tuple[Tensor, float]:
    """Return the tag anchors (527, 384) and tau written by `training.text_anchors`."""
    stored = np.load(work / "anchors.npz")
    return torch.from_numpy(stored["anchors"].astype(np.float32)), float(stored["tau"])


def load_tower(work: Path, checkpoint: str = "tower.pt") -> Tower:
    """Return the tower of a checkpoint."""
    stored = np.load(work / "pieces.npz")
    tower = Tower(unpack(stored["packed"], stored["scale"]))
    state = torch.load(work / checkpoint, weights_only=True)
    tower.load_state_dict(state["average"])
    return tower.eval()


class Run:
    """A training run: the tower, its optimiser and running average, and the time spent."""

    def __init__(self, work: Path, corpus: Corpus) -> None:
        self.path = work / "tower.pt"
        stored = np.load(work / "pieces.npz")
        self.tower = Tower(unpack(stored["packed"], stored["scale"]))
        self.optimiser = _make_optimiser(self.tower)
        self.step, self.spent = 0, 0.0
        if self.path.exists():
            state = torch.load(self.path, weights_only=True)
            self.tower.load_state_dict(state["tower"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.average: dict[str, Tensor] = state["average"]
            self.step, self.spent = state["step"], state["spent"]
        else:
            held_out = {row["word"] for row in read_texts(work / "heldout_words.tsv")}
            weight, bias = fit_skip(corpus, stored, held_out)
            with torch.no_grad():
                self.tower.skip.weight.copy_(weight)
                self.tower.skip.bias.copy_(bias)
                self.tower.leave.weight.zero_()
                self.tower.leave.bias.zero_()
            self.average = _copy_of(self.tower)

    def learn(self, loss: Tensor, rate: float) -> None:
        """Take one optimiser step and update the average."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group["share"]
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.tower.parameters(), 1.0)
        self.optimiser.step()
        self.step += 1
        keep = min(0.995, self.step / (self.step + 10))
        for name, value in self.tower.state_dict().items():
            self.average[name].lerp_(value, 1 - keep)

    def refit(self, corpus: Corpus, rng: np.random.Generator) -> None:
        """Continue from the average, with its last layers at their optimum."""
        self.tower.load_state_dict(self.average)
        refit(self.tower, corpus, REFIT_TEXTS, rng)
        self.average = _copy_of(self.tower)

    def save(self) -> None:
        """Write the checkpoint atomically."""
        state = {
            "tower": self.tower.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "average": self.average,
            "spent": self.spent,
            "step": self.step,
        }
        torch.save(state, self.path.with_suffix(".partial"))
        self.path.with_suffix(".partial").rename(self.path)


class Curve:
    """Mean losses over every hundred steps, written as lines of a csv file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sums: dict[str, float] = {}
        self.steps = 0
        self.texts = 0

    def add(self, run: Run, batch: Batch, parts: Mapping[str, Tensor], rate: float) -> None:
        """Add a step; write a line after every hundred."""
        self.steps += 1
        self.texts += len(batch.ids)
        for name, part in parts.items():
            self.sums[name] = self.sums.get(name, 0.0) + part.item()
        if run.step % 100:
            return
        fresh = not self.path.exists()
        with self.path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            if fresh:
                writer.writerow(["step", "texts", "minutes", "rate", *self.sums])
            means = [f"{total / self.steps:.4f}" for total in self.sums.values()]
            writer.writerow([run.step, self.texts, f"{run.spent / 60:.2f}", f"{rate:.2e}", *means])
        self.sums, self.steps = {}, 0


def _make_optimiser(tower: Tower) -> torch.optim.Optimizer:
    """Return AdamW, with a lower rate for the linear path."""
    slow = list(tower.skip.parameters())
    fast = [p for p in tower.parameters() if all(p is not q for q in slow)]
    settings = [
        {"params": [p for p in fast if p.ndim > 1], "weight_decay": 0.01, "share": 1.0},
        {"params": [p for p in fast if p.ndim <= 1], "weight_decay": 0.0, "share": 1.0},
        {"params": slow, "weight_decay": 0.0, "share": SKIP_SHARE},
    ]
    return torch.optim.AdamW(settings, lr=PEAK_RATE, betas=(0.9, 0.98))


def _copy_of(tower: Tower) -> dict[str, Tensor]:
    """Return a copy of the tower's weights."""
    return {name: value.clone() for name, value in tower.state_dict().items()}


def train(work: Path, minutes: float, threads: int) -> None:
    """Train until `minutes` of training time are spent, including earlier runs."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    anchors, tau = load_anchors(work)
    corpus = Corpus(work)
    run = Run(work, corpus)
    rng = np.random.default_rng(run.step)
    curve = Curve(work / "tower_curve.csv")
    curve.texts = run.step * TEXTS_PER_BATCH
    began = saved = time.monotonic() - run.spent
    first_pass = run.step == 0
    while True:
        for batch in corpus.batches(rng):
            progress = run.spent / (60 * minutes)
            parts = losses(run.tower, batch, anchors, tau, late=progress > 0.6)
            run.learn(parts["all"], rate_at(progress))
            run.spent = time.monotonic() - began
            curve.add(run, batch, parts, rate_at(progress))
            if progress >= 1 or time.monotonic() - saved > SAVE_EVERY_S:
                saved = time.monotonic()
                run.save()
            if progress >= 1:
                return
        if first_pass:
            run.refit(corpus, rng)
            first_pass = False


def main() -> None:
    """Train, or continue training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--minutes", type=float, default=40.0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    train(options.work, options.minutes, options.threads)


if __name__ == "__main__":
    main()
