"""The model that comes with the package: a few megabytes, nothing to download.

    samples at 32 kHz -> log-mel -> audio tower -> 527 unit dimensions, one per AudioSet tag
    English text -> pieces -> text tower -> the same 527 dimensions

Both towers were trained by `training/` (see docs/model-card.md). Their checksums are verified when
they are loaded.
"""

from driftscore.backbones.mini.model import HOME, MANIFEST, Mini, load

__all__ = ["HOME", "MANIFEST", "Mini", "load"]
