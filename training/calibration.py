"""Make the calibrations that come with `mini` and `mn04`: `python -m training.calibration`.

1,600 segments of the pool that the audio tower is trained on (`training.collect`), drawn by the
weights of `training.teacher`, each clean and in noise: steady recorded segments of the pool (of its
kinds `ambient` and `esc50`; game effects as noise were worse on the sets that are chosen on), and
synthetic noise. No label is used. Near-duplicates of test clips, of test noises and of the label
sets are not drawn (`twins` of `training.teacher`), so no test recording and no test noise is in it.
Nor are clips of sources of speech and music: they would be a tenth of all, and thresholds of these
words, which are multiples of a label's spread on other sounds, would be too high.

The settings of the rule are those of the recipe until `python -m training.choose` chooses others.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from driftscore import Audio, Embedder, load_backbone
from driftscore.audio.noise import SYNTHETIC, synthetic
from driftscore.calibrate import make_calibration
from training.choose import MODELS
from training.collect import RATE, WORK, read_segments
from training.mixtures import VALIDATION_PACKAGE
from training.teacher import samples_of

CLIPS, NOISES, SYNTHETIC_SHARE = 1600, 400, 0.1
MIN_SECONDS, MIN_NOISE_SECONDS = 0.5, 4.0
LEFT_OUT, NOISE_KINDS = ("speech", "music"), ("ambient", "esc50")
SEED = 5
_NOISE_SECONDS = 10.0


def clips_and_noises(rate: int) -> tuple[list[Audio], list[Audio], list[str]]:
    """Return the recordings of a calibration, its noises, and the sources of both."""
    with np.load(WORK / "teacher.npz") as file:
        weights, steady = file["weights"], file["steady"]
    segments = read_segments()[: len(weights)]
    seconds = np.array([segment.length for segment in segments]) / RATE
    kept_apart = np.array([segment.package == VALIDATION_PACKAGE for segment in segments])
    rng = np.random.default_rng(SEED)

    def drawn(allowed: np.ndarray, count: int) -> list[int]:
        chances = weights * allowed * ~kept_apart
        chosen = rng.choice(len(weights), count, replace=False, p=chances / chances.sum())
        return sorted(int(number) for number in chosen)

    kinds = np.array([segment.kind for segment in segments])
    is_noise = steady & np.isin(kinds, NOISE_KINDS)
    noises = drawn(is_noise & (seconds >= MIN_NOISE_SECONDS), NOISES)
    others = ~np.isin(kinds, LEFT_OUT)
    others[noises] = False
    clips = drawn(others & (seconds >= MIN_SECONDS), CLIPS)
    audio = [
        [Audio(samples_of(segments[n].start, segments[n].length), RATE) for n in numbers]
        for numbers in (clips, noises)
    ]
    for number in range(round(SYNTHETIC_SHARE * NOISES)):
        name = list(SYNTHETIC)[number % len(SYNTHETIC)]
        of_noise = np.random.default_rng([7, number])
        audio[1].append(Audio(synthetic(name, round(_NOISE_SECONDS * rate), rate, of_noise), rate))
    sources = sorted({segments[number].package for number in (*clips, *noises)})
    return audio[0], audio[1], sources


def make(name: str, folder: Path) -> None:
    """Write the calibration of a model."""
    with Embedder(load_backbone(name)) as embedder:
        clips, noises, sources = clips_and_noises(embedder.backbone.rate)
        made, problems = make_calibration(embedder, clips, noises, most=CLIPS, progress=True)
    about = {
        "clips": len(made.clean),
        "sources": sources,
        "noises": f"{NOISES} steady segments of these sources, and synthetic noise; no test noise",
    }
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"{name}.safetensors"
    replace(made, made_by={**made.made_by, **about}).save(path)
    size = path.stat().st_size / 1e6
    print(f"{name}: {len(made.clean)} clips, {len(problems)} problems, {size:.2f} MB in {path}")


def main() -> None:
    """Make the calibrations of the models named, or of both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("models", nargs="*", default=["mini", "mn04"])
    parser.add_argument("--out", type=Path, default=MODELS, help="folder of the calibrations")
    options = parser.parse_args()
    for name in options.models:
        make(name, options.out)


if __name__ == "__main__":
    main()
