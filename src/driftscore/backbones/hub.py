"""Models on the Hugging Face hub: found in its cache, or downloaded if the hub answers in time.

A model is always loaded from a folder, so that no library asks the hub on its own. A model in the
cache is used as it is, without a request; `hf download` brings a newer one. Otherwise one request
asks for the list of its files. That request has a deadline for all of it (name, connection,
answer), so that a machine without a network learns within seconds what to do.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from driftscore.backbones.protocol import Named
from driftscore.errors import DownloadError, FormatError, MismatchError, UsageError
from driftscore.storage.files import first_line, is_file, is_folder, read_text, reading
from driftscore.system.process import environment

DEADLINE_S = 4.0
"""Seconds that the hub has to answer."""
STALLED_S = 20.0
"""Seconds without a byte after which a download is given up."""
Answer = TypeVar("Answer")
Model = TypeVar("Model", bound=Named)
ModelSettings = dict[str, Any]
"""A JSON file of a checkpoint, such as its config."""
_MAX_SETTINGS_BYTES = 64 * 2**20


def settings() -> ModuleType:
    """Return the settings of the hub's library (its cache, whether it is offline, ...).

    It must be imported through this function first: it reports what it is used for otherwise.
    """
    with environment(HF_HUB_DISABLE_TELEMETRY="1"):
        from huggingface_hub import constants

    return constants


def is_hub_id(spec: str) -> bool:
    """Return whether a name has the form owner/name and is not a path."""
    path = spec.startswith((".", "/", "~")) or "\\" in spec or ":" in spec
    return spec.count("/") == 1 and not path and not (is_file(spec) or is_folder(spec))


def local_folder(name: str) -> Path | None:
    """Return the folder called `name`, or that of a model in the hub's cache.

    It may lack some of the model's files.
    """
    if is_folder(name):
        return Path(name)
    if not is_hub_id(name):
        return None
    settings()
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, "config.json")
    return Path(config).parent if isinstance(config, str) else None


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
    folder = local_folder(name)
    if folder is not None and (is_folder(name) or complete(folder)):
        return folder
    if not is_hub_id(name):
        raise UsageError(f"{name} is neither a folder nor the id of a model on the hub")
    files = choose(list_files(name))
    target = Path(settings().HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    from huggingface_hub import hf_hub_download

    def get_all() -> None:
        for file in files:  # `snapshot_download` has threads that keep the process alive
            hf_hub_download(name, file)

    def downloaded_bytes() -> int:
        total = 0
        for path in target.rglob("*"):
            with suppress(OSError):  # moved into place in the meantime
                total += path.lstat().st_size
        return total

    try:
        _within(STALLED_S, get_all, progress=downloaded_bytes)
    except Exception as error:
        raise _not_loaded(name, error) from error
    folder = local_folder(name)
    if folder is None:
        raise _not_loaded(name, f"no config.json arrived in {target}")
    return folder


def list_files(name: str) -> tuple[str, ...]:
    """Return the names of a model's files on the hub; ask it once, with a deadline."""
    if settings().HF_HUB_OFFLINE:
        raise _not_loaded(name, "HF_HUB_OFFLINE is set")
    from huggingface_hub import HfApi

    try:
        info = _within(DEADLINE_S, lambda: HfApi().model_info(name, timeout=DEADLINE_S))
    except Exception as error:  # the classes differ between versions of the library
        raise _not_loaded(name, error) from error
    return tuple(file.rfilename for file in info.siblings or ())


@contextmanager
def offline_if_unreachable() -> Iterator[None]:
    """Let the hub's libraries use only their cache in this block if the hub does not answer.

    For models that another library loads: what is missing then fails at once and not after
    minutes of retries.
    """
    constants: Any = settings()
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = bool(unreachable_reason())
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def unreachable_reason() -> str:
    """Return why the hub does not answer; empty if it does."""
    constants = settings()
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    try:
        _within(DEADLINE_S, lambda: get_session().head(constants.ENDPOINT, timeout=DEADLINE_S))
    except Exception as error:  # whatever the reason: the hub cannot be used
        return first_line(error)
    return ""


def what_to_do(name: str) -> str:
    """Return how to get a model that cannot be downloaded here."""
    return (
        f"Download it where there is a network (hf download {name} --local-dir FOLDER) and give "
        "the folder in place of the name; HF_HUB_OFFLINE=1 skips the request"
    )


def _within(
    seconds: float, function: Callable[[], Answer], *, progress: Callable[[], int] = lambda: 0
) -> Answer:
    """Return `function()`, or raise TimeoutError after `seconds` without progress.

    The libraries' own time-outs are no help: the look-up of a name has none, and the others are
    retried for minutes.
    """
    future: Future[Answer] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()  # it must not keep the process alive
    before = -1
    while not future.done() and (now := progress()) != before:
        before = now
        wait([future], seconds)
    if not future.done():
        raise TimeoutError(f"no answer within {seconds:g} s")
    return future.result()


def _not_loaded(name: str, reason: str | Exception) -> DownloadError:
    """Return the error that explains why the hub did not give a model."""
    kind = type(reason).__name__
    if kind == "GatedRepoError":
        why = (
            "its owner wants to be asked. Accept the terms on its page on the hub, then run "
            "`hf auth login`"
        )
    elif kind == "RepositoryNotFoundError":
        why = (
            "the hub has none of this name that you may read. Check the spelling; for a private "
            "model run `hf auth login`"
        )
    else:
        if isinstance(reason, Exception):
            reason = f"the hub does not give it ({first_line(reason)})"
        why = f"it is not on this machine, and {reason}. {what_to_do(name)}"
    return DownloadError(f"The model {name!r} cannot be loaded: {why}")


def load_again(load: Callable[[], Model], fingerprint: str) -> Model:
    """Load a model that was pickled or copied; one that has changed meanwhile is an error."""
    model = load()
    if model.fingerprint != fingerprint:
        raise MismatchError(f"{model.name} has changed since the model was loaded; load it again")
    return model


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


def read_settings(path: Path) -> ModelSettings:
    """Return the content of a JSON file of a model."""
    written = read_text(path, "file of a model", most=_MAX_SETTINGS_BYTES)
    with reading(path, "file of a model"):
        content = json.loads(written)
    if not isinstance(content, dict):
        raise FormatError(f"{path} must be a JSON object")
    return content


def model_type(folder: Path) -> str | None:
    """Return what the config of a checkpoint says that it is; None if it cannot be read."""
    try:
        kind = read_settings(folder / "config.json").get("model_type")
    except FormatError:
        return None
    return kind if isinstance(kind, str) else None
