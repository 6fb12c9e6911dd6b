"""Rules of one's own: found by name, by module and function, or given as objects."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from driftscore import (
    ClassBank,
    Head,
    MismatchError,
    UsageError,
    compile_head,
)
from driftscore.backbones.vectors import Matrix
from driftscore.scoring.calibration import Calibration
from driftscore.scoring.rules import Needs, Rule, cosine, find_rule
from driftscore.text.cache import TextEncoder

from .conftest import LABELS


def halved(bank: ClassBank, *, share: float = 0.5) -> Head:
    """Scale the prototypes.

    A rule that is not part of driftscore.
    """
    weights = np.float32(share) * bank.prototypes
    return Head(bank.labels, weights, np.zeros(len(bank.labels), np.float32))


def test_a_rule_is_found_by_its_name() -> None:
    rule = find_rule("zs_audio")
    assert (rule.name, rule.heading, rule.needs) == ("zs_audio", "ZS-A-m", Needs.NOISE)
    assert list(rule.settings) == ["noise", "tau"]
    assert find_rule(rule) is rule
    with pytest.raises(UsageError, match="No rule called 'zs_audo'; did you mean 'zs_audio'"):
        find_rule("zs_audo")


def test_a_function_is_a_rule(bank: ClassBank) -> None:
    rule = find_rule(halved)
    assert (rule.name, rule.heading, rule.summary) == ("halved", "halved", "Scale the prototypes")
    assert rule.needs == Needs.DRIFTS | Needs.NOISY_MEANS  # it may read anything of the bank
    assert list(rule.settings) == ["share"]
    head = compile_head(bank, halved, share="0.25")
    np.testing.assert_array_equal(head.weights, bank.prototypes / 4)
    assert head.made_by["settings"] == {"share": 0.25}
    with pytest.raises(UsageError, match="did you mean 'share'"):
        compile_head(bank, halved, shar=1)


def test_a_rule_is_found_by_module_and_function(bank: ClassBank) -> None:
    name = f"{__name__}:halved"
    rule = find_rule(name)
    assert (rule.name, rule.compile) == (name, halved)
    np.testing.assert_array_equal(compile_head(bank, name).weights, bank.prototypes / 2)
    with pytest.raises(UsageError, match="AttributeError"):
        find_rule(f"{__name__}:absent")
    with pytest.raises(UsageError, match="neither a function nor a module"):
        find_rule(f"{__name__}:LABELS")
    with pytest.raises(UsageError, match="No rule called 'no_such_module:x'"):
        find_rule("no_such_module:x")


def test_a_module_or_an_object_with_compile_is_a_rule(bank: ClassBank) -> None:
    assert find_rule(cosine) == find_rule("cosine")
    plugin: Any = SimpleNamespace(
        compile=halved, SHORT="Half", NEEDS=Needs.NOTHING, __doc__="Halve.\n\nThe rest."
    )
    rule = find_rule(plugin)
    assert (rule.heading, rule.needs, rule.summary) == ("Half", Needs.NOTHING, "Halve")
    assert isinstance(rule, Rule)
    np.testing.assert_array_equal(compile_head(bank, plugin).weights, bank.prototypes / 2)


def test_the_needs_of_a_function_follow_from_its_parameters() -> None:
    def noisy(bank: ClassBank, *, noise: Matrix, pool: Matrix, text: TextEncoder) -> Head:
        raise NotImplementedError

    def untyped(bank, *, background):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    def named(bank: ClassBank, *, background: str = "noise") -> Head:
        raise NotImplementedError

    def perhaps(bank: ClassBank, *, calibration: Calibration | None = None) -> Head:
        raise NotImplementedError

    def calibrated(bank: ClassBank, *, calibration: Calibration) -> Head:
        raise NotImplementedError

    everything = Needs.DRIFTS | Needs.NOISY_MEANS
    for function, more in (
        (noisy, Needs.NOISE | Needs.POOL | Needs.TEXT),
        (untyped, Needs.BACKGROUND),
        (named, Needs.NOTHING),
        (perhaps, Needs.NOTHING),
        (calibrated, Needs.CALIBRATION),
    ):
        assert find_rule(function).needs == everything | more
    noisy.NEEDS = Needs.NOISE  # type: ignore[attr-defined]
    assert find_rule(noisy).needs == Needs.NOISE


def test_embeddings_are_checked_for_a_function_without_types(bank: ClassBank) -> None:
    def shifted(bank, *, noise):  # type: ignore[no-untyped-def]
        assert isinstance(noise, np.ndarray)
        return Head(bank.labels, bank.prototypes, -bank.prototypes @ noise.mean(axis=0))

    head = compile_head(bank, shifted, noise=np.ones((2, 64)).tolist())
    assert head.offsets.shape == (3,)
    with pytest.raises(MismatchError, match="32 dimensions, the bank 64"):
        compile_head(bank, shifted, noise=np.ones((2, 32)))


def test_a_rule_must_return_a_head(bank: ClassBank) -> None:
    def wrong(bank: ClassBank) -> Any:
        return bank.prototypes

    with pytest.raises(UsageError, match="must return a Head, got ndarray"):
        compile_head(bank, wrong)


def test_further_texts_must_be_listed() -> None:
    def reading(bank: ClassBank, *, text: TextEncoder) -> Head:
        raise NotImplementedError

    with pytest.raises(UsageError, match=r"does not define texts\(labels, \.\.\.\)"):
        find_rule(reading).further_texts(LABELS, {})
