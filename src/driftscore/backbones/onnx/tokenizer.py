"""The part of the `tokenizers` library that the models use."""

from typing import Protocol


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


def open_tokenizer(content: str, *, longest: int | None = None) -> Tokenizer:
    """Return the tokenizer that a `tokenizer.json` describes.

    With `longest`, nothing is padded and a text is cut after that many tokens; without it, the
    file's own settings hold.
    """
    from tokenizers import Tokenizer as Reader

    reader = Reader.from_str(content)
    if longest is not None:
        reader.no_padding()
        reader.enable_truncation(longest)
    tokenizer: Tokenizer = reader
    return tokenizer
