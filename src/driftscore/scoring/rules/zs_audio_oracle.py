"""Lower each class by the very background mixed into the clip (Acevedo's ZS-Audio, an oracle).

score = z . C_c - tau * (g . C_c), g the embedding of the background file of this one clip.
Outside a benchmark nobody has g, and the head is good for that clip alone.
"""

from driftscore.backbones.vectors import Matrix
from driftscore.errors import UsageError
from driftscore.scoring.bank import ClassBank
from driftscore.scoring.head import Head
from driftscore.scoring.rules import zs_audio
from driftscore.scoring.rules.protocol import Needs

SHORT = "ZS-A oracle"
NEEDS = Needs.BACKGROUND


def compile(bank: ClassBank, *, background: Matrix, tau: float = 0.5) -> Head:
    """Return the head for the one clip that `background` (1 x d) was mixed into."""
    if len(background) != 1:
        raise UsageError(
            f"zs_audio_oracle takes the one background of one clip, not {len(background)}; "
            "for the mean of many use zs_audio"
        )
    return zs_audio.compile(bank, noise=background, tau=tau)
