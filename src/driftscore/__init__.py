"""Zero-shot audio classification that keeps working in noise.

import driftscore
classifier = driftscore.Classifier(["dog bark", "siren", "rain"])
classifier.predict(["night.wav"])
"""

from driftscore.interrupts import watch_startup
from driftscore.privacy import disable_telemetry

watch_startup()  # before the imports that take time
disable_telemetry()  # before the imports that it is about

# ruff: noqa: E402
from driftscore.audio import Audio
from driftscore.backbones import Backbone, load_backbone
from driftscore.bank import ClassBank, build_bank
from driftscore.classifier import Classifier
from driftscore.detector import Detector
from driftscore.embedder import Embedded, Embedder
from driftscore.errors import (
    AudioError,
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
from driftscore.pipeline import pipeline
from driftscore.result import Result
from driftscore.rules import compile_head
from driftscore.settings import PromptSettings
from driftscore.version import __version__
from driftscore.watchlist import WatchedLabel, WatchList

__all__ = [
    "Audio",
    "AudioError",
    "Backbone",
    "ClassBank",
    "Classifier",
    "Detection",
    "Detector",
    "DownloadError",
    "DriftscoreError",
    "Embedded",
    "Embedder",
    "Event",
    "FormatError",
    "Head",
    "LimitError",
    "MismatchError",
    "MissingExtraError",
    "PromptSettings",
    "Result",
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
