"""Re-labelling an archive: 100,000 cached clips, 200 new labels, no listening.

100,000 files on disk, their embeddings in the audio cache of `mini` (random unit rows stand
in for what was heard), and the whole command from the shell to the csv. The labels' texts are
encoded before: the bar is for what comes after text, with the labels compiled to a head. Beside it
the same with the labels as words, whose encoded texts are fetched from the cache first, and
`driftscore score` on the same rows as one npz.
"""

import hashlib
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bench.figures import Figure, Spread
from bench.shell import Ran, driftscore
from driftscore import load_backbone
from driftscore.audiocache import AudioCache, Found
from driftscore.backbones import Backbone, cache_key
from driftscore.embeddings import EmbeddingFile
from driftscore.vectors import Matrix, unit

CLIPS, LABELS, BAR_S, MOST_MB = 100_000, 200, 5, 1500
_BLOCK = 5_000
_LONG_AGO = 1_600_000_000
_WORDS = ("dog", "bird", "engine", "water", "bell", "door", "horn", "rain", "voice", "drum")


def measure(*, quick: bool) -> list[Figure]:
    """Fill a cache, then label it from the shell with labels it was never asked for."""
    clips, labels, turns = (2_000, 20, 2) if quick else (CLIPS, LABELS, 5)
    model = load_backbone("mini")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        cache, out, npz = home / "cache", home / "out.csv", home / "clips.npz"
        files = _fill(home / "clips", cache, clips, model)
        words, head = home / "labels.txt", home / "head.safetensors"
        words.write_text("\n".join(_labels(labels)) + "\n", encoding="utf-8")
        text = driftscore("head", "--labels-file", words, "-o", head, cache=cache)

        def run(command: str, *what: object) -> Ran:
            ran = driftscore(command, *what, "-f", "csv", "-o", out, cache=cache)
            _check(out, clips)
            return ran

        listed = home / "clips", "--cache", "--labels-file", words
        by_texts, by_head = _runs(
            lambda: run("classify", *listed),
            lambda: run("classify", home / "clips", "--cache", "--head", head),
            turns=turns,
        )
        rows = np.concatenate(list(_rows(clips, model.dim)))
        EmbeddingFile(
            files=tuple(files), audio_rows=rows, name=model.name, fingerprint=model.fingerprint
        ).save(npz)
        (scored,) = _runs(lambda: run("score", npz, "--head", head), turns=turns)
    size = f"{clips:,} cached clips, {labels} new labels"
    before = f"encoding the texts of {labels} labels, once, before it: {text.seconds:.1f} s"
    return [
        _timed(f"re-labelling {size}: classify --cache --head", by_head),
        Figure(
            f"the same from words, their {labels * 209:,} texts fetched: classify --cache",
            Spread.of([ran.seconds for ran in by_texts]),
            "s",
            note=before,
        ),
        _watched(f"memory of the first: {clips:,} files", by_texts),
        Figure(
            f"driftscore score --head on an npz of {clips:,} clips, {labels} labels",
            Spread.of([ran.seconds for ran in scored]),
            "s",
        ),
    ]


def _runs(*commands: Callable[[], Ran], turns: int) -> list[list[Ran]]:
    """Run commands in turns, once more than is kept: the first finds the disk cold."""
    done = [[command() for command in commands] for _ in range(turns + 1)][1:]
    return [list(runs) for runs in zip(*done, strict=True)]


def _timed(work: str, runs: list[Ran]) -> Figure:
    seconds = Spread.of([ran.seconds for ran in runs])
    bar = f"< {BAR_S} s after text"
    return Figure(work, seconds, "s", bar=bar, met=seconds.median < BAR_S)


def _watched(work: str, runs: list[Ran]) -> Figure:
    peak = Spread.of([ran.peak_mb for ran in runs])
    bar = "<= 1.5 GB for any number of files"
    return Figure(work, peak, "MB", bar=bar, met=peak.high <= MOST_MB)


def _labels(number: int) -> list[str]:
    """Return labels in words that the text side knows."""
    pairs = [f"{one} {two}" for one in _WORDS for two in ("sound", "noise", *_WORDS) + _MORE]
    return pairs[:number]


_MORE = ("far away", "close by", "indoors", "outdoors", "at night", "in the wind", "on a street",
         "in a hall")  # fmt: skip


def _fill(folder: Path, cache: Path, clips: int, model: Backbone) -> list[str]:
    """Write the files, and into the cache what each of them came to."""
    store = AudioCache(cache_key(model), cache / "audio.sqlite")
    spans = np.array([[0.0, model.seconds]])
    files: list[str] = []
    for rows in _rows(clips, model.dim):
        paths, digests = _write_files(folder, len(files), len(rows))
        store.put(
            Found(found.place, found.stamp, found.settled, digest, (spans, row[None]))
            for found, digest, row in zip(store.look_up(paths), digests, rows, strict=True)
        )
        files += paths
    store.close()
    return files


def _rows(clips: int, dim: int) -> Iterator[Matrix]:
    """Yield unit rows in blocks, the same ones each time."""
    rng = np.random.default_rng(0)
    for first in range(0, clips, _BLOCK):
        yield unit(rng.standard_normal((min(_BLOCK, clips - first), dim)).astype(np.float32))


def _write_files(folder: Path, first: int, number: int) -> tuple[list[str], list[bytes]]:
    """Write tiny wav files of distinct content, old enough for the cache to trust their stamps."""
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
    """Refuse a fast answer that is not one: every clip must have its label."""
    lines = out.read_text(encoding="utf-8").splitlines()[1:]
    if len(lines) != clips or any(not line.split(",")[1] for line in lines):
        raise RuntimeError(f"{len(lines)} of {clips} rows, or a row without a label")
