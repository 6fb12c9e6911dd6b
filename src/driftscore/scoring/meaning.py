"""What a model takes a word for, and whether it seems to understand the word.

The dimensions of some models (`Backbone.tag_file`) are AudioSet's tags, so that the prototype C_c
of a word says which kinds of sound the model expects:

    p_k = C_ck / sum_j C_cj          the share of tag k, at least 0; the shares add up to one

A word that the model places near one kind of sound has most of its share in a few tags. One that is
far from all tags, or between tags that disagree, is spread over many. It is *unclear* if its three
largest shares add up to less than `MIN_SHARE`, or if the model can only spell it. The limit was
chosen on held-out words of the lexicon (`python -m training.word_doubts`, docs/model-card.md).

Two labels can be *confused* if the sounds that score high for one score high for the other: the
correlation of their scores over the calibration's sounds, clean and in noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from driftscore.backbones import Backbone
from driftscore.backbones.vectors import Matrix, Vector
from driftscore.errors import UsageError
from driftscore.scoring.calibration import Calibration

MIN_SHARE = 0.6
NEAREST = 3
"""Tags that are shown, and whose shares decide whether a word is clear."""
_SHOWN_WORDS = 3
_CONFUSED = 0.6


class UnclearWordWarning(UserWarning):
    """The model does not seem to understand a label."""


@dataclass(frozen=True)
class Meaning:
    """The kinds of sound that a model takes a word for."""

    word: str
    tags: tuple[tuple[str, float], ...]
    """The nearest tags with their shares, largest first."""
    clear: bool
    wordings: tuple[str, ...]
    """Words for which the model certainly has a sound, to use instead of an unclear one."""

    def __str__(self) -> str:
        """Return what the word is taken for, and what to do if it is not clear."""
        first = ", ".join(_short(name) for name, _ in self.tags)
        if self.clear:
            return f"{self.word!r} is taken for {first}"
        instead = " or ".join(map(repr, self.wordings))
        return f"{self.word!r} is not understood (nearest: {first}); try {instead}"


@dataclass(frozen=True)
class Explanation:
    """A word's meaning, the sounds of the calibration that it fits, and labels like it."""

    meaning: Meaning
    best: tuple[tuple[str, float], ...]
    """Sounds of the calibration with the highest cosine, each as its own nearest tags."""
    worst: tuple[tuple[str, float], ...]
    """Those with the lowest."""
    confused: tuple[tuple[str, float], ...]
    """Labels that it can be confused with, and how much their scores correlate."""


def tag_names(backbone: Backbone) -> tuple[str, ...]:
    """Return the tags that the dimensions of a model stand for; empty if they stand for none."""
    from driftscore.backbones.mn04.tagspace import load_space

    return load_space(backbone.tag_file).names if backbone.tag_file else ()


def unclear_rows(labels: Sequence[str], prototypes: Matrix, backbone: Backbone) -> list[int]:
    """Return the indices of the labels that the model does not seem to understand."""
    if backbone.tag_file is None:
        return []
    shares = _shares(prototypes)
    spread = np.sort(shares, axis=1)[:, -NEAREST:].sum(axis=1) < MIN_SHARE
    spelt = set(backbone.unknown_labels(labels))
    return [index for index, label in enumerate(labels) if spread[index] or label in spelt]


def meanings(labels: Sequence[str], prototypes: Matrix, backbone: Backbone) -> list[Meaning]:
    """Return what a model takes each label for, given the embeddings of their clean prompts."""
    names = tag_names(backbone)
    if not names:
        raise UsageError(
            f"{backbone.name} does not say what it takes a word for: its dimensions are not tags; "
            "use --backbone mini"
        )
    unclear = set(unclear_rows(labels, prototypes, backbone))
    rows = []
    for index, (label, shares) in enumerate(zip(labels, _shares(prototypes), strict=True)):
        tags = tuple((names[k], float(shares[k])) for k in np.argsort(-shares)[:NEAREST])
        rows.append(Meaning(label, tags, index not in unclear, _wordings(label, tags, names)))
    return rows


def describe_unclear(
    labels: Sequence[str], prototypes: Matrix, backbone: Backbone
) -> dict[str, str]:
    """Return the labels that are not understood, the first ones with what to try instead."""
    unclear = unclear_rows(labels, prototypes, backbone)
    sentences = {labels[index]: f"{labels[index]!r} is not understood" for index in unclear}
    if first := unclear[:_SHOWN_WORDS]:
        words = meanings([labels[index] for index in first], prototypes[first], backbone)
        sentences |= {meaning.word: str(meaning) for meaning in words}
    return sentences


def in_one_sentence(unclear: Mapping[str, str], backbone: Backbone) -> str:
    """Return what is said about labels that are not understood; empty if there are none."""
    first, others = list(unclear.values())[:_SHOWN_WORDS], len(unclear) - _SHOWN_WORDS
    more = [f"{others} more labels are not understood"] if others > 0 else []
    return f"{backbone.name}: {'; '.join([*first, *more])}" if first else ""


def explain(
    word: str,
    labels: Sequence[str],
    prototypes: Matrix,
    backbone: Backbone,
    calibration: Calibration | None = None,
) -> Explanation:
    """Explain one of `labels`, given the embeddings of their clean prompts.

    Without a calibration there are no sounds, and labels are compared by their embeddings.
    """
    index, names = list(labels).index(word), tag_names(backbone)
    meaning = meanings([word], prototypes[index : index + 1], backbone)[0]
    best: tuple[tuple[str, float], ...] = ()
    worst, similar = best, prototypes @ prototypes[index]
    if calibration is not None:
        cosines = calibration.clean @ prototypes[index]
        order = np.argsort(-cosines, kind="stable")
        best, worst = (
            tuple((_sound(calibration.clean[row], names), float(cosines[row])) for row in rows)
            for rows in (order[:NEAREST], order[-NEAREST:])
        )
        scores = np.concatenate([calibration.clean, calibration.noisy]) @ prototypes.T
        similar = np.atleast_2d(np.corrcoef(scores.T))[index]
    others = [n for n in np.argsort(-similar, kind="stable") if n != index]
    pairs = ((labels[n], float(similar[n])) for n in others if similar[n] > _CONFUSED)
    return Explanation(meaning, best, worst, tuple(pairs))


def _shares(prototypes: Matrix) -> Matrix:
    positive = np.maximum(prototypes, 0)
    shares: Matrix = positive / positive.sum(axis=1, keepdims=True)
    return shares


def _sound(row: Vector, names: Sequence[str]) -> str:
    """Return a sound as its nearest tags."""
    return ", ".join(_short(names[k]) for k in np.argsort(-row)[:NEAREST])


def _wordings(
    label: str, tags: Sequence[tuple[str, float]], names: Sequence[str]
) -> tuple[str, ...]:
    """Return two wordings: the tag that is spelt most like the label, then the nearest tags."""
    letters = _letters(label)

    def likeness(name: str) -> float:
        matcher = SequenceMatcher(None, letters, _letters(name), autojunk=False)
        size = matcher.find_longest_match().size
        return size / max(1, len(letters))

    nearest = [name for name, _ in tags]
    alike = max(names, key=likeness)
    candidates = [alike, *nearest] if likeness(alike) >= 0.75 else nearest
    return tuple(dict.fromkeys(_short(name).lower() for name in candidates))[:2]


def _short(name: str) -> str:
    """Return the first of a tag's names, without what is in brackets."""
    return name.split(",")[0].split(" (")[0]


def _letters(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalpha())
