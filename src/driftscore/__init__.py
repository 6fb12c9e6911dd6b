"""Zero-shot audio classification that keeps working in noise.

import driftscore
ears = driftscore.Classifier(["dog bark", "siren", "rain"])
ears.predict(["night.wav"])
"""

__version__ = "0.1.0"

from driftscore.audio import Audio
from driftscore.backbones import Backbone, load_backbone
from driftscore.bank import ClassBank, build_bank
from driftscore.classifier import Classifier
from driftscore.errors import DriftscoreError
from driftscore.head import Head
from driftscore.pipeline import pipeline
from driftscore.rules import compile_head

__all__ = [
    "Audio",
    "Backbone",
    "ClassBank",
    "Classifier",
    "DriftscoreError",
    "Head",
    "__version__",
    "build_bank",
    "compile_head",
    "load_backbone",
    "pipeline",
]
