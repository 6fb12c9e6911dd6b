"""The figures that the paper prints, from paper.toml: on its data and models, not ours."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import TypedDict

from driftscore.lab.conditions import PooledCondition

PaperLine = list[float | int | str]


class PaperTable(TypedDict, total=False):
    """One table of paper.toml."""

    title: str
    datasets: list[str]
    groups: list[str]
    rows: dict[str, PaperLine]
    alignment: dict[str, tuple[float, float]]
    agreement: dict[str, float]


@cache
def paper_content() -> dict[str, dict[str, object]]:
    """Return paper.toml."""
    file = files("driftscore.lab.report") / "paper.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def paper_table(name: str) -> PaperTable:
    """Return one of the paper's tables."""
    return paper_content()[name]  # type: ignore[return-value]


def paper_robustness(axis: str) -> dict[str, PaperLine]:
    """Return the paper's lines by noise, mixing or snr."""
    return paper_content()["robustness"][axis]  # type: ignore[return-value]


def paper_panel(dataset: str) -> dict[str, list[float]]:
    """Return the paper's main table of a dataset by SNR; empty for other datasets."""
    return paper_content()["panel"].get(dataset, {})  # type: ignore[return-value]


def panel_line(place: PooledCondition) -> list[float] | None:
    """Return the paper's line of the same dataset, noise, mixing, SNR and backbone, if any."""
    panel = paper_content()["panel"]
    same = (place.noise, place.mixing, place.backbone) == tuple(
        panel[name] for name in ("noise", "mixing", "backbone")
    )
    return paper_panel(place.dataset).get(place.snr) if same else None
