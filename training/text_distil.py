"""Distil the teacher of sounds (`training.text_sounds`) into the small text tower.

The pieces are chosen again (`training.text_exchange`). The row of a piece is computed from the
teacher's vector of "the sound of" it, with its definition if WordNet has one, so that the table
stores what a single word sounds like. Rows are not trained, so a word that no training text
contains is treated like the others. The tower starts from the exported one: its first layer reads
the new columns by a linear map from the new table to the old one, its last layers are fitted in
closed form. Then all layers and the anchors are trained: names of the lexicon and of WordNet must
give their tags, other texts (words, compounds, composed phrases, texts of the corpus) the teacher's
vector and tags. Texts that contain an entry of the word test or a held-out key are never used,
apart from keys of the lexicon that contain another.

    python -m training.text_distil --teacher WORK/sounds.pt --out WORK/distilled
    python -m training.export_text --work WORK/distilled
"""

import argparse
import json
import re
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from training.export_text import OUT, read_exported
from training.text_corpus import CLEAN, QUALITIES, SINGLE, WORK, fetch_wordnet, read_lemmas
from training.text_exchange import exchange, read_levels, share_rows
from training.text_lexicon import TAU
from training.text_meanings import Dictionary
from training.text_names import Name, excluded_phrases, read_names
from training.text_net import HIDDEN, SENTENCE, Tower
from training.text_sounds import SoundTeacher, define
from training.text_teacher import read_texts
from training.text_vocabulary import GROUP, quantise, unpack, write_tokenizer
from training.word_lists import PhraseFinder

COLUMNS = 105 * GROUP
COMMON = 55
"""SCOWL's level up to which words are composed to phrases."""
WORDNET_WEIGHT = 0.4
PUBLIC_WEIGHT = 2.0
WIDE_WEIGHT = 0.7
"""How often names are drawn: words of WordNet, names in public sets and their synonyms, and keys of
`wide_*`, in proportion to other keys of the lexicon."""
BATCH_TOKENS = 1536
PULL = 1e-3


@dataclass(frozen=True)
class Texts:
    """Texts with the teacher's vector or the tags of a name or both; zero where there is none."""

    texts: list[str]
    vectors: np.ndarray
    tags: np.ndarray
    share: np.ndarray


def make_table(vectors: np.ndarray) -> np.ndarray:
    """Return the principal components of vectors, (n, `COLUMNS`)."""
    centred = vectors - vectors.mean(0)
    directions = np.linalg.eigh(centred.T.astype(np.float64) @ centred)[1]
    components: np.ndarray = centred @ directions[:, ::-1][:, :COLUMNS].astype(np.float32)
    components /= components.std(0) ** 0.5  # flatter, so that no few columns dominate
    return components


