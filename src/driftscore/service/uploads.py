"""The body of a request -> samples: decoded from memory, within limits, as the command does it.

libsndfile reads the common formats, and ffmpeg, if it is installed, the others that hold their own
sound. What a file claims about itself is compared with the limits before anything is decoded, and
what was decoded so far after every block, since a header may lie.
"""

import base64
import binascii
import shutil
from collections.abc import Iterable, Iterator

from starlette.exceptions import HTTPException

from driftscore.audio.decoding import DecodingBounds, UnknownFormatError, decoded
from driftscore.audio.recordings import Audio, read_blocks
from driftscore.errors import AudioError, DriftscoreError, LimitError, UsageError
from driftscore.service.settings import Limits

NAME = "The recording"
FORMATS = "wav, flac, ogg, opus, mp3, aiff, au, caf or w64"
"""What is read without ffmpeg."""


SOUND = {"schema": {"type": "string", "format": "binary"}}
"""A sound file in the OpenAPI document."""


def decode(content: bytes, *, rate: int | None, limits: Limits, name: str = NAME) -> Audio:
    """Return the mono samples of a sound file at `rate`, the same as those of the file on disk.

    Without a rate it is the file's own. Messages call the file `name`.
    """
    if not content:
        raise AudioError(f"{name} is empty; send the bytes of a sound file")
    bounds = DecodingBounds(limits.seconds, limits.decoded_bytes)
    try:
        with decoded(content, name=name, bounds=bounds) as (native, blocks):
            audio = read_blocks((native, blocks), rate=rate, name=name)
    except UnknownFormatError as error:
        more = "that ffmpeg reads" if shutil.which("ffmpeg") else "if ffmpeg is installed there"
        text = f"{name} is not a sound file in a known format: send {FORMATS}, or another {more}"
        raise HTTPException(415, text) from error
    except DriftscoreError:
        raise
    except Exception as error:  # of a decoder that met something it did not expect
        raise AudioError(f"{name} cannot be read: {type(error).__name__}") from error
    if not audio.samples.any():
        raise AudioError(f"{name} is silent: every sample is zero")
    return audio


def decode_several(
    files: Iterable[tuple[str, bytes]], *, rate: int | None, limits: Limits
) -> Iterator[Audio]:
    """Yield recordings, given with their names, that are within the limit of seconds together."""
    seconds = 0.0
    for name, content in files:
        audio = decode(content, rate=rate, limits=limits, name=name)
        seconds += audio.seconds
        if seconds > limits.seconds:
            raise LimitError(
                f"The recordings are longer than {limits.seconds:g} s together, the most that is "
                "allowed; send fewer at a time"
            )
        yield audio


def of_base64(text: str) -> bytes:
    """Return the bytes of a base64 text; a data URL is accepted, any other URL is refused."""
    if text.startswith("data:"):
        about, comma, text = text.partition(",")
        if not comma or not about.endswith(";base64"):
            raise UsageError("A data URL must be of the form data:audio/wav;base64,...")
    elif "://" in text[:32]:
        raise UsageError("URLs are not opened; send the recording itself as base64")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"The recording is not base64: {error}") from None
