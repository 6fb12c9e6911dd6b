"""MUSAN, its noise part: 930 recordings, from dial tones to thunder, 16 kHz.

    musan/noise/{free-sound,sound-bible}/*.wav

The corpus labels its noises by free text only, so no class is avoided: a rain clip may meet
rain. The environment is "noise" for all, as nothing better is known.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from driftscore.lab.corpora import About, Remote, absent, require, root
from driftscore.lab.noises import Recording, sample_recording
from driftscore.lab.sounds import Stretch

ABOUT = About(
    title="MUSAN (noise)",
    page="https://www.openslr.org/17/",
    licence="CC BY 4.0 as a whole; single files public domain or Creative Commons",
    citation="D. Snyder, G. Chen and D. Povey. MUSAN: A Music, Speech, and Noise Corpus. 2015. "
    "arXiv:1510.08484",
    files=(
        Remote(
            "musan.tar.gz",
            "https://www.openslr.org/resources/17/musan.tar.gz",
            # Not on the site itself; the same sum stands in several public loaders.
            "0c472d4fc0c5141eca47ad1ffeb2a7df",
        ),
    ),
)
_PARTS = ("noise/free-sound", "noise/sound-bible")


def sample(
    seconds: float,
    rate: int,
    rng: np.random.Generator,
    *,
    home: str | Path | None = None,
    avoid: Iterable[str] = (),
) -> Stretch:
    """Draw a stretch of one of the noises."""
    return sample_recording(sys.modules[__name__], seconds, rate, rng, home=home, avoid=avoid)


def recordings(home: str | Path) -> list[Recording]:
    """Return the noise recordings, by part and name."""
    require(ABOUT, home, missing(home))
    place = root(home, *_PARTS)
    return [
        Recording(str(path), path.stem, "noise")
        for part in _PARTS
        for path in sorted((place / part).glob("*.wav"))
    ]


def missing(home: str | Path) -> list[str]:
    """Return what the folder lacks."""
    place = root(home, *_PARTS)
    empty = [f"{part}/*.wav" for part in _PARTS if not any((place / part).glob("*.wav"))]
    return absent(place, _PARTS) or empty
