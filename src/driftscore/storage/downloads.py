"""Download a file that someone asked for: resumed, bounded in time and size, never over http.

A connection that breaks is tried again and continues where it ended. The server must send at least
`MIN_BYTES` in every `WINDOW_S` seconds: one that sends a byte now and then is given up. A redirect
is followed to https only; a mirror without encryption may redirect within itself.
"""

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import httpx

from driftscore.errors import DownloadError
from driftscore.storage.files import writing_to
from driftscore.system.progress import progress_bar

TRIES = 5
SLOW_TRIES = 2
PAUSE_S = 1.0
WINDOW_S = 20.0
MIN_BYTES = 20_000
MAX_BYTES = 100_000_000_000
"""No corpus has a larger file."""
_MAX_REDIRECTS = 10
_PROGRESS = 1_000_000  # after this many bytes the attempts are counted anew


def download(url: str, part: Path, *, what: str, most: int = MAX_BYTES) -> None:
    """Download to `part`, resuming what is there; a broken connection is tried again."""
    failed, slow, start = 0, 0, _size(part)
    while True:
        try:
            _continue(url, part, what=what, most=most)
            return
        except TimeoutError as error:
            problem, slow = str(error), slow + 1
        except (httpx.HTTPError, OSError) as error:
            problem = _short(error)
        if _size(part) >= start + _PROGRESS:
            failed, slow, start = 0, 0, _size(part)
        failed += 1
        if failed >= TRIES or slow >= SLOW_TRIES:
            _give_up(url, f"{failed} attempts failed: {problem}; run the command again to resume")
        time.sleep(PAUSE_S * failed)


def read_document(url: str, *, most: int) -> bytes:
    """Return a small document, such as the record of a data set; it is asked for once."""
    content = bytearray()
    try:
        with _answer(url, {}) as response:
            if response.status_code != 200:
                _give_up(url, f"the server answers {_status(response)} instead of the document")
            length = _length(url, response)
            for block in response.iter_raw():
                content += block
                if len(content) > most:
                    _give_up(url, f"it has more than {most:,} bytes")
    except (httpx.HTTPError, OSError) as error:
        _give_up(url, _short(error))
    if length is not None and len(content) < length:
        _give_up(url, f"the connection ended after {len(content):,} of {length:,} bytes")
    return bytes(content)


def _continue(url: str, part: Path, *, what: str, most: int) -> None:
    """Download what is missing of a file, in one connection."""
    have = _size(part)
    with _answer(url, {"Range": f"bytes={have}-"} if have else {}) as response:
        if response.status_code == 416 and have:  # nothing beyond what is there
            return
        if response.status_code >= 500:
            raise ConnectionError(f"the server answers {_status(response)}")
        if response.status_code not in (200, 206):
            _give_up(url, f"the server answers {_status(response)} instead of the file")
        stated = response.headers.get("Content-Range", "").replace(" ", "")
        if response.status_code == 206 and stated and not stated.startswith(f"bytes{have}-"):
            _append(part, 0, b"")
            raise ConnectionError("the server continued at another place of the file")
        if response.status_code == 200:  # the complete file
            have = 0
        length = _length(url, response)
        if length is not None and have + length > most:
            _give_up(url, f"the server states {length:,} bytes, more than {most:,}")
        total = have + (length or 0)
        _append(part, have, b"")
        with progress_bar(f"Downloading {what} (bytes)", total) as advance:
            advance(have)
            for block in response.iter_raw():
                if have + len(block) > most:
                    _give_up(url, f"the server sends more than {most:,} bytes")
                _append(part, have, block)
                have += len(block)
                advance(len(block))
    if length is not None and have < total:
        raise ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


@contextmanager
def _answer(url: str, headers: dict[str, str]) -> Iterator[httpx.Response]:
    """Yield the answer to a request, after its redirects; a server that is too slow is left."""
    ended = threading.Event()
    response: httpx.Response | None = None
    problem = ""

    def watch() -> None:
        """Close the client if a window of time brings too few bytes, also of headers.

        The time-outs of httpx do not see that: they begin again with every byte.
        """
        nonlocal problem
        before = 0
        while not ended.wait(WINDOW_S):
            received = response.num_bytes_downloaded if response else 0
            if (count := received - before) < MIN_BYTES:
                problem = (
                    f"the server sent {count:,} bytes in {WINDOW_S:g} s, less than {MIN_BYTES:,}"
                )
                client.close()
                return
            before = received

    # A compressed answer would make the byte positions mean something else.
    headers = {"User-Agent": "driftscore", "Accept-Encoding": "identity"} | headers
    with httpx.Client(timeout=2 * WINDOW_S, headers=headers) as client:
        threading.Thread(target=watch, name="download", daemon=True).start()
        try:
            here = httpx.URL(url)
            for _ in range(_MAX_REDIRECTS):
                with client.stream("GET", here) as response:
                    if response.next_request is None:
                        yield response
                        return
                    here = _checked_redirect(url, here, response.next_request.url)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            _give_up(url, f"it is not an address: {_short(error)}")
        except (httpx.HTTPError, RuntimeError, OSError) as error:
            if problem:
                raise TimeoutError(problem) from error
            reason: BaseException | None = error
            while reason is not None:
                if isinstance(reason, ssl.SSLCertVerificationError):  # trying again changes nothing
                    what = reason.verify_message
                    _give_up(url, f"the certificate of the server is not valid: {what}")
                reason = reason.__cause__ or reason.__context__
            raise
        finally:
            ended.set()
    _give_up(url, "the server redirects in a circle")


def _checked_redirect(url: str, here: httpx.URL, there: httpx.URL) -> httpx.URL:
    """Return where a redirect leads, if it may: to https, or without encryption within a server."""
    within = here.scheme == there.scheme == "http" and here.netloc == there.netloc
    if there.scheme != "https" and not within:
        _give_up(url, f"it is redirected to {str(there)[:200]}, which is not https")
    return there


def _length(url: str, response: httpx.Response) -> int | None:
    """Return how many bytes the server will send; None if it does not say."""
    stated = response.headers.get("Content-Length")
    if stated is None:
        return None
    if not (stated.isascii() and stated.isdigit() and len(stated) < 19):
        _give_up(url, f"the server states the odd length {stated[:40]!r}")
    return int(stated)


def _append(part: Path, position: int, block: bytes) -> None:
    """Write a block at `position`, the end of `part`; a full disk is an error that stays."""
    with writing_to(part), open(part, "r+b" if position else "wb") as out:
        out.seek(position)
        out.write(block)


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _status(response: httpx.Response) -> str:
    return f"{response.status_code} {_short(response.reason_phrase)}"


def _short(said: object) -> str:
    return " ".join(str(said).split())[:200] or type(said).__name__


def _give_up(url: str, why: str) -> NoReturn:
    raise DownloadError(f"Cannot download {url}: {why}")
