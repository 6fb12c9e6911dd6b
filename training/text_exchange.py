"""Exchange pieces of the exported text tower: everyday words in place of words nobody listens to.

SCOWL says how common a word is (word lists by size, from Debian: 10 for the commonest words, 95 for
the rarest), WordNet what it is. Every word of the lexicon's keys gets a place. Words that neither
the lexicon nor a class name contains give theirs: rare ones first, then those that are no artifact,
animal, act, event, phenomenon or food and no verb of contact, motion, communication, body,
perception, weather and the like. The choice does not look at the word test.
"""

import re
from collections import Counter
from pathlib import Path

from training.lexicon import read_lexicon
from training.text_corpus import (
    SHARED,
    fetch_package,
    read_class_names,
    words_of,
)

WANTED_NOUNS = {4, 5, 6, 11, 13, 19}
WANTED_VERBS = {29, 30, 32, 33, 34, 35, 36, 38, 39, 43}
"""WordNet's lexicographer files: act, animal, artifact, event, food, phenomenon; body, change,
communication, competition, consumption, contact, creation, motion, perception, weather."""
RARE = 70
"""SCOWL's level from which a word is rare."""


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
    """Return the pieces, with the lexicon's words in the places of the least useful ones."""
    senses, levels = read_files(database), read_levels(database.parents[3])
    lexicon = Counter(
        word for line in read_lexicon() for key in line.keys for word in words_of(key)
    )
    needed = {*lexicon, *(w for name in read_class_names(shared / "text") for w in words_of(name))}
    added = [w for w, _ in lexicon.most_common() if len(w) > 2 and w not in set(pieces)]

    def usefulness(piece: str) -> tuple[bool, bool, int]:
        files = {file for file, _ in senses.get(piece, ())}
        level = levels.get(piece, RARE)
        return level < RARE, bool(files & (WANTED_NOUNS | WANTED_VERBS)), -level

    last_fragment = max(n for n, piece in enumerate(pieces) if piece.startswith("##"))
    spare = [piece for piece in pieces[last_fragment + 1 :] if piece not in needed]
    removed = sorted(spare, key=usefulness)[: len(added)]
    words = dict(zip(removed, added, strict=False))
    print(f"{len(added)} words of the lexicon come, {len(words)} words go")
    return [words.get(piece, piece) for piece in pieces]
