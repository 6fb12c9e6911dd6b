"""Download a file that someone asked for: resumed, bounded in time and size, never over http.

A connection that breaks is tried again and continues where it ended. The server must send at least
`LEAST_BYTES` in every `WINDOW_S` seconds: one that sends a byte now and then is given up. The
connection is read in a thread of its own, so that name lookup, headers and redirects are bounded as
well. A redirect is followed to https only; a mirror without encryption may redirect within itself.
"""

import http.client
import queue
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn
from urllib.parse import urlsplit

from driftscore.errors import DownloadError, DriftscoreError, WriteError
from driftscore.progress import progress_bar

TRIES = 5
SLOW_TRIES = 2
PAUSE_S = 1.0
WINDOW_S = 20.0
LEAST_BYTES = 20_000
MOST_BYTES = 100_000_000_000
"""No corpus has a larger file."""
_BLOCK = 1 << 18
_PROGRESS = 1_000_000  # after this many bytes the attempts are counted anew


def download(
    url: str, part: Path, *, what: str, most: int = MOST_BYTES, show: bool | None = None
) -> None:
    """Download to `part`, resuming what is there; a broken connection is tried again.

    `show` is whether to show a progress bar (None: on a terminal only).
    """
    failed, slow, start = 0, 0, _size(part)
    while True:
        try:
            _continue(url, part, what=what, most=most, show=show)
            return
        except urllib.error.HTTPError as error:
            if error.code == 416 and _size(part):  # nothing beyond what is there
                return
            if error.code < 500:
                _give_up(url, _status_problem(error))
            problem = f"the server answers {error.code} {_short(error.reason)}"
        except TimeoutError as error:
            problem, slow = _short(error), slow + 1
        except (http.client.HTTPException, OSError) as error:
            _check_permanent(url, error)
            problem = _in_words(error)
        if _size(part) >= start + _PROGRESS:
            failed, slow, start = 0, 0, _size(part)
        failed += 1
        if failed >= TRIES or slow >= SLOW_TRIES:
            _give_up(url, f"{failed} attempts failed: {problem}; run the command again to resume")
        time.sleep(PAUSE_S * failed)


def read_document(url: str, *, most: int) -> bytes:
    """Return a small document, such as the record of a data set; it is asked for once."""
    try:
        with _Connection(url, 0) as connection:
            if connection.status != 200:
                _give_up(url, f"the server answers {connection.status} instead of the document")
            length, content = connection.length, bytearray()
            for block in connection.blocks():
                content += block
                if len(content) > most:
                    _give_up(url, f"it has more than {most:,} bytes")
            if length is not None and len(content) < length:
                _give_up(url, f"the connection ended after {len(content):,} of {length:,} bytes")
    except urllib.error.HTTPError as error:
        _give_up(url, _status_problem(error))
    except (http.client.HTTPException, OSError) as error:
        _give_up(url, _in_words(error))
    return bytes(content)


def _continue(url: str, part: Path, *, what: str, most: int, show: bool | None) -> None:
    """Download what is missing of a file, in one connection."""
    have = _size(part)
    with _Connection(url, have) as connection:
        if connection.status not in (200, 206):
            _give_up(url, f"the server answers {connection.status} instead of the file")
        if connection.status == 206 and not connection.begins_at(have):
            _append(part, 0, b"")
            raise ConnectionError("the server continued at another place of the file")
        if connection.status == 200:  # the complete file
            have = 0
        length = connection.length
        if length is not None and have + length > most:
            _give_up(url, f"the server states {length:,} bytes, more than {most:,}")
        total = have + (length or 0)
        _append(part, have, b"")
        with progress_bar(f"Downloading {what} (bytes)", total, show=show) as advance:
            advance(have)
            for block in connection.blocks():
                if have + len(block) > most:
                    _give_up(url, f"the server sends more than {most:,} bytes")
                _append(part, have, block)
                have += len(block)
                advance(len(block))
    if length is not None and have < total:
        raise ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


