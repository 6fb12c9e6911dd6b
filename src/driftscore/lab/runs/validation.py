"""Check a grid before any work: report every problem at once, or return what its names stand for.

Names are looked up, numbers checked, folders checked for missing files, and noise recordings read:
one that is silent or shorter than a loudness block is reported here, and so is a corpus whose every
recording contains one of the dataset's classes. Damaged event clips are not searched for: each
becomes a failure in the store when it is embedded.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from driftscore.audio import windows
from driftscore.backbones import Backbone, find_family, load_backbone
from driftscore.calibration import Calibration
from driftscore.errors import DriftscoreError, UsageError, unknown
from driftscore.lab.conditions import CLEAN, Scoring, canonical
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.datasets import find_dataset
from driftscore.lab.corpora.loading import is_generated
from driftscore.lab.corpora.noises import find_noise
from driftscore.lab.corpora.noises.drawing import too_short
from driftscore.lab.corpora.noises.protocol import NoiseRecording
from driftscore.lab.mixing.loudness import BLOCK_S
from driftscore.lab.mixing.mixings import find_mixing
from driftscore.lab.runs.detectors import check_detectable, detection_settings, hours_of
from driftscore.lab.runs.grid import Block, Grid
from driftscore.lab.runs.scorings import Facts, rule_of, split_name
from driftscore.lab.seeds import generator
from driftscore.prompts import load_pack, words
from driftscore.settings import DIRECTIONS, REFERENCES

_READ = 400  # of a larger noise corpus only this many recordings are read beforehand
_SHOWN = 30
_RATE = 8_000
_CHOICES = {"directions": DIRECTIONS, "references": REFERENCES}

Load = Callable[[str], Backbone]
T = TypeVar("T")


def check(grid: Grid, *, load: Load = load_backbone) -> Facts:
    """Return what the names of a grid stand for, or raise one error that lists every problem."""
    problems = [problem for block in grid.blocks for problem in _values(block)]
    checked = _Check(grid, load)
    problems += checked.problems
    if problems:
        raise _cannot_run(grid, problems)
    return checked.facts


@dataclass(frozen=True)
class Plan:
    """What is known of a grid before it is run: corpora found in words, and what is missing."""

    facts: Facts
    found: tuple[str, ...]
    missing: tuple[str, ...]


def look_ahead(grid: Grid) -> Plan:
    """Return what can be counted without models and data, and what a run would lack.

    Names and numbers are checked. No model is loaded and no recording is read; clips are counted
    in the datasets that are on this machine.
    """
    problems = [problem for block in grid.blocks for problem in _values(block)]
    homes = grid.homes
    finders: Mapping[str, Callable[[str], object]] = {
        "datasets": lambda name: find_dataset(name, homes.get(name)),
        "noises": lambda name: find_noise(name, homes.get(name)),
        "packs": _pack,
        "backbones": find_family,
    }
    for axis, find in finders.items():
        problems += [p for name in grid.names(axis) for p in _problem(find, name)]
    if problems:
        raise _cannot_run(grid, problems)
    counts: dict[str, int] = {}
    found: list[str] = []
    missing: list[str] = []
    for title, describe in _descriptions(grid, counts):
        try:
            found.append(f"{title}: {describe()}")
        except DriftscoreError as error:
            missing.append(str(error))
    return Plan(Facts(clips=counts), tuple(dict.fromkeys(found)), tuple(dict.fromkeys(missing)))


def _descriptions(grid: Grid, counts: dict[str, int]) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the name of each corpus with a function that describes it; clips are also counted."""

    def clips_of(name: str, limit: int) -> str:
        clips = chosen_clips(name, grid.homes.get(name), limit)
        counts[f"{name}/{limit}"] = len(clips)
        labels = {label for clip in clips for label in clip.labels}
        return f"{len(clips):,} clips of {len(labels):,} labels"

    def noise_of(name: str) -> str:
        home = grid.homes.get(name)
        return f"{len(find_noise(name, home).recordings(home)):,} noise recordings"

    for block in grid.blocks:
        for name in block.names("datasets"):
            yield name, partial(clips_of, name, block.limit)
    for name in grid.names("noises"):
        yield name, partial(noise_of, name)


