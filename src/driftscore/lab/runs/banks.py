"""Class banks of scorings: each built once per process, its texts encoded once.

The banks of an ablation share most of their noisy prompts, whose embeddings the text cache does not
keep; here they stay in memory while a process works on one model.
"""

import warnings
from collections.abc import Callable, Sequence

from driftscore.backbones import Backbone
from driftscore.bank import ClassBank, VanishingDriftWarning, encode_bank
from driftscore.lab.conditions import Scoring
from driftscore.lab.runs.scorings import needs_of
from driftscore.prompts import compose
from driftscore.settings import load_preset
from driftscore.textcache import TextCache, TextEncoder
from driftscore.vectors import Vector

_KEPT = 24
_MOST_TEXTS = 100_000  # some 200 MB
_banks: dict[tuple[object, ...], ClassBank] = {}


class _RememberingEncoder(TextEncoder):
    """A text encoder that keeps what it encodes for the next bank of the same model."""

    _model = ""
    _texts: dict[str, Vector] = {}  # noqa: RUF012 (shared on purpose)

    def encode(
        self, texts: Sequence[str], advance: Callable[[int], None] = lambda count: None
    ) -> dict[str, Vector]:
        """Return the embeddings of distinct texts by text."""
        known = _RememberingEncoder
        if known._model != self.model or len(known._texts) > _MOST_TEXTS:
            known._model, known._texts = self.model, {}
        new = [text for text in texts if text not in known._texts]
        known._texts |= super().encode(new, advance)
        return {text: known._texts[text] for text in texts}


def bank_for(labels: tuple[str, ...], backbone: Backbone, scoring: Scoring) -> ClassBank:
    """Return the bank of a scoring: with noisy prompts only if its rule needs them."""
    noisy = needs_of(scoring).noisy_prompts
    settings = (scoring.pack, scoring.direction, scoring.reference, noisy)
    key = (labels, backbone.cache_key, *settings)
    if key not in _banks:
        if len(_banks) >= _KEPT:
            _banks.clear()
        _banks[key] = _build(labels, backbone, scoring, noisy=noisy)
    return _banks[key]


def _build(
    labels: tuple[str, ...], backbone: Backbone, scoring: Scoring, *, noisy: bool
) -> ClassBank:
    prompts = load_preset().prompts.changed(
        pack=scoring.pack, direction=scoring.direction, reference=scoring.reference
    )
    with warnings.catch_warnings():
        # A class whose drift vanishes gets no bonus, which is legal and visible in the report.
        warnings.simplefilter("ignore", VanishingDriftWarning)
        encoder = _RememberingEncoder(backbone, cache=TextCache(), progress=False)
        return encode_bank(compose(labels, prompts, noisy=noisy), encoder)
