"""Recordings of a label -> the embeddings that the label is learnt from.

Only the part of a recording that sounds is used, in windows of `WINDOW_S`, and the embedding of an
example is the unit mean of its windows. Its steps of 0.1 s sound if they are in the upper half (in
dB) between its quiet level (10 % quantile) and its loudest step, and so do the three steps before
and after; a recording whose levels differ by less than `MIN_RANGE_DB` sounds all the time.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from driftscore.audio.levels import STEP_S
from driftscore.audio.recordings import SUFFIXES, Audio, Recording, describe, expand, read
from driftscore.backbones.vectors import unit_mean
from driftscore.engines.audio_cache import audio_digest
from driftscore.engines.protocol import Embedded
from driftscore.errors import AudioError, UsageError
from driftscore.scoring.examples import Example

WINDOW_S, HOP_S = 4.0, 2.0
MAX_S = 600.0
"""Seconds of an example that are read; of a longer recording, its beginning."""
MIN_RANGE_DB = 15.0
_AROUND = 3


def embed_examples(
    embed: Callable[[Iterable[Recording]], Iterator[Embedded]], recordings: Iterable[Recording]
) -> list[Example]:
    """Return the examples of recordings; one that cannot be read is an error."""
    names, digests, pieces, owners = [], [], [], []
    for number, recording in enumerate(recordings):
        audio = read(recording, seconds=MAX_S)
        is_file = isinstance(recording, (str, os.PathLike))
        names.append(Path(describe(recording)).name if is_file else describe(recording))
        digests.append(audio_digest(recording if is_file else audio).hex())
        own = list(windows_of(sounding_part(audio)))
        pieces += own
        owners += [number] * len(own)
    rows: list[list[np.ndarray]] = [[] for _ in names]
    for number, embedded in zip(owners, embed(pieces), strict=True):
        if not embedded.error:  # a window may be silent
            rows[number].append(embedded.embedding)
    for name, own_rows in zip(names, rows, strict=True):
        if not own_rows:
            raise AudioError(f"{name} cannot be an example: nothing sounds in it")
    return [
        Example(name, unit_mean(own_rows), digest)
        for name, own_rows, digest in zip(names, rows, digests, strict=True)
    ]


def sounding_part(audio: Audio) -> Audio:
    """Return the parts of a recording that sound, one after the other."""
    step = max(1, round(audio.rate * STEP_S))
    samples = np.pad(audio.samples, (0, -len(audio.samples) % step)).astype(np.float64)
    powers = np.square(samples.reshape(-1, step)).mean(axis=1)
    levels = 10 * np.log10(np.maximum(powers, 1e-12))
    low, high = float(np.quantile(levels, 0.1)), float(levels.max())
    if high - low < MIN_RANGE_DB:
        return audio
    sounding = np.convolve(levels >= (low + high) / 2, np.ones(2 * _AROUND + 1), "same") > 0
    return Audio(audio.samples[np.repeat(sounding, step)[: len(audio.samples)]], audio.rate)


def windows_of(audio: Audio) -> Iterator[Audio]:
    """Yield windows of a recording; the last one ends where it ends."""
    length, hop = round(WINDOW_S * audio.rate), round(HOP_S * audio.rate)
    last = max(0, len(audio.samples) - length)
    for first in (*range(0, last, hop), last):
        yield Audio(audio.samples[first : first + length], audio.rate)


def example_files(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return the files of each label: of "label=PATTERN", or of a folder with one per label.

    The label "not" stands for negative examples.
    """
    files: dict[str, list[str]] = {}
    for text in texts:
        name, sign, pattern = text.partition("=")
        if sign and not Path(text).is_dir():
            if not name.strip() or not pattern.strip():
                raise UsageError(f"--examples takes label=FILES or a folder, not {text!r}")
            files.setdefault(name.strip(), []).extend(expand([pattern.strip()]))
            continue
        folders = sorted(path for path in Path(text).glob("*/") if path.is_dir())
        if not folders:
            if not Path(text).exists():
                raise UsageError(
                    f"--examples {text}: there is no such folder; give a folder with one folder "
                    f'per label, or the recordings of one label: --examples "doorbell=bell*.wav"'
                )
            raise UsageError(
                f"{text} is not a folder with one folder of recordings per label; for the "
                f'recordings of one label: --examples "doorbell={text}"'
            )
        for folder in folders:
            label = folder.name.replace("_", " ")
            files.setdefault(label, []).extend(expand([folder]))
    return files


def names_recordings(text: str) -> bool:
    """Return whether a text is the name of recordings: a sound file, a pattern or a folder/."""
    is_file = Path(text).suffix.lower() in SUFFIXES
    return is_file or "*" in text or text.endswith(("/", os.sep))


def check_words(texts: Iterable[str]) -> None:
    """Refuse a label that is the name of a recording, or a pattern of some."""
    for text in texts:
        if not names_recordings(text) or not (Path(text).exists() or "*" in text):
            continue
        what = "a file"
        if not Path(text).is_file():
            what = "a folder" if Path(text).is_dir() else "a pattern of files"
        raise UsageError(f'{text} is {what}; give it with --examples "LABEL={text}"')
