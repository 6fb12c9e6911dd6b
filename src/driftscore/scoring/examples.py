"""Words and a few examples: move the prototype of a label towards recordings of it.

    q    the prototype of the label's words; zeros for a label without words
    X    the examples of the label as rows, each minus mu and of unit length
    t    1 for an example, 0 for a negative example; one that q scores below 0 is left out
    M    (S + e t I)^-1, with S the covariance of other sounds, t = trace(S) / d, scaled so that
         the mean of x M x^T over other sounds is 1

    Q = unit(q + M X^T (X M X^T + r I)^-1 (t - X q))

This is ridge regression that starts from the words: Q is near q, and its cosines with the examples
are near t. M lets Q move in the directions in which other sounds differ little, as a linear
discriminant does; without words Q is one. Q takes the place of q in a bank, so that every rule that
reads the prototypes compiles it to the same affine head as before; `anchor` moves the words first.
r and e are chosen on the choosing parts of three label sets, by the worst of them and of 1, 3, 5
and 10 examples (`python -m training.examples --choose`): `RIDGE` and `SHRINKAGE`, unless the
calibration of a model has others under "examples". Events, where a label has no rivals, have
settings of their own.

mu and S are those of the model's calibration. Without one M is the identity, and mu is the mean of
all examples, if they are of at least two labels, else zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones import Backbone
from driftscore.backbones.vectors import VANISHING, Vector, unit
from driftscore.errors import UsageError
from driftscore.scoring.bank import ClassBank
from driftscore.scoring.calibration import Calibration
from driftscore.scoring.head import Head

Directions = NDArray[np.float64]

NOT = "not"
"""The name under which negative examples of all labels are given."""
RIDGE, LONE_RIDGE, PLAIN_RIDGE = 10.0, 3.0, 1.0
"""How much the words of a label weigh against an example: for labels that are compared with each
other, for labels that are judged one by one, as events are, and without a calibration."""
SHRINKAGE, LONE_SHRINKAGE = 3.0, 0.2
"""How far the covariance of other sounds is shrunk towards a sphere, for the first two."""
SETTINGS = f"ridge {RIDGE:g} {PLAIN_RIDGE:g}, shrinkage {SHRINKAGE:g}"
"""The settings for labels that are compared with each other; part of the keys of the lab."""
UNLIKE = 0.5
"""An example is unlike the others if it resembles them less than this part of what they do."""
MIN_COMPARED = 3
"""Examples of a label that it takes to say that one is unlike the others."""


@dataclass(frozen=True, eq=False)
class Example:
    """The embedding of a recording that a label is learnt from."""

    name: str
    embedding: Vector
    """The unit mean of its windows."""
    sha256: str
    """Of the content of the recording; this is all that a head records of it."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples by label, and negative examples by label; those of `NOT` count for every label."""

    positive: Mapping[str, Sequence[Example]] = field(default_factory=dict)
    negative: Mapping[str, Sequence[Example]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(self.positive.values()) or any(self.negative.values())

    def merged(self, other: "Examples") -> "Examples":
        """Return these examples and others; an example of the same content counts once."""
        both = []
        for own, more in ((self.positive, other.positive), (self.negative, other.negative)):
            rows = {label: {e.sha256: e for e in own.get(label, ())} for label in {**own, **more}}
            for label, examples in more.items():
                rows[label] |= {example.sha256: example for example in examples}
            both.append({label: tuple(by_sum.values()) for label, by_sum in rows.items()})
        return Examples(*both)

    def mean(self, calibration: Calibration | None) -> Directions:
        """Return the mean embedding of other sounds, mu."""
        if calibration is not None:
            return calibration.mean
        groups = [*self.positive.values(), *self.negative.values()]
        means = [np.mean([e.embedding for e in g], axis=0, dtype=np.float64) for g in groups if g]
        return np.mean(means, axis=0) if len(means) > 1 else np.zeros_like(means[0])

    def unlike(self, calibration: Calibration | None) -> list[str]:
        """Return a sentence for each example that does not resemble the others of its label."""
        sentences = []
        for label, examples in self.positive.items():
            if len(examples) < MIN_COMPARED:
                continue
            rows = _directions(examples, self.mean(calibration))
            alike = rows @ rows.T
            np.fill_diagonal(alike, np.nan)
            nearness = np.nanmean(alike, axis=1)
            for n, example in enumerate(examples):
                others = np.delete(np.delete(alike, n, axis=0), n, axis=1)
                if nearness[n] < UNLIKE * float(np.nanmean(others)):
                    rest = len(examples) - 1
                    sentences.append(
                        f"{example.name} is unlike the other {rest} of {label!r}; leave it out if "
                        "it is something else"
                    )
        return sentences


def with_examples(
    bank: ClassBank | None,
    examples: Examples,
    backbone: Backbone,
    calibration: Calibration | None = None,
    *,
    one_by_one: bool = False,
) -> ClassBank:
    """Return the bank with its prototypes moved by the examples.

    Labels that have examples and are not in the bank follow at its end: their names are not used
    as words, and their drifts are zero. The bank is None if no label has words.
    """
    if bank is None:
        none = np.zeros((0, backbone.dim), np.float32)
        made_by = {"backbone": backbone.name, "fingerprint": backbone.fingerprint}
        bank = ClassBank((), none, none, np.zeros(0, np.float32), none, made_by)
    positive = {label: of_label for label, of_label in examples.positive.items() if of_label}
    labels = (*bank.labels, *(label for label in positive if label not in bank.labels))
    if not labels:
        raise UsageError("No labels given; name the sounds to look for, or give examples of them")
    if not examples:
        return bank
    mean = examples.mean(calibration)
    metric, ridge = None, PLAIN_RIDGE
    if calibration is not None:
        chosen = calibration.settings.get("examples", {})
        ridge = float(str(chosen.get("ridge", RIDGE)))
        shrinkage = float(str(chosen.get("shrinkage", SHRINKAGE)))
        if one_by_one:
            ridge, shrinkage = LONE_RIDGE, LONE_SHRINKAGE
        metric = discriminant_metric(calibration, shrinkage)
    more = len(labels) - len(bank.labels)
    rows = {
        name: np.pad(getattr(bank, name), ((0, more), (0, 0)))
        for name in ("prototypes", "noisy_means", "drifts")
    }
    for number, label in enumerate(labels):
        towards = _directions(positive.get(label, ()), mean)
        away = [*examples.negative.get(label, ()), *examples.negative.get(NOT, ())]
        for name in ("prototypes", "noisy_means"):
            words = rows[name][number]
            if name == "prototypes" or words.any() or number >= len(bank.labels):
                against = _directions(away, mean)
                rows[name][number] = learnt(words, towards, against, metric=metric, ridge=ridge)
    record = {
        key: {label: [example.sha256 for example in of_label] for label, of_label in by.items()}
        for key, by in (("examples", positive), (NOT, examples.negative))
    }
    return replace(
        bank,
        labels=labels,
        prototypes=rows["prototypes"],
        noisy_means=rows["noisy_means"],
        drifts=rows["drifts"],
        radii=np.pad(bank.radii, (0, more)),
        made_by={**bank.made_by, **record},
    )


def example_counts(head: Head) -> dict[str, int]:
    """Return how many examples each label of a head has, as far as the head says."""
    counts: dict[str, int] = {}
    for record in head.made_by.get("joined", [head.made_by]):
        bank = record.get("bank") if isinstance(record, dict) else None
        examples = bank.get("examples") if isinstance(bank, dict) else None
        if isinstance(examples, dict):
            counts |= {label: len(digests) for label, digests in examples.items()}
    return counts


def discriminant_metric(calibration: Calibration, shrinkage: float = SHRINKAGE) -> Directions:
    """Return M: the directions in which other sounds differ little count most."""
    covariance = calibration.covariance
    dim = len(covariance)
    sphere = shrinkage * np.trace(covariance) / dim * np.eye(dim)
    metric: Directions = np.linalg.inv(covariance + sphere)
    # The mean of x M x^T over rows of unit length is about trace(M S) / trace(S).
    metric *= np.trace(covariance) / np.trace(metric @ covariance)
    return metric


def learnt(
    words: Vector, towards: Directions, away: Directions, *, metric: Directions | None, ridge: float
) -> Vector:
    """Return a prototype moved towards the rows of examples and away from those of negative ones.

    Its length stays that of the words; without words it is one.
    """

    def fitted(rows: Directions, targets: Directions) -> Directions:
        pulls = rows.T if metric is None else metric @ rows.T
        gram = rows @ pulls + ridge * np.eye(len(rows))
        moved: Directions = start + pulls @ np.linalg.solve(gram, targets - rows @ start)
        return moved / max(VANISHING, float(np.linalg.norm(moved)))

    length = float(np.linalg.norm(words.astype(np.float64))) or 1.0
    start = words.astype(np.float64) / length
    row = fitted(towards, np.ones(len(towards))) if len(towards) else start
    if len(away) and len(near := away[away @ row > 0]):
        targets = np.repeat((1.0, 0.0), (len(towards), len(near)))
        row = fitted(np.concatenate([towards, near]), targets)
    if not row.any():
        raise UsageError("The words and examples of a label cancel out; give other examples")
    return np.asarray(length * row, np.float32)


def _directions(examples: Sequence[Example], mean: Directions) -> Directions:
    """Return the unit rows of examples minus the mean."""
    if not examples:
        return np.zeros((0, len(mean)))
    rows = (np.stack([example.embedding for example in examples]) - mean).astype(np.float32)
    return unit(rows, what="Examples minus the mean").astype(np.float64)
