"""Names with the tags of their sound, for the training of the text side.

A name is a key of the lexicon or a word of WordNet that has a tag by what it is
(`training.text_wordnet`). Some keys are never trained on (`held_out_keys`): settings are chosen on
them, and the limit of `training.word_doubts`. Texts that contain an entry of the word test are
never used; without `public` neither are label names of public test sets and their synonyms.
"""

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.lexicon import Line, read_lexicon
from training.text_anchors import read_tags
from training.text_corpus import SHARED
from training.text_wordnet import words_of_tags
from training.word_lists import LABEL_TEST, WORD_TEST, PhraseFinder, read_entries

HELD_OUT = {"everyday_": 12, "wide_": 10}
"""One of this many keys is held out, by the start of the file's name."""


@dataclass(frozen=True)
class Name:
    """A word or phrase with a distribution over the 527 tags."""

    text: str
    tags: np.ndarray
    description: str = ""
    wide: bool = False
    """Whether it is in one of the files `wide_*`."""
    public: bool = False
    """Whether it is a label name of a public set or a synonym of one."""


def held_out_keys(line: Line) -> list[str]:
    """Return the keys of a line of the lexicon that are kept for choosing."""
    for start, one_of in HELD_OUT.items():
        if line.place.startswith(start):
            return [key for key in line.keys if zlib.crc32(key.encode()) % one_of == 0]
    return []


def excluded_phrases(*, public: bool) -> PhraseFinder:
    """Return a finder of the word test and, without `public`, of names in public test sets."""
    phrases = [entry.phrase for entry in read_entries(WORD_TEST)]
    if not public:
        phrases += [entry.phrase for entry in read_entries(LABEL_TEST)]
        phrases += [key for line in read_lexicon() for key in line.public]
    return PhraseFinder(phrases)


def read_names(database: Path, *, public: bool) -> tuple[list[Name], list[Name], list[Name]]:
    """Return the names of the lexicon, those that are held out, and WordNet's."""
    tags = [tag.name for tag in read_tags(SHARED / "text")]
    excluded = excluded_phrases(public=public)
    trained: list[Name] = []
    held: list[Name] = []
    for line in read_lexicon():
        row = np.zeros(len(tags), np.float32)
        for tag, weight in line.tags.items():
            row[tags.index(tag)] = weight
        row /= row.sum()
        apart = held_out_keys(line)
        description = "" if excluded.find(line.description) else line.description
        for key in line.keys:
            if public or not excluded.find(key):
                wide = line.place.startswith("wide_")
                name = Name(key, row, description, wide, key in line.public)
                (held if key in apart else trained).append(name)
    eye = np.eye(len(tags), dtype=np.float32)
    found = words_of_tags(database).items()
    words = [Name(w, eye[tags.index(tag)]) for w, tag in found if not excluded.find(w)]
    return trained, held, words