class Student(nn.Module):
    """The text tower and its anchors."""

    def __init__(self, table: np.ndarray, anchors: Tensor) -> None:
        super().__init__()
        self.tower = Tower(table)
        self.anchors = nn.Parameter(functional.normalize(anchors, dim=1))

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return sentence vectors and log-probabilities of the tags, for texts of one length."""
        sentences = self.tower(ids, torch.ones_like(ids, dtype=torch.bool))
        return sentences, self.tags(sentences)

    def tags(self, sentences: Tensor) -> Tensor:
        """Return log-probabilities of the tags."""
        return (TAU * sentences @ functional.normalize(self.anchors, dim=1).T).log_softmax(1)


def start_student(start: Path, pieces: list[str], table: np.ndarray, anchors: Tensor) -> Student:
    """Return the exported tower, made to read another table."""
    weights, tables = read_exported(start / "text.onnx")
    before = unpack(tables["packed"], tables["scale"])
    index = {piece: number for number, piece in enumerate(read_pieces(start))}
    common = [(n, index[piece]) for n, piece in enumerate(pieces) if piece in index]
    given = table[[n for n, _ in common]]
    given = np.concatenate([given, np.ones((len(given), 1), np.float32)], 1).astype(np.float64)
    wanted = before[[n for _, n in common]]
    gram = given.T @ given + PULL * len(given) * np.eye(given.shape[1])
    solved = np.linalg.solve(gram, given.T @ wanted).astype(np.float32)
    lost = np.square(given @ solved - wanted).mean() / np.square(wanted - wanted.mean(0)).mean()
    print(f"map to the old table: {lost:.3f} of the variance unexplained")
    for name in ("enter", "skip"):
        weight = weights[f"{name}.weight"]
        weights[f"{name}.bias"] = weights[f"{name}.bias"] + weight @ solved[-1]
        weights[f"{name}.weight"] = weight @ solved[:-1].T
    student = Student(table, anchors)
    student.tower.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    return student


def read_pieces(folder: Path) -> list[str]:
    """Return the pieces of an exported tower, without the further names of their rows."""
    text = (folder / "tokenizer.json").read_text("utf-8")
    vocabulary: dict[str, int] = json.loads(text)["model"]["vocab"]
    pieces: dict[int, str] = {}
    for piece, number in vocabulary.items():
        pieces.setdefault(number, piece)
    return [pieces[number] for number in sorted(pieces)]


def compose_phrases(
    names: list[Name], levels: dict[str, int], count: int, rng: np.random.Generator
) -> list[str]:
    """Return phrases of two words of the lexicon: thing and act, act and thing, two things."""
    single = [n.text for n in names if re.fullmatch("[a-z]{3,}", n.text)]
    single = [word for word in dict.fromkeys(single) if levels.get(word, 99) <= COMMON]
    doing = [word for word in single if word.endswith("ing")]
    things = [word for word in single if not word.endswith("ing")]
    patterns = (
        (things, doing),
        (doing, things),
        (things, things),
        (list(QUALITIES), things),
        (list(QUALITIES), doing),
    )
    phrases: dict[str, None] = {}
    while len(phrases) < count:
        first, second = patterns[rng.choice(5, p=[0.35, 0.25, 0.2, 0.1, 0.1])]
        phrases[f"{rng.choice(first)} {rng.choice(second)}"] = None
    return list(phrases)


def compounds(database: Path, levels: dict[str, int]) -> list[str]:
    """Return WordNet's names of two common words."""
    return [
        lemma
        for lemma in read_lemmas(database)
        if re.fullmatch("[a-z]{3,} [a-z]{2,}", lemma)
        and all(levels.get(word, 99) <= COMMON for word in lemma.split())
    ]


def collect_texts(
    options: argparse.Namespace,
    teacher: SoundTeacher,
    pieces: list[str],
    rows_of_pieces: np.ndarray,
    rng: np.random.Generator,
) -> tuple[Texts, list[Name]]:
    """Return the texts to train on with the teacher's answers, and the held-out names."""
    public = not options.without_public
    database = fetch_wordnet(options.work / "wordnet")
    levels = read_levels(database.parents[3])
    names, held, words = read_names(database, public=public)
    excluded = PhraseFinder(
        [*excluded_phrases(public=public).phrases.values(), *(name.text for name in held)]
    )
    named = {name.text: name for name in (*words, *names)}
    descriptions = {n.description: n.tags for n in names if n.description}
    phrases = compounds(database, levels)
    phrases = [phrases[n] for n in rng.permutation(len(phrases))[: options.compounds]]
    phrases += compose_phrases(names, levels, options.composed, rng)
    phrases = [text for text in phrases if text not in named and not excluded.find(text)]
    rows = read_texts(options.work / "corpus.tsv")
    corpus = [rows[n]["text"] for n in rng.permutation(len(rows))[: options.corpus]]
    corpus = [text for text in corpus if not excluded.find(text)]
    whole = {
        piece: vector
        for piece, vector in zip(pieces, rows_of_pieces, strict=True)
        if re.fullmatch("[a-z]{3,}", piece) and piece not in named and not excluded.find(piece)
    }
    dictionary = Dictionary(database)
    vectors = teacher.encode([*(define(dictionary, text) for text in phrases), *corpus])
    single = dict(zip(pieces, rows_of_pieces, strict=True))
    no_tags, no_vector = np.zeros(527, np.float32), np.zeros(SENTENCE, np.float32)
    texts, targets, tags, share = [], [], [], []

    def add(text: str, vector: np.ndarray, row: np.ndarray, weight: float) -> None:
        texts.append(text)
        targets.append(vector)
        tags.append(row)
        share.append(weight)

    first = np.array([name.tags.argmax() for name in named.values()])
    rare = 1 / np.sqrt(np.bincount(first, minlength=527)[first])
    rare /= rare.mean()
    anchors = functional.normalize(teacher.anchors.detach(), dim=1).numpy()
    for weight, (text, name) in zip(rare, named.items(), strict=True):
        if not name.description:
            weight *= WORDNET_WEIGHT
        elif name.public:
            weight *= PUBLIC_WEIGHT
        elif name.wide:
            weight *= WIDE_WEIGHT
        vector = single.get(text, no_vector)
        if name.tags[(anchors @ vector).argmax()] == 0:  # the teacher is wrong
            vector = no_vector
        other = SINGLE[5 + int(rng.integers(len(SINGLE) - 5))].format(c=text)
        for form, part in ((CLEAN.format(c=text), 0.6), (text, 0.25), (other, 0.15)):
            if form != other or not excluded.find(other):  # a prompt can complete a phrase
                add(form, vector, name.tags, weight * part)
    for text, row in descriptions.items():
        add(text, no_vector, row, 0.5)
    for number, text in enumerate(phrases):
        add(CLEAN.format(c=text) if number % 4 else text, vectors[number], no_tags, 0.5)
    for number, text in enumerate(corpus, len(phrases)):
        add(text, vectors[number], no_tags, 0.8)
    for number, (text, vector) in enumerate(whole.items()):
        add(CLEAN.format(c=text) if number % 3 else text, vector, no_tags, 0.25)
    shares = np.array(share)
    counts = {"names": named, "phrases": phrases, "corpus": corpus, "words": whole}
    print({kind: len(group) for kind, group in counts.items()}, flush=True)
    return Texts(texts, np.stack(targets), np.stack(tags), shares / shares.sum()), held


