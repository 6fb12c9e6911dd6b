"""Make a calibration: embed unlabelled recordings, clean and in noise, and choose settings.

    recording -> an excerpt of at most one window  -> clean embedding
                 the same with noise, -5 to 20 dB  -> noisy embedding

Every draw depends only on the place of the recording in the list and on a seed, so the same files
give the same calibration. With an audio cache an interrupted run continues where it stopped.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from driftscore.audio import Audio, Recording, Samples, describe, read
from driftscore.backbones import Backbone
from driftscore.bank import ClassBank, build_bank
from driftscore.calibration import FEWEST, Calibration, agreement
from driftscore.detector import window_and_hop
from driftscore.embedder import Embedder
from driftscore.errors import AudioError, DriftscoreError, UsageError
from driftscore.events import Detection
from driftscore.head import Head
from driftscore.noise import SYNTHETIC, add_at_snr, excerpt, synthetic
from driftscore.progress import progress_bar
from driftscore.rules import Rule, compile_rule, find_rule
from driftscore.textcache import TextCache
from driftscore.vectors import Matrix, Vector
from driftscore.version import __version__

SNR_DB = (-5.0, 20.0)
MOST = 512
"""Clips in a calibration; more of them change little."""
CANDIDATES = ("cosine", "whiten", "denoise")
"""Rules among which a calibration chooses its default, simplest first."""
EVERYDAY = (
    "dog bark", "cat meow", "bird song", "crow", "rooster", "cow", "sheep", "horse", "frog",
    "insects", "owl", "speech", "laughter", "applause", "coughing", "sneezing", "snoring",
    "footsteps", "baby crying", "singing", "crowd", "door knock", "door creaking", "door slam",
    "doorbell", "alarm clock", "telephone ringing", "keyboard typing", "mouse click",
    "vacuum cleaner", "washing machine", "hair dryer", "toilet flush", "water tap", "dishes",
    "frying", "glass breaking", "sawing", "drilling", "hammering", "chainsaw", "lawn mower",
    "engine idling", "car horn", "siren", "motorcycle", "truck", "bus", "train", "aeroplane",
    "helicopter", "bicycle bell", "church bell", "fireworks", "gunshot", "explosion", "thunder",
    "rain", "wind", "waves", "stream", "fire crackling", "guitar", "piano", "drums", "violin",
)  # fmt: skip
"""Labels with which the settings of rules are compared; no recording is labelled with them."""
QUIET_S = 7200.0
"""Seconds of a quiet recording that are kept."""
SHORTEST_QUIET_S = 300.0
_WORTH = 0.01  # a rule must agree this much more often than a simpler one to be preferred
_EXCERPT_S = 60.0  # what is read of a recording
_NOISE_S = 300.0  # what is read of a noise
_KEPT_NOISES = 16


def make_calibration(
    embedder: Embedder,
    recordings: Sequence[Recording],
    noises: Sequence[Recording] = (),
    *,
    most: int = MOST,
    seed: int = 0,
    progress: bool | None = None,
) -> tuple[Calibration, list[str]]:
    """Return a calibration, and the reasons why some recordings could not be used.

    Without `noises` the synthetic ones are used. Of more than `most` recordings a random part is
    taken.
    """
    if most < FEWEST:
        raise UsageError(f"A calibration needs at least {FEWEST} clips, got {most}")
    backbone = embedder.backbone
    order = np.random.default_rng([seed, 1]).permutation(len(recordings))[:most]
    chosen = [recordings[index] for index in sorted(order)]
    problems: list[str] = []
    with progress_bar("Calibrating", len(chosen), show=progress) as advance:
        versions = _versions(chosen, NoiseSource(noises, backbone.rate), backbone, seed, problems)
        rows = list(_pairs(embedder, versions, problems, advance))
    if len(rows) < FEWEST:
        first = f"; the first problem: {problems[0]}" if problems else ""
        raise AudioError(
            f"A calibration needs at least {FEWEST} clips, and {len(rows)} of {len(chosen)} "
            f"recordings could be used{first}"
        )
    made_by = {
        "backbone": backbone.name,
        "fingerprint": backbone.fingerprint,
        "clips": len(rows),
        "noises": [describe(noise) for noise in noises] or list(SYNTHETIC),
        "snr_db": list(SNR_DB),
        "seed": seed,
        "driftscore": __version__,
    }
    clean, noisy = np.stack(rows).transpose(1, 0, 2)
    made = Calibration(clean.copy(), noisy.copy(), made_by=made_by)
    return choose_settings(made, backbone, cache=embedder.text_cache), problems


def adapt(
    calibration: Calibration,
    embedder: Embedder,
    recordings: Sequence[Recording],
    *,
    weight: float = 0.5,
    progress: bool | None = None,
) -> tuple[Calibration, list[str]]:
    """Return a calibration adapted to the place where these unlabelled recordings were made.

    Every window counts; of more than `MOST` an evenly spaced part is kept.
    """
    rows: list[Matrix] = []
    problems: list[str] = []
    with progress_bar("Adapting", len(recordings), show=progress) as advance:
        for embedded in embedder.embed(recordings):
            if embedded.error:
                problems.append(embedded.error)
            else:
                rows.append(embedded.rows)
            advance(1)
    if not rows:
        raise AudioError(f"None of the {len(recordings)} recordings of the place could be used")
    windows = np.concatenate(rows)
    kept = windows[np.unique(np.linspace(0, len(windows) - 1, MOST).round().astype(int))]
    return calibration.at_site(kept, weight=weight), problems


def add_quiet(
    calibration: Calibration,
    embedder: Embedder,
    recordings: Sequence[Recording],
    *,
    progress: bool | None = None,
) -> tuple[Calibration, list[str]]:
    """Return a calibration with recordings in which no label is present, and problems met.

    Thresholds of events are then set by how often each label would be reported there. Of more than
    `QUIET_S` seconds the first ones are kept.
    """
    window_s, hop_s = window_and_hop(Detection(), embedder.backbone)
    rows: list[Vector] = []
    problems: list[str] = []
    most = round(QUIET_S / hop_s)
    with progress_bar("Quiet windows", most, show=progress) as advance:
        for recording in recordings:
            try:
                for _, _, row in embedder.slide(recording, window_s=window_s, hop_s=hop_s):
                    rows.append(row)
                    advance(1)
                    if len(rows) == most:
                        break
            except DriftscoreError as error:
                problems.append(f"{describe(recording)}: {error}")
    if len(rows) * hop_s < SHORTEST_QUIET_S:
        first = f"; the first problem: {problems[0]}" if problems else ""
        raise AudioError(
            f"A quiet recording must have at least {SHORTEST_QUIET_S / 60:g} minutes that are not "
            f"digital silence, got {len(rows) * hop_s / 60:.1f}{first}"
        )
    return calibration.with_quiet(np.stack(rows), window_s=window_s, hop_s=hop_s), problems


def choose_settings(
    calibration: Calibration,
    backbone: Backbone,
    *,
    candidates: Iterable[str] = CANDIDATES,
    cache: TextCache | None = None,
) -> Calibration:
    """Return the calibration with the settings of rules, and the rule, of highest agreement."""
    bank = build_bank(EVERYDAY, backbone, cache=cache, drifts=False)
    settings: dict[str, dict[str, object]] = {}
    found: dict[str, float] = {}
    for rule in map(find_rule, candidates):
        measured = [
            (agreement(_standardised(rule, bank, values), calibration), values)
            for values in _choices(rule)
        ]
        found[rule.name], best = max(measured, key=lambda pair: pair[0])
        if best:
            settings[rule.name] = best
    default = _simplest(found)
    why = ", ".join(f"{name} {share:.1%}" for name, share in found.items())
    made_by = {**calibration.made_by, "default_why": f"agreement in noise: {why}"}
    return replace(calibration, settings=settings, default_rule=default, made_by=made_by)


def _simplest(agreements: dict[str, float]) -> str:
    """Return the rule to use: a later one must agree clearly more often than an earlier one."""
    best = next(iter(agreements))
    for name, share in agreements.items():
        if share > agreements[best] + _WORTH:
            best = name
    return best


def _choices(rule: Rule) -> list[dict[str, object]]:
    """Return every combination of the values that a rule offers."""
    return [
        dict(zip(rule.choices, values, strict=True)) for values in product(*rule.choices.values())
    ]


def _standardised(
    rule: Rule, bank: ClassBank, settings: dict[str, object]
) -> Callable[[Calibration], Head]:
    return lambda calibration: compile_rule(
        rule, bank, settings, calibration=calibration, standardised=True
    )


class NoiseSource:
    """Excerpts of noise: of recordings, each read once while it is in use, or synthetic ones."""

    def __init__(self, recordings: Sequence[Recording], rate: int) -> None:
        self.recordings = recordings
        self.rate = rate
        self._kept: OrderedDict[int, Samples] = OrderedDict()

    def draw(self, length: int, rng: np.random.Generator) -> Samples:
        """Return `length` samples of a random noise."""
        if not self.recordings:
            name = list(SYNTHETIC)[int(rng.integers(len(SYNTHETIC)))]
            return synthetic(name, length, self.rate, rng)
        return excerpt(self._read(int(rng.integers(len(self.recordings)))), length, rng)

    def _read(self, number: int) -> Samples:
        if number not in self._kept:
            recording = self.recordings[number]
            self._kept[number] = read(recording, rate=self.rate, seconds=_NOISE_S).samples
            if len(self._kept) > _KEPT_NOISES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(number)
        return self._kept[number]


def _versions(
    recordings: Sequence[Recording],
    noises: NoiseSource,
    backbone: Backbone,
    seed: int,
    problems: list[str],
) -> Iterator[Audio]:
    """Yield each usable recording twice: clean, then in noise."""
    rate, length = backbone.rate, round(backbone.rate * backbone.seconds)
    for number, recording in enumerate(recordings):
        rng = np.random.default_rng([seed, 2, number])
        try:
            samples = read(recording, rate=rate, seconds=_EXCERPT_S).samples
            if len(samples) > length:
                samples = excerpt(samples, length, rng)
            noise = noises.draw(len(samples), rng)
            noisy = add_at_snr(samples, noise, rng.uniform(*SNR_DB))
        except DriftscoreError as error:
            problems.append(f"{describe(recording)}: {error}")
            continue
        yield Audio(samples, rate)
        yield Audio(noisy, rate)


def _pairs(
    embedder: Embedder,
    versions: Iterable[Audio],
    problems: list[str],
    advance: Callable[[int], None],
) -> Iterator[Matrix]:
    """Yield the clean and the noisy embedding of each recording: (2, d)."""
    first: Vector | None = None
    errors: list[str] = []
    for number, embedded in enumerate(embedder.embed(versions)):
        if number % 2 == 0:
            first, errors = (None if embedded.error else embedded.embedding), [embedded.error]
            continue
        errors.append(embedded.error)
        if first is not None and not embedded.error:
            yield np.stack([first, embedded.embedding])
        else:
            problems.append(next(error for error in errors if error))
        advance(1)
