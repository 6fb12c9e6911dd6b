"""A TOML file that names what to measure -> conditions, and in each the cells to fill.

    datasets = ["esc50"]           noises = ["tau2019"]        mixings = ["additive", "scaper"]
    snrs = ["clean", 10, 0]        backbones = ["mini"]        rules = ["cosine", "das"]
    betas = [0.25]                 packs = ["das52"]           directions = ["mean"]
    references = ["prompt"]        seeds = [0]                 limit = 0

A *condition* is what is heard (dataset, noise, mixing, SNR, seed) by one backbone: it is
embedded once. A *scoring* is a rule with all its settings, and a *cell* is one scoring in one
condition; its JSON is the key of its row. Clean clips are the recordings as they are, so a
clean condition has no noise, mixing or seed. A rule has only those axes that change its
head: beta where it takes one, pack, direction and reference where it reads the drifts.
`[homes]` says where a corpus lies, `[[block]]` tables are several grids in one, and `limit`
takes a fixed random part of a dataset. `zs_text:matched` knows the true place of each clip;
`tgap:noisy` draws from the other folds of the same noisy clips, as Acevedo et al. do.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from driftscore.backbones import load_backbone
from driftscore.bank import ClassBank
from driftscore.errors import FormatError, UsageError, unknown
from driftscore.rules import compile_head, rule_parameters
from driftscore.vectors import Matrix

PROTOCOL = 1
"""Part of every key; raise it whenever the lab itself changes a number."""

CLEAN = "clean"
VARIANTS = {"matched": "the true environment of each clip, in words", "noisy": "the other folds"}
DEFAULTS: dict[str, Any] = {
    "datasets": [], "noises": [], "mixings": ["additive"], "snrs": [CLEAN], "backbones": ["mini"],
    "rules": ["cosine", "das"], "betas": [0.25], "packs": ["das52"], "directions": ["mean"],
    "references": ["prompt"], "seeds": [0], "limit": 0,
}  # fmt: skip
_TOP = ("title", "homes", "block", "at_hand")


@dataclass(frozen=True, slots=True)
class Condition:
    """What is heard, by which model; `data`, `noise_data` and `model` are digests of each."""

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


@dataclass(frozen=True, slots=True)
class Scoring:
    """A rule with all its settings; None where the rule has no such axis.

    `anchors` is the noise corpus whose clips the rule is given, `pack_data` the pack's digest.
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

    @property
    def key(self) -> str:
        """The scoring as canonical JSON."""
        return canonical({name: getattr(self, name) for name in self.__slots__})

    @property
    def name(self) -> str:
        """The rule with its variant, as a grid names it."""
        return f"{self.rule}:{self.variant}" if self.variant else self.rule


@dataclass(frozen=True, slots=True)
class Cell:
    """One fully fixed run: a scoring in a condition."""

    condition: Condition
    scoring: Scoring

    @property
    def key(self) -> str:
        """Everything that can change the cell's number, as canonical JSON."""
        return join_keys(self.condition.key, self.scoring.key)


@dataclass(frozen=True)
class Facts:
    """Digests of what the names stand for, and clip counts; empty for a plan on paper."""

    data: Mapping[str, str] = field(default_factory=dict)
    noise: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    packs: Mapping[str, str] = field(default_factory=dict)
    clips: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """A parsed grid: its blocks with every axis filled in, and where the corpora lie."""

    name: str
    title: str
    blocks: tuple[Mapping[str, Any], ...]
    homes: Mapping[str, str] = field(default_factory=dict)

    def names(self, axis: str) -> list[Any]:
        """Return the values of an axis over all blocks, each once."""
        return list(dict.fromkeys(value for block in self.blocks for value in block[axis]))


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def join_keys(condition: str, scoring: str) -> str:
    """Return the key of a cell from those of its condition and its scoring."""
    return f'{{"condition":{condition},"protocol":{PROTOCOL},"scoring":{scoring}}}'


def shipped_grids() -> tuple[str, ...]:
    """Return the names of the grids that come with driftscore."""
    home = files("driftscore.lab") / "grids"
    return tuple(sorted(f.name.removesuffix(".toml") for f in home.iterdir()))


