"""Weight several clean prompts so that unlabelled clips are labelled decisively.

W_k = sum_j b_j t_jk, with t_jk the embedding of template j for class k and weights b on the
simplex that minimise the mean entropy of softmax(scale * sum_j b_j z_i . t_jk) over the clips i of
a calibration (the batch form of El Khoury et al. 2026, arXiv 2601.05011). The form that chooses
weights for each single clip is not affine and is not offered.
"""

import numpy as np
from numpy.typing import NDArray

from driftscore.scoring.bank import ClassBank
from driftscore.scoring.calibration import Calibration
from driftscore.scoring.head import Head
from driftscore.scoring.rules.prompt_ensemble import PACK, texts
from driftscore.scoring.rules.protocol import Needs
from driftscore.text.cache import TextEncoder

SHORT = "Entropy"
NEEDS = Needs.TEXT | Needs.CALIBRATION
SCALE = 20.0
_STEPS = 200
_RATE = 5.0


def compile(
    bank: ClassBank,
    *,
    text: TextEncoder,
    calibration: Calibration,
    sentences: str = PACK,
    scale: float = SCALE,
) -> Head:
    """Return the head of the entropy-weighted prompts."""
    rows = text(texts(bank.labels, sentences=sentences)).astype(np.float64)
    prompts = rows.reshape(len(bank.labels), -1, bank.dim)
    clips = np.concatenate([calibration.clean, calibration.noisy]).astype(np.float64)
    logits = np.einsum("id,kjd->ijk", clips, prompts, optimize=True)
    shares = entropy_weights(logits, scale)
    weights = np.einsum("j,kjd->kd", shares, prompts)
    return Head(bank.labels, weights.astype(np.float32))


def entropy_weights(logits: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Return the weights of templates that minimise the mean entropy, by exponentiated gradient.

    `logits` are clips x templates x classes.
    """
    count = logits.shape[1]
    weights = np.full(count, 1.0 / count)
    best, least = weights, np.inf
    for _ in range(_STEPS):
        scores = scale * np.einsum("j,ijk->ik", weights, logits)
        scores -= scores.max(axis=1, keepdims=True)
        shares = np.exp(scores)
        shares /= shares.sum(axis=1, keepdims=True)
        surprise = -np.log(shares + 1e-300)
        entropy = (shares * surprise).sum(axis=1, keepdims=True)
        if entropy.mean() < least:
            best, least = weights, float(entropy.mean())
        # d entropy / d score_k = p_k (surprise_k - entropy)
        slope = shares * (surprise - entropy) * scale
        gradient = np.einsum("ik,ijk->j", slope, logits) / len(logits)
        weights = weights * np.exp(-_RATE * (gradient - gradient.mean()))
        weights /= weights.sum()
    return best
