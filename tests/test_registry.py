"""Plug-ins by name: our own files, entry points of other packages, "module:attribute"."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from driftscore import UsageError
from driftscore.backbones import KIND as BACKBONES
from driftscore.engines import KIND as ENGINES
from driftscore.scoring.rules import KIND as RULES
from driftscore.scoring.rules import find_rule, rule_names
from driftscore.system import plugins as registry

SHORT = "Outside"


def compile(bank: object) -> None:
    """Do nothing. This module is a rule of another package."""


@pytest.fixture
def entry_points(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the entry points of another package: a rule, one called as ours, a broken one."""
    points = [
        EntryPoint("outside", __name__, RULES.group),
        EntryPoint("outside_function", f"{__name__}:compile", RULES.group),
        EntryPoint("das", __name__, RULES.group),
        EntryPoint("broken", "no_such_module", RULES.group),
    ]

    def found(*, group: str) -> list[EntryPoint]:
        return [point for point in points if point.group == group]

    monkeypatch.setattr("importlib.metadata.entry_points", found)
    registry._entry_points.cache_clear()
    yield
    registry._entry_points.cache_clear()


@pytest.mark.usefixtures("entry_points")
def test_entry_points_are_listed_after_our_own_and_do_not_replace_them() -> None:
    names = rule_names()
    assert names[-3:] == ("broken", "outside", "outside_function")
    assert names.count("das") == 1
    assert find_rule("das").heading == "DAS"
    assert registry.has(RULES, "outside")


@pytest.mark.usefixtures("entry_points")
def test_an_entry_point_names_a_module_or_a_function() -> None:
    assert find_rule("outside").heading == "Outside"
    assert find_rule("outside").summary == __doc__.split("\n")[0].rstrip(".")
    assert find_rule("outside_function").heading == "outside_function"
    assert find_rule("outside_function").compile == registry.find(RULES, f"{__name__}:compile")


@pytest.mark.usefixtures("entry_points")
def test_an_entry_point_that_cannot_be_loaded_is_an_error_in_words() -> None:
    with pytest.raises(UsageError, match=r"The rule 'broken' of .* cannot be loaded: ModuleNotF"):
        find_rule("broken")


def test_groups_follow_the_packages() -> None:
    groups = [kind.group for kind in (RULES, BACKBONES, ENGINES)]
    assert groups == ["driftscore.rules", "driftscore.backbones", "driftscore.engines"]


@pytest.mark.parametrize(
    "name", ["protocol", "_private", "", "das.compile", "a:b:c", ":x", "x:", "../das", "no.such:x"]
)
def test_what_is_no_plug_in_is_not_found(name: str) -> None:
    assert not registry.has(RULES, name)
    with pytest.raises(UsageError, match="No rule called"):
        registry.find(RULES, name)


def test_a_reference_names_any_attribute() -> None:
    name = f"{__name__}:compile"
    assert registry.has(RULES, name)
    assert registry.find(RULES, name) is compile
    assert registry.find(RULES, "driftscore.scoring.rules.protocol:Rule.variant")


def test_a_plug_in_that_does_not_define_its_function_is_not_listed() -> None:
    assert "protocol" not in rule_names()
    assert all(hasattr(registry.find(RULES, name), "compile") for name in rule_names())
