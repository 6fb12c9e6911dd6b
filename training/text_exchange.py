"""Exchange pieces of the exported text tower: everyday words in place of words nobody listens to.

The second edition chose its whole words by frequency in WordNet, with ties in alphabetical order:
it has "ornithogalum", and spells "lorry", "freezer" and "tuba" from fragments. Here words that
WordNet has only as proper names, plants, substances, attributes and the like, and that do not occur
in its tagged text, give their places to

1. the words of the lexicon,
2. WordNet's names of artifacts, animals, acts, events and phenomena, and its verbs of contact,
   motion, communication, body, perception and weather, with their -ing forms: those first that
   MiniLM has as one piece, then by frequency in WordNet.

The choice does not look at the word test. A new row of the piece table is what the second edition
would have had: the affine map from MiniLM's vectors (of the word alone and of "the sound of" it) to
the table's columns is fitted on pieces that stay. All else of the tower is unchanged.

    python -m training.text_exchange --work WORK --out FOLDER
"""

import argparse
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from training.export_text import OUT, export, read_exported
from training.lexicon import read_lexicon
from training.text_corpus import (
    SHARED,
    WORK,
    continue_verb,
    fetch_wordnet,
    read_class_names,
    read_glosses,
    read_lemmas,
    words_of,
)
from training.text_teacher import Teacher, find_teacher
from training.text_vocabulary import CONTEXT, WIDTH, build_tokenizer, unpack

WANTED_NOUNS = {4, 5, 6, 11, 19}
WANTED_VERBS = {29, 32, 35, 38, 39, 43}
"""WordNet's lexicographer files: act, animal, artifact, event, phenomenon; body, communication,
contact, motion, perception, weather."""
UNHEARD = {0, 1, 2, 3, 7, 8, 9, 12, 14, 15, 16, 20, 21, 23, 24, 26, 27, 28, 44}
"""Adjectives, adverbs, attributes, cognition, groups, places, plants, states, substances, times."""
EXTRA = 1_000
"""Pieces that are added beyond those that are exchanged."""
FITTED = 6_000


def read_files(database: Path) -> dict[str, set[tuple[int, bool]]]:
    """Return the lexicographer file and whether it is capitalised, for each sense of each word."""
    senses: dict[str, set[tuple[int, bool]]] = {}
    for part in ("noun", "verb", "adj", "adv"):
        for line in (database / f"data.{part}").read_text("latin-1").splitlines():
            if line.startswith(" "):
                continue
            fields = line.split(" ")
            for number in range(int(fields[3], 16)):
                word = fields[4 + 2 * number].split("(")[0]
                if re.fullmatch("[A-Za-z]{3,}", word):
                    sense = (int(fields[1]), word[0].isupper())
                    senses.setdefault(word.lower(), set()).add(sense)
    return senses


def choose(pieces: list[str], database: Path, shared: Path) -> tuple[list[str], list[str]]:
    """Return the pieces to remove and the words to add, the most useful first."""
    senses, uses = read_files(database), read_lemmas(database)
    last_fragment = max(n for n, piece in enumerate(pieces) if piece.startswith("##"))
    lexicon = Counter(
        word for line in read_lexicon() for text in (*line.keys, line.description)
        for word in words_of(text)
    )  # fmt: skip
    protected = {word for name in read_class_names(shared / "text") for word in words_of(name)}
    protected |= set(lexicon)
    removed = [
        piece
        for piece in reversed(pieces[last_fragment + 1 :])
        if piece in senses and piece not in protected and uses.get(piece, 0) == 0
        and all(capital or file in UNHEARD for file, capital in senses[piece])
    ]  # fmt: skip
    whole = json.loads((find_teacher() / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    counts = Counter(word for gloss in read_glosses(database) for word in words_of(gloss))
    listed = set(pieces)
    candidates: dict[str, tuple[bool, int]] = {}
    for word, found in senses.items():
        files = {file for file, capital in found if not capital}
        forms = [word] if files & (WANTED_NOUNS | WANTED_VERBS) else []
        if files & WANTED_VERBS:
            forms.append(continue_verb(word))
        for form in forms:
            frequency = counts[form] + uses.get(word, 0)
            candidates.setdefault(form, (form in whole, frequency))
    first = [word for word, _ in lexicon.most_common() if len(word) > 2]
    then = sorted(candidates, key=lambda word: (candidates[word], word), reverse=True)
    added = [word for word in dict.fromkeys([*first, *then]) if word not in listed]
    return removed, added


def exchanged(pieces: list[str], removed: list[str], added: list[str]) -> list[str]:
    """Return the pieces, with words put where others were and `EXTRA` at the end."""
    words = iter(added)
    gone = set(removed)
    new = [next(words, piece) if piece in gone else piece for piece in pieces]
    return [*new, *(word for word, _ in zip(words, range(EXTRA), strict=False))]


def features(teacher: Teacher, words: list[str]) -> np.ndarray:
    """Return MiniLM's vectors of words alone and in context, and a one, (n, 769)."""
    parts = [teacher.encode(words), teacher.encode([CONTEXT.format(word) for word in words])]
    return np.concatenate([*parts, np.ones((len(words), 1), np.float32)], 1)


def main() -> None:
    """Write text.onnx and tokenizer.json with the exchanged pieces."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--start", type=Path, default=OUT, help="folder of the exported tower")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    stored = json.loads((options.start / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    pieces = sorted(stored, key=stored.__getitem__)
    removed, added = choose(pieces, fetch_wordnet(options.work / "wordnet"), options.shared)
    new = exchanged(pieces, removed, added)
    weights, tables = read_exported(options.start / "text.onnx")
    packed, scale = tables["packed"], tables["scale"]
    rng, teacher = np.random.default_rng(1), Teacher(options.threads)
    known = [n for n, piece in enumerate(pieces) if re.fullmatch("[a-z]{3,}", piece)]
    sample = [int(n) for n in rng.choice(known, FITTED, replace=False)]
    table = unpack(packed, scale)
    given = features(teacher, [pieces[n] for n in sample])
    held = FITTED // 10
    gram = given[held:].T.astype(np.float64) @ given[held:] + 1e-3 * np.eye(given.shape[1])
    fitted = np.linalg.solve(gram, given[held:].T.astype(np.float64) @ table[sample[held:]])
    guess, truth = given[:held] @ fitted, table[sample[:held]]
    error = np.square(guess - truth).mean() / np.square(truth - truth.mean(0)).mean()
    print(f"columns of pieces that were not fitted: {error:.3f} of the variance unexplained")
    changed = [n for n, piece in enumerate(new) if n >= len(pieces) or piece != pieces[n]]
    rows = features(teacher, [new[n] for n in changed]) @ fitted
    halves = np.clip(np.rint(rows / scale) + 8, 0, 15).astype(np.uint8)
    grown = np.zeros((len(new), packed.shape[1]), np.uint8)
    grown[: len(packed)] = packed
    grown[changed] = halves[:, : WIDTH // 2] | (halves[:, WIDTH // 2 :] << 4)
    build_tokenizer(new).save(str(options.out / "tokenizer.json"), pretty=False)
    np.savez(options.out / "pieces.npz", packed=grown, scale=scale)
    tower = {name: torch.tensor(value) for name, value in weights.items()}
    torch.save({"average": tower}, options.out / "tower.pt")
    np.savez(options.out / "anchors.npz", anchors=tables["anchors"].astype(np.float16), tau=50.0)
    print(f"{len(removed)} pieces could go, {len(added)} words could come, {len(changed)} came")
    export(options.out, options.out)


if __name__ == "__main__":
    main()
