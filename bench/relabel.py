"""Re-labelling an archive: 100,000 cached clips and 200 new labels, no audio read.

100,000 files on disk with their embeddings in the audio cache of `mini` (random unit rows instead
of real ones). The complete command is timed, from the shell to the csv. The texts of the labels
are encoded beforehand, and the bar is for the labels compiled to a head. For comparison: the same
with the labels as words, whose encoded texts are first read from the cache, and
`driftscore score` on the same rows in one npz.
"""

import hashlib
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.figures import Figure, Spread
from bench.shell import Ran, driftscore
from driftscore import Backbone, load_backbone
from driftscore.backbones.stored import EmbeddingFile
from driftscore.backbones.vectors import Matrix, unit
from driftscore.engines.audio_cache import AudioCache, packed

CLIPS, LABELS, BAR_S, MOST_MB = 100_000, 200, 3, 1500
_BLOCK = 5_000
_LONG_AGO = 1_600_000_000
_WORDS = ("dog", "bird", "engine", "water", "bell", "door", "horn", "rain", "voice", "drum")


def measure(*, quick: bool) -> list[Figure]:
    """Fill a cache, then label its clips from the shell with labels that are new to it."""
    clips, labels, turns = (2_000, 20, 2) if quick else (CLIPS, LABELS, 5)
    with tempfile.TemporaryDirectory() as name:
        archive = _make_archive(Path(name), clips)
        words, head = archive.home / "labels.txt", archive.home / "head.safetensors"
        words.write_text("\n".join(_labels(labels)) + "\n", encoding="utf-8")
        text = driftscore("head", "--labels", words, "-o", head, cache=archive.cache)
        folder = archive.home / "clips"
        by_words, by_head = _runs(
            lambda: archive.run("classify", folder, "--cache", "--labels", words),
            lambda: archive.run("classify", folder, "--cache", "--head", head),
            turns=turns,
        )
        (scored,) = _runs(lambda: archive.run("score", archive.npz, "--head", head), turns=turns)
    size = f"{clips:,} cached clips, {labels} new labels"
    return [
        _timed(f"re-labelling {size}: classify --cache --head", by_head),
        Figure(
            "the same with the labels as words: classify --cache --labels FILE",
            Spread.of([ran.seconds for ran in by_words]),
            "s",
            note=f"encoding the texts of {labels} labels once, beforehand: {text.seconds:.1f} s",
        ),
        _memory(f"peak memory with the labels as words: {clips:,} files", by_words),
        Figure(
            f"driftscore score --head on an npz of {clips:,} clips, {labels} labels",
            Spread.of([ran.seconds for ran in scored]),
            "s",
        ),
    ]


@dataclass(frozen=True)
class _Archive:
    """A folder of clips with an audio cache and an npz of their embeddings."""

    home: Path
    cache: Path
    npz: Path
    clips: int

    def run(self, command: str, *arguments: object) -> Ran:
        """Run a command that writes one csv row per clip, and check that it did."""
        out = self.home / "out.csv"
        ran = driftscore(command, *arguments, "-f", "csv", "-o", out, cache=self.cache)
        _check(out, self.clips)
        return ran


def _make_archive(home: Path, clips: int) -> _Archive:
    model = load_backbone("mini")
    cache, npz = home / "cache", home / "clips.npz"
    files = _fill(home / "clips", cache, clips, model)
    rows = np.concatenate(list(_rows(clips, model.dim)))
    EmbeddingFile(
        files=tuple(files), audio_rows=rows, name=model.name, fingerprint=model.fingerprint
    ).save(npz)
    if hasattr(os, "sync"):  # an archive is on the disk, and not still being written
        os.sync()
    return _Archive(home, cache, npz, clips)


def _runs(*commands: Callable[[], Ran], turns: int) -> list[list[Ran]]:
    """Run commands in turns; the first turn, with files not yet in memory, is not kept."""
    done = [[command() for command in commands] for _ in range(turns + 1)][1:]
    return [list(runs) for runs in zip(*done, strict=True)]


def _timed(work: str, runs: list[Ran]) -> Figure:
    seconds = Spread.of([ran.seconds for ran in runs])
    cpu_s = Spread.of([ran.cpu_s for ran in runs]).median
    return Figure(
        work, seconds, "s", bar=f"<= {BAR_S} s after text", met=seconds.median <= BAR_S,
        note=f"{cpu_s:.2f} s of the processor",
    )  # fmt: skip


def _memory(work: str, runs: list[Ran]) -> Figure:
    peak = Spread.of([ran.peak_mb for ran in runs])
    bar = "<= 1.5 GB for any number of files"
    return Figure(work, peak, "MB", bar=bar, met=peak.high <= MOST_MB)


def _labels(number: int) -> list[str]:
    """Return labels in words that the text encoder knows."""
    pairs = [f"{one} {two}" for one in _WORDS for two in ("sound", "noise", *_WORDS) + _MORE]
    return pairs[:number]


_MORE = ("far away", "close by", "indoors", "outdoors", "at night", "in the wind", "on a street",
         "in a hall")  # fmt: skip


def _fill(folder: Path, cache: Path, clips: int, model: Backbone) -> list[str]:
    """Write the files, and their embeddings into the cache."""
    store = AudioCache(model.cache_key, cache / "audio.sqlite")
    spans = np.array([[0.0, model.seconds]])
    files: list[str] = []
    for rows in _rows(clips, model.dim):
        paths, digests = _write_files(folder, len(files), len(rows))
        store.put(
            found._replace(digest=digest, windows=packed(spans, row[None]))
            for found, digest, row in zip(store.look_up(paths), digests, rows, strict=True)
        )
        files += paths
    store.close()
    return files


def _rows(clips: int, dim: int) -> Iterator[Matrix]:
    """Yield unit rows in blocks, the same rows in every call."""
    rng = np.random.default_rng(0)
    for first in range(0, clips, _BLOCK):
        yield unit(rng.standard_normal((min(_BLOCK, clips - first), dim)).astype(np.float32))


def _write_files(folder: Path, first: int, number: int) -> tuple[list[str], list[bytes]]:
    """Write tiny wav files of distinct content, with a date that the cache trusts."""
    home = folder / f"{first:06d}"
    home.mkdir(parents=True)
    paths, digests = [], []
    for clip in range(first, first + number):
        path = home / f"{clip:06d}.wav"
        content = _wav(struct.pack("<I", clip + 1))
        path.write_bytes(content)
        os.utime(path, (_LONG_AGO, _LONG_AGO))
        paths.append(str(path))
        digests.append(hashlib.sha256(content).digest())
    return paths, digests


def _wav(samples: bytes) -> bytes:
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 16_000, 32_000, 2, 16)
    body = b"WAVE" + form + struct.pack("<4sI", b"data", len(samples)) + samples
    return struct.pack("<4sI", b"RIFF", len(body)) + body


def _check(out: Path, clips: int) -> None:
    """Raise an error unless every clip has a row with a label."""
    lines = out.read_text(encoding="utf-8").splitlines()[1:]
    if len(lines) != clips or any(not line.split(",")[1] for line in lines):
        raise RuntimeError(f"Expected {clips} rows with labels, got {len(lines)} rows")