def in_batches(ids: list[list[int]], drawn: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Return rows in batches of texts with the same number of pieces."""
    groups: dict[int, list[int]] = defaultdict(list)
    for row in drawn:
        groups[len(ids[row])].append(int(row))
    return [
        np.array(rows[n : n + tokens // length])
        for length, rows in groups.items()
        for n in range(0, len(rows), tokens // length)
    ]


@torch.no_grad()
def refit(student: Student, ids: list[list[int]], vectors: np.ndarray) -> None:
    """Set the last layers to their optimum in closed form, near the current weights."""
    tower = student.tower
    size = HIDDEN + tower.skip.in_features + 1
    gram = torch.zeros(size, size, dtype=torch.float64)
    moment = torch.zeros(size, SENTENCE, dtype=torch.float64)
    for rows in in_batches(ids, np.arange(len(ids)), 4 * BATCH_TOKENS):
        batch = torch.tensor([ids[row] for row in rows])
        pooled = tower.pool(batch, torch.ones_like(batch, dtype=torch.bool))
        given = torch.cat([*pooled, torch.ones(len(rows), 1)], 1)
        gram += (given.T @ given).double()
        moment += (given.T @ torch.from_numpy(vectors[rows])).double()
    bias = tower.leave.bias + tower.skip.bias
    now = torch.cat([tower.leave.weight, tower.skip.weight, bias[:, None]], 1).T.double()
    pull = torch.eye(size, dtype=torch.float64) * len(ids) / 20_000
    solved = torch.linalg.solve(gram + pull, moment * SENTENCE**0.5 + pull @ now).float()
    tower.leave.weight.copy_(solved[:HIDDEN].T)
    tower.skip.weight.copy_(solved[HIDDEN:-1].T)
    tower.leave.bias.copy_(solved[-1])
    tower.skip.bias.zero_()


@torch.no_grad()
def measure(student: Student, tokenizer: Tokenizer, names: list[Name]) -> str:
    """Return the share of names whose first tag is one of theirs: all, and single words."""
    student.eval()
    ids = [e.ids for e in tokenizer.encode_batch([CLEAN.format(c=n.text) for n in names])]
    right = np.zeros(len(ids), bool)
    for rows in in_batches(ids, np.arange(len(ids)), BATCH_TOKENS):
        first = student(torch.tensor([ids[row] for row in rows]))[1].argmax(1)
        right[rows] = [names[row].tags[tag] > 0 for row, tag in zip(rows, first, strict=True)]
    single = np.array([" " not in name.text for name in names])
    return f"{right.mean():.3f} of held-out keys, {right[single].mean():.3f} of single words"


def train(
    student: Student,
    texts: Texts,
    tokenizer: Tokenizer,
    held: list[Name],
    options: argparse.Namespace,
) -> None:
    """Train all layers and the anchors; the rate falls to zero."""
    rng = np.random.default_rng(2)
    ids = [e.ids for e in tokenizer.encode_batch(texts.texts)]
    tower = list(student.tower.parameters())
    optimiser = torch.optim.AdamW(
        [
            {"params": tower, "lr": options.rate},
            {"params": [student.anchors], "lr": options.rate * options.anchor_share},
        ],
        betas=(0.9, 0.98), weight_decay=0.0,
    )  # fmt: skip
    rates = [group["lr"] for group in optimiser.param_groups]
    teacher_anchors = student.anchors.detach().clone()
    student.tower.noise = options.noise
    done, began = 0, time.process_time()
    while done < options.texts:
        chunk = min(options.texts - done, 24_000)
        batches = in_batches(ids, rng.choice(len(ids), chunk, p=texts.share), BATCH_TOKENS)
        sums = np.zeros(3)
        student.train()
        for number in rng.permutation(len(batches)):
            rows = batches[number]
            progress = done / options.texts
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * min(1.0, progress / 0.04) * (1 - progress)
            sentences, likelihood = student(torch.tensor([ids[row] for row in rows]))
            vectors = torch.from_numpy(texts.vectors[rows])
            tags = torch.from_numpy(texts.tags[rows])
            answers = (TAU * vectors @ teacher_anchors.T).softmax(1)
            answered = vectors.square().sum(1, keepdim=True) > 0
            own = torch.where(answered, options.own, 1.0)
            own = torch.where(tags.sum(1, keepdim=True) > 0, own, 0.0)
            wanted = own * tags + (1 - own) * answers
            entropy = -(wanted * wanted.clamp(min=1e-9).log()).sum(1)
            divergence = (-(wanted * likelihood).sum(1) - entropy).mean()
            cosines = (sentences * vectors).sum(1)[answered[:, 0]]
            cosine = (1 - cosines).sum() / len(rows)
            loss = divergence + options.cosine * cosine
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(tower, 1.0)
            optimiser.step()
            done += len(rows)
            sums += [divergence.item(), cosine.item(), 1]
        means = f"divergence {sums[0] / sums[2]:.3f}, cosine loss {sums[1] / sums[2]:.3f}"
        spent = time.process_time() - began
        print(f"{done}: {spent:.0f} s, {means}, {measure(student, tokenizer, held)}", flush=True)
    student.tower.noise = 0.0


def main() -> None:
    """Make the table, distil, and write what `training.export_text` needs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--start", type=Path, default=OUT, help="exported tower to start from")
    parser.add_argument("--teacher", type=Path, required=True, help="of training.text_sounds")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=240_000, help="texts to train on")
    parser.add_argument("--compounds", type=int, default=8_000)
    parser.add_argument("--composed", type=int, default=12_000)
    parser.add_argument("--corpus", type=int, default=6_000)
    parser.add_argument("--rate", type=float, default=6e-4)
    parser.add_argument("--anchor-share", type=float, default=0.3)
    parser.add_argument("--noise", type=float, default=0.2)
    parser.add_argument("--own", type=float, default=1.0, help="share of a name's own tags")
    parser.add_argument("--cosine", type=float, default=4.0)
    parser.add_argument("--again", action="store_true", help="the start has the same teacher")
    parser.add_argument("--without-public", action="store_true", help="leave public names out")
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    teacher = SoundTeacher().eval()
    teacher.read(options.teacher)
    database = fetch_wordnet(options.work / "wordnet")
    pieces = exchange(read_pieces(OUT), database)
    if not (out / "rows.npy").exists():
        dictionary = Dictionary(database)
        words = [define(dictionary, piece.removeprefix("##")) for piece in pieces]
        np.save(out / "rows.npy", teacher.encode(words))
    rows = np.load(out / "rows.npy")
    table = make_table(rows)
    codes, books = quantise(table, rng)
    packed = unpack(codes, books)
    print(f"packed table: {np.square(packed - table).mean() / np.square(table).mean():.3f} lost")
    write_tokenizer(out / "tokenizer.json", pieces, share_rows(pieces, database))
    np.savez(out / "pieces.npz", packed=codes, scale=books)
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    texts, held = collect_texts(options, teacher, pieces, rows, rng)
    student = start_student(options.start, pieces, packed, teacher.anchors.detach())
    print(measure(student, tokenizer, held))
    if not options.again:
        ids = [e.ids for e in tokenizer.encode_batch(texts.texts)]
        answered = np.flatnonzero(texts.vectors.any(1))
        sample = rng.choice(answered, min(20_000, len(answered)), replace=False)
        refit(student, [ids[n] for n in sample], texts.vectors[sample])
        print(f"last layers fitted: {measure(student, tokenizer, held)}", flush=True)
    train(student, texts, tokenizer, held, options)
    torch.save({"average": student.tower.state_dict()}, out / "tower.pt")
    anchors = functional.normalize(student.anchors.detach(), dim=1).numpy()
    np.savez(out / "anchors.npz", anchors=anchors.astype(np.float16), tau=TAU)


if __name__ == "__main__":
    main()
