"""The body of a request -> samples: decoded from memory, within limits, as the command does it.

libsndfile reads the common formats, and ffmpeg, if it is installed, the others that hold their own
sound. What a file claims about itself is compared with the limits before anything is decoded, and
what was decoded so far after every block, since a header may lie.
"""

import base64
import binascii
import shutil
from collections.abc import Iterator

import numpy as np
from starlette.exceptions import HTTPException

from driftscore.audio.decoding import DecodingBounds, UnknownFormatError, decoded
from driftscore.audio.recordings import Audio, Samples, read_blocks
from driftscore.errors import AudioError, DriftscoreError, UsageError
from driftscore.service.settings import Limits

NAME = "The recording"
_SIGNS = (b"RIFF", b"RIFX", b"RF64", b"riff", b"fLaC", b"OggS", b"FORM", b".snd", b"caff", b"ID3")
"""First bytes of wav, w64, flac, ogg and opus, aiff, au, caf, and mp3 with a tag."""
FORMATS = "wav, flac, ogg, opus, mp3, aiff, au, caf or w64"
"""What is read without ffmpeg."""


def is_sound(content: bytes) -> bool:
    """Return whether the first bytes are those of a format that libsndfile reads."""
    if content.startswith(_SIGNS):
        return True
    return len(content) > 1 and content[0] == 0xFF and content[1] & 0xE0 == 0xE0  # an mp3 frame


def decode(content: bytes, *, rate: int, limits: Limits) -> Audio:
    """Return the mono samples of a sound file at `rate`, the same as those of the file on disk."""
    if not content:
        raise AudioError("The body is empty; send the bytes of a sound file")
    others = shutil.which("ffmpeg") is not None
    unknown = HTTPException(
        415,
        f"The body is not a sound file in a known format: send {FORMATS}"
        + (
            ", or another one that ffmpeg reads" if others else "; others need ffmpeg on the server"
        ),
    )
    if not others and not is_sound(content):
        raise unknown
    bounds = DecodingBounds(limits.seconds, limits.decoded_bytes)
    try:
        with decoded(content, name=NAME, bounds=bounds) as (native, blocks):
            return read_blocks((native, _sounding(blocks)), rate=rate, name=NAME)
    except UnknownFormatError as error:
        raise error if is_sound(content) else unknown from error
    except DriftscoreError:
        raise
    except Exception as error:  # of a decoder that met something it did not expect
        raise AudioError(f"{NAME} cannot be read: {type(error).__name__}") from error


def _sounding(blocks: Iterator[Samples]) -> Iterator[Samples]:
    """Yield the blocks of a recording; one of nothing but silence is refused before it costs more.

    Hours of silence fit into a few kilobytes, and resampling them would be most of the work.
    """
    silent: list[int] = []
    for block in blocks:
        if not block.any():
            silent.append(len(block))
            continue
        yield from (np.zeros(length, np.float32) for length in silent)
        yield block
        yield from blocks
        return
    if sum(silent):
        raise AudioError(f"{NAME} is silent: every sample is zero")


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
