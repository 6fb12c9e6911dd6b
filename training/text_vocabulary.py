"""Build the text tower's tokenizer and its fixed table of piece vectors.

The pieces are whole words (frequent in WordNet's definitions, examples and counts, or part of
names of sounds) and fragments learnt from all of WordNet's words, which spell the rest. Most
labels consist of whole words. Other scripts become [UNK], which the caller can detect.

The vector of a piece is distilled from the teacher: its sentence vectors of the piece alone and of
"the sound of" the piece, reduced to 320 principal components of 4 bits each (which keeps more
information than 160 components of 8 bits). The table is not trained further, so words that no
training text contains are treated like the others. The choice of words does not depend on which
of them are held out.

Packed in 4 bits: column j < 160 in the low half of byte j, column 160 + j in its high half;
value = (half - 8) * scale_j. Packed by groups (`quantise`, the form that ships): three columns are
one byte, the number of a row in the group's codebook of 256, so that a piece takes 105 bytes in
place of 160 and the table has room for half as many words again.

    python -m training.text_vocabulary
"""

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from training.text_corpus import (
    CAPTIONS,
    COMPOSED,
    DEFECTS,
    PRODUCT_PHRASES,
    QUALITIES,
    SCENES,
    SHARED,
    SINGLE,
    SOURCES,
    WORK,
    fetch_wordnet,
    inflect,
    read_class_names,
    read_glosses,
    read_lemmas,
    words_of,
)
from training.text_teacher import Teacher

PIECES = 26_750
FRAGMENTS = 6_000
WIDTH = 320
GROUP = 3
"""Columns that share a byte."""
ROUNDS = 8
SAMPLE = 5_000
"""Pieces that the codebooks are fitted to."""
UNKNOWN = "[UNK]"
LONGEST = 64
SIGNS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
CONTEXT = "the sound of {}"


def count_words(shared: Path, work: Path) -> Counter[str]:
    """Return the frequency of each word; words of sounds and prompts rank first."""
    database = fetch_wordnet(work / "wordnet")
    lemmas = read_lemmas(database)
    counts: Counter[str] = Counter()
    for text in read_glosses(database):
        counts.update(words_of(text))
    for lemma, uses in lemmas.items():
        counts.update(dict.fromkeys(words_of(lemma), 1 + uses))
    counts.update(word for form in inflect(lemmas, database) for word in words_of(form))
    first = [*read_class_names(shared / "text"), *PRODUCT_PHRASES, *SCENES, *SOURCES, *QUALITIES]
    first += [*DEFECTS, *SINGLE, *COMPOSED, *CAPTIONS]
    counts.update({word: 1_000_000 for text in first for word in words_of(text)})
    return counts


def learn_fragments(counts: Counter[str]) -> list[str]:
    """Return fragments that can spell every word, learnt from all words."""
    tokenizer: Any = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    alphabet = [*"abcdefghijklmnopqrstuvwxyz0123456789", *SIGNS]
    trainer = trainers.WordPieceTrainer(
        vocab_size=FRAGMENTS, initial_alphabet=alphabet, limit_alphabet=len(alphabet),
        special_tokens=[UNKNOWN], show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(sorted(counts), trainer)
    learnt: dict[str, int] = tokenizer.get_vocab()
    letters = [f"##{sign}" for sign in alphabet]
    return list(dict.fromkeys([*sorted(learnt, key=learnt.__getitem__), *letters]))


def choose_pieces(counts: Counter[str]) -> list[str]:
    """Return [UNK], the fragments, and whole words by frequency until the table is full."""
    pieces = dict.fromkeys(learn_fragments(counts))
    for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if len(pieces) == PIECES:
            break
        pieces.setdefault(word)
    return list(pieces)


def build_tokenizer(pieces: Iterable[str]) -> Tokenizer:
    """Return the tokenizer: lower case, no accents, longest match first, at most 64 pieces."""
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    built = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN))
    tokenizer: Any = built  # its types do not know what can be set
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.enable_truncation(LONGEST)
    return built


def write_tokenizer(path: Path, pieces: list[str], names: dict[str, int]) -> None:
    """Write the tokenizer; `names` are further names of pieces, which the library cannot save."""
    described = json.loads(build_tokenizer(pieces).to_str())
    described["model"]["vocab"].update(names)
    text = json.dumps(described, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text, encoding="utf-8")


def describe_pieces(teacher: Teacher, pieces: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of each piece (n, 768) and the teacher's vector of it (n, 384)."""
    texts = [piece.removeprefix("##") for piece in pieces]
    alone = teacher.encode(texts)
    in_context = teacher.encode([CONTEXT.format(text) for text in texts])
    blocks = [block - block.mean(0) for block in (alone, in_context)]
    scaled = [block / np.sqrt((block**2).sum(1).mean()) for block in blocks]
    return np.concatenate(scaled, 1), alone


def reduce(features: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 4-bit principal components, packed two to a byte, and a scale per column."""
    directions = np.linalg.eigh(features.T.astype(np.float64) @ features)[1]
    components = features @ directions[:, ::-1][:, :width].astype(np.float32)
    components /= components.std(0) ** 0.5  # flatter, so that no few columns dominate
    scale = 2.9 * components.std(0) / 7.5
    halves = np.clip(np.rint(components / scale) + 8, 0, 15).astype(np.uint8)
    packed = halves[:, : width // 2] | (halves[:, width // 2 :] << 4)
    return packed, scale.astype(np.float32)


def quantise(table: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return one byte per `GROUP` columns and the codebooks (groups, 256, columns), by k-means."""
    groups = table.shape[1] // GROUP
    codes = np.empty((len(table), groups), np.uint8)
    books = np.empty((groups, 256, GROUP), np.float16)
    for group in range(groups):
        rows = torch.from_numpy(table[:, GROUP * group : GROUP * (group + 1)].copy())
        sample = rows[rng.choice(len(rows), SAMPLE, replace=False)]
        centres = sample[:256].clone()
        for _ in range(ROUNDS):
            nearest = _nearest(sample, centres)
            counts = nearest.bincount(minlength=256)[:, None]
            means = torch.zeros_like(centres).index_add_(0, nearest, sample) / counts.clamp(min=1)
            centres = torch.where(counts > 0, means, centres)
        books[group] = centres.half().numpy()
        codes[:, group] = _nearest(rows, centres.half().float()).numpy()
    return codes, books


def _nearest(rows: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """Return the number of the nearest centre of each row; `cdist` takes ten times as long."""
    return (centres.square().sum(1) - 2 * rows @ centres.T).argmin(1)


def unpack(packed: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the table as float32; `scale` is a scale per column, or the codebooks."""
    if scale.ndim == 3:
        rows: np.ndarray = scale[np.arange(len(scale)), packed].astype(np.float32)
        return rows.reshape(len(packed), -1)
    halves: np.ndarray = np.concatenate([packed & 15, packed >> 4], 1).astype(np.float32)
    table: np.ndarray = (halves - 8) * scale
    return table


def main() -> None:
    """Write `tokenizer.json` and `pieces.npz`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    pieces = choose_pieces(count_words(options.shared, options.work))
    build_tokenizer(pieces).save(str(options.work / "tokenizer.json"), pretty=False)
    features, vectors = describe_pieces(Teacher(options.threads), pieces)
    packed, scale = reduce(features, WIDTH)
    stored = options.work / "pieces.npz"
    np.savez(stored, packed=packed, scale=scale, vectors=vectors.astype(np.float16), pieces=pieces)
    print(f"{len(pieces)} pieces of {WIDTH} columns, {packed.nbytes / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
