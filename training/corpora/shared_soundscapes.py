"""Two soundscapes of two hours with 80 events of 12 words each, made of the shared recordings.

What the detection of events is measured on: recorded places that change every few minutes, events
at 0 to 15 dB, events of other labels, and 20 minutes without any. A seed determines a soundscape
with its words. They are generated once and kept in the cache; the truth is beside each as JSON.

    python -m training.corpora.shared_soundscapes train_1.flac --split train --seed 1

writes one of either split: settings are chosen on `train`, results are reported on `events`.
"""

import argparse
import hashlib
from dataclasses import asdict
from pathlib import Path

from driftscore.lab.conditions import canonical
from driftscore.lab.corpora.about import About, Clip, Generated
from driftscore.lab.corpora.folders import absent, root
from driftscore.lab.corpora.soundscapes.draw import draw
from driftscore.lab.corpora.soundscapes.render import write_soundscape
from driftscore.lab.corpora.soundscapes.truth import (
    VERSION,
    Soundscape,
    SoundscapeRecipe,
    read_soundscape,
    truth_path,
)
from driftscore.storage.files import cache_home, sha256
from training.corpora.recordings import MANIFEST, SPLITS, material, shared_audio

ABOUT = About(
    title="Shared soundscapes",
    page="https://github.com/karoldvl/ESC-50",
    licence="CC0, CC BY or public domain, stated per recording in manifest.csv",
    citation="driftscore, from: K. J. Piczak. ESC: Dataset for Environmental Sound Classification. "
    "ACM Multimedia, 2015. doi:10.1145/2733373.2806390",
    timed=True,
)
RECIPES = (SoundscapeRecipe(seed=1), SoundscapeRecipe(seed=2))
default_home = shared_audio


def clips(home: Path) -> list[Clip]:
    """Return the soundscapes, generating those that are not in the cache yet."""
    listed = []
    for recipe in RECIPES:
        path, soundscape = cached_soundscape(recipe, home=home)
        name = f"{recipe.split}-{recipe.seed}-{soundscape.digest[:8]}"
        listed.append(Clip(path, soundscape.words, None, name))
    return listed


def generated(home: Path) -> Generated:
    """Return how much is generated, without generating it."""
    return Generated(len(RECIPES), sum(recipe.seconds for recipe in RECIPES) / 3600)


def labels(home: Path) -> tuple[str, ...]:
    """Return the words of all soundscapes in alphabetical order."""
    return tuple(sorted({label for clip in clips(home) for label in clip.labels}))


def missing(home: Path) -> list[str]:
    """Return everything that the folder lacks; its recordings are checked when they are used."""
    return absent(root(home, MANIFEST), [MANIFEST])


def cached_soundscape(
    recipe: SoundscapeRecipe, *, home: str | Path | None = None
) -> tuple[Path, Soundscape]:
    """Return the audio and the truth of a recipe from the cache folder, made there if need be.

    The name of the file is a digest of the recipe and of the manifest of the recordings.
    """
    manifest = root(shared_audio() if home is None else Path(home), MANIFEST) / MANIFEST
    key = canonical([VERSION, asdict(recipe), sha256(manifest)])
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    path = cache_home() / "soundscapes" / f"{recipe.split}-{recipe.seed}-{name}.flac"
    if not (path.is_file() and truth_path(path).is_file()):
        recordings = material(recipe.split, home)
        write_soundscape(draw(recipe, recordings), path, recordings)
    return path, read_soundscape(truth_path(path))


def main() -> None:
    """Write a soundscape of the shared recordings, and its truth beside it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--split", choices=SPLITS, default=SPLITS[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=RECIPES[0].seconds)
    parser.add_argument("--words", help="labels with commas; default: 12 are drawn")
    parser.add_argument("--events", type=int, default=RECIPES[0].events)
    parser.add_argument("--others", type=int, default=RECIPES[0].others)
    parser.add_argument("--quiet", type=float, default=RECIPES[0].quiet_s)
    options = parser.parse_args()
    words = tuple(options.words.split(",")) if options.words else RECIPES[0].words
    recipe = SoundscapeRecipe(
        options.split, options.seconds, options.seed, words, options.events, options.others,
        options.quiet,
    )  # fmt: skip
    recordings = material(options.split)
    write_soundscape(draw(recipe, recordings), options.out, recordings)


if __name__ == "__main__":
    main()
