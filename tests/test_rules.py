"""One contract for every rule, and each rule against its formula written out slowly."""

import inspect

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from driftscore import Head, build_bank, compile_head
from driftscore.errors import MismatchError, UsageError
from driftscore.prompts import load_pack
from driftscore.rules import reads_drifts, rule_names, rule_parameters
from driftscore.vectors import Matrix, unit

from .conftest import LABELS


@pytest.fixture(scope="module")
def clips():
    """Unit embeddings that lean towards a few common directions, as real ones do."""
    rng = np.random.default_rng(1)
    return unit((rng.standard_normal((300, 64)) + 2 * rng.standard_normal(64)).astype(np.float32))


@pytest.fixture(scope="module")
def compiled(bank, fake, clips):
    """Compile any rule with what its signature asks for."""

    def make(rule, **settings):
        for name, parameter in rule_parameters(rule).items():
            if parameter.annotation == Matrix:
                settings.setdefault(name, clips[:1] if name == "background" else clips[:40])
        return compile_head(bank, rule, backbone=fake, **settings)

    return make


def slow(rule, bank, fake, clips):
    """Score 300 clips by the table of method.md, one class and one clip at a time."""
    E = fake.embed_text
    noise, pool = clips[:40].astype(float), clips[:40].astype(float)
    rows = []
    for c, C in enumerate(bank.prototypes.astype(float)):
        words = bank.labels[c].replace("_", " ").lower()
        background = E(
            [
                "This is a sound of background noise",
                "Background noise sounds in the background",
                "This is a sound of background noise in the background",
            ]
        )
        nearest = pool[np.argsort(-(pool @ C))[:10]].mean(axis=0)
        clean = np.mean(E([t.format(c=words) for t in load_pack("clean8").texts]), axis=0)
        phrases = E(load_pack("das52").texts).astype(float)
        span = np.linalg.eigh(phrases.T @ phrases)[1][:, -10:]
        off = C - span @ (span.T @ C)
        noisy = bank.noisy_means[c].astype(float)
        W, b = {
            "cosine": (C, 0),
            "das": (C + 0.25 * bank.drifts[c], 0),
            "zs_text": (C, -0.5 * np.mean([e @ C for e in background])),
            "zs_audio": (C, -0.5 * np.mean([g @ C for g in noise])),
            "zs_audio_oracle": (C, -0.5 * (noise[0] @ C)),
            "tgap": (nearest, 0),
            "tgap_audio": (nearest, -0.5 * np.mean([g @ nearest for g in noise])),
            "prompt_ensemble": (clean / np.linalg.norm(clean), 0),
            "noisy_ensemble": (noisy / np.linalg.norm(noisy), 0),
            "debias": (off / np.linalg.norm(off), 0),
        }[rule]
        rows.append([z @ W + b for z in clips.astype(float)])
    return np.array(rows).T


def test_every_rule_of_the_method_is_there():
    assert set(rule_names()) == {
        "cosine", "das", "zs_text", "zs_audio", "zs_audio_oracle", "tgap", "tgap_audio",
        "prompt_ensemble", "noisy_ensemble", "debias",
    }  # fmt: skip


@pytest.mark.parametrize("rule", rule_names())
def test_a_rule_compiles_to_the_head_of_its_formula(rule, compiled, bank, fake, clips):
    head = compiled(rule)
    assert isinstance(head, Head)
    assert head.labels == LABELS
    assert head.weights.shape == (3, fake.dim)
    assert head.weights.dtype == head.offsets.dtype == np.float32
    np.testing.assert_allclose(head.scores(clips), slow(rule, bank, fake, clips), atol=2e-6)


@pytest.mark.parametrize("rule", rule_names())
def test_a_head_records_all_that_made_it(rule, compiled, bank):
    record = compiled(rule).made_by
    assert record["rule"] == rule
    assert record["bank"] == bank.made_by
    assert set(record["settings"]) == set(rule_parameters(rule)) - {"text"}