class _Connection:
    """An answer of a server, read in a thread; no window of time may bring too few bytes."""

    def __init__(self, url: str, have: int) -> None:
        # A compressed answer would make the byte positions mean something else.
        headers = {"User-Agent": "driftscore", "Accept-Encoding": "identity"}
        headers |= {"Range": f"bytes={have}-"} if have else {}
        try:
            self._request = urllib.request.Request(url, headers=headers)  # noqa: S310 (checked)
        except ValueError as error:
            _give_up(url, f"it is not an address: {error}")
        self._url = url
        self._items: queue.Queue[bytes | Exception] = queue.Queue(maxsize=16)
        self._left = threading.Event()

    def __enter__(self) -> "_Connection":
        threading.Thread(target=self._read, name="download", daemon=True).start()
        self._window_ends, self._window_bytes = time.monotonic() + WINDOW_S, 0
        self._next()  # the headers are there
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()

    @property
    def length(self) -> int | None:
        """How many bytes the server will send; None if it does not say."""
        stated = self._headers.get("Content-Length")
        if stated is None:
            return None
        if not (stated.isascii() and stated.isdigit() and len(stated) < 19):
            _give_up(self._url, f"the server states the odd length {stated[:40]!r}")
        return int(stated)

    def begins_at(self, position: int) -> bool:
        """Return whether a part of the file begins where it was asked to."""
        stated = self._headers.get("Content-Range")
        return stated is None or stated.replace(" ", "").startswith(f"bytes{position}-")

    def blocks(self) -> Iterator[bytes]:
        """Yield the content."""
        while block := self._next():
            self._window_bytes += len(block)
            yield block

    def _next(self) -> bytes:
        """Return what comes next, or raise its error; too little in a window is a timeout."""
        while True:
            try:
                item = self._items.get(timeout=max(0.0, self._window_ends - time.monotonic()))
            except queue.Empty:
                if self._window_bytes < LEAST_BYTES:
                    raise TimeoutError(
                        f"the server sent {self._window_bytes:,} bytes in {WINDOW_S:g} s, less "
                        f"than {LEAST_BYTES:,}"
                    ) from None
                self._window_ends, self._window_bytes = time.monotonic() + WINDOW_S, 0
                continue
            if isinstance(item, DriftscoreError | OSError | http.client.HTTPException):
                raise item
            if isinstance(item, Exception):  # a redirect to something that is no address
                _give_up(self._url, f"the answer of the server cannot be used: {_short(item)}")
            return item

    def _read(self) -> None:
        """Open the address and pass on what comes, until no one waits for it any more."""
        try:
            # The window ends first: it decides what is too slow.
            with _OPENER.open(self._request, timeout=2 * WINDOW_S) as response:
                self.status, self._headers = response.status, response.headers
                self._put(b"")
                while not self._left.is_set() and (block := response.read1(_BLOCK)):
                    self._put(block)
            self._put(b"")
        except Exception as error:  # raised again where the content is used
            self._put(error)

    def _put(self, item: bytes | Exception) -> None:
        while not self._left.is_set():
            try:
                self._items.put(item, timeout=1.0)
            except queue.Full:
                continue
            return


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https, and of an address without encryption to its own server."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        here, there = urlsplit(req.full_url), urlsplit(newurl)
        within = here.scheme == "http" and (there.scheme, there.netloc) == ("http", here.netloc)
        if there.scheme != "https" and not within:
            _give_up(req.full_url, f"it is redirected to {newurl[:200]}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_SafeRedirects)


def _append(part: Path, position: int, block: bytes) -> None:
    """Write a block at `position`, the end of `part`; a full disk is an error that stays."""
    try:
        with open(part, "r+b" if position else "wb") as out:
            out.seek(position)
            out.write(block)
    except OSError as error:
        raise WriteError(f"Cannot write {part}: {error.strerror or error}") from error


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _status_problem(error: urllib.error.HTTPError) -> str:
    if 300 <= error.code < 400:
        return f"the server redirects ({error.code}) in a circle, or to no address that is allowed"
    return f"the server answers {error.code} {_short(error.reason)}"


def _check_permanent(url: str, error: Exception) -> None:
    """Raise an error that trying again would not change."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        _give_up(url, f"the certificate of the server is not valid: {reason.verify_message}")
    if isinstance(error, http.client.InvalidURL):
        _give_up(url, f"it is not an address: {_short(error)}")


def _in_words(error: Exception) -> str:
    if isinstance(error, http.client.HTTPException):
        return f"the answer of the server is not valid ({type(error).__name__}: {_short(error)})"
    return _short(getattr(error, "reason", error))


def _short(said: object) -> str:
    return " ".join(str(said).split())[:200] or type(said).__name__


def _give_up(url: str, why: str) -> NoReturn:
    raise DownloadError(f"Cannot download {url}: {why}")
