"""A classifier with the model that comes with driftscore, shared by the tests of the listener."""

import pytest

from driftscore import Backbone, Classifier, Embedder

from .scenes import LABELS


@pytest.fixture(scope="session")
def classifier(mini: Backbone) -> Classifier:
    return Classifier(LABELS, backbone=Embedder(mini, text_cache=False))
