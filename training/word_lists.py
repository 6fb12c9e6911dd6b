"""Read the word tests, and find their words and phrases in other texts.

`word_test.toml` holds 400 everyday words and phrases that no training text and no lexicon line may
contain; `word_test_labels.toml` holds label names of public sets. Both give the acceptable AudioSet
tags of each entry. Phrases are compared as sequences of normal words: lower case, hyphens as
spaces, plural endings removed.

    python -m training.word_lists     check both files; exit status 1 if something is wrong
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from training.text_anchors import read_tags
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
    read_class_names,
)

HERE = Path(__file__).resolve().parent
WORD_TEST = HERE / "word_test.toml"
LABEL_TEST = HERE / "word_test_labels.toml"
WORD_TEST_SIZE = 400
MAX_TAGS = 5


@dataclass(frozen=True)
class Entry:
    """A word or phrase of a test with its acceptable tags."""

    area: str
    phrase: str
    tags: tuple[str, ...]


def read_entries(path: Path) -> list[Entry]:
    """Return the entries of a word test."""
    areas = tomllib.loads(path.read_text("utf-8"))
    return [
        Entry(area, phrase, tuple(tags))
        for area, phrases in areas.items()
        for phrase, tags in phrases.items()
    ]


def normal_words(text: str) -> tuple[str, ...]:
    """Return the words of a text: lower case, no hyphens, no plural endings."""
    words = re.findall(r"[a-z0-9]+", text.lower().replace("'s", "").replace("'", ""))
    return tuple(_singular(word) for word in words)


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and re.search(r"(s|x|z|ch|sh)es$", word):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


class PhraseFinder:
    """Finds which of some phrases a text contains, as consecutive normal words."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self.phrases = {normal_words(phrase): phrase for phrase in phrases}
        self.lengths = sorted({len(words) for words in self.phrases})

    def find(self, text: str) -> str | None:
        """Return a phrase that the text contains, or None."""
        words = normal_words(text)
        for length in self.lengths:
            for start in range(len(words) - length + 1):
                if phrase := self.phrases.get(words[start : start + length]):
                    return phrase
        return None


def fixed_texts(shared: Path) -> list[str]:
    """Return the parts that training texts are composed of, apart from WordNet."""
    lists = (CAPTIONS, COMPOSED, DEFECTS, PRODUCT_PHRASES, QUALITIES, SCENES, SINGLE, SOURCES)
    return [*read_class_names(shared / "text"), *(text for texts in lists for text in texts)]


def problems(shared: Path) -> list[str]:
    """Return what is wrong with the two files."""
    names = {tag.name for tag in read_tags(shared / "text")}
    words, labels = read_entries(WORD_TEST), read_entries(LABEL_TEST)
    found = [] if len(words) == WORD_TEST_SIZE else [f"{len(words)} entries in {WORD_TEST.name}"]
    for entry in (*words, *labels):
        found += [f"{entry.phrase}: no tag {tag!r}" for tag in entry.tags if tag not in names]
        if not 1 <= len(set(entry.tags)) == len(entry.tags) <= MAX_TAGS:
            found.append(f"{entry.phrase}: {len(entry.tags)} tags, or a tag twice")
    counts = Counter(normal_words(entry.phrase) for entry in words)
    found += [f"{' '.join(key)}: more than once" for key, count in counts.items() if count > 1]
    finder = PhraseFinder(entry.phrase for entry in words)
    texts = dict.fromkeys((*fixed_texts(shared), *(entry.phrase for entry in labels)))
    found += [f"{finder.find(text)}: part of the training text {text!r}" for text in texts
              if finder.find(text)]  # fmt: skip
    return found


def main() -> None:
    """Check both files and print the number of entries per area."""
    found = problems(SHARED)
    for path in (WORD_TEST, LABEL_TEST):
        areas = Counter(entry.area for entry in read_entries(path))
        print(f"{path.name}: {areas.total()} entries: {dict(areas)}")
    if found:
        raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main()
