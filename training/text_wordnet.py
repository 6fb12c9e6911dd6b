"""Give words of WordNet a tag by what they are: a tuba is a brass instrument.

`wordnet_tags.txt` names about two hundred nouns of WordNet with a tag. Every word below one of them
gets the tag of the nearest noun above, if that meaning is the word's first one: the targets of some
thousand names of animals, vehicles, instruments and things that the lexicon does not list. Words of
the lexicon and of the word test are left out.

    python -m training.text_wordnet      print how many words each tag gets
"""

import argparse
import re
from collections import Counter
from pathlib import Path

from training.lexicon import read_lexicon
from training.text_corpus import WORK, fetch_wordnet, read_lemmas
from training.word_lists import WORD_TEST, PhraseFinder, normal_words, read_entries

TAGS = Path(__file__).resolve().parent / "wordnet_tags.txt"
MAX_WORDS = 60
"""Words per noun of the list: the most frequent and shortest first."""


def read_nouns(database: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the meanings of each noun, the most frequent first, and the nouns above a meaning."""
    meanings: dict[str, list[str]] = {}
    for line in (database / "index.noun").read_text("latin-1").splitlines():
        if not line.startswith(" "):
            fields = line.split()
            meanings[fields[0]] = fields[-int(fields[2]) :]
    above: dict[str, list[str]] = {}
    for line in (database / "data.noun").read_text("latin-1").splitlines():
        if not line.startswith(" "):
            above[line[:8]] = re.findall(r" @ (\d{8}) n", line)
    return meanings, above


def read_tagged(meanings: dict[str, list[str]]) -> dict[str, tuple[str, str]]:
    """Return tag and noun for the meanings that `wordnet_tags.txt` names."""
    tagged: dict[str, tuple[str, str]] = {}
    tag = ""
    for row in TAGS.read_text("utf-8").splitlines():
        if row.startswith("["):
            tag = row.strip("[]")
        elif row and not row.startswith("#"):
            for entry in row.split(", "):
                noun, _, sense = entry.partition(" ")
                tagged[meanings[noun][int(sense or 1) - 1]] = (tag, noun)
    return tagged


def words_of_tags(database: Path) -> dict[str, str]:
    """Return the words with their tag."""
    meanings, above = read_nouns(database)
    tagged = read_tagged(meanings)
    test = PhraseFinder(entry.phrase for entry in read_entries(WORD_TEST))
    known = {normal_words(key) for line in read_lexicon() for key in line.keys}
    words: dict[str, str] = {}
    used: Counter[str] = Counter()
    uses = read_lemmas(database)
    ranked = {name: (-uses.get(name.replace("_", " "), 0), len(name), name) for name in meanings}
    for name in sorted(ranked, key=ranked.__getitem__):
        word = name.replace("_", " ")
        if not re.fullmatch(r"[a-z][a-z' -]{2,24}", word) or normal_words(word) in known:
            continue
        first, steps = meanings[name][0], 0
        while first in above and first not in tagged and above[first] and steps < 12:
            first, steps = above[first][0], steps + 1
        if first in tagged and not test.find(word):
            tag, noun = tagged[first]
            used[noun] += 1
            if used[noun] <= MAX_WORDS:
                words[word] = tag
    return words


def main() -> None:
    """Print the number of words of each tag and some of them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=WORK)
    words = words_of_tags(fetch_wordnet(parser.parse_args().work / "wordnet"))
    for tag, count in Counter(words.values()).most_common():
        print(f"{tag}: {count}: {', '.join([w for w in words if words[w] == tag][:8])}")
    print(f"{len(words)} words")


if __name__ == "__main__":
    main()