def load_grid(name_or_path: str | Path) -> Grid:
    """Load a shipped grid by its name, or a user's own by its path."""
    given = str(name_or_path)
    if given in shipped_grids():
        text = (files("driftscore.lab") / "grids" / f"{given}.toml").read_text(encoding="utf-8")
        return parse_grid(text, name=given)
    if not given.endswith(".toml") and not Path(given).is_file():
        raise unknown("grid", given, shipped_grids())
    try:
        text = Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read the grid {given}: {error}") from error
    return parse_grid(text, name=Path(given).stem, folder=Path(given).parent)


def parse_grid(text: str, *, name: str, folder: Path | None = None) -> Grid:
    """Parse a grid; homes are relative to `folder`. Values are checked by `validation`."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"The grid {name} is not valid TOML: {error}") from error
    for table in (data, *data.get("block", [])):
        for key in table:
            if key not in DEFAULTS and not (key in _TOP and table is data):
                raise UsageError(f"The grid {name}: {unknown('key', key, (*DEFAULTS, *_TOP))}")
    common = DEFAULTS | {key: value for key, value in data.items() if key in DEFAULTS}
    blocks = tuple(_block(common | block, name) for block in data.get("block", [{}]))
    at_hand = [model for model in data.get("at_hand", []) if is_at_hand(model)]
    for block in blocks:
        block["backbones"] += [m for m in at_hand if m not in block["backbones"]]
    place = folder or Path()
    homes = {k: str(place / Path(v).expanduser()) for k, v in data.get("homes", {}).items()}
    return Grid(name, data.get("title", name), blocks, homes)


def is_at_hand(model: str) -> bool:
    """Return whether a model is a folder here or lies in the hub's cache: nothing is fetched."""
    if Path(model).is_dir():
        return True
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return False
    return isinstance(try_to_load_from_cache(model, "config.json"), str)


def groups(grid: Grid, facts: Facts | None = None) -> Iterator[tuple[Condition, list[Scoring]]]:
    """Yield each condition once, with all its scorings.

    One block is planned lazily; several are first merged, as they may share conditions.
    """
    known = facts or Facts()
    if len(grid.blocks) == 1:
        yield from _block_groups(grid.blocks[0], known)
        return
    merged: dict[Condition, dict[Scoring, None]] = {}
    for block in grid.blocks:
        for condition, scorings in _block_groups(block, known):
            merged.setdefault(condition, {}).update(dict.fromkeys(scorings))
    for condition, found in merged.items():
        yield condition, list(found)


def _block_groups(
    block: Mapping[str, Any], facts: Facts
) -> Iterator[tuple[Condition, list[Scoring]]]:
    scorings = {noise: _scorings(block, noise, facts) for noise in (None, *block["noises"])}
    for condition in _conditions(block, facts):
        if scorings[condition.noise]:
            yield condition, scorings[condition.noise]


def cells(grid: Grid, facts: Facts | None = None) -> Iterator[Cell]:
    """Yield every cell, one at a time."""
    for condition, scorings in groups(grid, facts):
        for scoring in scorings:
            yield Cell(condition, scoring)


def keys(grid: Grid, facts: Facts | None = None) -> Iterator[str]:
    """Yield every cell's key: as `cells`, without making the cells."""
    written: dict[Scoring, str] = {}
    for condition, scorings in groups(grid, facts):
        first = condition.key
        for scoring in scorings:
            if scoring not in written:
                written[scoring] = scoring.key
            yield join_keys(first, written[scoring])


@dataclass(frozen=True)
class Size:
    """How large a grid is; `seconds` of embedding on one core, by measured or assumed cost."""

    conditions: int
    cells: int
    clips: int
    seconds: float


def measure(grid: Grid, facts: Facts | None = None, *, clip_s: Mapping[str, float] = {}) -> Size:
    """Count a grid's conditions, cells and clips to embed without doing any of it."""
    counts = (facts or Facts()).clips
    conditions = total = clips = 0
    seconds = 0.0
    for condition, scorings in groups(grid, facts):
        here = counts.get(f"{condition.dataset}/{condition.limit}", 0)
        conditions, total, clips = conditions + 1, total + len(scorings), clips + here
        seconds += here * clip_s.get(condition.backbone, 0.05)
    return Size(conditions, total, clips, seconds)


