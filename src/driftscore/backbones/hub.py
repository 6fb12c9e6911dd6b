"""Models on the Hugging Face hub: found in its cache, or downloaded if the hub answers in time.

A model is always loaded from a folder, so that no library asks the hub on its own. A model in the
cache is used as it is, without a request; `hf download` brings a newer one. Otherwise one request
asks for the list of its files. That request has a deadline for all of it (name, connection,
answer), so that a machine without a network learns within seconds what to do.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from driftscore.errors import DownloadError, FormatError, UsageError
from driftscore.reading import is_file, is_folder

DEADLINE_S = 4.0
"""Seconds that the hub has to answer."""
STALLED_S = 20.0
"""Seconds without a byte after which a download is given up."""
Answer = TypeVar("Answer")


def is_hub_id(spec: str) -> bool:
    """Return whether a name has the form owner/name and is not a path."""
    path = spec.startswith((".", "/", "~")) or "\\" in spec or ":" in spec
    return spec.count("/") == 1 and not path and not (is_file(spec) or is_folder(spec))


def cache_folder() -> Path:
    """Return the hub's cache of models."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()


def cached_folder(name: str) -> Path | None:
    """Return the folder of a model in the hub's cache; it may lack some of its files."""
    repository = cache_folder() / _repository(name)
    try:
        revision = (repository / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    snapshot = repository / "snapshots" / revision
    return snapshot if (snapshot / "config.json").is_file() else None


def is_offline() -> bool:
    """Return whether the user has told the hub's libraries to use no network."""
    given = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return given.upper() in ("1", "ON", "YES", "TRUE")


def obtain(
    name: str,
    *,
    complete: Callable[[Path], bool],
    choose: Callable[[Sequence[str]], Sequence[str]],
) -> Path:
    """Return the folder of a model: the one given, the one in the cache, or a new download.

    `complete` tells whether a cached folder has every file that is needed; `choose` picks those
    files from all files of the model on the hub, or raises an error if some are missing.
    """
    if is_folder(name):
        return Path(name)
    cached = cached_folder(name) if is_hub_id(name) else None
    if cached is not None and complete(cached):
        return cached
    if not is_hub_id(name):
        raise UsageError(f"{name} is neither a folder nor the id of a model on the hub")
    return _download(name, choose(list_files(name)))


def list_files(name: str) -> tuple[str, ...]:
    """Return the names of a model's files on the hub; ask it once, with a deadline."""
    if is_offline():
        raise _unreachable(name, "HF_HUB_OFFLINE is set")
    from huggingface_hub import HfApi

    def ask() -> tuple[str, ...]:
        found = HfApi().model_info(name, timeout=DEADLINE_S)
        return tuple(file.rfilename for file in found.siblings or ())

    try:
        return _within(DEADLINE_S, ask)
    except Exception as error:  # the classes differ between versions of the library
        raise _failed(name, error) from error


def _download(name: str, files: Sequence[str]) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    shown = not are_progress_bars_disabled()
    if not sys.stderr.isatty():
        disable_progress_bars()
    target = cache_folder() / _repository(name)

    def get_all() -> None:
        for file in files:  # `snapshot_download` has threads that keep the process alive
            hf_hub_download(name, file)

    try:
        _within(STALLED_S, get_all, progress=lambda: _size(target))
    except Exception as error:
        raise _failed(name, error) from error
    finally:
        if shown:
            enable_progress_bars()
    folder = cached_folder(name)
    if folder is None:
        raise _unreachable(name, f"no config.json arrived in {target}")
    return folder


def _repository(name: str) -> str:
    return f"models--{name.replace('/', '--')}"


def _size(folder: Path) -> int:
    """Return the bytes that have been downloaded into a folder so far."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # moved into place in the meantime
            total += path.lstat().st_size
    return total


@contextmanager
def offline_if_unreachable() -> Iterator[None]:
    """Let the hub's libraries use only their cache in this block if the hub does not answer.

    For models that another library loads: what is missing then fails at once and not after
    minutes of retries.
    """
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    if not before and unreachable_reason():
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def unreachable_reason() -> str:
    """Return why the hub does not answer; empty if it does."""
    if is_offline():
        return "HF_HUB_OFFLINE is set"
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    try:
        _within(DEADLINE_S, lambda: get_session().head(constants.ENDPOINT, timeout=DEADLINE_S))
    except Exception as error:  # whatever the reason: the hub cannot be used
        return (str(error).strip() or type(error).__name__).split("\n")[0]
    return ""


def what_to_do(name: str) -> str:
    """Return how to get a model that cannot be downloaded here."""
    return (
        f"Download it where there is a network (hf download {name} --local-dir FOLDER) and give "
        "the folder in place of the name; HF_HUB_OFFLINE=1 skips the request"
    )


def _within(
    seconds: float,
    function: Callable[[], Answer],
    *,
    progress: Callable[[], int] | None = None,
) -> Answer:
    """Return `function()`, or raise TimeoutError after `seconds` (without progress, if given).

    The libraries' own time-outs are no help: the look-up of a name has none, and the others are
    retried for minutes.
    """
    found: list[Answer] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            found.append(function())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)  # it must not keep the process alive
    thread.start()
    before = -1
    while progress is not None and thread.is_alive() and (now := progress()) != before:
        before = now
        thread.join(seconds)
    thread.join(seconds if progress is None else 0)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return found[0]


def _failed(name: str, error: Exception) -> DownloadError:
    """Return the error that explains why the hub did not give a model."""
    kind = type(error).__name__
    if kind == "GatedRepoError":
        return DownloadError(
            f"The model {name!r} cannot be loaded: its owner wants to be asked. Accept the terms "
            "on its page on the hub, then run `hf auth login`"
        )
    if kind == "RepositoryNotFoundError":
        return DownloadError(
            f"The model {name!r} cannot be loaded: the hub has none of this name that you may "
            "read. Check the spelling; for a private model run `hf auth login`"
        )
    reason = (str(error).strip() or kind).split("\n")[0]
    return _unreachable(name, f"the hub does not give it ({reason})")


def _unreachable(name: str, reason: str) -> DownloadError:
    return DownloadError(
        f"The model {name!r} cannot be loaded: it is not on this machine, and {reason}. "
        f"{what_to_do(name)}"
    )


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Turn off the messages and progress bars of transformers for a while."""
    from transformers.utils import logging as messages

    verbosity, bars = messages.get_verbosity(), messages.is_progress_bar_enabled()
    messages.set_verbosity_error()
    messages.disable_progress_bar()
    try:
        yield
    finally:
        messages.set_verbosity(verbosity)
        if bars:
            messages.enable_progress_bar()


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder has what a CLAP needs: settings and complete safetensors."""
    settings = ("config.json", "preprocessor_config.json")
    return all((folder / name).is_file() for name in settings) and bool(weight_files(folder))


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint; none if one of them is missing."""
    files = [folder / "model.safetensors"]
    if not files[0].is_file():
        index = folder / "model.safetensors.index.json"
        try:
            parts = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            files = [folder / Path(part).name for part in sorted(set(parts))]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []
    return files if all(file.is_file() for file in files) else []


def checkpoint_files(files: Sequence[str]) -> list[str]:
    """Return the files of a checkpoint among those of a model: its settings and safetensors."""
    if not any(file.endswith(".safetensors") for file in files):
        raise FormatError(
            "The model has no safetensors weights on the hub, and other kinds are not loaded: a "
            "pickle can run any code. Convert it, or choose another model"
        )
    kinds = (".json", ".txt", ".safetensors")
    return [file for file in files if "/" not in file and file.endswith(kinds)]


def model_type(folder: Path) -> str | None:
    """Return what the config of a checkpoint says that it is; None if it cannot be read."""
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    found = content.get("model_type") if isinstance(content, dict) else None
    return found if isinstance(found, str) else None
