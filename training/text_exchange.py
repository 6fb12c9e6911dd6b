"""Exchange pieces of the exported text tower: words that can be heard for words that cannot.

SCOWL says how common a word is (word lists by size, from Debian: 10 for the commonest words, 95 for
the rarest), WordNet what it is. Every word of the lexicon's keys gets a place, and so do words up
to level 70 for an animal, artifact, food or phenomenon and verbs of the body, contact, motion,
consumption, perception and weather. Words that are nothing of the kind and that neither the lexicon
nor a class name contains give theirs, rare ones first. The choice does not look at the word test.

Other forms of a piece cost no row: they are further names of the same row (`share_rows`). These are
inflected forms (roosters: rooster) and a common word as the end of a longer one (##blower: blower).
Words that no key of the lexicon contains share the row of one that sounds alike (`other_words`,
`training.text_rows`).
"""

import re
from collections import Counter
from collections.abc import Container
from pathlib import Path

from training.lexicon import read_lexicon
from training.text_corpus import (
    SHARED,
    fetch_package,
    read_class_names,
    words_of,
)
from training.text_meanings import Dictionary

SOUNDING = {5, 6, 13, 19, 29, 34, 35, 38, 39, 43}
"""WordNet's lexicographer files: animal, artifact, food, phenomenon; body, consumption, contact,
motion, perception, weather."""
NOUNS_AND_VERBS = set(range(3, 44))
RARE = 80
"""SCOWL's level from which a word gets no place, unless it is in the lexicon."""
COMMON = 40
"""SCOWL's level below which a word keeps its place whatever it is."""
COMMON_FORM = 60
"""SCOWL's highest level of an inflected form that shares a row."""
OTHER = 55
"""SCOWL's highest level of a word that shares the row of another one."""
MIN_ENDING = 4
MIN_ENDS = 3
"""Letters of a word that can end a longer one, and keys of the lexicon that it must end."""


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


def exchange(pieces: list[str], database: Path, shared: Path = SHARED) -> list[str]:
    """Return the pieces, with words that can be heard in the places of the least useful ones."""
    senses, levels = read_files(database), read_levels(database.parents[3])
    dictionary = Dictionary(database)
    lexicon = Counter(
        word for line in read_lexicon() for key in line.keys for word in words_of(key)
    )
    needed = {*lexicon, *(w for name in read_class_names(shared / "text") for w in words_of(name))}
    listed = set(pieces)
    added = [w for w, _ in lexicon.most_common() if len(w) > 2 and w not in listed]
    heard = {w for w, kinds in senses.items() if any((f, False) in kinds for f in SOUNDING)}
    others = sorted((levels[w], w) for w in heard - listed - set(added) if w in levels)
    added += [word for level, word in others if level < RARE]

    def is_spare(piece: str) -> bool:
        bases = {dictionary.base(part, piece) for part in ("noun", "verb")}
        return piece not in needed and levels.get(piece, RARE) >= COMMON and not bases & heard

    last_fragment = max(n for n, piece in enumerate(pieces) if piece.startswith("##"))
    spare = [piece for piece in pieces[last_fragment + 1 :] if is_spare(piece)]
    spare.sort(key=lambda piece: -levels.get(piece, RARE))
    words = dict(zip(spare, added, strict=False))
    print(f"{len(added)} words wait for a place, {len(words)} get one")
    return [words.get(piece, piece) for piece in pieces]


def share_rows(pieces: list[str], database: Path) -> dict[str, int]:
    """Return further names of pieces with their numbers: inflected forms, and ends of compounds."""
    senses, levels = read_files(database), read_levels(database.parents[3])
    dictionary = Dictionary(database)
    numbers = {piece: number for number, piece in enumerate(pieces)}
    heard = {w for w, kinds in senses.items() if any((f, False) in kinds for f in SOUNDING)}
    names: dict[str, int] = {}
    for word, level in levels.items():
        bases = [dictionary.base(part, word) for part in ("noun", "verb")]
        known = [base for base in bases if base in heard and base in numbers]
        if level <= COMMON_FORM and known:
            names[word] = numbers[known[0]]
    ends = Counter(words_of(key)[-1] for line in read_lexicon() for key in line.keys if " " in key)
    for word in {*ends, *heard}:
        common = ends[word] >= MIN_ENDS or levels.get(word, RARE) <= COMMON
        if common and len(word) >= MIN_ENDING and word in numbers:
            names[f"##{word}"] = numbers[word]
    names = {name: number for name, number in names.items() if name not in numbers}
    return dict(sorted(names.items()))


def other_words(pieces: Container[str], database: Path) -> list[str]:
    """Return words that are to share a row: what can be heard, and what is no piece."""
    senses, levels = read_files(database), read_levels(database.parents[3])
    dictionary = Dictionary(database)
    heard = {w for w, kinds in senses.items() if any((f, False) in kinds for f in SOUNDING)}

    def is_wanted(word: str) -> bool:
        if heard & {dictionary.base(part, word) for part in ("noun", "verb")}:
            return True
        if word in pieces:
            return False
        if word in senses:
            return any(file in NOUNS_AND_VERBS and not capital for file, capital in senses[word])
        return not re.search("(ly|ness|est|ier|ed|s)$", word)

    words = {word for word, level in levels.items() if level <= OTHER and is_wanted(word)}
    words.update(
        w for line in read_lexicon() for key in line.keys for w in words_of(key) if len(w) > 2
    )
    return sorted(words)
