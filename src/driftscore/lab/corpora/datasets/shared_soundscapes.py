"""Two soundscapes of two hours with 80 events of 12 words each, made of the shared recordings.

What the detection of events is measured on: recorded places that change every few minutes, events
at 0 to 15 dB, events of other labels, and 20 minutes without any. A seed determines a soundscape
with its words; `driftscore lab soundscape --seed 1` writes the first. They are generated once and
kept in the cache; the truth is beside each as JSON.
"""

from pathlib import Path

from driftscore.lab.corpora.about import About, Clip, Generated
from driftscore.lab.corpora.folders import absent, require, root
from driftscore.lab.corpora.places import shared_audio
from driftscore.lab.corpora.soundscapes.rendering import cached_soundscape
from driftscore.lab.corpora.soundscapes.truth import SoundscapeRecipe

ABOUT = About(
    title="Shared soundscapes",
    page="https://github.com/karoldvl/ESC-50",
    licence="CC0, CC BY or public domain, stated per recording in manifest.csv",
    citation="driftscore, from: K. J. Piczak. ESC: Dataset for Environmental Sound Classification. "
    "ACM Multimedia, 2015. doi:10.1145/2733373.2806390",
    timed=True,
)
RECIPES = (SoundscapeRecipe(seed=1), SoundscapeRecipe(seed=2))


def default_home() -> Path:
    """Return the folder of the shared recordings."""
    return shared_audio()


def clips(home: str | Path) -> list[Clip]:
    """Return the soundscapes, generating those that are not in the cache yet."""
    require(ABOUT, home, missing(home))
    found = []
    for recipe in RECIPES:
        path, made = cached_soundscape(recipe, home=home)
        found.append(
            Clip(path, made.words, None, f"{recipe.split}-{recipe.seed}-{made.digest[:8]}")
        )
    return found


def generated(home: str | Path) -> Generated:
    """Return how much is generated, without generating it."""
    require(ABOUT, home, missing(home))
    return Generated(len(RECIPES), sum(recipe.seconds for recipe in RECIPES) / 3600)


def labels(home: str | Path) -> tuple[str, ...]:
    """Return the words of all soundscapes in alphabetical order."""
    return tuple(sorted({label for clip in clips(home) for label in clip.labels}))


def missing(home: str | Path) -> list[str]:
    """Return everything that the folder lacks; its recordings are checked when they are used."""
    return absent(root(home, "manifest.csv"), ["manifest.csv"])
