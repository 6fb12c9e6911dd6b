"""Events as JSON by POST to an address: Home Assistant, ntfy, n8n, a program of one's own.

The secret in `DRIFTSCORE_WEBHOOK_SECRET`, if there is one, is sent as `Authorization: Bearer`. Any
answer from 200 to 299 means that the event was taken. Redirects are not followed.
`Idempotency-Key` is the same whenever an event is sent again.
"""

import hashlib
import os
from collections.abc import Callable

from driftscore.decisions.records import JsonFields
from driftscore.errors import UsageError
from driftscore.live.outputs.delivery import Transport, UndeliveredError, connection_problem
from driftscore.version import __version__

SECRET = "DRIFTSCORE_WEBHOOK_SECRET"  # noqa: S105 (the name of a variable)
TIMEOUT_S = 5.0
_LATER = (408, 425, 429)
"""Answers that ask to try again; so do those from 500 on."""


class Webhook(Transport):
    """Posts events to a URL."""

    def __init__(self, url: str) -> None:
        import httpx  # not at the top: it is slow

        try:
            address = httpx.URL(url)
        except httpx.InvalidURL:
            address = httpx.URL("")
        if address.scheme not in ("http", "https") or not address.host:
            raise UsageError(f"A webhook is given as https://host/path, not {url!r}")
        self._port = address.port or {"http": 80, "https": 443}[address.scheme]
        self._host = address.host
        # The path is often a secret: it is in no message.
        self.name = f"The webhook at {address.host}:{self._port}"
        self.key = f"webhook {address.host} {hashlib.sha256(url.encode()).hexdigest()}"
        headers = {"User-Agent": f"driftscore/{__version__}"}
        if secret := os.environ.get(SECRET):
            if not (secret.isascii() and secret.isprintable()):
                raise UsageError(f"{SECRET} must be one line of printable ASCII characters")
            headers["Authorization"] = f"Bearer {secret}"
        self._errors: type[Exception] = httpx.HTTPError
        self._client = httpx.Client(headers=headers, timeout=TIMEOUT_S)
        self._url = url

    def begin(self, failed: Callable[[str], None], ready: Callable[[], None]) -> None:
        """See whether anything is there; nothing is posted."""
        if problem := connection_problem(self._host, self._port):
            raise UndeliveredError(f"cannot be reached: {problem}")

    def deliver(self, fields: JsonFields) -> None:
        """Post an event."""
        key = {"Idempotency-Key": f"{fields['id']}-{fields['phase']}"}
        try:
            answer = self._client.post(self._url, json=fields, headers=key)
        except self._errors as error:
            why = connection_problem(self._host, self._port) or str(error) or "no answer"
            raise UndeliveredError(f"cannot be reached: {why}") from error
        if not answer.is_success:
            final = answer.status_code < 500 and answer.status_code not in _LATER
            why = f"answers {answer.status_code} {answer.reason_phrase}"
            raise UndeliveredError(why, refused=final)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
