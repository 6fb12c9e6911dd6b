"""What the lab measures: conditions, scorings, cells and rows, and the keys that name them.

A *condition* is a dataset in a noise, mixing, SNR and seed, embedded by one backbone. Clean clips
are the recordings as they are, so a clean condition has no noise, mixing or seed. A *scoring* is a
rule with all its settings. A *cell* is one scoring in one condition, and a *row* is its result.
The key of a cell is canonical JSON of everything that can change its number. Random draws come from
the generator of a key (`generator`), so that order, retries and workers change nothing.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from driftscore.errors import FormatError
from driftscore.lab.metrics import Interval

PROTOCOL = 1
"""Part of every key; raise it whenever the lab itself changes a number."""

CLEAN = "clean"
"""In a grid's list of SNRs: the recordings as they are."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What is embedded, and by which model; `data`, `noise_data` and `model` are digests."""

    dataset: str
    data: str
    limit: int
    noise: str | None
    noise_data: str
    mixing: str | None
    snr_db: float | None
    seed: int | None
    backbone: str
    model: str

    @property
    def key(self) -> str:
        """The condition as canonical JSON."""
        return canonical({name: getattr(self, name) for name in self.__slots__})

    @property
    def clean(self) -> bool:
        """Whether nothing is mixed in."""
        return self.snr_db is None

    @property
    def title(self) -> str:
        """The condition in a few words."""
        if self.clean:
            return f"{self.dataset} clean, {self.backbone}"
        noisy = f"{self.noise} {self.mixing} {self.snr_db:g} dB seed {self.seed}"
        return f"{self.dataset} {noisy}, {self.backbone}"

    @property
    def without_noise(self) -> "Condition":
        """The clean condition of the same clips and model."""
        return clean_condition(self.dataset, self.data, self.limit, self.backbone, self.model)

    @property
    def pooled(self) -> "PooledCondition":
        """The condition without its seed and digests: what rows are pooled over."""
        return PooledCondition(
            self.dataset, self.limit, self.noise, self.mixing, self.snr_db, self.backbone
        )

    @property
    def set_name(self) -> str:
        """The name under which the condition's labels and truth are stored."""
        return canonical([self.dataset, self.data, self.limit])


class PooledCondition(NamedTuple):
    """A condition without its seed and digests."""

    dataset: str
    limit: int
    noise: str | None
    mixing: str | None
    snr_db: float | None
    backbone: str

    @property
    def snr(self) -> str:
        """The SNR as a table shows it."""
        return CLEAN if self.snr_db is None else f"{self.snr_db:g}"


@dataclass(frozen=True, slots=True)
class Scoring:
    """A rule with all its settings; None where the rule has no such setting.

    `anchors` is the noise corpus whose recordings the rule is given; `examples` is how many clips
    of the dataset `examples_from` each label learns from, drawn for the `draw`th time; names with
    `_data` and `calibration` (of the backbone, for rules that use it) are digests.
    """

    rule: str
    variant: str = ""
    beta: float | None = None
    pack: str | None = None
    pack_data: str = ""
    direction: str | None = None
    reference: str | None = None
    anchors: str | None = None
    anchors_data: str = ""
    calibration: str = ""
    examples: int = 0
    draw: int = 0
    examples_from: str = ""
    examples_data: str = ""

    @property
    def key(self) -> str:
        """The scoring as canonical JSON; a calibration or examples only if there are any."""
        names = list(self.__slots__[: None if self.examples else -4])
        if not self.calibration:
            names.remove("calibration")
        return canonical({name: getattr(self, name) for name in names})

    @property
    def name(self) -> str:
        """The rule with its variant, as a grid names it, and its examples: "anchor+3"."""
        name = f"{self.rule}:{self.variant}" if self.variant else self.rule
        return f"{name}+{self.examples}" if self.examples else name


COSINE = Scoring("cosine")
"""The scoring that every other one is compared with."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One fully specified run: a scoring in a condition."""

    condition: Condition
    scoring: Scoring

    @property
    def key(self) -> str:
        """Everything that can change the cell's number, as canonical JSON."""
        return join_keys(self.condition.key, self.scoring.key)


@dataclass(frozen=True)
class Row:
    """The result of a cell, or the error that prevented it.

    `value` is a share in [0, 1]; `gain` is its difference to cosine in the same condition, with a
    paired 95 % interval, or None where there is none. `outcomes` is the chosen class of each clip
    (-1 for a clip that failed); mAP has none. `seconds` is how long it took, `made_at` when it was
    made, and `versions` by which programs (JSON).
    """

    cell: Cell
    metric: str = ""
    value: float | None = None
    n: int = 0
    failed: int = 0
    gain: Interval | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    outcomes: NDArray[np.int16] | None = None
    error: str = ""
    seconds: float = 0.0
    made_at: str = ""
    versions: str = ""


def clean_condition(dataset: str, data: str, limit: int, backbone: str, model: str) -> Condition:
    """Return the condition of a dataset's recordings as they are."""
    return Condition(dataset, data, limit, None, "", None, None, None, backbone, model)


def canonical(value: object) -> str:
    """Return JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def join_keys(condition: str, scoring: str) -> str:
    """Return the key of a cell from those of its condition and its scoring."""
    return f'{{"condition":{condition},"protocol":{PROTOCOL},"scoring":{scoring}}}'


Keyed = TypeVar("Keyed", Condition, Scoring, Cell)


def read_key(kind: type[Keyed], key: str) -> Keyed:
    """Return the condition, scoring or cell of a key; raise `FormatError` for any other text."""
    try:
        value = msgspec.json.decode(key, type=kind)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise FormatError(f"a key is not that of a {kind.__name__.lower()}: {error}") from error
    if value.key != key:
        raise FormatError("a key is of another version of the lab")
    return value


def generator(*key: str | int | float | None) -> np.random.Generator:
    """Return the random generator of a key: the same key gives the same draws on any machine.

    The key is what identifies the work, such as dataset, noise, clip and seed.
    """
    text = json.dumps(key, ensure_ascii=False, allow_nan=False)
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))
