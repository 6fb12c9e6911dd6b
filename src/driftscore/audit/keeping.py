"""What an audit log keeps beside its lines: copies of recordings, and for how long everything.

Copies are named by the sha256 of their content, so that one that was changed is noticed.
"""

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import soundfile

from driftscore.audio import Audio, Recording, describe
from driftscore.audit.entries import part_of
from driftscore.errors import UsageError
from driftscore.files import sha256
from driftscore.reading import is_file

AUDIO, HEADS, SEARCHES = "audio", "heads", "searches"
BYTES_SUFFIX, SAMPLES_SUFFIX = ".bin", ".wav"
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")
_NAME = re.compile(r"[0-9a-f]{64}(\.[A-Za-z0-9]{1,11})?")


@dataclass(frozen=True)
class KeptRecording:
    """Which recording a decision is about, and where its copy is.

    Attributes:
        name: its path; None for samples and the body of a request.
        sha256: the digest of its content; None for a stream or a URL.
        audio: where its copy is in the folder of the log; None if there is none.
        complete: whether the decision followed from this audio alone.

    """

    name: str | None = None
    sha256: str | None = None
    audio: str | None = None
    complete: bool = True


@dataclass(frozen=True)
class Retention:
    """For how long a log is kept; what is oldest is deleted first.

    Attributes:
        days: delete what is older; None for no bound.
        megabytes: delete the oldest files while the folder is larger; None for no bound.

    """

    days: float | None = None
    megabytes: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not 0 < value < 1e9:
                raise UsageError(f"The {name} that an audit is kept must be positive, got {value}")

    @property
    def bounded(self) -> bool:
        """Whether anything is ever deleted."""
        return self.days is not None or self.megabytes is not None

    def tidy(self, home: Path, *, current: str = "", now: float | None = None) -> int:
        """Delete what is too old or too much, except the `current` file; return how many files."""
        found = sorted(_own_files(home, current))
        oldest = -1.0 if self.days is None else (now or time.time()) - self.days * 86_400
        room = float("inf") if self.megabytes is None else self.megabytes * 1e6
        size = sum(bytes_ for _, bytes_, _ in found)
        deleted = 0
        for changed, bytes_, path in found:
            if changed >= oldest and size <= room:
                break
            with suppress(OSError):
                path.unlink()
                deleted += 1
            size -= bytes_
        return deleted


def _own_files(home: Path, current: str) -> Iterator[tuple[float, int, Path]]:
    """Yield time of the last change, size and path of the files that are ours, by their names."""
    places = [home, *(home / name for name in (AUDIO, HEADS, SEARCHES))]
    for place in places:
        if not place.is_dir() or (place != home and place.is_symlink()):
            continue
        for path in place.iterdir():
            ours = part_of(path.name) if place == home else _NAME.fullmatch(path.name)
            if ours and path.name != current and path.is_file() and not path.is_symlink():
                with suppress(OSError):
                    found = path.stat()
                    yield found.st_mtime, found.st_size, path


def kept_recording(
    recording: Recording, home: Path, *, copy: bool, complete: bool = True
) -> KeptRecording:
    """Return which recording it is; with `copy`, after a copy of it was made."""
    name = describe(recording) if isinstance(recording, (str, os.PathLike)) else None
    if not copy or not _is_at_hand(recording):
        return KeptRecording(name, recording_digest(recording), None, complete)
    folder = home / AUDIO
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=folder, prefix=".driftscore-")
    os.close(descriptor)
    try:
        digest, suffix = _copied(recording, Path(partial))
        Path(partial).replace(folder / f"{digest}{suffix}")
    finally:
        Path(partial).unlink(missing_ok=True)
    return KeptRecording(name, digest, f"{AUDIO}/{digest}{suffix}", complete)


def _copied(recording: Recording, path: Path) -> tuple[str, str]:
    """Write a copy of a recording; return the digest of the recording and a suffix."""
    if isinstance(recording, (str, os.PathLike)):
        suffix = Path(recording).suffix
        shutil.copyfile(recording, path)
        # The digest of the copy: the file may have changed since.
        return sha256(path), suffix if _SUFFIX.fullmatch(suffix) else BYTES_SUFFIX
    if isinstance(recording, bytes):
        path.write_bytes(recording)
        return sha256(path), BYTES_SUFFIX
    audio = Audio.of(recording)
    try:
        soundfile.write(path, audio.samples, audio.rate, format="WAV", subtype="FLOAT")
    except soundfile.LibsndfileError as error:
        raise OSError(str(error)) from error
    return samples_digest(audio), SAMPLES_SUFFIX


def recording_digest(recording: Recording) -> str | None:
    """Return the sha256 of the content of a recording; None for a stream or a URL."""
    if not _is_at_hand(recording):
        return None
    if isinstance(recording, (str, os.PathLike)):
        return sha256(Path(recording))
    if isinstance(recording, bytes):
        return hashlib.sha256(recording).hexdigest()
    return samples_digest(Audio.of(recording))


def samples_digest(audio: Audio) -> str:
    """Return the sha256 of samples with their rate."""
    return hashlib.sha256(audio.samples.tobytes() + str(audio.rate).encode()).hexdigest()


def _is_at_hand(recording: Recording) -> bool:
    """Return whether a recording can be read again: not a stream, and no URL."""
    if isinstance(recording, (str, os.PathLike)):
        return is_file(os.fspath(recording))
    return isinstance(recording, bytes) or not hasattr(recording, "read")
