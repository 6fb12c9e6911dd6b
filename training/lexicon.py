"""Load and check the lexicon: what everyday words sound like, and which AudioSet tags that is.

Files `lexicon/*.txt`, one per area. A section starts with its tags, and each line below it holds
keys that share a description; a row that ends with a vertical bar continues in the next row:

    [Medium engine (mid frequency); Engine 0.4]
    generator | portable generator: a mid-sized engine running steadily

The first tag has the weight 1; up to two further tags have a weight below 1. An exclamation mark
before a key says that it is a label name of a public test set or a synonym of one; training can
leave these out, so that zero-shot accuracy on those sets is measured on words never trained on. All
lines are our own words. No key or description contains an entry of the word test.

    python -m training.lexicon     check all files and print counts; exit status 1 on a problem
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.text_anchors import read_tags
from training.text_corpus import SHARED
from training.word_lists import (
    HERE,
    LABEL_TEST,
    WORD_TEST,
    PhraseFinder,
    normal_words,
    read_entries,
)

LEXICON = HERE / "lexicon"
MAX_TAGS = 3
MAX_KEY = 60
MAX_DESCRIPTION = 100
MIN_KEYS_PER_TAG = 3
OTHER_PUBLIC_SETS = ("FSD50k", "VGGSound")


@dataclass(frozen=True)
class Line:
    """Keys with one description; `public` holds the keys that are names in public test sets."""

    keys: tuple[str, ...]
    public: frozenset[str]
    description: str
    tags: dict[str, float]
    place: str


def read_lexicon(folder: Path = LEXICON) -> list[Line]:
    """Return the lines of all files, in order."""
    return [line for path in sorted(folder.glob("*.txt")) for line in _read_file(path)]


def _read_file(path: Path) -> Iterator[Line]:
    tags: dict[str, float] = {}
    started = ""
    for number, read in enumerate(path.read_text("utf-8").splitlines(), 1):
        place = f"{path.name}:{number}"
        row, started = f"{started} {read}".strip(), ""
        if row.endswith("|"):
            started = row
        elif row.startswith("["):
            tags = dict(_read_tag(part) for part in row.strip("[]").split("; "))
        elif row:
            marked, separator, description = row.partition(": ")
            if not separator or not tags:
                raise SystemExit(f"{place}: expected 'key | key: description' below a section")
            parts = [part.strip() for part in marked.split("|")]
            keys = tuple(part.removeprefix("!") for part in parts)
            public = frozenset(part[1:] for part in parts if part.startswith("!"))
            yield Line(keys, public, description.strip(), tags, place)


def _read_tag(part: str) -> tuple[str, float]:
    """Return name and weight of "Name" or "Name 0.3"."""
    match = re.fullmatch(r"(.*) (0\.\d+)", part)
    return (match[1], float(match[2])) if match else (part, 1.0)


def public_finder(shared: Path) -> tuple[PhraseFinder, set[tuple[str, ...]]]:
    """Return a finder of the five test sets' label names, and the names of all public sets."""
    labels = [entry.phrase for entry in read_entries(LABEL_TEST)]
    names = list(labels)
    for stem in OTHER_PUBLIC_SETS:
        path = shared / "text" / f"{stem}_class_labels_indices.json"
        for name in json.loads(path.read_text("utf-8")):
            names += [name, *name.split(",")]
    return PhraseFinder(labels), {normal_words(name) for name in names}


def problems(lines: Sequence[Line], shared: Path) -> list[str]:
    """Return what is wrong with the lexicon."""
    names = [tag.name for tag in read_tags(shared / "text")]
    in_word_test = PhraseFinder(entry.phrase for entry in read_entries(WORD_TEST))
    respelt = {"".join(words) for words in in_word_test.phrases}
    reordered = {tuple(sorted(set(words))) for words in in_word_test.phrases}
    in_label, public_names = public_finder(shared)
    found: list[str] = []
    first_place: dict[tuple[str, ...], str] = {}
    keys_per_tag: Counter[str] = Counter()
    for line in lines:
        found += [f"{line.place}: no tag {tag!r}" for tag in line.tags if tag not in names]
        weights = list(line.tags.values())
        if weights[0] != 1.0 or any(w >= 1 for w in weights[1:]) or len(weights) > MAX_TAGS:
            found.append(f"{line.place}: weights {weights}")
        if not 8 <= len(line.description) <= MAX_DESCRIPTION:
            found.append(f"{line.place}: description of {len(line.description)} characters")
        keys_per_tag[next(iter(line.tags))] += len(line.keys)
        for text in (*line.keys, line.description):
            if phrase := in_word_test.find(text):
                found.append(f"{line.place}: {text!r} contains {phrase!r} of the word test")
        for key in line.keys:
            words = normal_words(key)
            if not 1 <= len(key) <= MAX_KEY or not words:
                found.append(f"{line.place}: key {key!r}")
            if "".join(words) in respelt or tuple(sorted(set(words))) in reordered:
                found.append(f"{line.place}: {key!r} is an entry of the word test, respelt")
            if words in first_place:
                found.append(f"{line.place}: {key!r} is already in {first_place[words]}")
            first_place.setdefault(words, line.place)
            if key not in line.public and (in_label.find(key) or words in public_names):
                found.append(f"{line.place}: {key!r} is a name in a public set: mark it with !")
    found += [
        f"{name}: only {keys_per_tag[name]} keys"
        for name in names
        if keys_per_tag[name] < MIN_KEYS_PER_TAG
    ]
    return found


def main() -> None:
    """Check the lexicon and print its counts."""
    lines = read_lexicon()
    for path in sorted(LEXICON.glob("*.txt")):
        own = [line for line in lines if line.place.startswith(f"{path.name}:")]
        print(f"{path.name}: {sum(len(line.keys) for line in own)} keys in {len(own)} lines")
    keys = sum(len(line.keys) for line in lines)
    public = sum(len(line.public) for line in lines)
    tags = {next(iter(line.tags)) for line in lines}
    print(f"{keys} keys in {len(lines)} lines, {public} public names or synonyms, {len(tags)} tags")
    if found := problems(lines, SHARED):
        raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main()