def _cannot_run(grid: Grid, problems: Sequence[str]) -> UsageError:
    shown = "".join(f"\n  - {problem}" for problem in dict.fromkeys(problems[:_SHOWN]))
    more = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return UsageError(f"The grid {grid.name} cannot be run:{shown}{more}")


def chosen_clips(dataset: str, home: str | Path | None, limit: int) -> list[Clip]:
    """Return the clips of a dataset; with a limit, a fixed random part of them in their order."""
    found = find_dataset(dataset, home).clips(home)
    if not limit or limit >= len(found):
        return found
    kept = generator("subset", dataset, limit).permutation(len(found))[:limit]
    return [found[index] for index in sorted(kept)]


def is_timed(dataset: str, home: str | Path | None) -> bool:
    """Return whether a dataset consists of long recordings with events at known times."""
    return find_dataset(dataset, home).about.timed


def digest(value: object) -> str:
    """Return a short digest of a JSON value."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def _calibration(backbone: Backbone) -> str:
    """Return the digest of the calibration that comes with a model; empty if there is none."""
    file = backbone.calibration_file
    return Calibration.load(file, backbone).digest[:16] if file is not None else ""


def _values(block: Block) -> Iterator[str]:
    """Yield what is wrong with the values of a block; folders are checked later."""
    axes = block.axes
    for axis in ("datasets", "backbones", "rules", "snrs"):
        if not axes[axis]:
            yield f"{axis} is empty; name at least one"
    for snr in axes["snrs"]:
        if snr != CLEAN and not _is_number(snr):
            yield f"An SNR must be a number of dB or {CLEAN!r}, got {snr!r}"
    if any(snr != CLEAN for snr in axes["snrs"]) and not axes["noises"]:
        yield "There are SNRs but no noises; name a noise, or use only the SNR 'clean'"
    for beta in axes["betas"]:
        if not _is_number(beta):
            yield f"A beta must be a number, got {beta!r}"
    for seed in axes["seeds"]:
        if not isinstance(seed, int) or isinstance(seed, bool):
            yield f"A seed must be an integer, got {seed!r}"
    for axis, choices in _CHOICES.items():
        for value in block.names(axis):
            if value not in choices:
                yield str(unknown(axis.removesuffix("s"), value, choices))
    for name in block.names("mixings"):
        yield from _problem(find_mixing, name)
    for name in block.names("rules"):
        yield from _problem(_check_rule, name)


def _check_rule(name: str) -> None:
    rule, variant = split_name(name)
    found = rule_of(rule)
    if variant:
        found.variant(variant)


def _problem(find: Callable[[str], object], name: str) -> Iterator[str]:
    try:
        find(name)
    except DriftscoreError as error:
        yield str(error)


class _Check:
    """Looks up everything that a grid names; collects the problems and the facts."""

    def __init__(self, grid: Grid, load: Load) -> None:
        self.grid = grid
        self.problems: list[str] = []
        self.labels: dict[str, tuple[str, ...]] = {}
        self.recordings: dict[str, Sequence[NoiseRecording]] = {}
        self.hours: dict[str, float] = {}
        data, counts = self._datasets()
        noise = self._all(self._noise, "noises")
        self._check_contained()
        packs = self._all(_pack, "packs")
        models = self._all(lambda spec: load(spec).fingerprint, "backbones")
        calibrations = self._all(lambda spec: _calibration(load(spec)), "backbones")
        self.facts = Facts(data, noise, models, packs, counts, calibrations, self.hours)

    def _datasets(self) -> tuple[Mapping[str, str], Mapping[str, int]]:
        """Return the digest and the number of clips of each dataset and limit."""
        data: dict[str, str] = {}
        counts: dict[str, int] = {}
        for block in self.grid.blocks:
            for name in block.names("datasets"):
                clips = self._try(partial(self._clips, limit=block.limit), name)
                if clips is not None:
                    key = f"{name}/{block.limit}"
                    entries = [(c.id, c.labels, c.fold, _size(c.path)) for c in clips]
                    facts: list[object] = [self.labels[name], entries]
                    if is_timed(name, self.grid.homes.get(name)):
                        facts.append(detection_settings())
                        self.hours[key] = sum(hours_of(clip) for clip in clips)
                    data[key], counts[key] = digest(facts), len(clips)
        return data, counts

    def _all(self, find: Callable[[str], str], axis: str) -> dict[str, str]:
        return {name: self._try(find, name) or "" for name in self.grid.names(axis)}

    def _try(self, find: Callable[[str], T], name: str) -> T | None:
        """Return what `find` finds, or note the problem."""
        try:
            return find(name)
        except DriftscoreError as error:
            self.problems.append(str(error))
            return None

    def _clips(self, name: str, limit: int) -> list[Clip]:
        home = self.grid.homes.get(name)
        clips = chosen_clips(name, home, limit)
        self.labels[name] = find_dataset(name, home).labels(home)
        if not clips:
            raise UsageError(f"The dataset {name} has no clips")
        self._check_folds(name, clips)
        if is_timed(name, home):
            self._check_timed(name)
        return clips

    def _check_timed(self, name: str) -> None:
        """Raise an error for what cannot be measured on long recordings with events."""
        for block in self.grid.blocks:
            if name not in block.names("datasets"):
                continue
            if any(snr != CLEAN for snr in block.axes["snrs"]):
                raise UsageError(f"{name} has its own noise; its only SNR is {CLEAN!r}")
            for rule in block.names("rules"):
                check_detectable(Scoring(*split_name(rule)))

    def _check_folds(self, name: str, clips: Sequence[Clip]) -> None:
        """Raise an error if a rule draws from other folds and the dataset has none."""
        if len({clip.fold for clip in clips}) > 1:
            return
        for block in self.grid.blocks:
            for rule in block.names("rules") if name in block.names("datasets") else ():
                if _draws_from_folds(rule):
                    raise UsageError(f"{rule} draws from the other folds, and {name} has no folds")

    def _noise(self, name: str) -> str:
        home = self.grid.homes.get(name)
        listed = find_noise(name, home).recordings(home)
        self.recordings[name] = listed
        for recording in listed[:: max(1, len(listed) // _READ)]:
            if problem := _unusable(recording.file):
                self.problems.append(problem)
        entries = [(r.id, r.environment, r.avoid, _size(Path(r.file))) for r in listed]
        return digest(entries)

    def _check_contained(self) -> None:
        """Note each class that every recording of a corpus contains."""
        pairs = {
            (dataset, noise)
            for block in self.grid.blocks
            for dataset in block.names("datasets")
            for noise in block.names("noises")
        }
        for dataset, noise in sorted(pairs):
            listed = self.recordings.get(noise, ())
            for label in self.labels.get(dataset, ()) if listed else ():
                if all(recording.contains([label]) for recording in listed):
                    self.problems.append(
                        f"Every recording of the noise {noise} contains {words(label)!r}, a class "
                        f"of {dataset}; add another recording, or leave the class out"
                    )


def _draws_from_folds(name: str) -> bool:
    rule, variant = split_name(name)
    known = [v for v in rule_of(rule).variants if v.name == variant] if variant else []
    return any(v.setting == "pool" for v in known)


def _pack(name: str) -> str:
    return digest(list(load_pack(name, kind="phrases").texts))


def _unusable(file: str) -> str:
    """Return why a recording cannot be used as noise; only its beginning is read."""
    if is_generated(file) and not Path(file).exists():
        return ""
    try:
        for window in windows(file, rate=_RATE, seconds=BLOCK_S):
            if round(window.audio.seconds, 3) < BLOCK_S:
                return too_short(file, window.audio.seconds)
            if not window.silent:
                return ""
    except DriftscoreError as error:
        return str(error)
    return f"{file} is silent: every sample is zero"


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
