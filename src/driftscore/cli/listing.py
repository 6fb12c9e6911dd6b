"""`driftscore list`: what there is to choose from."""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from driftscore import backbones, engines, formats, registry, rules
from driftscore.cli import options as take
from driftscore.errors import DriftscoreError, unknown
from driftscore.formats import DEFAULT_FORMAT, OutputRow, write_rows
from driftscore.prompts import load_pack, pack_names
from driftscore.settings import load_preset, preset_names


def list_(
    what: Annotated[
        str,
        typer.Argument(
            help="rules | backbones | packs | presets | engines | formats | datasets | noises | "
            "mixings"
        ),
    ],
    format: take.FormatName = DEFAULT_FORMAT,
) -> None:
    """Show what there is to choose from."""
    if what not in _LISTS:
        raise unknown("list", what, _LISTS)
    write_rows(_LISTS[what](), format, sys.stdout)


def plugin_rows(kind: registry.Kind) -> list[OutputRow]:
    """Return one row per plug-in; one that cannot be loaded is a row that says so."""
    rows: list[OutputRow] = []
    for name in registry.names(kind):
        try:
            what = registry.summary(registry.find(kind, name))
        except DriftscoreError as error:
            what = str(error)
        rows.append({kind.title: name, "what": what})
    return rows


def _pack_rows() -> list[OutputRow]:
    packs = [load_pack(name) for name in pack_names()]
    return [{"pack": p.id, "holds": f"{len(p.entries)} {p.kind}", "what": p.title} for p in packs]


def _preset_rows() -> list[OutputRow]:
    return [{"preset": name, "what": load_preset(name).title} for name in preset_names()]


def _dataset_rows() -> list[OutputRow]:
    from driftscore.lab.corpora import datasets  # not at the top: other commands need no lab

    return plugin_rows(datasets.KIND)


def _noise_rows() -> list[OutputRow]:
    from driftscore.lab.corpora import noises

    return plugin_rows(noises.KIND)


def _mixing_rows() -> list[OutputRow]:
    from driftscore.lab.mixing import mixings

    return plugin_rows(mixings.KIND)


_LISTS: dict[str, Callable[[], list[OutputRow]]] = {
    "rules": lambda: plugin_rows(rules.KIND),
    "backbones": lambda: plugin_rows(backbones.KIND),
    "packs": _pack_rows,
    "presets": _preset_rows,
    "engines": lambda: plugin_rows(engines.KIND),
    "formats": lambda: plugin_rows(formats.KIND),
    "datasets": _dataset_rows,
    "noises": _noise_rows,
    "mixings": _mixing_rows,
}
