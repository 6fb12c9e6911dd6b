"""Teach MiniLM what words sound like: the teacher of the text tower.

MiniLM knows meanings, not sounds. Its upper layers and the 527 anchors are trained so that
softmax(tau * S . anchor) gives a name's tags, for the name alone, in a prompt, with WordNet's
definition (`training.text_meanings`), and for its description. Texts of the corpus stay near
MiniLM's own vectors. The layers below are not trained, so their outputs are computed once. Held-out
keys (`training.text_names`), with their definitions, show how well other words profit.

    python -m training.text_sounds --out WORK/sounds.pt
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from driftscore.backbones.mn04.tagspace import load_space
from training.text_corpus import CLEAN, WORK, fetch_wordnet
from training.text_lexicon import TAU
from training.text_meanings import Dictionary
from training.text_names import Name, excluded_phrases, read_names
from training.text_teacher import find_teacher, read_texts
from training.word_lists import PhraseFinder

FROZEN = 2
"""Layers that are not trained."""
TOKENS = 1024
"""Tokens per batch."""
MAX_TOKENS = 44
"""Tokens per text."""
CORPUS_TEXTS = 4_000
PROMPTS = 0.6
"""Share of the names in the prompt; the others are alone."""
DEFINED_SHARE = 0.8
"""How often a name is drawn with its definition, in proportion to the name alone."""
WORDNET_SHARE = 0.4
"""How often a word of WordNet is drawn, in proportion to a key of the lexicon."""
MEASURED = 600
"""Held-out keys of the files `wide_*` that are measured while training."""


class SoundTeacher(nn.Module):
    """MiniLM with anchors: texts of one length to sentence vectors and tags."""

    def __init__(self) -> None:
        from transformers import AutoModel

        super().__init__()
        folder = find_teacher()
        model: Any = AutoModel.from_pretrained(
            folder, attn_implementation="sdpa", dtype=torch.float32
        )
        self.embeddings = model.embeddings
        self.lower = model.encoder.layer[:FROZEN]
        self.upper = model.encoder.layer[FROZEN:]
        anchors = torch.tensor(load_space().anchors, dtype=torch.float32)
        self.anchors = nn.Parameter(functional.normalize(anchors, dim=1))
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TOKENS)

    def read(self, path: Path) -> None:
        """Read the weights of a trained teacher."""
        state = torch.load(path, weights_only=True)
        self.upper.load_state_dict(state["upper"])
        self.anchors.data.copy_(state["anchors"])

    def enter(self, ids: Tensor) -> Tensor:
        """Return what the lower layers give for (batch, length) ids."""
        hidden: Tensor = self.embeddings(input_ids=ids)
        for layer in self.lower:
            hidden = _first(layer(hidden, None))
        return hidden

    def leave(self, hidden: Tensor) -> Tensor:
        """Return unit sentence vectors."""
        for layer in self.upper:
            hidden = _first(layer(hidden, None))
        return functional.normalize(hidden.float().mean(1), dim=1)

    def tags(self, sentences: Tensor) -> Tensor:
        """Return log-probabilities of the tags."""
        unit = functional.normalize(self.anchors, dim=1)
        return (TAU * sentences @ unit.T).log_softmax(1)

    @torch.no_grad()
    def encode(self, texts: Sequence[str], tokens: int = 2 * TOKENS) -> np.ndarray:
        """Return the sentence vectors of texts, (n, 384)."""
        vectors = np.empty((len(texts), 384), np.float32)
        for ids, rows in by_length(self.tokenizer, texts, tokens):
            with torch.autocast("cpu", torch.bfloat16):
                vectors[rows] = self.leave(self.enter(ids)).numpy()
        return vectors


def _first(output: Any) -> Tensor:
    """Return the hidden states of a layer, with any version of transformers."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


