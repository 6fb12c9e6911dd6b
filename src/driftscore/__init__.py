"""Zero-shot audio classification that keeps working in noise.

import driftscore
classifier = driftscore.Classifier(["dog bark", "siren", "rain"])
classifier.predict(["night.wav"])
"""

from importlib import import_module
from typing import TYPE_CHECKING

from driftscore.interrupts import watch_startup
from driftscore.privacy import disable_telemetry
from driftscore.version import __version__

watch_startup()  # before the imports that take time
disable_telemetry()  # before the imports that it is about

if TYPE_CHECKING:
    from driftscore.audio import Audio
    from driftscore.backbones import Backbone, load_backbone
    from driftscore.bank import ClassBank, build_bank
    from driftscore.classifier import Classifier
    from driftscore.detector import Detector
    from driftscore.embedder import Embedded, EmbeddedBlock, Embedder
    from driftscore.errors import (
        AudioError,
        AuditError,
        DownloadError,
        DriftscoreError,
        FormatError,
        LimitError,
        MismatchError,
        MissingExtraError,
        StoreError,
        UndefinedMetricError,
        UsageError,
        WorkerError,
        WriteError,
    )
    from driftscore.events import Detection, Event
    from driftscore.head import Head
    from driftscore.pipelines import pipeline
    from driftscore.result import Result, ResultBlock
    from driftscore.rules import compile_head
    from driftscore.settings import PromptSettings
    from driftscore.watchlist import WatchedLabel, WatchList

__all__ = [
    "Audio",
    "AudioError",
    "AuditError",
    "Backbone",
    "ClassBank",
    "Classifier",
    "Detection",
    "Detector",
    "DownloadError",
    "DriftscoreError",
    "Embedded",
    "EmbeddedBlock",
    "Embedder",
    "Event",
    "FormatError",
    "Head",
    "LimitError",
    "MismatchError",
    "MissingExtraError",
    "PromptSettings",
    "Result",
    "ResultBlock",
    "StoreError",
    "UndefinedMetricError",
    "UsageError",
    "WatchList",
    "WatchedLabel",
    "WorkerError",
    "WriteError",
    "__version__",
    "build_bank",
    "compile_head",
    "load_backbone",
    "pipeline",
]

_MODULES = {
    "Audio": "audio",
    "Backbone": "backbones",
    "load_backbone": "backbones",
    "ClassBank": "bank",
    "build_bank": "bank",
    "Classifier": "classifier",
    "Detector": "detector",
    "Embedded": "embedder",
    "EmbeddedBlock": "embedder",
    "Embedder": "embedder",
    "Detection": "events",
    "Event": "events",
    "Head": "head",
    "pipeline": "pipelines",
    "Result": "result",
    "ResultBlock": "result",
    "compile_head": "rules",
    "PromptSettings": "settings",
    "WatchList": "watchlist",
    "WatchedLabel": "watchlist",
}
"""The modules of the public names; `errors` has the others."""


def __dir__() -> list[str]:
    return [*__all__, *globals()]


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used: `import driftscore` itself is instant."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"{__name__}.{_MODULES.get(name, 'errors')}")
        return globals().setdefault(name, getattr(module, name))
