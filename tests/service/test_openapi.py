"""The OpenAPI document, and whatever a client may make of it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS, CheckFunction

from driftscore import Audio, load_backbone
from driftscore.decisions.records import StoredEvent
from driftscore.decisions.store import DecisionStore
from driftscore.embedder import Embedder
from driftscore.errors import StoreError
from driftscore.service.app import create_app
from driftscore.service.settings import ServiceSettings

from .conftest import sound, threaded

pytestmark = pytest.mark.slow


class BrokenStore(DecisionStore):
    """A store whose events cannot be read, which ends a stream at once."""

    def after(self, id: int, limit: int) -> list[StoredEvent]:
        raise StoreError("broken on purpose")


@schemathesis.serializer("audio/wav", "audio/flac")
def send_sound(context: object, value: object) -> bytes:
    """Send what was generated as it is, or as the samples of a sound file."""
    content = value if isinstance(value, bytes) else str(value).encode()
    if len(content) % 2 or not content:
        return content
    samples = np.frombuffer(content, np.int8).astype(np.float32) / 128
    return sound(Audio(np.resize(samples, 800).astype(np.float32), 8000))


FOLDER = tempfile.TemporaryDirectory()
APP = create_app(
    ServiceSettings(
        backbone=Embedder(load_backbone("fake"), text_cache=False),
        event_store=BrokenStore(Path(FOLDER.name) / "events.db"),
    )
)
SCHEMA = schemathesis.openapi.from_dict(APP.openapi())


# Random bytes are no sound, and random names no rules: they follow the document all the same.
IGNORED = cast(list[CheckFunction], [CHECKS.get_one("positive_data_acceptance")])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Serve the application in a thread."""
    with threaded(APP) as url:
        yield url


@SCHEMA.parametrize()
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_that_follows_the_document_breaks_the_service(
    case: schemathesis.Case[Any], url: str
) -> None:
    case.call_and_validate(base_url=url, excluded_checks=IGNORED)
