"""Say all that is wrong with a grid at once, before any work; else learn what it stands for.

Names are looked up, numbers checked, folders searched for what they lack, and noise is
listened to: a recording that is silent or shorter than a loudness block, or a corpus whose
every recording holds one of the dataset's classes, is told here. Damaged event clips are
not looked for: each becomes a failure in the store when its turn comes.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from driftscore.audio import windows
from driftscore.backbones import Backbone, load_backbone
from driftscore.errors import DriftscoreError, UsageError, unknown
from driftscore.lab.corpora import Clip
from driftscore.lab.datasets import find_dataset, home_of
from driftscore.lab.grid import CLEAN, VARIANTS, Facts, Grid, canonical, needs_of
from driftscore.lab.loudness import BLOCK_S
from driftscore.lab.mixing import MIXINGS
from driftscore.lab.noises import Recording, find_noise
from driftscore.lab.seeds import generator
from driftscore.prompts import load_pack, words
from driftscore.rules import rule_parameters

_HEARD = 400  # of a larger noise corpus so many recordings are listened to beforehand
_SHOWN = 30
_LISTEN_RATE = 8_000
_CHOICES = {"directions": ("mean", "svd"), "references": ("prompt", "matched")}

Load = Callable[[str], Backbone]


def check(grid: Grid, *, load: Load = load_backbone) -> Facts:
    """Return what the grid's names stand for, or raise one error that lists every problem."""
    problems: list[str] = []
    for block in grid.blocks:
        problems += _values(block)
    facts = _Found(grid, load, problems)
    if problems:
        shown = "".join(f"\n  - {problem}" for problem in dict.fromkeys(problems[:_SHOWN]))
        more = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise UsageError(f"The grid {grid.name} cannot be run:{shown}{more}")
    return facts.facts


def chosen_clips(dataset: str, home: str | Path | None, limit: int) -> list[Clip]:
    """Return a dataset's clips; with a limit, a fixed random part of them in their order."""
    module = find_dataset(dataset)
    found: list[Clip] = module.clips(home_of(module, home))
    if not limit or limit >= len(found):
        return found
    kept = generator("subset", dataset, limit).permutation(len(found))[:limit]
    return [found[index] for index in sorted(kept)]


def is_multi_label(clips: Sequence[Clip]) -> bool:
    """Return whether any clip has several labels, or none: then scores are ranked, not chosen."""
    return any(len(clip.labels) != 1 for clip in clips)


def _values(block: Any) -> Iterator[str]:
    """Yield what is wrong with a block's values, folders left aside."""
    for axis in ("datasets", "backbones", "rules", "snrs"):
        if not block[axis]:
            yield f"{axis} is empty; name at least one"
    for snr in block["snrs"]:
        if snr != CLEAN and not _is_number(snr):
            yield f"An SNR is a number of dB or {CLEAN!r}, not {snr!r}"
    if any(snr != CLEAN for snr in block["snrs"]) and not block["noises"]:
        yield "There are SNRs but no noises; name a noise, or keep snrs to 'clean'"
    for beta in block["betas"]:
        if not _is_number(beta):
            yield f"A beta is a number, not {beta!r}"
    for seed in block["seeds"]:
        if not isinstance(seed, int) or isinstance(seed, bool):
            yield f"A seed is a whole number, not {seed!r}"
    for mixing in block["mixings"]:
        if mixing not in MIXINGS:
            yield str(unknown("mixing", str(mixing), MIXINGS))
    for axis, choices in _CHOICES.items():
        for value in block[axis]:
            if value not in choices:
                yield str(unknown(axis.removesuffix("s"), str(value), choices))
    for name in block["rules"]:
        yield from _rule(str(name))


def _rule(name: str) -> Iterator[str]:
    rule, colon, variant = name.partition(":")
    try:
        needs = needs_of(rule)
    except DriftscoreError as error:
        yield str(error)
        return
    named = "background" in rule_parameters(rule) and "background" not in needs
    fitting = [v for v, fits in (("matched", named), ("noisy", "pool" in needs)) if fits]
    if colon and variant not in fitting:
        known = f"; it has {', '.join(fitting)}" if fitting else "; it has none"
        what = f" ({VARIANTS[variant]})" if variant in VARIANTS else ""
        yield f"The rule {rule!r} has no variant {variant!r}{what}{known}"


