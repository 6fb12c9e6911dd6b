"""The part of the `tokenizers` library that the models use."""

import re
import unicodedata
from collections.abc import Iterable
from typing import Protocol

from driftscore.errors import FormatError


class Encoding(Protocol):
    """A tokenized text."""

    @property
    def ids(self) -> list[int]:
        """The token ids."""


class Tokenizer(Protocol):
    """A text tokenizer, as `tokenizers.Tokenizer` is one; it can be pickled."""

    def encode(self, sequence: str) -> Encoding:
        """Return the tokens of a text."""

    def to_str(self) -> str:
        """Return the tokenizer as JSON."""


def without_known_words(content: str, labels: Iterable[str]) -> list[str]:
    """Return the labels that a WordPiece `tokenizer.json` can only spell in pieces of words.

    The words are looked for in the text of the file: opening the tokenizer takes a twentieth of a
    second, which a command with cached labels would otherwise not need.
    """
    return [label for label in labels if not any(f'"{w}":' in content for w in _words(label))]


def _words(label: str) -> list[str]:
    """Return the words of a label as BERT normalises them: in lower case, without accents."""
    plain = unicodedata.normalize("NFD", label.lower())
    return re.findall(r"[^\W_]+", "".join(c for c in plain if not unicodedata.combining(c)))


def open_tokenizer(content: str, *, longest: int | None = None) -> Tokenizer:
    """Return the tokenizer that a `tokenizer.json` describes.

    With `longest`, nothing is padded and a text is cut after that many tokens; without it, the
    file's own settings hold.
    """
    from tokenizers import Tokenizer as Reader

    try:
        reader = Reader.from_str(content)
        if longest is not None:
            reader.no_padding()
            reader.enable_truncation(longest)
    except Exception as error:  # the library raises Exception itself
        raise FormatError(f"The tokenizer.json of the model is damaged: {error}") from error
    tokenizer: Tokenizer = reader
    return tokenizer
