"""Check a grid before any work: report every problem at once, or return what its names stand for.

Names are looked up, numbers checked, folders checked for missing files, and noise recordings read:
one that is silent or shorter than a loudness block is reported here, and so is a corpus whose every
recording contains one of the dataset's classes. Damaged event clips are not searched for: each
becomes a failure in the store when it is embedded.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driftscore.audio.recordings import windows
from driftscore.backbones import find_family, load_backbone
from driftscore.errors import DriftscoreError, UsageError, unknown
from driftscore.lab.conditions import CLEAN, Scoring, canonical, generator
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.datasets import Dataset, find_dataset
from driftscore.lab.corpora.folders import is_generated
from driftscore.lab.corpora.noises import find_noise
from driftscore.lab.corpora.noises.protocol import too_short
from driftscore.lab.corpora.soundscapes.truth import read_soundscape, truth_path
from driftscore.lab.mixing.loudness import BLOCK_S
from driftscore.lab.mixing.mixings import find_mixing
from driftscore.lab.runs.events import check_detectable, detection_settings
from driftscore.lab.runs.grid import Block, Grid
from driftscore.lab.runs.scorings import Facts, split_name, supplied_setting
from driftscore.scoring.calibration import Calibration
from driftscore.text.packs import load_pack
from driftscore.text.presets import DIRECTIONS, REFERENCES
from driftscore.text.prompts import words

READ_NOISES = 400
"""Of a larger noise corpus only this many recordings are read beforehand."""

SHOWN_PROBLEMS = 30
_RATE = 8_000
_CHOICES = {"directions": DIRECTIONS, "references": REFERENCES}
_NUMBERS = {
    "snrs": f"An SNR must be a number of dB or {CLEAN!r}",
    "betas": "A beta must be a number",
}


def check(grid: Grid, *, plan: bool = False) -> Facts:
    """Return what the names of a grid stand for, or raise one error that lists every problem.

    For a `plan` no model is loaded and no recording is read; a corpus that is not on this machine
    is then listed in the facts as missing, and counted as it was published; otherwise it is a
    problem.
    """
    facts, problems = Facts(), list[str]()
    absent = facts.missing if plan else problems
    labels: dict[str, tuple[str, ...]] = {}
    for block in grid.blocks:
        problems += check_values(block)
        for name in block.names("datasets"):
            with _noted(problems):
                dataset, clips = find_dataset(name, grid.homes.get(name)), list[Clip]()
                published = dataset.about.clips
                facts.clips[f"{name}/{block.limit}"] = min(block.limit or published, published)
                with _noted(absent):
                    clips = _note_dataset(dataset, block.limit, facts, plan=plan)
                    labels[name] = dataset.labels() if clips else ()
                if any(block.axes["examples"]):
                    source = grid.examples_from.get(name)
                    if source is None or dataset.about.timed:
                        raise UsageError(
                            f"The grid has examples: [examples_from] must name the dataset of the "
                            f"examples of {name}, and {name} must be one of clips, not of events"
                        )
                    other = find_dataset(source, grid.homes.get(source))
                    with _noted(absent):
                        _note_dataset(other, 0, facts, plan=plan)
                    facts.examples[name] = (source, facts.data.get(f"{source}/0", ""))
                one_fold = len({clip.fold for clip in clips}) == 1
                for rule in block.names("rules"):
                    with _noted(problems):
                        scoring = Scoring(*split_name(rule))
                        if dataset.about.timed:
                            check_detectable(scoring)
                        if one_fold and supplied_setting(scoring) == "pool":
                            raise UsageError(
                                f"{rule} draws from the other folds, and {name} has no folds"
                            )
                if dataset.about.timed and any(snr != CLEAN for snr in block.axes["snrs"]):
                    raise UsageError(f"{name} has its own noise; its only SNR is {CLEAN!r}")
    for name in grid.names("noises"):
        with _noted(problems):
            noise = find_noise(name, grid.homes.get(name))
            with _noted(absent):
                recordings = noise.recordings()
                step = max(1, len(recordings) // READ_NOISES)
                for recording in () if plan else recordings[::step]:
                    with _noted(problems):
                        _check_noise(recording.file)
                entries = [(r.id, r.environment, r.avoid, _size(Path(r.file))) for r in recordings]
                facts.noise[name] = _digest(entries)
                facts.corpora[name] = f"{name}: {len(recordings):,} noise recordings"
                blocks = [block for block in grid.blocks if name in block.names("noises")]
                for dataset_name in dict.fromkeys(d for b in blocks for d in b.names("datasets")):
                    for label in labels.get(dataset_name, ()) if recordings else ():
                        if all(recording.contains([label]) for recording in recordings):
                            problems.append(
                                f"Every recording of the noise {name} contains {words(label)!r}, a "
                                f"class of {dataset_name}; add another recording, or leave the "
                                "class out"
                            )
    for name in grid.names("packs"):
        with _noted(problems):
            facts.packs[name] = _digest(list(load_pack(name, kind="phrases").texts))
    for spec in grid.names("backbones"):
        with _noted(problems):
            if plan:
                find_family(spec)
                continue
            backbone = load_backbone(spec)
            facts.models[spec], file = backbone.fingerprint, backbone.calibration_file
            calibration = None if file is None else Calibration.load(file, backbone)
            facts.calibrations[spec] = "" if calibration is None else calibration.digest[:16]
    if problems:
        distinct = list(dict.fromkeys(problems))
        shown = "".join(f"\n  - {problem}" for problem in distinct[:SHOWN_PROBLEMS])
        more = len(distinct) - SHOWN_PROBLEMS
        more_words = f"\n  and {more} more" if more > 0 else ""
        raise UsageError(f"The grid {grid.name} cannot be run:{shown}{more_words}")
    return facts


def chosen_clips(dataset: str, home: str | Path | None, limit: int) -> list[Clip]:
    """Return the clips of a dataset; with a limit, a fixed random part of them in their order."""
    clips = find_dataset(dataset, home).clips()
    if not limit or limit >= len(clips):
        return clips
    drawn = generator("subset", dataset, limit).permutation(len(clips))[:limit]
    return [clips[index] for index in sorted(drawn)]


def check_values(block: Block) -> list[str]:
    """Return what is wrong with the values of a block; corpora and models are not looked for."""
    axes, problems = block.axes, list[str]()
    for axis in ("datasets", "backbones", "rules", "snrs"):
        if not axes[axis]:
            problems.append(f"{axis} is empty; name at least one")
    for axis, requirement in _NUMBERS.items():
        for value in axes[axis]:
            is_number = isinstance(value, int | float) and abs(value) < 1e300
            if not is_number and (axis, value) != ("snrs", CLEAN):
                problems.append(f"{requirement}, got {value!r}")
    if any(snr != CLEAN for snr in axes["snrs"]) and not axes["noises"]:
        problems.append("There are SNRs but no noises; name a noise, or use only the SNR 'clean'")
    for axis in ("seeds", "examples", "draws"):
        for value in axes[axis]:
            if not isinstance(value, int) or abs(value) >= 2**63:
                problems.append(f"{axis} must be integers, got {value!r}")
            elif axis != "seeds" and value < 0:
                problems.append(f"{axis} must not be negative, got {value!r}")
    for axis, choices in _CHOICES.items():
        for value in block.names(axis):
            if value not in choices:
                problems.append(str(unknown(axis.removesuffix("s"), value, choices)))
    for name in block.names("mixings"):
        with _noted(problems):
            find_mixing(name)
    for name in block.names("rules"):
        with _noted(problems):
            supplied_setting(Scoring(*split_name(name)))
    return problems


@contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """Append an error in the block to some problems."""
    try:
        yield
    except DriftscoreError as error:
        if str(error) not in problems:
            problems.append(str(error))


def _digest(value: object) -> str:
    """Return a short digest of a JSON value."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _note_dataset(dataset: Dataset, limit: int, facts: Facts, *, plan: bool) -> list[Clip]:
    """Note the digest, the number of clips and the hours of a dataset; return its clips.

    A plan does not generate a dataset that is not there yet: it has no clips then.
    """
    name, timed = dataset.name, dataset.about.timed
    key = f"{name}/{limit}"
    generated = dataset.generated() if plan else None
    if generated is not None:
        facts.clips[key] = min(generated.clips, limit or generated.clips)
        if timed:
            facts.hours[key] = generated.hours * facts.clips[key] / generated.clips
        facts.corpora[key] = f"{name}: {facts.clips[key]:,} clips, generated by the first run"
        return []
    clips = chosen_clips(name, dataset.home, limit)
    if not clips:
        raise UsageError(f"The dataset {name} has no clips")
    content: list[object] = [dataset.labels()]
    content.append([(c.id, c.labels, c.fold, _size(c.path)) for c in clips])
    if timed:
        content.append(detection_settings())
        seconds = [read_soundscape(truth_path(clip.path)).seconds for clip in clips]
        facts.hours[key] = sum(seconds) / 3600
    facts.data[key], facts.clips[key] = _digest(content), len(clips)
    labels = {label for clip in clips for label in clip.labels}
    facts.corpora[key] = f"{name}: {len(clips):,} clips of {len(labels):,} labels"
    return clips


def _check_noise(file: str) -> None:
    """Raise an error for a recording that cannot be used as noise; only its beginning is read."""
    if is_generated(file) and not Path(file).exists():
        return
    for window in windows(file, rate=_RATE, seconds=BLOCK_S):
        if round(window.end_s - window.start_s, 3) < BLOCK_S:
            raise UsageError(too_short(file, window.end_s - window.start_s))
        if window.samples.any():
            return
    raise UsageError(f"{file} is silent: every sample is zero")
