"""Damage to real files, for property tests: cut, flip, overwrite, insert, remove, repeat."""

import os
from collections.abc import Iterator

from hypothesis import settings
from hypothesis import strategies as st


def cases(default: int) -> int:
    """Return how many cases a fuzz test runs: its default, or what DRIFTSCORE_FUZZ asks for."""
    return int(os.environ.get("DRIFTSCORE_FUZZ") or default)


FUZZ = settings(max_examples=cases(150))

Damage = tuple[str, float, bytes]

DAMAGE: st.SearchStrategy[list[Damage]] = st.lists(
    st.tuples(
        st.sampled_from(["cut", "flip", "overwrite", "insert", "remove", "repeat"]),
        st.floats(0, 1),
        st.binary(min_size=1, max_size=9),
    ),
    min_size=1,
    max_size=3,
)


def damaged(data: bytes, changes: list[Damage]) -> bytes:
    """Return data after some changes, each at a relative position."""
    for kind, position, extra in changes:
        at = min(int(position * len(data)), max(len(data) - 1, 0))
        before, after = data[:at], data[at:]
        if kind == "cut":
            data = before
        elif kind == "flip" and after:
            data = before + bytes([after[0] ^ (extra[0] or 1)]) + after[1:]
        elif kind == "overwrite":
            data = before + extra + after[len(extra) :]
        elif kind == "insert":
            data = before + extra + after
        elif kind == "remove":
            data = before + after[len(extra) :]
        else:
            data = before + after[:64] + after
    return data


VALUES: tuple[object, ...] = (
    None, True, 0, -1, 7, 1.5, 1e308, 10**400, "", "words", "{c}", "\ud800", "x" * 5000, [], [1],
    ["a", 2], [[]], {}, {"a": 1}, {"a": {"b": []}},
)  # fmt: skip
"""Values of every type that JSON has, to be put in place of any other."""


def replacements(content: object, values: tuple[object, ...] = VALUES) -> Iterator[object]:
    """Yield copies of a nested value: each part replaced by each of some values, or removed."""
    yield from values
    parts: list[tuple[object, object]] = []
    if isinstance(content, dict):
        parts = list(content.items())
        yield from ({k: v for k, v in content.items() if k != gone} for gone in content)
        yield {**content, "unexpected": 1}
    elif isinstance(content, list) and content:
        parts = [(0, content[0])]
    for key, part in parts:
        for other in replacements(part, values):
            copy = dict(content) if isinstance(content, dict) else list(content)  # type: ignore[call-overload]
            copy[key] = other
            yield copy
