"""Class banks of scorings: each built once per process, its texts encoded once."""

import warnings

from driftscore.backbones import Backbone
from driftscore.bank import ClassBank, VanishingDriftWarning, build_bank
from driftscore.lab.conditions import Scoring
from driftscore.lab.runs.scorings import needs_of
from driftscore.settings import load_preset
from driftscore.textcache import TextCache

_KEPT = 24
_banks: dict[tuple[object, ...], ClassBank] = {}


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
        return build_bank(
            labels, backbone, settings=prompts, cache=TextCache(), drifts=noisy, progress=False
        )
