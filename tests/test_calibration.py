"""Calibrations: their statistics, standardised scores, anchored prototypes, files."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.covariance import empirical_covariance
from sklearn.linear_model import Ridge

from driftscore import Backbone, ClassBank, Head, compile_head, load_backbone
from driftscore.backbones.vectors import Matrix, unit
from driftscore.errors import FormatError, MismatchError, UsageError
from driftscore.scoring.calibration import Calibration, anchored, standardise
from driftscore.text.packs import load_pack

PAIRS = 200


def made_by(backbone: Backbone) -> Mapping[str, object]:
    return {"backbone": backbone.name, "fingerprint": backbone.fingerprint}


@pytest.fixture(scope="module")
def calibration(fake: Backbone) -> Calibration:
    """Clean embeddings in few directions, noise in others, as in real spaces."""
    rng = np.random.default_rng(3)
    clean = rng.standard_normal((PAIRS, 12)) @ rng.standard_normal((12, fake.dim))
    noise = rng.standard_normal((PAIRS, 4)) @ rng.standard_normal((4, fake.dim))
    noisy = clean + rng.uniform(0.2, 3, (PAIRS, 1)) * noise
    first, second = (unit(x.astype(np.float32)) for x in (clean + 1.0, noisy + 1.0))
    return Calibration(first, second, made_by=made_by(fake))


def everything(calibration: Calibration) -> NDArray[np.float64]:
    return np.concatenate([calibration.clean, calibration.noisy]).astype(np.float64)


def test_statistics_are_those_of_scikit_learn(calibration: Calibration) -> None:
    both = everything(calibration)
    np.testing.assert_allclose(calibration.mean, both.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(calibration.covariance, empirical_covariance(both), atol=1e-12)
    noisy = calibration.noisy.astype(np.float64)
    np.testing.assert_allclose(
        calibration.noisy_covariance, empirical_covariance(noisy), atol=1e-12
    )
    moved = noisy - calibration.clean
    np.testing.assert_allclose(calibration.displacement, empirical_covariance(moved), atol=1e-12)


def test_a_standardised_score_has_mean_zero_and_deviation_one_over_the_clips(
    bank: ClassBank, calibration: Calibration
) -> None:
    head = compile_head(bank, "cosine", calibration=calibration, standardised=True)
    scores = head.scores(everything(calibration))
    np.testing.assert_allclose(scores.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(scores.std(axis=0), 1, atol=1e-4)
    assert head.standardised
    assert "standard deviations" in str(head.made_by["unit"])
    assert not compile_head(bank, "cosine", calibration=calibration).standardised


def test_standardising_keeps_the_ranking_of_clips_within_a_label(
    bank: ClassBank, calibration: Calibration, rng: np.random.Generator
) -> None:
    clips = unit(rng.standard_normal((50, bank.dim)).astype(np.float32))
    raw = compile_head(bank, "cosine").scores(clips)
    standard = compile_head(bank, "cosine", calibration=calibration, standardised=True)
    np.testing.assert_array_equal(raw.argsort(axis=0), standard.scores(clips).argsort(axis=0))


@pytest.mark.parametrize("strength", [0.1, 3.0])
def test_denoise_is_a_ridge_regression_of_what_noise_changed(
    bank: ClassBank, calibration: Calibration, strength: float
) -> None:
    """A = I + (S_zz' - S_z'z')(S_z'z' + l t I)^-1: a regression of z - z' on z'."""
    head = compile_head(bank, "denoise", calibration=calibration, strength=strength)
    clean, noisy = (x.astype(np.float64) for x in (calibration.clean, calibration.noisy))
    prototypes = bank.prototypes.astype(np.float64)
    penalty = strength * np.trace(empirical_covariance(noisy)) / calibration.dim * len(noisy)
    fitted = Ridge(alpha=penalty).fit(noisy, (clean - noisy) @ prototypes.T)
    np.testing.assert_allclose(head.weights, prototypes + fitted.coef_, atol=1e-6)


def test_strong_shrinkage_is_plain_cosine(bank: ClassBank, calibration: Calibration) -> None:
    cosine = compile_head(bank, "cosine").weights
    denoised = compile_head(bank, "denoise", calibration=calibration, strength=1e9).weights
    np.testing.assert_allclose(denoised, cosine, atol=1e-6)
    whitened = compile_head(bank, "whiten", calibration=calibration, amount=0.0).weights
    np.testing.assert_allclose(whitened, cosine, atol=1e-6)


def test_whitening_discounts_the_directions_of_noise(
    bank: ClassBank, calibration: Calibration
) -> None:
    worst = np.linalg.eigh(calibration.displacement)[1][:, -1]
    plain = compile_head(bank, "cosine").weights @ worst
    discounted = compile_head(bank, "whiten", calibration=calibration, amount=1.0).weights @ worst
    assert (np.abs(discounted) < 0.5 * np.abs(plain)).all()


def test_a_file_holds_the_calibration_in_eight_bits(
    calibration: Calibration, tmp_path: Path, fake: Backbone
) -> None:
    path = tmp_path / "fake.safetensors"
    made = replace(calibration, settings={"denoise": {"strength": 3.0}}, default_rule="denoise")
    made.save(path)
    read = Calibration.load(path, fake)
    assert path.stat().st_size < 2 * PAIRS * (calibration.dim + 4) + 2_000
    cosines = np.einsum("nd,nd->n", read.clean, calibration.clean)
    assert cosines.min() > 0.9999
    assert read.settings == {"denoise": {"strength": 3.0}}
    assert read.default_rule == "denoise"
    first = path.read_bytes()
    read.save(path)
    assert Calibration.load(path).digest == read.digest
    made.save(path)
    assert path.read_bytes() == first


def test_a_calibration_of_another_model_is_refused(
    calibration: Calibration, bank: ClassBank, tmp_path: Path
) -> None:
    path = tmp_path / "fake.safetensors"
    calibration.save(path)
    with pytest.raises(MismatchError, match="was made with fake"):
        Calibration.load(path, load_backbone("fake", seed=1))
    other = replace(calibration, made_by={"backbone": "other", "fingerprint": "other/1"})
    with pytest.raises(MismatchError, match="made with other"):
        compile_head(bank, "denoise", calibration=other)
    narrow = Calibration(calibration.clean[:, :8], calibration.noisy[:, :8])
    with pytest.raises(MismatchError, match="dimensions"):
        standardise(compile_head(bank, "cosine"), narrow)


def test_a_file_of_another_kind_is_refused(bank: ClassBank, tmp_path: Path) -> None:
    bank.save(tmp_path / "bank.safetensors")
    with pytest.raises(FormatError, match="not a driftscore calibration"):
        Calibration.load(tmp_path / "bank.safetensors")


def test_few_clips_are_refused(calibration: Calibration) -> None:
    with pytest.raises(UsageError, match="at least 20 clips, got 5"):
        Calibration(calibration.clean[:5], calibration.noisy[:5])
    with pytest.raises(MismatchError, match="one noisy embedding per clean one"):
        Calibration(calibration.clean, calibration.noisy[:50])


def test_rules_that_need_a_calibration_say_so(bank: ClassBank) -> None:
    for rule in ("denoise", "whiten", "anchor"):
        with pytest.raises(UsageError, match=f"'{rule}' needs a calibration.*calibrate"):
            compile_head(bank, rule)
    with pytest.raises(UsageError, match="Standardising needs a calibration"):
        compile_head(bank, "cosine", standardised=True)


def test_a_place_moves_the_mean_by_its_weight(
    calibration: Calibration, rng: np.random.Generator
) -> None:
    place = unit(rng.standard_normal((30, calibration.dim)).astype(np.float32))
    adapted = calibration.at_site(place, weight=0.25)
    expected = 0.75 * calibration.mean + 0.25 * place.mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(adapted.mean, expected, atol=1e-7)
    spread = 0.75 * calibration.covariance + 0.25 * empirical_covariance(place)
    np.testing.assert_allclose(adapted.covariance, spread, atol=1e-7)
    assert adapted.digest != calibration.digest
    with pytest.raises(UsageError, match="within 0 and 1"):
        calibration.at_site(place, weight=2.0)
    with pytest.raises(MismatchError, match="different models"):
        calibration.at_site(place[:, :3])


def test_the_place_survives_a_file(
    calibration: Calibration, tmp_path: Path, rng: np.random.Generator
) -> None:
    place: Matrix = unit(rng.standard_normal((30, calibration.dim)).astype(np.float32))
    calibration.at_site(place, weight=0.5).save(tmp_path / "site.safetensors")
    read = Calibration.load(tmp_path / "site.safetensors")
    assert len(read.site) == 30
    assert read.site_weight == 0.5


def test_das_is_the_paper_to_the_bit_also_with_a_calibration(
    bank: ClassBank, calibration: Calibration
) -> None:
    paper = bank.prototypes + np.float32(0.25) * bank.drifts
    np.testing.assert_array_equal(compile_head(bank, "das").weights, paper)
    head = compile_head(bank, "das", calibration=calibration)
    np.testing.assert_array_equal(head.weights, paper)


def test_the_variants_of_das_are_their_formulas(
    bank: ClassBank, calibration: Calibration, rng: np.random.Generator
) -> None:
    more = 0.1 * rng.standard_normal(calibration.noisy.shape) * rng.random(calibration.dim)
    calibration = replace(calibration, noisy=unit((calibration.noisy + more).astype(np.float32)))
    moved = calibration.noisy.astype(np.float64) - calibration.clean
    strongest = np.linalg.eigh(covariance_by_loops(moved))[1][:, -20:]
    measured = []
    for prototype in bank.prototypes.astype(np.float64):
        shares = [np.exp(20 * float(row @ prototype)) for row in calibration.clean]
        mean = sum(s * m for s, m in zip(shares, moved, strict=True)) / sum(shares)
        measured.append(mean / np.linalg.norm(mean))
    fits = [max(0.0, float(d @ m)) for d, m in zip(bank.drifts, measured, strict=True)]
    for drift in ("text", "refined", "aligned", "by_label"):
        head = compile_head(bank, "das_measured", calibration=calibration, drift=drift, beta=0.4)
        for c, prototype in enumerate(bank.prototypes.astype(np.float64)):
            d, beta = bank.drifts[c].astype(np.float64), 0.4
            if drift == "refined":
                d = (d + measured[c]) / np.linalg.norm(d + measured[c])
            elif drift == "aligned":
                d = sum((d @ v) * v for v in strongest.T)
                d = d / np.linalg.norm(d)
            elif drift == "by_label":
                beta = 0.4 * fits[c] / float(np.mean(fits))
            expected = prototype + beta * d
            expected /= np.linalg.norm(expected)
            np.testing.assert_allclose(head.weights[c], expected, atol=1e-5)
    with pytest.raises(UsageError, match="No drift called 'much'"):
        compile_head(bank, "das_measured", calibration=calibration, drift="much")


def test_variants_on_top_of_the_anchor_use_its_chosen_settings(
    bank: ClassBank, calibration: Calibration
) -> None:
    chosen = replace(calibration, settings={"anchor": {"weight": 0.4, "amount": 0.3}})
    head = compile_head(bank, "das_measured", calibration=chosen, anchored=1, beta=0.0)
    anchor = compile_head(bank, "anchor", calibration=calibration, weight=0.4, amount=0.3)
    np.testing.assert_allclose(head.weights, anchor.weights, atol=1e-6)


def slowly_anchored(
    prototype: NDArray[np.float64], clean: NDArray[np.float64], weight: float, sharpness: float
) -> NDArray[np.float64]:
    """Return one anchored prototype, clip by clip."""
    scores = [float(row @ prototype) for row in clean]
    mean = sum(scores) / len(scores)
    deviation = (sum((s - mean) ** 2 for s in scores) / len(scores)) ** 0.5
    shares = [np.exp(sharpness * (s - mean) / deviation) for s in scores]
    middle = sum(clean) / len(clean)
    towards = sum(a * (row - middle) for a, row in zip(shares, clean, strict=True))
    mixed = (1 - weight) * prototype + weight * towards / np.linalg.norm(towards)
    return np.asarray(mixed / np.linalg.norm(mixed), np.float64)


@pytest.mark.parametrize(("weight", "sharpness"), [(0.2, 1.0), (0.3, 2.0), (1.0, 0.5)])
def test_anchoring_is_its_formula_clip_by_clip(
    bank: ClassBank, calibration: Calibration, weight: float, sharpness: float
) -> None:
    found = anchored(bank.prototypes, calibration, weight=weight, sharpness=sharpness)
    clean = calibration.clean.astype(np.float64)
    for row, prototype in zip(found, bank.prototypes.astype(np.float64), strict=True):
        expected = slowly_anchored(prototype, clean, weight, sharpness)
        np.testing.assert_allclose(row, expected, atol=1e-5)


def test_anchoring_with_weight_zero_changes_nothing_and_noisy_rows_do_not_matter(
    bank: ClassBank, calibration: Calibration
) -> None:
    same = anchored(bank.prototypes, calibration, weight=0.0)
    np.testing.assert_allclose(same, bank.prototypes, atol=1e-6)
    other = replace(calibration, noisy=calibration.noisy[::-1].copy())
    np.testing.assert_array_equal(
        anchored(bank.prototypes, other), anchored(bank.prototypes, calibration)
    )
    with pytest.raises(MismatchError, match="different models"):
        anchored(bank.prototypes[:, :8], calibration)


def test_the_rule_anchor_is_the_step_then_whitening_then_unit_length(
    bank: ClassBank, calibration: Calibration
) -> None:
    head = compile_head(bank, "anchor", calibration=calibration, amount=0.3)
    covariance = covariance_by_loops(calibration.noisy.astype(np.float64) - calibration.clean)
    clean = calibration.clean.astype(np.float64)
    for weights, prototype in zip(head.weights, bank.prototypes.astype(np.float64), strict=True):
        expected = discounted(slowly_anchored(prototype, clean, 0.1, 1.0), covariance, 0.3)
        np.testing.assert_allclose(weights, expected / np.linalg.norm(expected), atol=1e-5)
    assert head.unit == "cosine"
    assert standardise(head, calibration).unit == "sd"
    assert compile_head(bank, "das").unit == "raw"


def test_a_calibration_of_arrays_is_that_of_its_unit_rows(
    bank: ClassBank, calibration: Calibration, fake: Backbone
) -> None:
    made = Calibration.from_embeddings(
        3 * calibration.clean, calibration.noisy.tolist(), model=fake
    )
    np.testing.assert_allclose(made.clean, calibration.clean, atol=1e-6)
    assert made.default_rule == "anchor"
    assert "nothing was chosen" in str(made.made_by["default_why"])
    assert compile_head(bank, "anchor", calibration=made).unit == "cosine"
    nameless = Calibration.from_embeddings(calibration.clean, calibration.noisy)
    assert compile_head(bank, "anchor", calibration=nameless).unit == "cosine"
    other = Calibration.from_embeddings(calibration.clean, calibration.noisy, model="my-clap")
    with pytest.raises(MismatchError, match="made with my-clap"):
        compile_head(bank, "anchor", calibration=other)
    narrow = Calibration.from_embeddings(calibration.clean[:, :8], calibration.noisy[:, :8])
    with pytest.raises(MismatchError, match="another model"):
        compile_head(bank, "anchor", calibration=narrow)
    with pytest.raises(MismatchError, match="one noisy embedding per clean one"):
        Calibration.from_embeddings(calibration.clean, calibration.noisy[:50])
    with pytest.raises(UsageError, match="The clean embeddings: row 3 is all zeros"):
        Calibration.from_embeddings(
            np.where(np.arange(PAIRS)[:, None] == 3, 0, calibration.clean), calibration.noisy
        )


def test_entropy_weights_beat_equal_weights_and_every_single_template(
    rng: np.random.Generator,
) -> None:
    from driftscore.scoring.rules.entropy_prompts import SCALE, entropy_weights

    logits = 0.3 * rng.standard_normal((80, 4, 5))
    logits[:, 1] += 0.5 * np.eye(5)[rng.integers(5, size=80)]

    def entropy(weights: NDArray[np.float64]) -> float:
        scores = SCALE * np.einsum("j,ijk->ik", weights, logits)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        return float(-(shares * np.log(shares + 1e-300)).sum(axis=1).mean())

    found = entropy_weights(logits, SCALE)
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    assert entropy(found) < entropy(np.full(4, 0.25))
    assert entropy(found) <= min(entropy(row) for row in np.eye(4)) + 1e-3


def covariance_by_loops(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the covariance as a sum of outer products, one row at a time."""
    mean = sum(rows) / len(rows)
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for row in rows:
        total += np.outer(row - mean, row - mean)
    return total / len(rows)


def discounted(
    prototype: NDArray[np.float64], covariance: NDArray[np.float64], amount: float
) -> NDArray[np.float64]:
    """Return C (I + a N d / trace N)^-1, direction by direction."""
    values, directions = np.linalg.eigh(covariance)
    scale = amount * len(covariance) / sum(np.diag(covariance))
    parts = [
        (prototype @ v) / (1 + scale * value) * v
        for value, v in zip(values, directions.T, strict=True)
    ]
    return np.asarray(np.sum(parts, axis=0), np.float64)


def test_whiten_is_its_formula_direction_by_direction(
    bank: ClassBank, calibration: Calibration
) -> None:
    head = compile_head(bank, "whiten", calibration=calibration, amount=0.3)
    moved = calibration.noisy.astype(np.float64) - calibration.clean
    covariance = covariance_by_loops(moved)
    for weights, prototype in zip(head.weights, bank.prototypes.astype(np.float64), strict=True):
        np.testing.assert_allclose(weights, discounted(prototype, covariance, 0.3), atol=1e-5)


def test_text_whiten_is_its_formula_direction_by_direction(bank: ClassBank, fake: Backbone) -> None:
    head = compile_head(bank, "text_whiten", backbone=fake, phrases="generic5", amount=0.3)
    drifts = []
    for label, prototype in zip(bank.labels, bank.prototypes, strict=True):
        for phrase in load_pack("generic5").texts:
            text = f"{label.replace('_', ' ').lower()} with {phrase}"
            drifts.append(fake.embed_text([text])[0].astype(np.float64) - prototype)
    covariance = covariance_by_loops(np.array(drifts))
    for weights, prototype in zip(head.weights, bank.prototypes.astype(np.float64), strict=True):
        np.testing.assert_allclose(weights, discounted(prototype, covariance, 0.3), atol=1e-5)


def test_entropy_prompts_is_the_weighted_sum_of_its_templates(
    bank: ClassBank, calibration: Calibration, fake: Backbone
) -> None:
    head = compile_head(bank, "entropy_prompts", backbone=fake, calibration=calibration)
    templates = load_pack("clean8").texts
    for label, weights in zip(bank.labels, head.weights.astype(np.float64), strict=True):
        words = label.replace("_", " ").lower()
        rows = fake.embed_text([t.format(c=words) for t in templates]).astype(np.float64)
        shares, *_ = np.linalg.lstsq(rows.T, weights, rcond=None)
        np.testing.assert_allclose(rows.T @ shares, weights, atol=1e-5)
        assert shares.sum() == pytest.approx(1, abs=1e-2)


def test_standardising_is_its_formula_clip_by_clip(
    bank: ClassBank, calibration: Calibration, rng: np.random.Generator
) -> None:
    """(W z + b - W mu) / sqrt(W S W^T), with an offset of its own."""
    raw = Head(bank.labels, bank.prototypes, np.array([0.1, -0.2, 0.3], np.float32))
    both = everything(calibration)
    mean, spread = sum(both) / len(both), covariance_by_loops(both)
    z = unit(rng.standard_normal((5, bank.dim)).astype(np.float32))
    found = standardise(raw, calibration).scores(z)
    for c, (W, b) in enumerate(zip(raw.weights.astype(np.float64), raw.offsets, strict=True)):
        expected = [(W @ row + b - W @ mean) / np.sqrt(W @ spread @ W) for row in z]
        np.testing.assert_allclose(found[:, c], expected, atol=2e-4)
