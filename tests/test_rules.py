"""One contract for every rule, and each rule against its formula written out slowly."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from driftscore import (
    Backbone,
    ClassBank,
    Head,
    MismatchError,
    PromptSettings,
    UsageError,
    build_bank,
    compile_head,
    load_backbone,
)
from driftscore.backbones.vectors import Matrix, unit
from driftscore.scoring.calibration import Calibration
from driftscore.scoring.rules import NOISY_PROMPTS, Needs, find_rule, rule_names
from driftscore.scoring.rules.protocol import SUPPLIED
from driftscore.text.packs import load_pack
from driftscore.text.presets import load_preset

from .conftest import LABELS, Hashed, leaning_clips, supplies

Compiled = Callable[[str], Head]
PAPERS = (
    "cosine", "das", "zs_text", "zs_audio", "zs_audio_oracle", "tgap", "tgap_audio",
    "prompt_ensemble", "noisy_ensemble", "debias",
)  # fmt: skip


@pytest.fixture(scope="module")
def clips() -> Matrix:
    return leaning_clips(64)


@pytest.fixture(scope="module")
def compiled(bank: ClassBank, fake: Backbone) -> Compiled:
    """Compile any rule with what it needs."""

    def make(rule: str) -> Head:
        settings, calibration = supplies(rule, fake)
        return compile_head(bank, rule, backbone=fake, calibration=calibration, **settings)

    return make


def slow(rule: str, bank: ClassBank, fake: Backbone, clips: Matrix) -> NDArray[np.float64]:
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


def test_every_rule_of_the_method_exists() -> None:
    assert set(PAPERS) <= set(rule_names())


@pytest.mark.parametrize("rule", PAPERS)
def test_a_rule_compiles_to_the_head_of_its_formula(
    rule: str, compiled: Compiled, bank: ClassBank, fake: Backbone, clips: Matrix
) -> None:
    scores = compiled(rule).scores(clips)
    np.testing.assert_allclose(scores, slow(rule, bank, fake, clips), atol=2e-6)


@pytest.mark.parametrize("rule", rule_names())
def test_a_rule_compiles_to_a_head_that_records_everything_that_made_it(
    rule: str, compiled: Compiled, bank: ClassBank, fake: Backbone
) -> None:
    head = compiled(rule)
    assert isinstance(head, Head)
    assert head.labels == LABELS
    assert head.weights.shape == (3, fake.dim)
    assert head.weights.dtype == head.offsets.dtype == np.float32
    assert head.made_by["rule"] == rule
    assert head.made_by["bank"] == bank.made_by
    assert set(head.made_by["settings"]) == set(find_rule(rule).settings)


@pytest.mark.parametrize("name", rule_names())
def test_a_rule_describes_itself(name: str) -> None:
    rule = find_rule(name)
    assert rule.name == name
    assert rule.summary
    assert "\n" not in rule.summary
    assert 2 <= len(rule.heading) <= 12
    assert [r for r in rule_names() if find_rule(r).heading == rule.heading] == [name]
    for variant in rule.variants:
        assert rule.variant(variant.name) is variant
        assert variant.values or variant.setting in {*rule.settings, "calibration"}
        assert {setting for setting, _ in variant.values} <= set(rule.settings)
        assert variant.summary
        if variant.preset:
            assert load_preset(variant.preset).name == variant.preset
    with pytest.raises(UsageError, match="has no variant 'none'"):
        rule.variant("none")


@pytest.mark.parametrize("name", rule_names())
def test_the_needs_of_a_rule_agree_with_its_parameters(name: str) -> None:
    rule = find_rule(name)
    for keyword, need in SUPPLIED.items():
        parameter = rule.parameters.get(keyword)
        supplied = (
            parameter is not None
            and parameter.annotation is not str  # `background` in words is a setting
            and parameter.default is inspect.Parameter.empty
        )
        assert (need in rule.needs) == supplied, keyword
    for setting in rule.settings.values():
        has_default = setting.default is not inspect.Parameter.empty
        assert has_default or SUPPLIED[setting.name] in rule.needs
    assert (rule.texts is not None) == (Needs.TEXT in rule.needs)


@pytest.mark.parametrize("name", rule_names())
def test_a_rule_reads_exactly_what_it_says_that_it_needs(name: str) -> None:
    """Each thing that can be supplied is exchanged for another: what moves the head is read."""
    rng = np.random.default_rng(0)

    def rows(count: int) -> Matrix:
        return unit(rng.standard_normal((count, 64)).astype(np.float32))

    def calibration() -> Calibration:
        return Calibration(rows(60), rows(60))

    rule, one, other = find_rule(name), Hashed(), Hashed("another model")
    bank = ClassBank(("a", "b", "c"), rows(3), rows(3), np.ones(3, np.float32), rows(3))
    given: dict[str, Any] = {"noise": rows(5), "pool": rows(40), "background": rows(1)}
    given = {k: v for k, v in given.items() if SUPPLIED[k] in rule.needs}
    first = calibration() if Needs.CALIBRATION in rule.needs else None

    def head(bank: ClassBank, backbone: Backbone, **settings: Any) -> bytes:
        calibrated = settings.pop("calibration", first)
        found = compile_head(
            bank, rule, backbone=backbone, calibration=calibrated, **{**given, **settings}
        )
        return found.weights.tobytes() + found.offsets.tobytes()

    before = head(bank, one)
    assert head(bank, Hashed()) == before
    drifts = {
        head(replace(bank, drifts=rows(3)), one),
        head(replace(bank, radii=2 * bank.radii), one),
    }
    found = Needs.NOTHING
    found |= Needs.DRIFTS if drifts != {before} else Needs.NOTHING
    means = head(replace(bank, noisy_means=rows(3)), one)
    found |= Needs.NOISY_MEANS if means != before else Needs.NOTHING
    found |= Needs.TEXT if head(bank, other) != before else Needs.NOTHING
    for keyword, value in given.items():
        if head(bank, one, **{keyword: rows(len(value))}) != before:
            found |= SUPPLIED[keyword]
    # Random clips prefer the same template whatever they are: test_calibration looks closer.
    if head(bank, one, calibration=calibration()) != before or name == "entropy_prompts":
        found |= Needs.CALIBRATION
    assert found == rule.needs


@pytest.mark.parametrize("rule", ["zs_text", "zs_audio"])
def test_bias_subtraction_leaves_average_precision_exactly_unchanged(
    rule: str, compiled: Compiled, clips: Matrix, rng: np.random.Generator
) -> None:
    base, other = compiled("cosine").scores(clips), compiled(rule).scores(clips)
    truth = rng.random(base.shape) < 0.2
    assert not np.array_equal(base, other)
    for c in range(base.shape[1]):
        same = average_precision_score(truth[:, c], base[:, c])
        assert average_precision_score(truth[:, c], other[:, c]) == same


def test_tgap_prototypes_are_not_scaled_back_to_unit_length(compiled: Compiled) -> None:
    lengths = np.linalg.norm(compiled("tgap").weights, axis=1)
    assert (lengths < 0.999).all()


def test_zs_text_takes_the_true_scene_as_its_background(bank: ClassBank, fake: Backbone) -> None:
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
        ("cosine", {"beta": 0.1}, "No setting called 'beta'"),
        ("das", {"beta": "much"}, "must be a number"),
        ("das", {"beta": float("nan")}, "finite number"),
        ("das", {"bet": 0.1}, "did you mean 'beta'"),
        ("zs_audio", {}, "needs noise: embeddings of noise-only recordings"),
        ("tgap", {}, "needs pool"),
        (
            "tgap",
            {"pool": np.ones((3, 64), np.float32)},
            "10 nearest clips of the pool, which has 3",
        ),
        ("zs_text", {}, "pass the bank's backbone"),
        ("zs_text", {"text": 3}, "No setting called 'text'"),
        ("zs_audio_oracle", {"background": np.ones((2, 64), np.float32)}, "the one background"),
    ],
)
def test_bad_settings_are_refused_in_words(
    bank: ClassBank, rule: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        compile_head(bank, rule, **settings)


@pytest.mark.parametrize("count", [2, "2", np.int64(2)])
def test_a_count_stays_an_integer(bank: ClassBank, fake: Backbone, count: Any) -> None:
    """It is used as an index, and the command gives it as text."""
    head = compile_head(bank, "debias", backbone=fake, directions=count)
    assert head.made_by["settings"]["directions"] == 2
    assert isinstance(head.made_by["settings"]["directions"], int)


def test_embeddings_of_another_width_are_refused(bank: ClassBank) -> None:
    with pytest.raises(MismatchError, match="32 dimensions, the bank 64"):
        compile_head(bank, "zs_audio", noise=np.ones((3, 32), np.float32))


def test_text_of_another_model_is_refused(bank: ClassBank) -> None:
    with pytest.raises(MismatchError, match="The bank was made with fake"):
        compile_head(bank, "zs_text", backbone=load_backbone("fake", seed=1))


def test_no_engine_code_names_a_rule() -> None:
    from driftscore import classifier, embedder
    from driftscore.scoring import bank, head, rules

    for module in (bank, classifier, embedder, head, rules):
        assert "zs_audio" not in inspect.getsource(module)


def test_direction_and_pack_change_the_drift_and_not_the_prototype(
    bank: ClassBank, fake: Backbone
) -> None:
    for settings in ({"direction": "svd"}, {"pack": "generic5"}, {"reference": "matched"}):
        other = build_bank(LABELS, fake, settings=PromptSettings(**settings))  # type: ignore[arg-type]
        np.testing.assert_array_equal(other.prototypes, bank.prototypes)
        assert not np.array_equal(other.drifts, bank.drifts)


@pytest.mark.parametrize("rule", rule_names())
def test_a_rule_that_does_not_read_the_noisy_prompts_needs_none(
    rule: str, compiled: Compiled, fake: Backbone
) -> None:
    clean = build_bank(LABELS, fake, drifts=False)
    settings, calibration = supplies(rule, fake)

    def head() -> Head:
        return compile_head(clean, rule, backbone=fake, calibration=calibration, **settings)

    if find_rule(rule).needs & NOISY_PROMPTS:
        with pytest.raises(UsageError, match="drifts=True"):
            head()
        return
    expected, found = compiled(rule), head()
    np.testing.assert_array_equal(found.weights, expected.weights)
    np.testing.assert_array_equal(found.offsets, expected.offsets)
