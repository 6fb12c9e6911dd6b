"""Engines, one per file: where recordings are embedded. `protocol.py` says what an engine defines.

Comes in: recordings. Goes out: window embeddings, or an error, per recording, in the order given.
May import: `backbones`, `audio` and what is below them. An engine can also be an entry point of the
group `driftscore.engines`, or "module:object".
"""

from driftscore.engines.protocol import (
    Embedded,
    EmbeddedBlock,
    Engine,
    EngineModule,
    EngineSettings,
    ModelSpec,
)
from driftscore.system import plugins

__all__ = ["DEFAULT_ENGINE", "KIND", "Embedded", "EmbeddedBlock", "Engine", "EngineModule",
           "EngineSettings", "ModelSpec", "engine_names"]  # fmt: skip

KIND = plugins.Kind("engine", __name__, "open_engine")
DEFAULT_ENGINE = "local"


def engine_names() -> tuple[str, ...]:
    """Return the names of all engines: ours and those of entry points."""
    return plugins.names(KIND)