class _Found:
    """Everything that a grid names, found or complained of."""

    def __init__(self, grid: Grid, load: Load, problems: list[str]) -> None:
        self.grid, self.problems = grid, problems
        self.labels: dict[str, tuple[str, ...]] = {}
        self.recordings: dict[str, Sequence[Recording]] = {}
        data: dict[str, str] = {}
        counts: dict[str, int] = {}
        for block in grid.blocks:
            for name in block["datasets"]:
                if (found := self._try(self._dataset, name, block["limit"])) is not None:
                    data[f"{name}/{block['limit']}"], counts[f"{name}/{block['limit']}"] = found
        noise = {name: self._try(self._noise, name) or "" for name in grid.names("noises")}
        self._contained()
        packs = {name: self._try(self._pack, name) or "" for name in grid.names("packs")}
        models = {
            name: self._try(lambda spec: load(spec).fingerprint, name) or ""
            for name in grid.names("backbones")
        }
        self.facts = Facts(data, noise, models, packs, counts)

    def _try(self, find: Callable[..., Any], *arguments: Any) -> Any:
        """Return what `find` finds, or note why it could not."""
        try:
            return find(*arguments)
        except DriftscoreError as error:
            self.problems.append(str(error))
            return None

    def _dataset(self, name: str, limit: int) -> tuple[str, int]:
        clips = chosen_clips(name, self.grid.homes.get(name), limit)
        module = find_dataset(name)
        self.labels[name] = module.labels(home_of(module, self.grid.homes.get(name)))
        if not clips:
            raise UsageError(f"The dataset {name} has no clips")
        self._folds(name, clips)
        entries = [(clip.id, clip.labels, clip.fold, _size(clip.path)) for clip in clips]
        return digest([self.labels[name], entries]), len(clips)

    def _folds(self, name: str, clips: Sequence[Clip]) -> None:
        wanted = [
            rule
            for block in self.grid.blocks
            if name in block["datasets"]
            for rule in block["rules"]
            if str(rule).endswith(":noisy")
        ]
        if wanted and len({clip.fold for clip in clips}) < 2:
            raise UsageError(f"{wanted[0]} draws from the other folds, and {name} has no folds")

    def _noise(self, name: str) -> str:
        module = find_noise(name)
        listed: Sequence[Recording] = module.recordings(home_of(module, self.grid.homes.get(name)))
        self.recordings[name] = listed
        for recording in listed[:: max(1, len(listed) // _HEARD)]:
            if fault := _unfit(recording.file):
                self.problems.append(fault)
        entries = [(r.id, r.environment, r.avoid, _size(Path(r.file))) for r in listed]
        return digest(entries)

    def _contained(self) -> None:
        """Note each class that every recording of a corpus holds itself."""
        pairs = {(d, n) for b in self.grid.blocks for d in b["datasets"] for n in b["noises"]}
        for dataset, noise in sorted(pairs):
            listed = self.recordings.get(noise, ())
            for label in self.labels.get(dataset, ()) if listed else ():
                if all(recording.holds([label]) for recording in listed):
                    self.problems.append(
                        f"Every recording of the noise {noise} holds {words(label)!r}, a class "
                        f"of {dataset}; add another recording, or leave the class out"
                    )

    def _pack(self, name: str) -> str:
        return digest(list(load_pack(name, kind="phrases").texts))


def digest(value: Any) -> str:
    """Return a short digest of a JSON value."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def _unfit(file: str) -> str:
    """Return what is wrong with a noise recording; a few tenths of a second are enough."""
    if ":" in file and not Path(file).exists():
        return ""  # made from its description, on demand
    try:
        for window in windows(file, rate=_LISTEN_RATE, seconds=BLOCK_S):
            if round(window.audio.seconds, 3) < BLOCK_S:
                return (
                    f"{file} is {window.audio.seconds:.3f} s long; noise needs at least one "
                    f"loudness block of {BLOCK_S:g} s"
                )
            if not window.silent:
                return ""
    except DriftscoreError as error:
        return str(error)
    return f"{file} is silent: every sample is zero"


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