def by_length(
    tokenizer: Tokenizer, texts: Sequence[str], tokens: int
) -> Iterator[tuple[Tensor, list[int]]]:
    """Yield ids of texts with the same number of tokens, and the numbers of the texts."""
    groups: dict[int, list[int]] = defaultdict(list)
    encoded = [e.ids for e in tokenizer.encode_batch(list(texts))]
    for number, ids in enumerate(encoded):
        groups[len(ids)].append(number)
    for length, rows in groups.items():
        size = max(1, tokens // length)
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            yield torch.tensor([encoded[n] for n in part]), part


class Examples:
    """Texts with what they must give: the outputs of the frozen layers, tags or a vector."""

    def __init__(self, teacher: SoundTeacher, texts: list[str], targets: np.ndarray) -> None:
        self.targets = torch.from_numpy(targets)
        self.place = np.zeros((len(texts), 2), np.int64)
        parts: dict[int, list[Tensor]] = defaultdict(list)
        sizes: dict[int, int] = defaultdict(int)
        for ids, rows in by_length(teacher.tokenizer, texts, 2 * TOKENS):
            length = ids.shape[1]
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                parts[length].append(teacher.enter(ids).bfloat16())
            self.place[rows, 0] = length
            self.place[rows, 1] = sizes[length] + np.arange(len(rows))
            sizes[length] += len(rows)
        self.hidden = {length: torch.cat(values) for length, values in parts.items()}

    def take(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return hidden states and targets of rows of one length."""
        length = self.place[rows[0], 0]
        return self.hidden[length][self.place[rows, 1]].float(), self.targets[rows]

    def batches(self, rng: np.random.Generator, share: np.ndarray, count: int) -> list[np.ndarray]:
        """Return drawn rows in batches of one length, in random order."""
        drawn = rng.choice(len(self.place), count, p=share)
        batches: list[np.ndarray] = []
        for length in self.hidden:
            rows = drawn[self.place[drawn, 0] == length]
            size = max(1, TOKENS // length)
            batches += [rows[n : n + size] for n in range(0, len(rows), size)]
        return [batches[n] for n in rng.permutation(len(batches))]


def make_texts(
    names: list[Name],
    words: list[Name],
    dictionary: Dictionary,
    excluded: PhraseFinder,
    rng: np.random.Generator,
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return texts, their tags, and how often each is drawn."""
    texts: list[str] = []
    tags: list[np.ndarray] = []
    kinds: list[float] = []
    for name in (*names, *words):
        own = 1.0 if name.description else WORDNET_SHARE
        texts.append(CLEAN.format(c=name.text) if rng.random() < PROMPTS else name.text)
        tags.append(name.tags)
        kinds.append(own)
        defined = define(dictionary, name.text)
        if dictionary.define(name.text) and not excluded.find(defined):
            texts.append(defined)
            tags.append(name.tags)
            kinds.append(own * DEFINED_SHARE)
    described = {name.description: name.tags for name in names if name.description}
    texts += described
    tags += described.values()
    kinds += [1.0] * len(described)
    first = np.array([row.argmax() for row in tags])
    share = np.array(kinds) / np.sqrt(np.bincount(first, minlength=527)[first])
    return texts, np.stack(tags), share / share.sum()


def define(dictionary: Dictionary, word: str) -> str:
    """Return the prompt of a word, with its definition if it has one."""
    definition = dictionary.define(word)
    return f"{CLEAN.format(c=word)}: {definition}" if definition else CLEAN.format(c=word)


def measure(teacher: SoundTeacher, dictionary: Dictionary, names: Sequence[Name]) -> float:
    """Return the share of names with one of their tags first."""
    vectors = teacher.encode([define(dictionary, name.text) for name in names])
    first = teacher.tags(torch.from_numpy(vectors)).argmax(1).tolist()
    right = np.mean([name.tags[tag] > 0 for name, tag in zip(names, first, strict=True)])
    return round(float(right), 3)


def train(options: argparse.Namespace) -> None:
    """Train, and write the weights that changed."""
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(options.seed)
    public = not options.without_public
    database = fetch_wordnet(options.work / "wordnet")
    names, held, words = read_names(database, public=public)
    teacher = SoundTeacher().eval()
    began = time.process_time()
    excluded, dictionary = excluded_phrases(public=public), Dictionary(database)
    texts, tags, share = make_texts(names, words, dictionary, excluded, rng)
    examples = Examples(teacher, texts, tags)
    rows = read_texts(options.work / "corpus.tsv")
    corpus = [rows[n]["text"] for n in rng.permutation(len(rows))[:CORPUS_TEXTS]]
    corpus = [text for text in corpus if not excluded.find(text)]
    kept = Examples(teacher, corpus, teacher.encode(corpus))
    even = np.full(len(corpus), 1 / len(corpus))
    print(f"{len(texts)} texts, {len(held)} keys held out, {time.process_time() - began:.0f} s")
    begin = teacher.anchors.detach().clone()
    if options.start:
        teacher.read(options.start)
    wide = [name for name in held if name.wide]
    groups = {
        "everyday": [name for name in held if not name.wide],
        "wide": [wide[n] for n in rng.permutation(len(wide))[:MEASURED]],
    }
    print({kind: measure(teacher, dictionary, g) for kind, g in groups.items()}, flush=True)
    upper = list(teacher.upper.parameters())
    for value in (*teacher.embeddings.parameters(), *teacher.lower.parameters()):
        value.requires_grad_(False)
    optimiser = torch.optim.AdamW(
        [
            {"params": upper, "lr": options.rate},
            {"params": [teacher.anchors], "lr": options.anchor_rate},
        ],
        weight_decay=0.01,
    )
    rates = [group["lr"] for group in optimiser.param_groups]
    total = options.texts
    done, losses = 0, []
    while done < total:
        chunk = min(total - done, 12_000)
        general = kept.batches(rng, even, chunk // 6)
        for number, drawn in enumerate(examples.batches(rng, share, chunk)):
            progress = done / total
            factor = min(1.0, progress / 0.05) * (1 - progress)
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            teacher.train()
            hidden, wanted = examples.take(drawn)
            with torch.autocast("cpu", torch.bfloat16):
                sentences = teacher.leave(hidden)
            noise = torch.randn_like(sentences) * (options.noise / sentences.shape[1] ** 0.5)
            likelihood = teacher.tags(functional.normalize(sentences + noise, dim=1))
            loss = -(wanted * likelihood).sum(1).mean()
            losses.append(loss.item())
            unit = functional.normalize(teacher.anchors, dim=1)
            loss = loss + options.hold * (unit - begin).square().sum(1).mean()
            if number % 4 == 0 and general:
                hidden, vectors = kept.take(general.pop())
                with torch.autocast("cpu", torch.bfloat16):
                    loss = loss + options.keep * (
                        1 - (teacher.leave(hidden) * vectors).sum(1).mean()
                    )
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(upper, 1.0)
            optimiser.step()
            done += len(drawn)
        teacher.eval()
        shares = {kind: measure(teacher, dictionary, group) for kind, group in groups.items()}
        spent = time.process_time() - began
        print(f"{done} texts, {spent:.0f} s, loss {np.mean(losses):.3f}, {shares}", flush=True)
        losses = []
        state = {"upper": teacher.upper.state_dict(), "anchors": teacher.anchors.detach()}
        torch.save(state, options.out)


def main() -> None:
    """Train the teacher."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="a teacher to continue from")
    parser.add_argument("--texts", type=int, default=96_000, help="texts to train on")
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--anchor-rate", type=float, default=3e-3)
    parser.add_argument("--noise", type=float, default=0.5)
    parser.add_argument("--hold", type=float, default=0.3)
    parser.add_argument("--keep", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-public", action="store_true", help="leave public names out")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
