"""A TOML file that names what to measure -> conditions, and the cells of each.

    datasets = ["esc50"]           noises = ["tau2019"]        mixings = ["additive", "scaper"]
    snrs = ["clean", 10, 0]        backbones = ["mini"]        rules = ["cosine", "das"]
    betas = [0.25]                 packs = ["das52"]           directions = ["mean"]
    references = ["prompt"]        seeds = [0]                 limit = 0
    examples = [0, 3]              draws = [0, 1]

`examples` are clips of each label that rules learn from besides its words (0: only words), `draws`
which random choices of them; `[examples_from]` names, for each dataset, the dataset that they are
drawn from, with other recordings of the same labels.

`[homes]` says where a corpus is stored; a name of one's own that has a home is a folder of clips
(`folder`) or of noise (`recorded`), or a corpus of another module: "module:attribute".
`[[block]]` tables are several grids in one, `limit` takes a fixed random part of a dataset, and
`at_hand` lists models that are used if they are on this machine. "rule:variant" is a rule in one of
its variants, such as `zs_text:matched`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from driftscore.backbones.hub import local_folder
from driftscore.errors import FormatError, unknown
from driftscore.lab.conditions import CLEAN, Condition, Scoring, clean_condition, join_keys
from driftscore.lab.corpora.folders import is_reference
from driftscore.lab.runs.scorings import Facts, Value, scorings_of, uses_calibration
from driftscore.scoring.examples import SETTINGS as EXAMPLE_SETTINGS
from driftscore.storage.checked import FilledText, Text, decode, parse
from driftscore.storage.files import is_file, read_text

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
    "examples": (0,),
    "draws": (0,),
}
_BlockFile = msgspec.defstruct(
    "_BlockFile",
    [*((axis, object, None) for axis in DEFAULTS), ("limit", Annotated[int, Meta(ge=0)], 0)],
    forbid_unknown_fields=True,
)
_GridFile = msgspec.defstruct(
    "_GridFile",
    [
        ("title", Text, ""),
        ("homes", dict[str, FilledText], {}),
        ("examples_from", dict[str, FilledText], {}),
        ("at_hand", list[FilledText], []),
        ("block", list[_BlockFile], []),  # type: ignore[valid-type]
    ],
    bases=(_BlockFile,),
    forbid_unknown_fields=True,
)
_NO_FACTS = Facts()  # before the check
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
    examples_from: Mapping[str, str] = field(default_factory=dict)

    def names(self, axis: str) -> list[str]:
        """Return the values of an axis over all blocks as text, each once."""
        return list(dict.fromkeys(value for block in self.blocks for value in block.names(axis)))

    def with_backbones(self, backbones: Sequence[str]) -> "Grid":
        """Return the grid for these models, each in the blocks that name it, or else in all.

        Blocks that become equal are kept once.
        """
        named, distinct = self.names("backbones"), list[Block]()
        for block in self.blocks:
            own = block.names("backbones")
            models = tuple(model for model in backbones if model in own or model not in named)
            changed = replace(block, axes={**block.axes, "backbones": models})
            if models and changed not in distinct:
                distinct.append(changed)
        return replace(self, blocks=tuple(distinct))


def shipped_grids() -> tuple[str, ...]:
    """Return the names of the grids that come with driftscore."""
    home = files("driftscore.lab.runs") / "grids"
    return tuple(sorted(f.name.removesuffix(".toml") for f in home.iterdir()))


def load_grid(name_or_path: str | Path) -> Grid:
    """Load a shipped grid by its name, or a user's own by its path."""
    name = str(name_or_path)
    if name in shipped_grids():
        file = files("driftscore.lab.runs") / "grids" / f"{name}.toml"
        return parse_grid(file.read_text(encoding="utf-8"), name=name)
    if not name.endswith(".toml") and not is_file(name):
        raise unknown("grid", name, shipped_grids())
    path = Path(name)
    return parse_grid(read_text(path, "grid"), name=path.stem, folder=path.parent)


def parse_grid(written: str, *, name: str, folder: Path | None = None) -> Grid:
    """Parse a grid; homes are relative to `folder`. Values are checked by `validation`."""
    return make_grid(parse(written, where=f"The grid {name}"), name=name, folder=folder)


