"""Zero-shot audio classification that keeps working in noise.

import driftscore
classifier = driftscore.Classifier(["dog bark", "siren", "rain"])
classifier.predict(["night.wav"])
"""

from importlib import import_module
from typing import TYPE_CHECKING

from driftscore.errors import AudioError as AudioError
from driftscore.errors import DownloadError as DownloadError
from driftscore.errors import DriftscoreError as DriftscoreError
from driftscore.errors import FormatError as FormatError
from driftscore.errors import MismatchError as MismatchError
from driftscore.errors import MissingExtraError as MissingExtraError
from driftscore.errors import UsageError as UsageError
from driftscore.errors import WriteError as WriteError
from driftscore.version import __version__ as __version__

if TYPE_CHECKING:
    from driftscore.audio.recordings import Audio as Audio
    from driftscore.backbones import Backbone as Backbone
    from driftscore.backbones import load_backbone as load_backbone
    from driftscore.classifier import Classifier as Classifier
    from driftscore.detector import Detector as Detector
    from driftscore.embedder import Embedded as Embedded
    from driftscore.embedder import Embedder as Embedder
    from driftscore.events.tracking import Detection as Detection
    from driftscore.events.tracking import Event as Event
    from driftscore.events.watchlist import WatchedLabel as WatchedLabel
    from driftscore.events.watchlist import WatchList as WatchList
    from driftscore.pipelines import pipeline as pipeline
    from driftscore.scoring.bank import ClassBank as ClassBank
    from driftscore.scoring.bank import build_bank as build_bank
    from driftscore.scoring.calibration import Calibration as Calibration
    from driftscore.scoring.head import Head as Head
    from driftscore.scoring.head import Result as Result
    from driftscore.scoring.rules import compile_head as compile_head
    from driftscore.text.presets import PromptSettings as PromptSettings

_MODULES = {
    "Audio": "audio.recordings",
    "Backbone": "backbones",
    "Calibration": "scoring.calibration",
    "ClassBank": "scoring.bank",
    "Classifier": "classifier",
    "Detection": "events.tracking",
    "Detector": "detector",
    "Embedded": "embedder",
    "Embedder": "embedder",
    "Event": "events.tracking",
    "Head": "scoring.head",
    "PromptSettings": "text.presets",
    "Result": "scoring.head",
    "WatchList": "events.watchlist",
    "WatchedLabel": "events.watchlist",
    "build_bank": "scoring.bank",
    "compile_head": "scoring.rules",
    "load_backbone": "backbones",
    "pipeline": "pipelines",
}
"""What is imported when it is first used, by module: `import driftscore` itself is instant."""
_ERRORS = [name for name in globals() if name.endswith("Error")]
__all__ = sorted([*_MODULES, *_ERRORS, "__version__"])


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"{__name__}.{_MODULES[name]}")
        return globals().setdefault(name, getattr(module, name))
