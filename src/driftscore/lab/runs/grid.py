"""A TOML file that names what to measure -> conditions, and the cells of each.

    datasets = ["esc50"]           noises = ["tau2019"]        mixings = ["additive", "scaper"]
    snrs = ["clean", 10, 0]        backbones = ["mini"]        rules = ["cosine", "das"]
    betas = [0.25]                 packs = ["das52"]           directions = ["mean"]
    references = ["prompt"]        seeds = [0]                 limit = 0

`[homes]` says where a corpus is stored; a name of one's own that has a home is a folder of clips
(`folder`) or of noise (`recorded`). `[[block]]` tables are several grids in one, `limit` takes
a fixed random part of a dataset, and `at_hand` lists models that are used if they are on this
machine. "rule:variant" is a rule in one of its variants, such as `zs_text:matched`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from driftscore.errors import FormatError, UsageError, unknown
from driftscore.lab.conditions import CLEAN, Cell, Condition, Scoring, clean_condition, join_keys
from driftscore.lab.runs.scorings import Facts, Value, calibrated, scorings_of
from driftscore.reading import is_file, read_text
from driftscore.schema import (
    Check,
    either,
    filled_text,
    items,
    mapping,
    number,
    parse_toml,
    table,
    text,
    validate,
)

DEFAULTS: Mapping[str, tuple[Value, ...]] = {
    "datasets": (),
    "noises": (),
    "mixings": ("additive",),
    "snrs": (CLEAN,),
    "backbones": ("mini",),
    "rules": ("cosine", "das"),
    "betas": (0.25,),
    "packs": ("das52",),
    "directions": ("mean",),
    "references": ("prompt",),
    "seeds": (0,),
}
_VALUE = either(filled_text, number(), words="a text or a number")
_AXIS = either(
    _VALUE, items(_VALUE, most=10_000), words="a text, a number, or a list of texts and numbers"
)
_AXES: Mapping[str, Check] = dict.fromkeys(DEFAULTS, _AXIS)
_SCHEMA = table(
    optional={
        **_AXES,
        "title": text,
        "homes": mapping(filled_text),
        "at_hand": items(filled_text),
        "block": items(table(optional=_AXES, open_=True), most=1000),
    },
    open_=True,  # unknown keys are reported with the nearest one by `parse_grid`
)
_TOP = ("title", "homes", "block", "at_hand")
_CLIP_S = 0.05  # assumed seconds per clip, until a model has been measured
_HOUR_S = 120.0  # assumed seconds for the events of an hour, per rule


@dataclass(frozen=True)
class Block:
    """One grid: every combination of its axes. Values are checked by `validation`."""

    axes: Mapping[str, tuple[Value, ...]]
    limit: int = 0

    def names(self, axis: str) -> list[str]:
        """Return the values of an axis as text."""
        return [str(value) for value in self.axes[axis]]


@dataclass(frozen=True)
class Grid:
    """A parsed grid: its blocks with every axis filled in, and where corpora are stored."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    homes: Mapping[str, str] = field(default_factory=dict)

    def names(self, axis: str) -> list[str]:
        """Return the values of an axis over all blocks as text, each once."""
        return list(dict.fromkeys(value for block in self.blocks for value in block.names(axis)))

    def with_backbones(self, backbones: Sequence[str]) -> "Grid":
        """Return the grid with other models; blocks that become equal are kept once."""
        found: list[Block] = []
        for block in self.blocks:
            changed = replace(block, axes={**block.axes, "backbones": tuple(backbones)})
            if changed not in found:
                found.append(changed)
        return replace(self, blocks=tuple(found))


def shipped_grids() -> tuple[str, ...]:
    """Return the names of the grids that come with driftscore."""
    home = files("driftscore.lab.runs") / "grids"
    return tuple(sorted(f.name.removesuffix(".toml") for f in home.iterdir()))


def load_grid(name_or_path: str | Path) -> Grid:
    """Load a shipped grid by its name, or a user's own by its path."""
    given = str(name_or_path)
    if given in shipped_grids():
        file = files("driftscore.lab.runs") / "grids" / f"{given}.toml"
        return parse_grid(file.read_text(encoding="utf-8"), name=given)
    if not given.endswith(".toml") and not is_file(given):
        raise unknown("grid", given, shipped_grids())
    written = read_text(Path(given), "grid")
    return parse_grid(written, name=Path(given).stem, folder=Path(given).parent)


def parse_grid(written: str, *, name: str, folder: Path | None = None) -> Grid:
    """Parse a grid; homes are relative to `folder`. Values are checked by `validation`."""
    content = parse_toml(written, _SCHEMA, where=f"The grid {name}")
    return _grid(content, name=name, folder=folder)


