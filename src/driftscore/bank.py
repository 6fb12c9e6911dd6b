"""ClassBank: the prompts of a label set, clean and in noise, as one backbone embeds them.

    C_c     = E("the sound of {c}")                  prototypes, C x d, unit rows
    n_c,p,t = E(T_t(c, p)) - C_c                     one drift per phrase and template
    nbar_c  = mean over p, t of n_c,p,t              radii: |nbar_c|
    d_c     = nbar_c / |nbar_c|                      drifts, C x d, unit rows
    m_c     = mean over p, t of E(T_t(c, p))         noisy_means, C x d, not unit

`reference="matched"` subtracts the template's own sentence without its noise part instead of C_c;
`direction="svd"` takes the top right singular vector of the drifts of a class (uncentred), signed
to agree with their mean. A class whose drift vanishes has a drift of zeros and a warning says so.

Building a bank has two steps: `prompts.compose` writes the texts, `encode_bank` encodes them. The
statistics of each label are kept in the text cache, so that a label is encoded once per model.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones import Backbone, check_model
from driftscore.errors import FormatError
from driftscore.progress import progress_bar
from driftscore.prompts import BankTexts, LabelTexts, compose, texts_digest
from driftscore.schema import anything, flag, items, mapping, table, text
from driftscore.settings import DEFAULT_PRESET, Preset, PromptSettings, load_preset
from driftscore.tensorfile import read_tensors, write_tensors
from driftscore.textcache import TextCache, TextEncoder
from driftscore.vectors import VANISHING, Matrix, Vector
from driftscore.version import __version__

_GROUP = 16
"""Labels whose noisy prompts are encoded together and then stored: what an interrupt can lose."""


class VanishingDriftWarning(UserWarning):
    """The noisy prompts of a class do not move its embedding: DAS has no effect on it."""


@dataclass(frozen=True, eq=False)
class ClassBank:
    """Prototypes, drifts and radii of a label set on one backbone."""

    labels: tuple[str, ...]
    prototypes: Matrix
    drifts: Matrix
    radii: Vector
    noisy_means: Matrix
    made_by: Mapping[str, object] = field(default_factory=dict)
    """Everything that made it: model, fingerprint, prompt, phrases, templates, version."""
    has_drifts: bool = True
    """Whether the noisy prompts were encoded; without them drifts and noisy means are zeros."""

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return int(self.prototypes.shape[1])

    def save(self, path: str | PathLike[str]) -> None:
        """Write the bank as safetensors, with everything that made it in its metadata."""
        tensors = {
            "prototypes": self.prototypes,
            "drifts": self.drifts,
            "radii": self.radii,
            "noisy_means": self.noisy_means,
        }
        about = {
            "labels": list(self.labels),
            "made_by": dict(self.made_by),
            "has_drifts": self.has_drifts,
        }
        write_tensors(path, tensors, kind="bank", about=about)

    @staticmethod
    def load(path: str | PathLike[str], backbone: Backbone | None = None) -> "ClassBank":
        """Read a bank; with a backbone, refuse one that another model made."""
        tensors, about = read_tensors(
            path,
            kind="bank",
            needs=("prototypes", "drifts", "radii", "noisy_means"),
            about=_ABOUT,
        )
        _check_shapes(tensors, len(about["labels"]), Path(path))
        bank = ClassBank(
            tuple(about["labels"]),
            **tensors,
            made_by=about["made_by"],
            # Version 0.1 noted it in what made the bank.
            has_drifts=about.get("has_drifts", "drifts" not in about["made_by"]),
        )
        if backbone is not None:
            check_model(bank.made_by, backbone, what=f"The bank {Path(path)}")
        return bank


_ABOUT = table(
    {"labels": items(text, fewest=1), "made_by": mapping(anything)},
    {"has_drifts": flag},
    open_=True,
)


def _check_shapes(tensors: Mapping[str, NDArray[np.generic]], labels: int, path: Path) -> None:
    """Refuse a file whose arrays do not have one row per label, or are not float32."""
    width = tensors["prototypes"].shape[-1:]
    shapes = dict.fromkeys(("prototypes", "drifts", "noisy_means"), (labels, *width))
    for name, expected in {**shapes, "radii": (labels,)}.items():
        found = tensors[name]
        if found.shape != expected or found.dtype != np.float32 or not found.size:
            raise FormatError(
                f"{path} is not a complete bank: {name} has shape {found.shape} and type "
                f"{found.dtype}, expected {expected} and float32 for {labels} labels"
            )


def build_bank(
    labels: Iterable[str],
    backbone: Backbone,
    *,
    settings: PromptSettings | None = None,
    preset: str | PathLike[str] | Preset = DEFAULT_PRESET,
    cache: TextCache | None = None,
    drifts: bool = True,
    progress: bool | None = None,
) -> ClassBank:
    """Encode the prompts of `labels` and return their prototypes and drifts.

    Without `settings` the prompts are those of the preset; the default preset is the paper's.
    Without `drifts` only the clean prompts are encoded, two hundred times fewer texts, which is
    enough for rules that do not read the drifts.
    """
    chosen = load_preset(preset)
    texts = compose(labels, settings or chosen.prompts, noisy=drifts)
    encoder = TextEncoder(backbone, cache=cache, progress=progress)
    bank = encode_bank(texts, encoder, preset=chosen.name)
    _warn_of_unknown(backbone, bank.labels)
    return bank


def _warn_of_unknown(backbone: Backbone, labels: Sequence[str]) -> None:
    if unknown := backbone.unknown_labels(labels):
        named = ", ".join(map(repr, unknown[:5])) + (" and others" if len(unknown) > 5 else "")
        warnings.warn(
            f"{backbone.name} knows no word of {named}: scores of such a label mean little; name "
            "the sound in common English words",
            stacklevel=3,
        )


def encode_bank(texts: BankTexts, encoder: TextEncoder, *, preset: str = "") -> ClassBank:
    """Encode composed texts and return the bank; `preset` is only recorded."""
    backbone = encoder.backbone
    if texts.noisy:
        statistics = np.stack(_statistics(texts, encoder))
        prototypes, drifts, noisy_means = np.split(statistics[:, :-1], 3, axis=1)
        radii = statistics[:, -1]
        _warn_of_vanishing(texts.names, radii)
    else:
        prototypes = encoder([entry.prompt for entry in texts.labels])
        drifts = noisy_means = np.zeros_like(prototypes)
        radii = np.zeros(len(prototypes), np.float32)
    return ClassBank(
        texts.names,
        np.ascontiguousarray(prototypes),
        np.ascontiguousarray(drifts),
        np.ascontiguousarray(radii),
        np.ascontiguousarray(noisy_means),
        made_by={
            "backbone": backbone.name,
            "fingerprint": backbone.fingerprint,
            "preset": preset,
            **vars(texts.settings),
            "phrases": list(texts.phrases),
            "template_texts": list(texts.templates),
            "texts_sha256": texts_digest(texts.texts),
            "driftscore": __version__,
        },
        has_drifts=texts.noisy,
    )


def _statistics(texts: BankTexts, encoder: TextEncoder) -> list[Vector]:
    """Return prototype, drift, noisy mean and radius of each label, side by side."""
    digests = [entry.digest(texts.settings.direction) for entry in texts.labels]
    width = 3 * encoder.backbone.dim + 1
    found: dict[str, Vector] = {}
    if encoder.cache:
        stored = encoder.cache.get_classes(encoder.model, digests)
        found = {digest: row for digest, row in stored.items() if row.shape == (width,)}
    todo = [
        (digest, entry)
        for digest, entry in zip(digests, texts.labels, strict=True)
        if digest not in found
    ]
    groups = [dict(todo[first : first + _GROUP]) for first in range(0, len(todo), _GROUP)]
    total = sum(len(_distinct(entries.values())) for entries in groups)
    with progress_bar("Encoding texts", total, show=encoder.progress) as advance:
        for entries in groups:
            vectors = encoder.encode(_distinct(entries.values()), advance)
            computed = {
                digest: _label_statistics(vectors, entry, direction=texts.settings.direction)
                for digest, entry in entries.items()
            }
            if encoder.cache:
                encoder.cache.put_classes(encoder.model, computed)
            found |= computed
    return [found[digest] for digest in digests]


def _distinct(entries: Iterable[LabelTexts]) -> list[str]:
    """Return each text of some labels once."""
    texts = (t for e in entries for t in (e.prompt, *e.noisy, *e.references))
    return list(dict.fromkeys(texts))


def _label_statistics(
    vectors: Mapping[str, Vector], texts: LabelTexts, *, direction: str
) -> Vector:
    """Return the prototype, the unit drift (zeros if it vanishes), the noisy mean, the radius."""
    sentences = np.stack([vectors[text] for text in texts.noisy]).astype(np.float64)
    drifts = sentences - np.stack([vectors[text] for text in texts.references])
    mean = drifts.mean(axis=0)
    radius = float(np.linalg.norm(mean))
    if radius < VANISHING:
        towards = np.zeros_like(mean)
    elif direction == "mean":
        towards = mean / radius
    else:
        towards = _top_direction(drifts, mean)
    parts = (vectors[texts.prompt], towards, sentences.mean(axis=0), [radius])
    return np.concatenate([np.asarray(part, np.float32) for part in parts])


def _top_direction(drifts: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the top right singular vector of the drifts, signed to agree with their mean."""
    top: NDArray[np.float64] = np.linalg.svd(drifts, full_matrices=False)[2][0]
    return top if top @ mean >= 0 else -top


def _warn_of_vanishing(labels: Sequence[str], radii: Vector) -> None:
    for label, radius in zip(labels, radii, strict=True):
        if radius < VANISHING:
            warnings.warn(
                f"The drift of {label!r} vanishes: its noisy prompts do not move its embedding, "
                "so DAS has no effect on it",
                VanishingDriftWarning,
                stacklevel=4,
            )
