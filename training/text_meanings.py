"""What a word means, from WordNet: the second input of the teacher (`training.text_sounds`).

MiniLM knows many words only roughly. WordNet says what they are: for each of a word's first senses
the kind of thing and the start of its definition, in one text, so that the teacher can choose the
sense that can be heard:

    whisk: mixer, a mixer incorporating a coil of wires; broom, a small short-handled broom; ...

An inflected form has the senses of its base form (honking: honk). Names of people and places have
none.
"""

import re
from collections import defaultdict
from pathlib import Path

SENSES = 2
"""Senses per part of speech; three where a word is only a noun or only a verb."""
MAX_LENGTH = 42
"""Characters per definition."""
MIN_LETTERS = 3
"""Shorter words are mostly fragments and abbreviations."""
ENDINGS = {
    "noun": ("ies y", "ses s", "xes x", "ches ch", "shes sh", "s "),
    "verb": ("ies y", "es e", "es ", "s ", "ed e", "ed ", "ing e", "ing "),
}
"""Endings of inflected forms and what replaces them."""


class Dictionary:
    """Senses of WordNet's nouns and verbs."""

    def __init__(self, database: Path) -> None:
        self.senses: dict[str, dict[str, list[str]]] = {}
        self.irregular: dict[str, dict[str, str]] = {}
        for part in ("noun", "verb"):
            texts = _read_senses(database / f"data.{part}")
            words = self.senses[part] = defaultdict(list)
            for line in (database / f"index.{part}").read_text("latin-1").splitlines():
                if not line.startswith(" "):
                    fields = line.split()
                    numbers = fields[-int(fields[2]) :]
                    found = [texts[number] for number in numbers if number in texts]
                    if found:
                        words[fields[0].replace("_", " ")] = found
            forms = self.irregular[part] = {}
            for line in (database / f"{part}.exc").read_text("latin-1").splitlines():
                form, word = line.replace("_", " ").split(" ")[:2]
                forms[form] = word

    def define(self, text: str) -> str:
        """Return the senses of a word or collocation as one text, "" if WordNet has none."""
        word = text.lower().replace("-", " ")
        if len(word) < MIN_LETTERS:
            return ""
        nouns, verbs = (self.senses[part].get(self.base(part, word), []) for part in ENDINGS)
        count = SENSES if nouns and verbs else SENSES + 1
        return "; ".join(dict.fromkeys([*nouns[:count], *verbs[:count]]))

    def base(self, part: str, word: str) -> str:
        """Return the form of a word that WordNet lists, or the word."""
        forms = [word, self.irregular[part].get(word, word)]
        for ending in ENDINGS[part]:
            end, other = ending.split(" ")
            if word.endswith(end) and len(word) > len(end) + 2:
                stem = word.removesuffix(end)
                forms.append(stem + other)
                if end in ("ed", "ing") and stem[-1] == stem[-2]:
                    forms.append(stem[:-1])
        return next((form for form in forms if form in self.senses[part]), word)


def _read_senses(path: Path) -> dict[str, str]:
    """Return the sense above and the start of the definition, by the number of a sense."""
    lines = [row for row in path.read_text("latin-1").splitlines() if not row.startswith(" ")]
    first = {line[:8]: line.split(" ", 5)[4].replace("_", " ") for line in lines}
    texts: dict[str, str] = {}
    for line in lines:
        fields, gloss = line.split("|", 1)
        if " @i " in fields:
            continue
        above = re.search(r" @ (\d{8}) ", fields)
        kind = f"{first[above[1]]}, " if above else ""
        definition = re.sub(r"\([^)]*\)", "", gloss.split('; "')[0])
        definition = " ".join(definition.split()).strip(" ;")
        if len(definition) > MAX_LENGTH:
            definition = definition[:MAX_LENGTH].rsplit(" ", 1)[0]
        texts[line[:8]] = kind + definition
    return texts