def make_grid(
    content: Mapping[str, object], *, name: str = "grid", folder: Path | None = None
) -> Grid:
    """Return the grid that a dict with the keys of a grid's file describes."""
    validate(content, _SCHEMA, where=f"The grid {name}")
    return _grid(content, name=name, folder=folder)


def _grid(content: Mapping[str, object], *, name: str, folder: Path | None) -> Grid:
    """Return the grid of a content that was checked against the schema."""
    data: Mapping[str, Any] = content
    known = (*DEFAULTS, "limit")
    for part in (data, *data.get("block", [])):
        for key in part:
            if key not in known and not (key in _TOP and part is data):
                raise UsageError(f"The grid {name}: {unknown('key', key, (*known, *_TOP))}")
    common = {key: value for key, value in data.items() if key in known}
    present = [model for model in data.get("at_hand", []) if is_local(model)]
    blocks = tuple(_block(common | block, present, name) for block in data.get("block", [{}]))
    place = folder or Path()
    try:
        homes = {k: str(place / Path(v).expanduser()) for k, v in data.get("homes", {}).items()}
    except RuntimeError as error:  # ~name of a user that does not exist
        raise FormatError(f"The grid {name}: homes must be folders: {error}") from error
    return Grid(name, data.get("title", name), blocks, homes)


def is_local(model: str) -> bool:
    """Return whether a model is a local folder or in the hub's cache; nothing is downloaded."""
    try:
        if Path(model).is_dir():
            return True
        from huggingface_hub import try_to_load_from_cache

        return isinstance(try_to_load_from_cache(model, "config.json"), str)
    except (ImportError, OSError, ValueError):  # no hub, or a name that no model can have
        return False


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


def cells(grid: Grid, facts: Facts | None = None) -> Iterator[Cell]:
    """Yield every cell, one at a time."""
    for condition, scorings in groups(grid, facts):
        for scoring in scorings:
            yield Cell(condition, scoring)


def keys(grid: Grid, facts: Facts | None = None) -> Iterator[str]:
    """Yield the key of every cell, without creating the cells."""
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
    """Count the conditions, cells and clips of a grid without embedding anything."""
    known = facts or Facts()
    conditions = total = clips = 0
    seconds = 0.0
    for condition, scorings in groups(grid, facts):
        name = f"{condition.dataset}/{condition.limit}"
        here, hours = known.clips.get(name, 0), known.hours.get(name, 0.0)
        conditions, total, clips = conditions + 1, total + len(scorings), clips + here
        seconds += hours * len(scorings) * _HOUR_S
        seconds += 0 if hours else here * clip_s.get(condition.backbone, _CLIP_S)
    return Size(conditions, total, clips, seconds)


def _block(values: Mapping[str, object], models: Sequence[str], name: str) -> Block:
    """Return a block whose axes are filled in; a single value is an axis of one."""
    limit = values.get("limit", 0)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise UsageError(f"The grid {name}: limit must be a number of clips, got {limit!r}")
    axes: dict[str, tuple[Value, ...]] = dict(DEFAULTS)
    for axis in DEFAULTS:
        if axis in values:
            given = values[axis]
            axes[axis] = tuple(given) if isinstance(given, list) else (given,)  # type: ignore[assignment]
    axes["backbones"] = tuple(dict.fromkeys((*axes["backbones"], *models)))
    return Block(axes, limit)


def _block_groups(block: Block, facts: Facts) -> Iterator[tuple[Condition, list[Scoring]]]:
    names = (None, *block.names("noises"))
    scorings = {noise: scorings_of(block.axes, noise, facts) for noise in names}
    for condition in _conditions(block, facts):
        if found := calibrated(scorings[condition.noise], condition.backbone, facts):
            yield condition, found


def _conditions(block: Block, facts: Facts) -> Iterator[Condition]:
    """Yield the conditions of a block: for each dataset and model the clean one first."""
    snrs = [float(snr) for snr in block.axes["snrs"] if snr != CLEAN]
    for backbone, dataset in product(block.names("backbones"), block.names("datasets")):
        data = facts.data.get(f"{dataset}/{block.limit}", "")
        model = facts.models.get(backbone, "")
        if CLEAN in block.axes["snrs"]:
            yield clean_condition(dataset, data, block.limit, backbone, model)
        axes = product(block.names("noises"), block.names("mixings"), block.axes["seeds"], snrs)
        for noise, mixing, seed, snr_db in axes:
            mixed = (noise, facts.noise.get(noise, ""), mixing, snr_db, int(seed))
            yield Condition(dataset, data, block.limit, *mixed, backbone, model)
