"""MUSAN, its noise part: 930 recordings, from dial tones to thunder, 16 kHz.

    musan/noise/{free-sound,sound-bible}/*.wav

The corpus describes its noises by free text only, so no class is avoided: rain may be mixed into a
rain clip. The environment of all recordings is "noise".
"""

from pathlib import Path

from driftscore.lab.corpora.about import About, Remote
from driftscore.lab.corpora.folders import absent, root
from driftscore.lab.corpora.noises.protocol import NoiseRecording

ABOUT = About(
    title="MUSAN (noise)",
    page="https://www.openslr.org/17/",
    licence="CC BY 4.0 as a collection; single files public domain or Creative Commons",
    citation="D. Snyder, G. Chen and D. Povey. MUSAN: A Music, Speech, and Noise Corpus. 2015. "
    "arXiv:1510.08484",
    files=(
        Remote(
            "musan.tar.gz",
            "https://www.openslr.org/resources/17/musan.tar.gz",
            # Not published on the site; several public loaders state the same sum.
            "0c472d4fc0c5141eca47ad1ffeb2a7df",
        ),
    ),
)
_PARTS = ("noise/free-sound", "noise/sound-bible")


def recordings(home: Path) -> list[NoiseRecording]:
    """Return the noise recordings, sorted by part and name."""
    folder = root(home, *_PARTS)
    return [
        NoiseRecording(str(path), path.stem, "noise")
        for part in _PARTS
        for path in sorted((folder / part).glob("*.wav"))
    ]


def missing(home: Path) -> list[str]:
    """Return everything that the folder lacks."""
    folder = root(home, *_PARTS)
    empty = [f"{part}/*.wav" for part in _PARTS if not any((folder / part).glob("*.wav"))]
    return absent(folder, _PARTS) or empty