@pytest.mark.parametrize("rule", ["zs_text", "zs_audio"])
def test_bias_subtraction_leaves_average_precision_exactly_unchanged(rule, compiled, clips, rng):
    base, other = compiled("cosine").scores(clips), compiled(rule).scores(clips)
    truth = rng.random(base.shape) < 0.2
    assert not np.array_equal(base, other)
    for c in range(base.shape[1]):
        same = average_precision_score(truth[:, c], base[:, c])
        assert average_precision_score(truth[:, c], other[:, c]) == same


def test_tgap_prototypes_are_not_scaled_back_to_unit_length(compiled):
    lengths = np.linalg.norm(compiled("tgap").weights, axis=1)
    assert (lengths < 0.999).all()


def test_presets_fix_the_parameters_of_the_papers(bank, fake, clips):
    ours = compile_head(bank, "tgap", pool=clips)
    theirs = compile_head(bank, "tgap", preset="acevedo2025", pool=clips)
    assert ours.made_by["settings"]["nearest"] == 10
    assert theirs.made_by["settings"]["nearest"] == 35
    assert compile_head(bank, "das").made_by["settings"] == {"beta": 0.25}
    assert compile_head(bank, "das", beta=0.1).made_by["settings"] == {"beta": 0.1}


def test_zs_text_takes_the_true_scene_as_its_background(bank, fake):
    generic = compile_head(bank, "zs_text", backbone=fake)
    matched = compile_head(bank, "zs_text", backbone=fake, background="street traffic")
    sentences = ["This is a sound of street traffic", "Street traffic sounds in the background",
                 "This is a sound of street traffic in the background"]  # fmt: skip
    expected = -0.5 * bank.prototypes @ fake.embed_text(sentences).mean(axis=0)
    np.testing.assert_allclose(matched.offsets, expected, atol=1e-6)
    assert not np.allclose(generic.offsets, matched.offsets)


@pytest.mark.parametrize(
    ("rule", "settings", "message"),
    [
        ("cosin", {}, "did you mean 'cosine'"),
        ("das", {"beta": "much"}, "must be a number, not 'much'"),
        ("das", {"beta": float("nan")}, "finite number"),
        ("das", {"bet": 0.1}, "did you mean 'beta'"),
        ("zs_audio", {}, "needs noise: embeddings of noise-only clips"),
        ("tgap", {}, "needs pool"),
        (
            "tgap",
            {"pool": np.ones((3, 64), np.float32)},
            "10 nearest clips of the pool, which has 3",
        ),
        ("zs_text", {}, "pass the bank's backbone"),
        ("zs_audio_oracle", {"background": np.ones((2, 64), np.float32)}, "the one background"),
    ],
)
def test_bad_settings_are_refused_in_words(bank, rule, settings, message):
    with pytest.raises(UsageError, match=message):
        compile_head(bank, rule, **settings)


def test_embeddings_of_another_width_are_refused(bank):
    with pytest.raises(MismatchError, match="32 dimensions, the bank 64"):
        compile_head(bank, "zs_audio", noise=np.ones((3, 32), np.float32))


def test_no_engine_code_names_a_rule():
    from driftscore import bank, classifier, head

    for module in (bank, classifier, head):
        assert "zs_audio" not in inspect.getsource(module)


def test_direction_and_pack_change_the_drift_and_not_the_prototype(fake):
    base = build_bank(LABELS, fake)
    for settings in ({"direction": "svd"}, {"pack": "generic5"}, {"reference": "matched"}):
        other = build_bank(LABELS, fake, **settings)
        np.testing.assert_array_equal(other.prototypes, base.prototypes)
        assert not np.array_equal(other.drifts, base.drifts)


@pytest.mark.parametrize("rule", rule_names())
def test_a_rule_that_does_not_ask_for_drifts_needs_none(rule, compiled, fake, clips):
    clean = build_bank(LABELS, fake, drifts=False)
    given = {
        name: clips[:1] if name == "background" else clips[:40]
        for name, parameter in rule_parameters(rule).items()
        if parameter.annotation == Matrix
    }
    if reads_drifts(rule):
        with pytest.raises(UsageError, match="drifts=True"):
            compile_head(clean, rule, backbone=fake, **given)
        return
    expected, found = compiled(rule), compile_head(clean, rule, backbone=fake, **given)
    np.testing.assert_array_equal(found.weights, expected.weights)
    np.testing.assert_array_equal(found.offsets, expected.offsets)
