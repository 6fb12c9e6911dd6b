"""Engines, one per file: where recordings are embedded. `protocol.py` says what an engine defines.

An engine can also be an entry point of the group `driftscore.engines`, or "module:object".
"""

from typing import cast

from driftscore import registry
from driftscore.engines.protocol import (
    Embedded,
    EmbeddedBlock,
    Engine,
    EngineModule,
    EngineSettings,
    ModelSpec,
)

__all__ = ["Embedded", "EmbeddedBlock", "Engine", "EngineModule", "EngineSettings", "ModelSpec",
           "engine_names", "find_engine"]  # fmt: skip

KIND = registry.Kind("engine", __name__, "open_engine")
DEFAULT_ENGINE = "local"


def engine_names() -> tuple[str, ...]:
    """Return the names of all engines: ours and those of entry points."""
    return registry.names(KIND)


def find_engine(name: str) -> EngineModule:
    """Return the engine of this name."""
    return cast(EngineModule, registry.find(KIND, name))
