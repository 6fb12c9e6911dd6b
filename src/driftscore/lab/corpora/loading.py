"""Load sounds by their file: recordings from disk, or sounds that a noise generates by name."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Protocol, runtime_checkable

from driftscore import registry
from driftscore.audio import Audio, read

NOISES = registry.Kind("noise", "driftscore.lab.corpora.noises", "sample")

_KEPT_BYTES = 256 * 2**20
_recent: OrderedDict[tuple[str, int], Audio] = OrderedDict()
_lock = Lock()


@runtime_checkable
class GeneratesSounds(Protocol):
    """A noise whose sounds are generated from their names."""

    make: Callable[[str, int], Audio]


def load(file: str, rate: int) -> Audio:
    """Return a sound at `rate`; the sounds used last stay in memory."""
    with _lock:
        if (kept := _recent.get((file, rate))) is not None:
            _recent.move_to_end((file, rate))
            return kept
    audio = _generated(file, rate) or read(file, rate=rate)
    with _lock:
        _recent[file, rate] = audio
        while len(_recent) > 1 and sum(a.samples.nbytes for a in _recent.values()) > _KEPT_BYTES:
            _recent.popitem(last=False)
    return audio


def is_generated(file: str) -> bool:
    """Return whether a file is the name of a sound that a noise generates."""
    noise, colon, _ = file.partition(":")
    # One letter before the colon is a drive: C:\\noise.wav is a path.
    return bool(colon) and len(noise) > 1 and noise.isidentifier() and registry.has(NOISES, noise)


def _generated(file: str, rate: int) -> Audio | None:
    """Return the sound that `noise:description` names; None for a path."""
    if not is_generated(file):
        return None
    noise, _, description = file.partition(":")
    plugin = registry.find(NOISES, noise)
    return plugin.make(description, rate) if isinstance(plugin, GeneratesSounds) else None
