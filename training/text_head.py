"""Fit the last layers of the text tower and the anchors to the lexicon, on features computed once.

The layers below stay as they are, so the features of all texts (`Tower.pool`) are computed once,
and a step costs little: less than two minutes of processor time in total, where
`training.text_finetune` takes many. The cross-entropy to the tags of the names is the same. Texts
of the corpus and the names that the edition before was taught must stay where that edition
(`--old`) has them, in sentence and tag space, if it reads them in the same pieces. Noise on the
features makes neighbours of a word profit. Settings were chosen on the held-out keys.

    python -m training.text_head --work WORK --old FOLDER --start EXCHANGED --out OUT
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from training.export_text import OUT
from training.lexicon import read_lexicon
from training.text_corpus import CLEAN, SHARED, WORK, fetch_wordnet
from training.text_evaluate import ShippedTower
from training.text_finetune import (
    Names,
    Student,
    excluded_phrases,
    pad,
    write_result,
)
from training.text_lexicon import TAU
from training.text_teacher import read_texts

BATCH = 256
CORPUS_TEXTS = 10_000


def kept_texts(work: Path, old: Path, tokenizer: Tokenizer, *, public: bool) -> list[str]:
    """Return texts that must stay where they are, of those that both tokenizers read alike."""
    excluded, rng = excluded_phrases(public=public), np.random.default_rng(1)
    rows = read_texts(work / "corpus.tsv")
    texts = [rows[n]["text"] for n in rng.permutation(len(rows))[:CORPUS_TEXTS]]
    texts += [
        CLEAN.format(c=key)
        for line in read_lexicon()
        if not line.place.startswith("everyday_")
        for key in line.keys
    ]
    before = Tokenizer.from_file(str(old / "tokenizer.json")).encode_batch(texts)
    pairs = zip(texts, before, tokenizer.encode_batch(texts), strict=True)
    return [t for t, a, b in pairs if a.tokens == b.tokens and not excluded.find(t)]


@torch.no_grad()
def pool(student: Student, ids: list[list[int]]) -> Tensor:
    """Return the pooled features of texts, (n, 256 + columns)."""
    order = np.argsort([len(row) for row in ids], kind="stable")
    parts = [
        torch.cat(student.tower.pool(*pad([ids[n] for n in part])), 1)
        for part in np.array_split(order, max(1, len(order) // BATCH))
    ]
    back = torch.empty(len(ids), dtype=torch.long)
    back[torch.from_numpy(order)] = torch.arange(len(ids))
    return torch.cat(parts)[back]


class Head:
    """The last layers as one matrix, and the anchors."""

    def __init__(self, student: Student) -> None:
        tower = student.tower
        self.weight = torch.cat([tower.leave.weight, tower.skip.weight], 1).detach().clone()
        self.bias = (tower.leave.bias + tower.skip.bias).detach().clone()
        self.anchors = student.anchors.detach().clone()

    def parameters(self) -> list[Tensor]:
        """Return what is trained."""
        return [self.weight, self.bias, self.anchors]

    def __call__(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return sentence vectors and log-probabilities of the tags."""
        sentences = functional.normalize(features @ self.weight.T + self.bias, dim=1)
        unit = functional.normalize(self.anchors, dim=1)
        return sentences, (TAU * sentences @ unit.T).log_softmax(1)

    @torch.no_grad()
    def write_to(self, student: Student) -> None:
        """Put the weights into a tower."""
        tower, width = student.tower, student.tower.leave.in_features
        tower.leave.weight.copy_(self.weight[:, :width])
        tower.skip.weight.copy_(self.weight[:, width:])
        tower.leave.bias.copy_(self.bias)
        tower.skip.bias.zero_()
        student.anchors.copy_(self.anchors)


def fit(
    student: Student,
    names: tuple[Tensor, Tensor, Tensor],
    corpus: tuple[Tensor, Tensor, Tensor],
    held: tuple[Tensor, Tensor],
    options: argparse.Namespace,
) -> Head:
    """Return the fitted head.

    `names` are features, tag weights and shares; `corpus` features and what the old tower gives.
    """
    features, weights, share = names
    kept_features, old_sentences, old_tags = corpus
    head = Head(student)
    for value in head.parameters():
        value.requires_grad_()
    optimiser = torch.optim.Adam(
        [
            {"params": [head.weight, head.bias], "lr": options.rate},
            {"params": [head.anchors], "lr": options.rate * options.anchor_share},
        ]
    )
    rates = [group["lr"] for group in optimiser.param_groups]
    deviation = features.std(0)
    for step in range(options.steps):
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = rate * (1 - step / options.steps)
        rows = share.multinomial(512, replacement=True)
        kept = torch.randint(len(kept_features), (256,))
        noise = options.noise * deviation * torch.randn(512, features.shape[1])
        _, tags = head(features[rows] + noise)
        sentences, corpus_tags = head(kept_features[kept])
        loss = -(weights[rows] * tags).sum(1).mean()
        loss = loss + options.keep * (
            4 * (1 - (sentences * old_sentences[kept]).sum(1).mean())
            + 2 * (1 - functional.cosine_similarity(corpus_tags.exp(), old_tags[kept]).mean())
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step == 0 or (step + 1) % 100 == 0:
            with torch.no_grad():
                first = head(held[0])[1].argmax(1)
                right = (held[1].gather(1, first[:, None]) > 0).float().mean()
            print(f"step {step + 1}: loss {loss.item():.3f}, held-out keys {right:.3f}", flush=True)
    return head


def main() -> None:
    """Fit, and write what `training.export_text` needs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--start", type=Path, default=OUT, help="folder of the exported tower")
    parser.add_argument("--old", type=Path, default=OUT, help="folder of the edition before")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rate", type=float, default=0.002)
    parser.add_argument("--anchor-share", type=float, default=0.3)
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--keep", type=float, default=8.0, help="weight of the corpus")
    parser.add_argument("--without-public", action="store_true", help="leave public names out")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    public = not options.without_public
    tokenizer = Tokenizer.from_file(str(options.start / "tokenizer.json"))
    student = Student(options.start).eval()
    cache = options.out / f"features_{public}.pt"
    if not cache.exists():
        names = Names(tokenizer, fetch_wordnet(options.work / "wordnet"), SHARED, public=public)
        texts = kept_texts(options.work, options.old, tokenizer, public=public)
        old = ShippedTower(options.old)
        kept = [torch.from_numpy(old.encode(texts, name)) for name in ("sentence", "embedding")]
        stored = [pool(student, names.ids), torch.from_numpy(names.weights)]
        stored += [torch.from_numpy(names.share), pool(student, names.held_ids)]
        stored += [torch.from_numpy(names.held_weights)]
        ids = [e.ids for e in tokenizer.encode_batch(texts)]
        torch.save([*stored, pool(student, ids), *kept], cache)
    features, weights, share, held, held_weights, *corpus = torch.load(cache, weights_only=True)
    head = fit(student, (features, weights, share), tuple(corpus), (held, held_weights), options)
    head.write_to(student)
    write_result(options.out, options.start, student)


if __name__ == "__main__":
    main()
