"""Make a calibration: embed unlabelled recordings, clean and in noise.

    recording -> an excerpt of at most one window  -> clean embedding
                 the same with noise, -5 to 20 dB  -> noisy embedding

Every draw depends only on the place of the recording in the list and on a seed, so the same files
give the same calibration. With an audio cache an interrupted run continues where it stopped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from driftscore.audio.noise import SYNTHETIC, add_at_snr, excerpt, synthetic
from driftscore.audio.recordings import Audio, Recording, describe, read
from driftscore.backbones import Backbone
from driftscore.backbones.vectors import Matrix, Vector
from driftscore.detector import window_and_hop
from driftscore.embedder import Embedded, Embedder
from driftscore.errors import AudioError, DriftscoreError, UsageError
from driftscore.events.tracking import Detection
from driftscore.scoring.calibration import MIN_CLIPS, Calibration
from driftscore.system.progress import progress_bar
from driftscore.version import __version__

SNR_DB = (-5.0, 20.0)
MAX_CLIPS = 1600
"""Clips in a calibration; more of them change little."""
QUIET_S = 7200.0
"""Seconds of a quiet recording that are kept."""
MIN_QUIET_S = 300.0
_EXCERPT_S = 60.0  # what is read of a recording
_NOISE_S = 300.0  # what is read of a noise
_MAX_NOISES = 16


def make_calibration(
    embedder: Embedder,
    recordings: Sequence[Recording],
    noises: Sequence[Recording] = (),
    *,
    most: int = MAX_CLIPS,
    seed: int = 0,
    progress: bool | None = None,
) -> tuple[Calibration, list[str]]:
    """Return a calibration, and the reasons why some recordings could not be used.

    Without `noises` the synthetic ones are used. Of more than `most` recordings a random part is
    taken.
    """
    if most < MIN_CLIPS:
        raise UsageError(f"A calibration needs at least {MIN_CLIPS} clips, got {most}")
    backbone = embedder.backbone
    order = np.random.default_rng([seed, 1]).permutation(len(recordings))[:most]
    chosen = [recordings[index] for index in sorted(order)]
    problems: list[str] = []
    with progress_bar("Calibrating", len(chosen), show=progress) as advance:
        versions = _versions(chosen, noises, backbone, seed, problems)
        rows: list[Matrix] = []
        clean: Embedded | None = None
        for embedded in embedder.embed(versions):
            if clean is None:
                clean = embedded
                continue
            if error := clean.error or embedded.error:
                problems.append(error)
            else:
                rows.append(np.stack([clean.embedding, embedded.embedding]))
            clean = None
            advance(1)
    if len(rows) < MIN_CLIPS:
        first = f"; the first problem: {problems[0]}" if problems else ""
        raise AudioError(
            f"A calibration needs at least {MIN_CLIPS} clips, and {len(rows)} of {len(chosen)} "
            f"recordings could be used{first}"
        )
    made_by = {
        "noises": [describe(noise) for noise in noises] or list(SYNTHETIC),
        "snr_db": list(SNR_DB),
        "seed": seed,
        "driftscore": __version__,
    }
    both = np.stack(rows)
    calibration = Calibration.from_embeddings(both[:, 0], both[:, 1], model=backbone)
    return replace(calibration, made_by={**calibration.made_by, **made_by}), problems


def adapt(
    calibration: Calibration,
    embedder: Embedder,
    recordings: Sequence[Recording],
    *,
    weight: float = 0.5,
) -> tuple[Calibration, list[str]]:
    """Return a calibration adapted to the place where these unlabelled recordings were made.

    Every window counts; of more than `MAX_CLIPS` an evenly spaced part is kept.
    """
    rows: list[Matrix] = []
    problems: list[str] = []
    with progress_bar("Adapting", len(recordings)) as advance:
        for embedded in embedder.embed(recordings):
            if embedded.error:
                problems.append(embedded.error)
            else:
                rows.append(embedded.rows)
            advance(1)
    if not rows:
        raise AudioError(f"None of the {len(recordings)} recordings of the place could be used")
    windows = np.concatenate(rows)
    chosen = windows[np.unique(np.linspace(0, len(windows) - 1, MAX_CLIPS).round().astype(int))]
    return calibration.at_site(chosen, weight=weight), problems


def add_quiet(
    calibration: Calibration, embedder: Embedder, recordings: Sequence[Recording]
) -> tuple[Calibration, list[str]]:
    """Return a calibration with recordings in which no label is present, and problems met.

    Thresholds of events are then set by how often each label would be reported there. Of more than
    `QUIET_S` seconds the first ones are kept.
    """
    window_s, hop_s = window_and_hop(Detection(), embedder.backbone)
    rows: list[Vector] = []
    problems: list[str] = []
    most = round(QUIET_S / hop_s)
    with progress_bar("Quiet windows", most) as advance:
        for recording in recordings:
            try:
                for _, _, row in embedder.slide(recording, window_s=window_s, hop_s=hop_s):
                    rows.append(row)
                    advance(1)
                    if len(rows) == most:
                        break
            except DriftscoreError as error:
                problems.append(f"{describe(recording)}: {error}")
    if len(rows) * hop_s < MIN_QUIET_S:
        first = f"; the first problem: {problems[0]}" if problems else ""
        raise AudioError(
            f"A quiet recording must have at least {MIN_QUIET_S / 60:g} minutes that are not "
            f"digital silence, got {len(rows) * hop_s / 60:.1f}{first}"
        )
    quiet = np.stack(rows).astype(np.float32)
    calibration = replace(calibration, quiet=quiet, quiet_window_s=window_s, quiet_hop_s=hop_s)
    return calibration, problems


def _versions(
    recordings: Sequence[Recording],
    noises: Sequence[Recording],
    backbone: Backbone,
    seed: int,
    problems: list[str],
) -> Iterator[Audio]:
    """Yield each usable recording twice: clean, then in one of the noises, or in a synthetic one.

    A noise is read once while it is in use.
    """
    rate, length = backbone.rate, round(backbone.rate * backbone.seconds)
    read_noise = lru_cache(_MAX_NOISES)(
        lambda number: read(noises[number], rate=rate, seconds=_NOISE_S).samples
    )
    for number, recording in enumerate(recordings):
        rng = np.random.default_rng([seed, 2, number])
        try:
            samples = read(recording, rate=rate, seconds=_EXCERPT_S).samples
            if len(samples) > length:
                samples = excerpt(samples, length, rng)
            if noises:
                noise = excerpt(read_noise(int(rng.integers(len(noises)))), len(samples), rng)
            else:
                name = list(SYNTHETIC)[int(rng.integers(len(SYNTHETIC)))]
                noise = synthetic(name, len(samples), rate, rng)
            noisy = add_at_snr(samples, noise, rng.uniform(*SNR_DB))
        except DriftscoreError as error:
            problems.append(f"{describe(recording)}: {error}")
            continue
        yield Audio(samples, rate)
        yield Audio(noisy, rate)
