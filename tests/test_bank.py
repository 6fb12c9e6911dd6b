"""Class banks: the paper's formulas, files, and refusals. The cache has tests of its own."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from driftscore import (
    Audio,
    Backbone,
    ClassBank,
    FormatError,
    MismatchError,
    PromptSettings,
    UsageError,
    build_bank,
    compile_head,
    load_backbone,
)
from driftscore.backbones import Features
from driftscore.backbones.vectors import Matrix, Vector
from driftscore.scoring.bank import VanishingDriftWarning, encode_bank
from driftscore.text.cache import TextEncoder
from driftscore.text.packs import load_pack
from driftscore.text.presets import DEFAULT_PRESET
from driftscore.text.prompts import compose

from .conftest import LABELS

WORDS = ("dog bark", "sea waves", "siren")


def reference(
    backbone: Backbone, words: Sequence[str], beta: float, direction: str
) -> NDArray[np.float64]:
    """DAS by the paper's formulas, class by class."""

    def E(text: str) -> NDArray[np.float64]:
        row: NDArray[np.float64] = backbone.embed_text([text])[0].astype(np.float64)
        return row

    rows = []
    for c in words:
        clean = E(f"the sound of {c}")
        drifts = np.array([E(t.format(c=c, p=p)) - clean for t in load_pack("das4").texts
                           for p in load_pack("das52").texts])  # fmt: skip
        mean = drifts.mean(axis=0)
        if direction == "svd":
            top = np.linalg.eigh(drifts.T @ drifts)[1][:, -1]
            mean = top * np.sign(top @ mean)
        rows.append(clean + beta * mean / np.linalg.norm(mean))
    return np.array(rows)


@pytest.mark.parametrize("direction", ["mean", "svd"])
@pytest.mark.parametrize("beta", [0.1, 0.25, 0.5])
def test_das_equals_the_papers_formula(
    fake: Backbone, rng: np.random.Generator, beta: float, direction: str
) -> None:
    bank = build_bank(LABELS, fake, settings=PromptSettings(direction=direction))
    head = compile_head(bank, "das", beta=beta)
    expected = reference(fake, WORDS, beta, direction)
    np.testing.assert_allclose(head.weights, expected, atol=1e-6)
    z = fake.embed_audio([Audio(rng.standard_normal(9000).astype(np.float32), 16_000)])
    np.testing.assert_allclose(head.scores(z), z @ expected.T, atol=1e-6)


def test_das_interpolates_between_the_prompt_and_the_mean_noisy_prompt(bank: ClassBank) -> None:
    share = (0.25 / bank.radii)[:, None]
    expected = (1 - share) * bank.prototypes + share * bank.noisy_means
    np.testing.assert_allclose(compile_head(bank, "das").weights, expected, atol=1e-6)


