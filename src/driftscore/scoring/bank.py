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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import msgspec
import numpy as np

from driftscore.backbones import Backbone, MinimalBackbone, check_model
from driftscore.backbones.vectors import VANISHING, Matrix, Vector
from driftscore.errors import FormatError
from driftscore.scoring.head import HeadAbout
from driftscore.storage.checked import decode
from driftscore.storage.tensors import read_tensors, write_tensors
from driftscore.system.progress import progress_bar
from driftscore.text.cache import CLASSES, TextCache, TextEncoder
from driftscore.text.presets import DEFAULT_PRESET, Preset, PromptSettings, load_preset
from driftscore.text.prompts import BankTexts, compose, texts_digest
from driftscore.version import __version__

_TENSORS = ("prototypes", "drifts", "radii", "noisy_means")
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
        tensors = {name: getattr(self, name) for name in _TENSORS}
        about = {
            "labels": list(self.labels),
            "made_by": dict(self.made_by),
            "has_drifts": self.has_drifts,
        }
        write_tensors(path, tensors, kind="bank", about=about)

    @staticmethod
    def load(path: str | PathLike[str], backbone: Backbone | None = None) -> "ClassBank":
        """Read a bank; with a backbone, refuse one that another model made."""
        path = Path(path)
        tensors, described = read_tensors(path, kind="bank", needs=_TENSORS)
        about = decode(described, _About, where=f"The description in {path}")
        count, width = len(about.labels), tensors["prototypes"].shape[-1:]
        for name, tensor in tensors.items():
            expected = (count,) if name == "radii" else (count, *width)
            if tensor.shape != expected or tensor.dtype != np.float32 or not tensor.size:
                raise FormatError(
                    f"{path} is not a complete bank: {name} has shape {tensor.shape} and type "
                    f"{tensor.dtype}, expected {expected} and float32 for {count} labels"
                )
        if backbone is not None:
            check_model(about.made_by, backbone, what=f"The bank {path}")
        return ClassBank(**{**tensors, **msgspec.structs.asdict(about)})


class _About(HeadAbout):
    """The description of a bank in its file."""

    has_drifts: bool


def build_bank(
    labels: Iterable[str],
    backbone: MinimalBackbone,
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
    return encode_bank(texts, encoder, preset=chosen.name)


def encode_bank(texts: BankTexts, encoder: TextEncoder, *, preset: str = "") -> ClassBank:
    """Encode composed texts and return the bank; `preset` is only recorded."""
    backbone = encoder.backbone
    labels = tuple(entry.label for entry in texts.labels)
    if texts.phrases:
        statistics = _statistics(texts, encoder)
        prototypes, drifts, noisy_means = map(
            np.ascontiguousarray, np.split(statistics[:, :-1], 3, axis=1)
        )
        radii = np.ascontiguousarray(statistics[:, -1])
        for label, radius in zip(labels, radii, strict=True):
            if radius < VANISHING:
                warnings.warn(
                    f"The drift of {label!r} vanishes: its noisy prompts do not move its "
                    "embedding, so DAS has no effect on it",
                    VanishingDriftWarning,
                    stacklevel=3,
                )
    else:
        prototypes = encoder([entry.prompt for entry in texts.labels])
        drifts = noisy_means = np.zeros_like(prototypes)
        radii = np.zeros(len(prototypes), np.float32)
    made_by = {
        "backbone": backbone.name,
        "fingerprint": backbone.fingerprint,
        "preset": preset,
        **vars(texts.settings),
        "phrases": list(texts.phrases),
        "template_texts": list(texts.templates),
        "texts_sha256": texts_digest(texts.texts),
        "driftscore": __version__,
    }
    has_drifts = bool(texts.phrases)
    return ClassBank(labels, prototypes, drifts, radii, noisy_means, made_by, has_drifts)


def _statistics(texts: BankTexts, encoder: TextEncoder) -> Matrix:
    """Return prototype, drift, noisy mean and radius of each label, side by side."""
    direction = texts.settings.direction
    digests = [entry.digest(direction) for entry in texts.labels]
    shape = (3 * encoder.backbone.dim + 1,)
    rows: dict[str, Vector] = {}
    if encoder.cache:
        stored = encoder.cache.get(CLASSES, encoder.model, digests)
        rows = {digest: row for digest, row in stored.items() if row.shape == shape}
    todo = [pair for pair in zip(digests, texts.labels, strict=True) if pair[0] not in rows]
    groups = [dict(todo[first : first + _GROUP]) for first in range(0, len(todo), _GROUP)]
    distinct = [
        list(dict.fromkeys(t for e in group.values() for t in (e.prompt, *e.noisy, *e.references)))
        for group in groups
    ]
    with progress_bar("Encoding texts", sum(map(len, distinct)), show=encoder.progress) as advance:
        for group, sentences in zip(groups, distinct, strict=True):
            vectors = encoder.encode(sentences, advance)
            computed: dict[str, Vector] = {}
            for digest, entry in group.items():
                noisy = np.stack([vectors[text] for text in entry.noisy]).astype(np.float64)
                drifts = noisy - np.stack([vectors[text] for text in entry.references])
                mean = drifts.mean(axis=0)
                radius = float(np.linalg.norm(mean))
                if radius < VANISHING:
                    towards = np.zeros_like(mean)
                elif direction == "mean":
                    towards = mean / radius
                else:
                    towards = np.linalg.svd(drifts, full_matrices=False)[2][0]
                    if towards @ mean < 0:
                        towards = -towards
                parts = (vectors[entry.prompt], towards, noisy.mean(axis=0), [radius])
                computed[digest] = np.concatenate([np.asarray(part, np.float32) for part in parts])
            if encoder.cache:
                encoder.cache.put(CLASSES, encoder.model, computed)
            rows |= computed
    return np.stack([rows[digest] for digest in digests])
