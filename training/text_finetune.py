"""Teach the exported text tower the lexicon, without forgetting other words.

Each step sees names of the lexicon and of WordNet (`training.text_wordnet`), in prompts, with the
cross-entropy to their tags, and texts of the corpus, whose sentence vectors and tags must stay what
the start gives. Noise on the pieces makes neighbours of a word profit. The tower and, at a lower
rate, the anchors are trained; the pieces are not. Texts that contain an entry of the word test are
never used; with `--without-public` neither are label names of public test sets and their synonyms.

Every `HELD_OUT`th key of the files `everyday_*`, which no earlier edition saw, is not trained on:
choices are made on these, and the limit of `training.word_doubts`. The learning rate depends on the
number of steps and falls to zero. A run continues from its checkpoint in OUT. At the end:
`python -m training.export_text --work OUT`.

    python -m training.text_finetune --work WORK --start FOLDER --out OUT --steps 2000
"""

import argparse
import copy
import csv
import random
import shutil
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from training.export_text import OUT, read_exported
from training.lexicon import Line, read_lexicon
from training.text_anchors import read_tags
from training.text_corpus import CLEAN, SEED, SHARED, SINGLE, WORK, fetch_wordnet
from training.text_lexicon import TAU
from training.text_net import Tower
from training.text_teacher import read_texts
from training.text_tower import SAVE_EVERY_S, rate_at
from training.text_vocabulary import unpack
from training.text_wordnet import words_of_tags
from training.word_lists import LABEL_TEST, WORD_TEST, PhraseFinder, read_entries

HELD_OUT = 12
RATE_SHARE = 0.8
"""Factor on the learning rate of a training from scratch."""
ANCHOR_SHARE = 0.3
NAMES = 192
CORPUS = 64
CORPUS_TEXTS = 40_000
WORDNET_SHARE = 0.15
"""Share of the names that are WordNet's."""
AVERAGE = 0.99
NOISE = 0.4
WEIGHTS = {"names": 0.3, "cosine": 1.0, "tags": 0.5}


def held_out_keys(line: Line) -> list[str]:
    """Return the keys of a line of the lexicon that are kept for choosing."""
    if not line.place.startswith("everyday_"):
        return []
    return [key for key in line.keys if zlib.crc32(key.encode()) % HELD_OUT == 0]


def excluded_phrases(*, public: bool) -> PhraseFinder:
    """Return a finder of the word test and, without `public`, of names in public test sets."""
    phrases = [entry.phrase for entry in read_entries(WORD_TEST)]
    if not public:
        phrases += [entry.phrase for entry in read_entries(LABEL_TEST)]
        phrases += [key for line in read_lexicon() for key in line.public]
    return PhraseFinder(phrases)


