"""Exchange pieces of the exported text tower: everyday words in place of words nobody listens to.

The second edition chose its whole words by frequency in WordNet, with ties in alphabetical order:
it had "ornithogalum", and spelt "lorry", "freezer" and "tuba" from fragments. SCOWL says how common
a word is (word lists by size, from Debian: 10 for the commonest words, 95 for the rarest). Words of
level 70 and above give their places, unless the lexicon, a class name or MiniLM has them, to

1. the words of the lexicon,
2. nouns by level; within a level WordNet's names of artifacts, animals, acts, events, phenomena and
   food come first, and its verbs of contact, motion, communication, body, perception, weather and
   the like, with their -ing forms. A word that is another one with an ending (-s, -ed, -ing) does
   not need a place.

More words follow at the end, up to `MAX_PIECES`. The choice does not look at the word test. A new
row of the piece table is what the second edition would have had: the affine map from MiniLM's
vectors (of the word alone and of "the sound of" it) to the table's columns is fitted on pieces that
stay. The table is packed by groups of columns (`training.text_vocabulary.quantise`), for which the
last five of 320 columns are dropped. All else of the tower is unchanged.

    python -m training.text_exchange --work WORK --out FOLDER
"""

import argparse
import json
import re
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from training.export_text import OUT, export, read_exported
from training.lexicon import read_lexicon
from training.text_corpus import (
    SHARED,
    WORK,
    continue_verb,
    fetch_package,
    fetch_wordnet,
    read_class_names,
    words_of,
)
from training.text_teacher import Teacher, find_teacher
from training.text_vocabulary import CONTEXT, GROUP, build_tokenizer, quantise, unpack

WANTED_NOUNS = {4, 5, 6, 11, 13, 19}
WANTED_VERBS = {29, 30, 32, 33, 34, 35, 36, 38, 39, 43}
"""WordNet's lexicographer files: act, animal, artifact, event, food, phenomenon; body, change,
communication, competition, consumption, contact, creation, motion, perception, weather."""
RARE = 70
"""SCOWL's level from which a word is rare."""
NOUNS = set(range(3, 29))
ENDINGS = re.compile("(s|es|ed|d|ly|ing|ings|ness)")
INFLECTED = re.compile("(s|ed|ing|er|est|ly|ness)$")
MAX_PIECES = 38_800
"""As many as the size of the model allows."""
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


def read_levels(home: Path) -> dict[str, int]:
    """Return SCOWL's level of each word, by American or British spelling."""
    folder = fetch_package(home, "scowl", "usr/share/dict/scowl")
    levels: dict[str, int] = {}
    for kind in ("english", "american", "british"):
        for path in folder.glob(f"{kind}-words.*"):
            level = int(path.suffix[1:])
            for word in path.read_text("latin-1").splitlines():
                if re.fullmatch("[a-z]{3,}", word):
                    levels[word] = min(level, levels.get(word, level))
    return levels


def choose(pieces: list[str], database: Path, shared: Path) -> tuple[list[str], list[str]]:
    """Return the pieces to remove and the words to add, the most useful first."""
    senses, levels = read_files(database), read_levels(database.parents[3])
    last_fragment = max(n for n, piece in enumerate(pieces) if piece.startswith("##"))
    lexicon = Counter(
        word for line in read_lexicon() for text in (*line.keys, line.description)
        for word in words_of(text)
    )  # fmt: skip
    whole = json.loads((find_teacher() / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    protected = {word for name in read_class_names(shared / "text") for word in words_of(name)}
    protected |= {*lexicon, *whole}
    removed = [
        piece
        for piece in reversed(pieces[last_fragment + 1 :])
        if piece not in protected and levels.get(piece, RARE) >= RARE
    ]
    listed = set(pieces) - set(removed)
    candidates: dict[str, tuple[int, bool, str]] = {}
    for word, level in levels.items():
        files = {file for file, _ in senses.get(word, ())}
        wanted = files & (WANTED_NOUNS | WANTED_VERBS)
        if wanted or files & NOUNS or (not files and not INFLECTED.search(word)):
            candidates[word] = (level, not wanted, word)
            if files & WANTED_VERBS and (doing := continue_verb(word)) in levels:
                candidates.setdefault(doing, (levels[doing], False, doing))
    first = [word for word, _ in lexicon.most_common() if len(word) > 2]
    added = []
    for word in dict.fromkeys([*first, *sorted(candidates, key=candidates.__getitem__)]):
        stems = {word[:n] for n in range(3, len(word)) if ENDINGS.fullmatch(word[n:])}
        if word not in listed and (word in lexicon or not stems & listed):
            added.append(word)
            listed.add(word)
    return removed, added


def exchanged(pieces: list[str], removed: list[str], added: list[str]) -> list[str]:
    """Return the pieces, with words put where others were and more at the end."""
    words = iter(added)
    gone = set(removed)
    new = [next(words, piece) if piece in gone else piece for piece in pieces]
    return [*new, *islice(words, MAX_PIECES - len(new))]


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
    rng, teacher = np.random.default_rng(1), Teacher(options.threads)
    known = [n for n, piece in enumerate(pieces) if re.fullmatch("[a-z]{3,}", piece)]
    sample = [int(n) for n in rng.choice(known, FITTED, replace=False)]
    table = unpack(tables["packed"], tables["scale"])
    given = features(teacher, [pieces[n] for n in sample])
    held = FITTED // 10
    gram = given[held:].T.astype(np.float64) @ given[held:] + 1e-3 * np.eye(given.shape[1])
    fitted = np.linalg.solve(gram, given[held:].T.astype(np.float64) @ table[sample[held:]])
    guess, truth = given[:held] @ fitted, table[sample[:held]]
    error = np.square(guess - truth).mean() / np.square(truth - truth.mean(0)).mean()
    print(f"columns of pieces that were not fitted: {error:.3f} of the variance unexplained")
    changed = [n for n, piece in enumerate(new) if n >= len(pieces) or piece != pieces[n]]
    grown = np.zeros((len(new), table.shape[1]), np.float32)
    grown[: len(table)] = table
    grown[changed] = features(teacher, [new[n] for n in changed]) @ fitted
    columns = table.shape[1] - table.shape[1] % GROUP
    grown = grown[:, :columns]
    codes, books = quantise(grown, rng)
    error = np.square(unpack(codes, books) - grown).mean() / np.square(grown).mean()
    print(f"packed table: {error:.3f} of the squares lost")
    build_tokenizer(new).save(str(options.out / "tokenizer.json"), pretty=False)
    np.savez(options.out / "pieces.npz", packed=codes, scale=books)
    for name in ("enter.weight", "skip.weight"):
        weights[name] = weights[name][:, :columns]
    tower = {name: torch.tensor(value) for name, value in weights.items()}
    torch.save({"average": tower}, options.out / "tower.pt")
    np.savez(options.out / "anchors.npz", anchors=tables["anchors"].astype(np.float16), tau=50.0)
    print(f"{len(removed)} pieces could go, {len(added)} words could come, {len(changed)} came")
    export(options.out, options.out)


if __name__ == "__main__":
    main()
