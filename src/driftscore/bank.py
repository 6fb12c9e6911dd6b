"""ClassBank: what a label set looks like to one backbone, clean and in noise.

    C_c     = E("the sound of {c}")                  prototypes, C x d, unit rows
    n_c,p,t = E(T_t(c, p)) - C_c                     a drift for each phrase and template
    nbar_c  = mean over p, t of n_c,p,t              radii: |nbar_c|
    d_c     = nbar_c / |nbar_c|                      drifts, C x d, unit rows
    m_c     = mean over p, t of E(T_t(c, p))         noisy_means, C x d, not unit

`reference="matched"` subtracts the template's own sentence without its noise part instead
of C_c; `direction="svd"` takes the top right singular vector of a class's drifts
(uncentred), signed to agree with their mean. A class whose drift vanishes has a drift of
zeros: no bonus, and a warning.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore import __version__
from driftscore.backbones import Backbone, check_model
from driftscore.errors import UsageError
from driftscore.presets import DEFAULT, bank_settings
from driftscore.prompts import (
    check_labels,
    check_template,
    compositions,
    fill,
    load_pack,
    words,
)
from driftscore.tensorfile import read_tensors, write_tensors
from driftscore.textcache import TextCache, TextEncoder
from driftscore.vectors import VANISHING, Matrix, Vector, matrix


class VanishingDriftWarning(UserWarning):
    """A class whose noisy prompts do not move its embedding: DAS gives it no bonus."""


@dataclass(frozen=True, eq=False)
class ClassBank:
    """Prototypes, drifts and radii of a label set on one backbone."""

    labels: tuple[str, ...]
    prototypes: Matrix
    drifts: Matrix
    radii: Vector
    noisy_means: Matrix
    made_by: Mapping[str, Any] = field(default_factory=dict)
    """All that made it: model, fingerprint, prompt, phrases, templates, settings, version."""

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return int(self.prototypes.shape[1])

    def save(self, path: str | PathLike[str]) -> None:
        """Write the bank as safetensors, with all that made it in its metadata."""
        tensors = {
            "prototypes": self.prototypes,
            "drifts": self.drifts,
            "radii": self.radii,
            "noisy_means": self.noisy_means,
        }
        about = {"labels": list(self.labels), "made_by": dict(self.made_by)}
        write_tensors(path, tensors, kind="bank", about=about)

    @staticmethod
    def load(path: str | PathLike[str], backbone: Backbone | None = None) -> "ClassBank":
        """Read a bank; with a backbone, refuse one that another model made."""
        tensors, about = read_tensors(
            path, kind="bank", needs=("prototypes", "drifts", "radii", "noisy_means")
        )
        bank = ClassBank(tuple(about["labels"]), **tensors, made_by=about["made_by"])
        if backbone is not None:
            check_model(bank.made_by, backbone, what=f"The bank {Path(path)}")
        return bank


def build_bank(
    labels: Iterable[str],
    backbone: Backbone,
    *,
    preset: str = DEFAULT,
    prompt: str | None = None,
    pack: str | PathLike[str] | None = None,
    templates: str | PathLike[str] | None = None,
    reference: str | None = None,
    direction: str | None = None,
    skip_same: bool | None = None,
    cache: TextCache | None = None,
    drifts: bool = True,
    progress: bool | None = None,
) -> ClassBank:
    """Encode the prompts of `labels` and return their prototypes and drifts.

    A setting left at None is the preset's; the default preset is the paper's.
    `skip_same` leaves out a phrase that equals the class ("rain with rain"). Without `drifts`
    only the clean prompts are encoded, two hundred times fewer texts: enough for most rules.
    """
    given = {
        "prompt": prompt,
        "pack": pack,
        "templates": templates,
        "reference": reference,
        "direction": direction,
        "skip_same": skip_same,
    }
    settings = bank_settings(preset) | {k: v for k, v in given.items() if v is not None}
    for key, choices in (("reference", ("prompt", "matched")), ("direction", ("mean", "svd"))):
        if settings[key] not in choices:
            raise UsageError(f"{key} is {' or '.join(choices)}, not {settings[key]!r}")
    names = check_labels(labels)
    check_template(settings["prompt"], needs="c")
    phrase_pack = load_pack(settings["pack"], kind="phrases")
    template_pack = load_pack(settings["templates"], kind="templates")
    for template in template_pack.entries:
        check_template(template.text, needs="cp")
        if settings["reference"] == "matched" and not template.matched:
            raise UsageError(
                f"The template {template.text!r} has no `matched` sentence, "
                'which reference="matched" needs'
            )

    prompts = [fill(settings["prompt"], c=words(label)) for label in names]
    noisy: list[list[str]] = []
    clean: list[list[str]] = []
    for label, clean_prompt in zip(names, prompts, strict=True):
        pairs = compositions(
            words(label),
            phrase_pack.texts,
            template_pack.entries,
            skip_same=settings["skip_same"],
        )
        noisy.append([text for text, _ in pairs])
        clean.append(
            [fill(t.matched or "", c=words(label)) for _, t in pairs]
            if settings["reference"] == "matched"
            else [clean_prompt] * len(pairs)
        )
    encode = TextEncoder(backbone, cache=cache, progress=progress)
    if not drifts:
        noisy = clean = []
    vector = _lookup(encode, prompts, noisy, clean)
    nothing = np.zeros(backbone.dim, np.float32)
    rows = [
        _drift(vector, noisy[c], clean[c], direction=settings["direction"])
        if drifts
        else (nothing, 0.0, nothing)
        for c in range(len(names))
    ]
    radii = np.array([radius for _, radius, _ in rows], np.float32)
    for label, radius in zip(names, radii, strict=True):
        if drifts and radius < VANISHING:
            warnings.warn(
                f"The drift of {label!r} vanishes: its noisy prompts do not move its embedding, "
                "so DAS gives it no bonus",
                VanishingDriftWarning,
                stacklevel=2,
            )
    return ClassBank(
        names,
        np.stack([vector[text] for text in prompts]),
        np.stack([drift for drift, _, _ in rows]),
        radii,
        np.stack([mean for _, _, mean in rows]),
        made_by={
            "backbone": backbone.name,
            "fingerprint": backbone.fingerprint,
            "preset": preset,
            **{key: value if key == "skip_same" else str(value) for key, value in settings.items()},
            "phrases": list(phrase_pack.texts),
            "template_texts": list(template_pack.texts),
            **({} if drifts else {"drifts": "not encoded"}),
            "driftscore": __version__,
        },
    )


def _lookup(
    encode: TextEncoder, prompts: Sequence[str], *groups: Sequence[Sequence[str]]
) -> dict[str, Vector]:
    """Encode every text once, all classes together, and return the vectors by text."""
    texts = list(dict.fromkeys([*prompts, *(t for group in groups for ts in group for t in ts)]))
    rows = matrix(encode(texts), what="Text embeddings")
    return dict(zip(texts, rows, strict=True))


def _drift(
    vector: Mapping[str, Vector], noisy: Sequence[str], clean: Sequence[str], *, direction: str
) -> tuple[Vector, float, Vector]:
    """Return a class's unit drift (zeros if it vanishes), its radius and its noisy mean."""
    sentences = np.stack([vector[text] for text in noisy]).astype(np.float64)
    drifts = sentences - np.stack([vector[text] for text in clean])
    mean = drifts.mean(axis=0)
    radius = float(np.linalg.norm(mean))
    if radius < VANISHING:
        towards = np.zeros_like(mean)
    elif direction == "mean":
        towards = mean / radius
    else:
        towards = _top_direction(drifts, mean)
    return towards.astype(np.float32), radius, sentences.mean(axis=0).astype(np.float32)


def _top_direction(drifts: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the top right singular vector of the drifts, signed to agree with their mean."""
    top: NDArray[np.float64] = np.linalg.svd(drifts, full_matrices=False)[2][0]
    return top if top @ mean >= 0 else -top