def pad(ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return piece ids as one matrix, and where it holds a piece."""
    longest = max(map(len, ids))
    mask = torch.tensor([[n < len(row) for n in range(longest)] for row in ids])
    return torch.tensor([[*row, *([0] * (longest - len(row)))] for row in ids]), mask


class Names:
    """The names with their tags: of the lexicon (held-out ones apart) and of WordNet."""

    def __init__(self, tokenizer: Tokenizer, database: Path, shared: Path, *, public: bool) -> None:
        tags = [tag.name for tag in read_tags(shared / "text")]
        texts: list[str] = []
        weights: list[np.ndarray] = []
        held: list[tuple[str, np.ndarray]] = []
        rng = random.Random(SEED)
        for line in read_lexicon():
            row = np.zeros(len(tags), np.float32)
            for tag, weight in line.tags.items():
                row[tags.index(tag)] = weight
            row /= row.sum()
            keys = [key for key in line.keys if public or key not in line.public]
            kept = held_out_keys(line)
            held += [(key, row) for key in kept if key in keys]
            for key in keys:
                if key not in kept:
                    other = rng.choice(SINGLE[5:]).format(c=key)
                    texts += [CLEAN.format(c=key), key, other]
                    weights += [row] * 3
            if keys:
                texts.append(line.description)
                weights.append(row)
        first = np.array([row.argmax() for row in weights])
        share = 1 / np.sqrt(np.bincount(first, minlength=len(tags))[first])
        share *= (1 - WORDNET_SHARE) / share.sum()  # between equal texts and equal tags
        found = words_of_tags(database)
        excluded = excluded_phrases(public=public)
        words = {word: tag for word, tag in found.items() if not excluded.find(word)}
        texts += [CLEAN.format(c=word) for word in words]
        eye = np.eye(len(tags), dtype=np.float32)
        weights += [eye[tags.index(tag)] for tag in words.values()]
        self.share = np.concatenate([share, np.full(len(words), WORDNET_SHARE / len(words))])
        self.share /= self.share.sum()
        self.ids = [e.ids for e in tokenizer.encode_batch(texts)]
        self.weights = np.stack(weights)
        prompts = [CLEAN.format(c=key) for key, _ in held]
        self.held_ids = [e.ids for e in tokenizer.encode_batch(prompts)]
        self.held_weights = np.stack([row for _, row in held])
        print(f"{len(texts)} texts, {len(words)} words of WordNet, {len(held)} keys held out")

    def batches(self, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield batches of similar length without end: ids, mask, tag weights."""
        lengths = np.array([len(row) for row in self.ids])
        while True:
            drawn = rng.choice(len(self.ids), 32 * NAMES, p=self.share)
            drawn = drawn[np.argsort(lengths[drawn], kind="stable")]
            for part in rng.permutation(drawn.reshape(32, NAMES)):
                yield *pad([self.ids[row] for row in part]), torch.from_numpy(self.weights[part])


def corpus_batches(
    work: Path, tokenizer: Tokenizer, excluded: PhraseFinder, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of corpus texts of similar length without end."""
    rows = read_texts(work / "corpus.tsv")
    texts = [rows[n]["text"] for n in rng.permutation(len(rows))[:CORPUS_TEXTS]]
    ids = [e.ids for e in tokenizer.encode_batch([t for t in texts if not excluded.find(t)])]
    ids.sort(key=len)
    while True:
        for first in CORPUS * rng.permutation(len(ids) // CORPUS):
            yield pad(ids[first : first + CORPUS])


class Student(nn.Module):
    """The text tower and its anchors."""

    def __init__(self, start: Path) -> None:
        super().__init__()
        weights, tables = read_exported(start / "text.onnx")
        self.tower = Tower(unpack(tables["packed"], tables["scale"]))
        self.tower.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
        self.anchors = nn.Parameter(functional.normalize(torch.tensor(tables["anchors"]), dim=1))

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return sentence vectors and log-probabilities of the tags."""
        sentences = self.tower(ids, mask)
        unit = functional.normalize(self.anchors, dim=1)
        return sentences, (TAU * sentences @ unit.T).log_softmax(1)


def losses(
    student: Student, start: Student, names: tuple[Tensor, ...], corpus: tuple[Tensor, Tensor]
) -> dict[str, Tensor]:
    """Return the parts of the loss and their weighted sum, `all`."""
    ids, mask, weights = names
    tags = student(ids, mask)[1]
    with torch.no_grad():
        old_sentences, old_tags = start(*corpus)
    sentences, corpus_tags = student(*corpus)
    parts = {
        "names": -(weights * tags).sum(1).mean(),
        "cosine": 1 - (sentences * old_sentences).sum(1).mean(),
        "tags": 1 - functional.cosine_similarity(corpus_tags.exp(), old_tags.exp(), dim=1).mean(),
    }
    total = sum((WEIGHTS[name] * part for name, part in parts.items()), sentences.new_zeros(()))
    right = (tags.argmax(1) == weights.argmax(1)).float().mean()
    return {**parts, "right": right, "all": total}


@torch.no_grad()
def measure(student: Student, names: Names) -> float:
    """Return the share of held-out keys whose first tag is one of the key's tags."""
    right = 0.0
    order = np.argsort([len(ids) for ids in names.held_ids], kind="stable")
    for part in np.array_split(order, max(1, len(order) // 128)):
        tags = student(*pad([names.held_ids[n] for n in part]))[1].argmax(1)
        right += (torch.from_numpy(names.held_weights[part]).gather(1, tags[:, None]) > 0).sum()
    return float(right) / len(order)


def train(options: argparse.Namespace) -> None:
    """Train for `steps`, including earlier runs, and write the result."""
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    tokenizer = Tokenizer.from_file(str(options.start / "tokenizer.json"))
    public = not options.without_public
    names = Names(tokenizer, fetch_wordnet(options.work / "wordnet"), SHARED, public=public)
    student = Student(options.start)
    start = copy.deepcopy(student).eval()
    student.tower.noise = NOISE
    tower = [value for name, value in student.named_parameters() if name != "anchors"]
    optimiser = torch.optim.AdamW(
        [{"params": tower, "share": 1.0}, {"params": [student.anchors], "share": ANCHOR_SHARE}],
        lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0,
    )  # fmt: skip
    average = copy.deepcopy(student).eval()
    step = 0
    if (path := out / "checkpoint.pt").exists():
        state = torch.load(path, weights_only=True)
        student.load_state_dict(state["student"])
        optimiser.load_state_dict(state["optimiser"])
        average.load_state_dict(state["average"])
        step = state["step"]
    rng = np.random.default_rng(step)
    named = names.batches(rng)
    general = corpus_batches(options.work, tokenizer, excluded_phrases(public=public), rng)
    saved = time.monotonic()
    sums: dict[str, float] = {}
    while step < options.steps:
        rate = RATE_SHARE * rate_at(step / options.steps)
        for group in optimiser.param_groups:
            group["lr"] = rate * group["share"]
        parts = losses(student, start, next(named), next(general))
        optimiser.zero_grad(set_to_none=True)
        parts["all"].backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimiser.step()
        step += 1
        with torch.no_grad():
            for mean, value in zip(average.parameters(), student.parameters(), strict=True):
                mean.lerp_(value, 1 - min(AVERAGE, step / (step + 10)))
        for name, part in parts.items():
            sums[name] = sums.get(name, 0.0) + part.item() / 50
        if step % 50 == 0:
            write_curve(out / "curve.csv", step, rate, sums, measure(average, names))
            sums = {}
        if step == options.steps or time.monotonic() - saved > SAVE_EVERY_S:
            saved = time.monotonic()
            state = {"student": student.state_dict(), "average": average.state_dict()}
            state |= {"optimiser": optimiser.state_dict(), "step": step}
            torch.save(state, path.with_suffix(".partial"))
            path.with_suffix(".partial").rename(path)
            write_result(out, options.start, average)


def write_curve(
    path: Path, step: int, rate: float, sums: dict[str, float], held_out: float
) -> None:
    """Append one line of mean losses and the share of held-out keys that are right."""
    fresh = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(["step", "processor_s", "rate", *sums, "held_out"])
        means = [f"{value:.4f}" for value in (*sums.values(), held_out)]
        writer.writerow([step, f"{time.process_time():.0f}", f"{rate:.2e}", *means])


def write_result(folder: Path, start: Path, average: Student) -> None:
    """Write what `training.export_text` needs: tower, anchors, pieces and tokenizer."""
    anchors = functional.normalize(average.anchors.detach(), dim=1).numpy()
    np.savez(folder / "anchors.npz", anchors=anchors.astype(np.float16), tau=TAU)
    torch.save({"average": average.tower.state_dict()}, folder / "tower.pt")
    tables = read_exported(start / "text.onnx")[1]
    np.savez(folder / "pieces.npz", packed=tables["packed"], scale=tables["scale"])
    shutil.copyfile(start / "tokenizer.json", folder / "tokenizer.json")


def main() -> None:
    """Fine-tune, or continue."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--start", type=Path, default=OUT, help="folder of the exported tower")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--without-public", action="store_true", help="leave names of public test sets out"
    )
    train(parser.parse_args())


if __name__ == "__main__":
    main()
