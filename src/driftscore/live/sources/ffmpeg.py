"""Any input of ffmpeg, such as rtsp://camera/stream, by a program that runs beside us.

RTSP is asked for over TCP and for its audio only; cameras that refuse that are asked for everything
(some count as dead otherwise). ffmpeg decodes to raw samples; where none come for some seconds, it
is ended and started again. FFmpeg 4 calls the timeout of RTSP `-stimeout`, later ones `-timeout`.
"""

import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from functools import cache
from typing import IO

from driftscore.errors import MissingExtraError
from driftscore.live.blocks import STALL_S, AudioBlock, SourceError
from driftscore.live.sources.pipes import Pipe, RawFormat, raw_blocks

RATE = 32_000
"""What ffmpeg resamples to: the bandwidth of most models."""
OPEN_S = 20.0
"""How long a connection may take until the first sample."""
_MICROSECONDS = 1_000_000


class FfmpegInput:
    """A URL or device that ffmpeg reads; it is opened again whenever it ends."""

    waits = False
    endless = True

    def __init__(self, url: str, *, open_s: float = OPEN_S) -> None:
        self._url = url
        self._open_s = open_s
        self._audio_only = True
        self._raw = RawFormat("s16le", RATE, 1)

    def describe(self) -> str:
        """Return the URL without its password."""
        return without_password(self._url)

    def blocks(self, stop: threading.Event) -> Iterator[AudioBlock]:
        """Run ffmpeg and yield what it decodes."""
        if shutil.which("ffmpeg") is None:
            raise MissingExtraError(f"Reading {self.describe()}", command="apt install ffmpeg")
        audio_only = self._audio_only
        arguments = command(self._url, audio_only=audio_only, major=ffmpeg_major())
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            )
            assert process.stdout is not None  # noqa: S101 (it is a pipe)
            limit = f"within {self._open_s:g} s"
            try:
                pipe = Pipe(process.stdout.fileno(), stop)
                self._audio_only = not self._audio_only  # for the next time, if nothing comes
                for block in raw_blocks(pipe, self._raw, self._open_s):
                    if block is None:
                        raise SourceError(f"{self.describe()} gives no audio {limit}")
                    self._audio_only, limit = audio_only, f"for {STALL_S:g} s"
                    yield block
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
            if not stop.is_set():
                raise SourceError(f"{self.describe()} has ended{last_line(errors, self._url)}")


def command(url: str, *, audio_only: bool, major: int) -> list[str]:
    """Return the arguments that let ffmpeg decode a URL to raw mono samples on stdout."""
    arguments = ["ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "error"]
    if url.startswith(("rtsp://", "rtsps://")):
        timeout = "-stimeout" if major < 5 else "-timeout"
        arguments += ["-rtsp_transport", "tcp", timeout, str(int(STALL_S * _MICROSECONDS))]
        if audio_only:
            arguments += ["-allowed_media_types", "audio"]
    elif url.startswith(("http://", "https://")):
        arguments += ["-rw_timeout", str(int(STALL_S * _MICROSECONDS))]
    return [
        *arguments, "-i", url, "-vn", "-sn", "-dn", "-ac", "1", "-ar", str(RATE), "-f", "s16le", "-"
    ]  # fmt: skip


@cache
def ffmpeg_major() -> int:
    """Return the major version of the ffmpeg that is installed; builds of git count as new."""
    done = subprocess.run(["ffmpeg", "-version"], capture_output=True, text=True, check=False)
    match = re.match(r"ffmpeg version n?(\d+)\.", done.stdout)
    return int(match[1]) if match else 99


def without_password(url: str) -> str:
    """Return a URL in which user and password are left out."""
    return re.sub(r"(?<=://)[^/@]*@", "", url)


def last_line(errors: IO[bytes], url: str) -> str:
    """Return the last line that ffmpeg wrote, as the end of a message."""
    errors.seek(max(0, errors.seek(0, 2) - 2000))
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    return f": {lines[-1].strip().replace(url, without_password(url))}" if lines else ""