def test_rows_are_unit_and_shapes_agree(bank: ClassBank, fake: Backbone) -> None:
    assert bank.labels == LABELS
    assert bank.prototypes.shape == bank.drifts.shape == (3, fake.dim)
    assert bank.radii.shape == (3,)
    np.testing.assert_allclose(np.linalg.norm(bank.prototypes, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(bank.drifts, axis=1), 1, atol=1e-6)


def test_a_class_does_not_depend_on_its_neighbours(bank: ClassBank, fake: Backbone) -> None:
    alone = build_bank(["siren"], fake)
    np.testing.assert_array_equal(alone.drifts[0], bank.drifts[2])
    np.testing.assert_array_equal(alone.prototypes[0], bank.prototypes[2])


def test_the_matched_reference_subtracts_the_template_without_its_noise(fake: Backbone) -> None:
    settings = PromptSettings(reference="matched", pack="generic5")
    bank = build_bank(["siren"], fake, settings=settings)
    drifts = [
        fake.embed_text([t.text.format(c="siren", p=p)])[0]
        - fake.embed_text([(t.matched or "").format(c="siren")])[0]
        for p in load_pack("generic5").texts
        for t in load_pack("das4").entries
    ]
    mean = np.mean(drifts, axis=0)
    np.testing.assert_allclose(bank.drifts[0], mean / np.linalg.norm(mean), atol=1e-5)
    assert bank.radii[0] == pytest.approx(np.linalg.norm(mean), rel=1e-5)


def test_a_bank_is_composed_and_then_encoded(bank: ClassBank, fake: Backbone) -> None:
    found = encode_bank(compose(LABELS), TextEncoder(fake), preset=DEFAULT_PRESET)
    assert found.made_by == bank.made_by
    for name in ("prototypes", "drifts", "radii", "noisy_means"):
        np.testing.assert_array_equal(getattr(found, name), getattr(bank, name))


class Constant(Backbone):
    """A model that embeds every text alike: there is no drift at all."""

    name, fingerprint, dim, rate, seconds = "constant", "constant/1", 8, 8000, 1.0

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        return np.tile(np.eye(8, dtype=np.float32)[0], (len(texts), 1))

    def encode(self, features: Features) -> Vector:
        raise NotImplementedError


def test_a_vanishing_drift_has_no_effect_and_a_warning_names_the_class() -> None:
    with pytest.warns(VanishingDriftWarning, match="'siren' vanishes") as caught:
        bank = build_bank(["siren"], Constant())
    assert caught[0].filename == __file__
    assert not bank.drifts.any()
    np.testing.assert_array_equal(compile_head(bank, "das").weights, bank.prototypes)


def test_a_bank_is_saved_with_everything_that_made_it(
    bank: ClassBank, fake: Backbone, tmp_path: Path
) -> None:
    path = tmp_path / "city.safetensors"
    bank.save(path)
    found = ClassBank.load(path, fake)
    assert found.labels == bank.labels
    assert found.made_by == bank.made_by
    for name in ("prototypes", "drifts", "radii", "noisy_means"):
        np.testing.assert_array_equal(getattr(found, name), getattr(bank, name))
    assert found.made_by["fingerprint"] == fake.fingerprint
    phrases: Any = found.made_by["phrases"]
    assert len(phrases) == 52
    assert found.made_by["template_texts"] == list(load_pack("das4").texts)
    assert found.made_by["prompt"] == "the sound of {c}"


@pytest.mark.parametrize("drifts", [True, False])
def test_a_bank_remembers_whether_it_has_drifts(
    fake: Backbone, tmp_path: Path, drifts: bool
) -> None:
    bank = build_bank(LABELS, fake, drifts=drifts)
    bank.save(tmp_path / "bank.safetensors")
    assert ClassBank.load(tmp_path / "bank.safetensors").has_drifts is drifts
    assert "drifts" not in bank.made_by


def test_the_same_bank_makes_the_same_bytes(
    bank: ClassBank, fake: Backbone, tmp_path: Path
) -> None:
    bank.save(tmp_path / "one.safetensors")
    build_bank(LABELS, fake).save(tmp_path / "two.safetensors")
    assert (tmp_path / "one.safetensors").read_bytes() == (
        tmp_path / "two.safetensors"
    ).read_bytes()


def test_a_bank_of_another_model_is_refused_in_words(bank: ClassBank, tmp_path: Path) -> None:
    bank.save(tmp_path / "city.safetensors")
    with pytest.raises(
        MismatchError, match=r"city\.safetensors was made with fake .* not with fake"
    ):
        ClassBank.load(tmp_path / "city.safetensors", load_backbone("fake", seed=7))


def test_what_is_not_a_bank_is_refused(bank: ClassBank, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="There is no bank"):
        ClassBank.load(tmp_path / "absent")
    (tmp_path / "text").write_text("no")
    with pytest.raises(FormatError, match=r"is not a .*bank file"):
        ClassBank.load(tmp_path / "text")
    compile_head(bank, "cosine").save(tmp_path / "head.safetensors")
    with pytest.raises(FormatError, match=r"not a driftscore bank \(it is: head\)"):
        ClassBank.load(tmp_path / "head.safetensors")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompt": "the sound"}, "lacks its placeholder"),
        ({"reference": "none"}, "reference must be prompt or matched, got 'none'"),
        ({"direction": "pca"}, "direction must be mean or svd, got 'pca'"),
        ({"pack": "das25"}, "did you mean 'das52'"),
        ({"pack": 3}, "pack must be a text, got 3"),
        ({"templates": "clean8"}, r"lacks its placeholder \{p\}"),
        ({"skip_same": "yes"}, "skip_same must be true or false"),
        ({"skip_sam": True}, "did you mean 'skip_same'"),
    ],
)
def test_bad_prompt_settings_are_refused_in_words(
    fake: Backbone, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        build_bank(LABELS, fake, settings=PromptSettings().changed(**settings))


def test_an_unknown_preset_names_the_nearest(fake: Backbone) -> None:
    with pytest.raises(UsageError, match="did you mean 'das2026'"):
        build_bank(LABELS, fake, preset="das2025")


def test_presets_fix_the_prompts_of_the_papers(fake: Backbone) -> None:
    assert build_bank(LABELS, fake).made_by["prompt"] == "the sound of {c}"
    acevedo = build_bank(LABELS, fake, preset="acevedo2025")
    assert acevedo.made_by["prompt"] == "This is a sound of {c}"
    np.testing.assert_array_equal(
        acevedo.prototypes, fake.embed_text([f"This is a sound of {w}" for w in WORDS])
    )


def test_a_bank_is_built_without_warnings(fake: Backbone) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_bank(LABELS, fake)