def make_grid(
    content: Mapping[str, object], *, name: str = "grid", folder: Path | None = None
) -> Grid:
    """Return the grid that a dict with the keys of a grid's file describes."""
    decode(content, _GridFile, where=f"The grid {name}")
    data: Mapping[str, Any] = content
    common = {key: data[key] for key in (*DEFAULTS, "limit") if key in data}
    models = [model for model in data.get("at_hand", []) if local_folder(model) is not None]
    blocks = []
    for block in data.get("block", [{}]):
        values, axes = common | block, dict(DEFAULTS)
        for axis in DEFAULTS.keys() & values.keys():  # a single value is an axis of one
            value = values[axis]
            axes[axis] = tuple(value) if isinstance(value, list) else (value,)
            if not all(type(v) in (str, int, float) and v != "" for v in axes[axis]):
                raise FormatError(
                    f"The grid {name}: {axis} must be a text, a number, or a list of texts and "
                    f"numbers, got {value!r:.60}"
                )
        axes["backbones"] = tuple(dict.fromkeys((*axes["backbones"], *models)))
        blocks.append(Block(axes, values.get("limit", 0)))
    try:
        homes = {
            corpus: home
            if is_reference(home)
            else str((folder or Path()) / Path(home).expanduser())
            for corpus, home in data.get("homes", {}).items()
        }
    except RuntimeError as error:  # ~name of a user that does not exist
        raise FormatError(f"The grid {name}: homes must be folders: {error}") from error
    examples_from = data.get("examples_from", {})
    return Grid(name, data.get("title", name), tuple(blocks), homes, examples_from)


def groups(grid: Grid, facts: Facts = _NO_FACTS) -> Iterator[tuple[Condition, list[Scoring]]]:
    """Yield each condition once, with all its scorings.

    One block is planned lazily; several are first merged, as they may share conditions.
    """
    if len(grid.blocks) == 1:
        yield from _block_groups(grid.blocks[0], facts)
        return
    merged: dict[Condition, dict[Scoring, None]] = {}
    for block in grid.blocks:
        for condition, scorings in _block_groups(block, facts):
            merged.setdefault(condition, {}).update(dict.fromkeys(scorings))
    for condition, merged_scorings in merged.items():
        yield condition, list(merged_scorings)


def keys(grid: Grid, facts: Facts = _NO_FACTS) -> Iterator[str]:
    """Yield the key of every cell, without creating the cells."""
    written = cache(attrgetter("key"))  # conditions have the same scorings
    for condition, scorings in groups(grid, facts):
        first = condition.key
        for scoring in scorings:
            yield join_keys(first, written(scoring))


@dataclass(frozen=True)
class Size:
    """How large a grid is; `seconds` of embedding on one core, by measured or assumed cost."""

    conditions: int
    cells: int
    clips: int
    seconds: float


def measure(grid: Grid, facts: Facts = _NO_FACTS, *, clip_s: Mapping[str, float] = {}) -> Size:
    """Count the conditions, cells and clips of a grid without embedding anything."""
    conditions = total = clips = 0
    seconds = 0.0
    for condition, scorings in groups(grid, facts):
        name = f"{condition.dataset}/{condition.limit}"
        here, hours = facts.clips.get(name, 0), facts.hours.get(name, 0.0)
        conditions, total, clips = conditions + 1, total + len(scorings), clips + here
        seconds += hours * len(scorings) * _HOUR_S
        seconds += 0 if hours else here * clip_s.get(condition.backbone, _CLIP_S)
    return Size(conditions, total, clips, seconds)


def _block_groups(block: Block, facts: Facts) -> Iterator[tuple[Condition, list[Scoring]]]:
    """Yield the conditions of a block: for each dataset and model the clean one first."""
    names = (None, *block.names("noises"))
    scorings = {noise: scorings_of(block.axes, noise, facts) for noise in names}
    snrs = [float(snr) for snr in block.axes["snrs"] if snr != CLEAN]
    for backbone, dataset in product(block.names("backbones"), block.names("datasets")):
        data = facts.data.get(f"{dataset}/{block.limit}", "")
        model = facts.models.get(backbone, "")
        digest = facts.calibrations.get(backbone)  # empty for a model that has no calibration
        examples_from, examples_data = facts.examples.get(dataset, ("", ""))
        applying: dict[str | None, list[Scoring]] = {noise: [] for noise in scorings}
        for noise, some in scorings.items():
            for scoring in some:
                if uses_calibration(scoring):
                    if digest == "":
                        continue
                    scoring = replace(scoring, calibration=digest or "")
                if scoring.examples:
                    scoring = replace(
                        scoring, examples_from=examples_from, examples_data=examples_data,
                        calibration=f"{digest or 'none'}; {EXAMPLE_SETTINGS}",
                    )  # fmt: skip
                applying[noise].append(scoring)
        if CLEAN in block.axes["snrs"] and applying[None]:
            yield clean_condition(dataset, data, block.limit, backbone, model), applying[None]
        axes = product(block.names("noises"), block.names("mixings"), block.axes["seeds"], snrs)
        for noise, mixing, seed, snr_db in axes:
            mixed = (noise, facts.noise.get(noise, ""), mixing, snr_db, int(seed))
            if applying[noise]:
                condition = Condition(dataset, data, block.limit, *mixed, backbone, model)
                yield condition, list(applying[noise])