def _block(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a block whose axes are lists."""
    block = dict(values)
    for axis, value in block.items():
        if axis == "limit":
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise UsageError(f"The grid {name}: limit is a number of clips, not {value!r}")
        else:
            block[axis] = list(value) if isinstance(value, list) else [value]
    return block


def _conditions(block: Mapping[str, Any], facts: Facts) -> Iterator[Condition]:
    """Yield the conditions of a block: of each dataset and model the clean one first."""
    limit = block["limit"]
    snrs = [float(snr) for snr in block["snrs"] if snr != CLEAN]
    for backbone, dataset in product(block["backbones"], block["datasets"]):
        data = facts.data.get(f"{dataset}/{limit}", "")
        model = facts.models.get(backbone, "")
        if CLEAN in block["snrs"]:
            yield clean_condition(dataset, data, limit, backbone, model)
        axes = product(block["noises"], block["mixings"], block["seeds"], snrs)
        for noise, mixing, seed, snr_db in axes:
            noise_data = facts.noise.get(noise, "")
            yield Condition(
                dataset, data, limit, noise, noise_data, mixing, snr_db, seed, backbone, model
            )


def clean_condition(dataset: str, data: str, limit: int, backbone: str, model: str) -> Condition:
    """Return the condition of a dataset's recordings as they are."""
    return Condition(dataset, data, limit, None, "", None, None, None, backbone, model)


def _scorings(block: Mapping[str, Any], noise: str | None, facts: Facts) -> list[Scoring]:
    """Return the scorings of a condition with this noise; None: clean.

    On clean clips a rule that is given noise gets that of each of the block's corpora, and
    no rule knows a place.
    """
    found: dict[Scoring, None] = {}
    for name in block["rules"]:
        rule, _, variant = name.partition(":")
        needs = needs_of(rule)
        if noise is None and (variant or "background" in needs):
            continue
        corpora = ([noise] if noise else block["noises"]) if "noise" in needs else [None]
        axes = product(
            block["betas"] if "beta" in needs else [None],
            block["packs"] if "pack" in needs else [None],
            block["directions"] if "direction" in needs else [None],
            block["references"] if "direction" in needs else [None],
            corpora,
        )
        for beta, pack, direction, reference, corpus in axes:
            number = None if beta is None else float(beta)
            pack_data, corpus_data = facts.packs.get(pack, ""), facts.noise.get(corpus, "")
            found[
                Scoring(
                    rule, variant, number, pack, pack_data, direction, reference,
                    corpus, corpus_data,
                )
            ] = None  # fmt: skip
    return list(found)


@cache
def needs_of(rule: str) -> frozenset[str]:
    """Return what changes a rule's head: its parameters, and `pack` and `direction` by trial.

    The rule is compiled on a small made-up bank whose drifts and noisy means are exchanged
    for others: what it reads is what moves it.
    """
    parameters = rule_parameters(rule)
    found = {name for name in parameters if name in ("beta", "noise", "pool")}
    if "background" in parameters and parameters["background"].annotation == Matrix:
        found.add("background")
    rng = np.random.default_rng(0)
    first, second, third, noisy, other = rng.standard_normal((5, 3, 32)).astype(np.float32)
    radii = np.ones(3, np.float32)
    extra = {"noise": first, "pool": rng.standard_normal((40, 32)), "background": first[:1]}
    given = {name: rows for name, rows in extra.items() if name in found}
    fake = load_backbone("fake", dim=32)

    def weights(drifts: Matrix, means: Matrix) -> bytes:
        bank = ClassBank(("a", "b", "c"), first, drifts, radii, means)
        head = compile_head(bank, rule, backbone=fake, **given)
        return head.weights.tobytes() + head.offsets.tobytes()

    if weights(second, noisy) != weights(third, noisy):
        found |= {"pack", "direction"}
    if weights(second, noisy) != weights(second, other):
        found.add("pack")
    return frozenset(found)
