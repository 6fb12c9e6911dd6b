"""Label every segment with the teacher, mn04: `python -m training.teacher`.

The teacher runs once over each segment and once over each of its pieces of 5 s and 2.5 s, so
that an example of any of the lengths used in training has a target for exactly the part that it
contains. Written to `training/work/`:

- `teacher.npz`: logits (n, 527) and embeddings (n, 384) of whole segments side by side (`rows`),
  `twins` (near-duplicates of test clips), `weights` (probability of drawing each segment), and
  the z-score statistics `mu`, `sigma` under these weights.
- `mn04_stats.npz`: `mu` and `sigma` alone, for `training.text_anchors`.
- `pieces.npz`: `segment`, `start`, `length` (in samples of `audio.i16`), `seconds` (0 for the
  whole segment, else 5 or 2.5) and `logits` of every piece, and `steady` for every segment.

Segments that nearly equal a clip of `events/`, `noise/` or `noise_unclear_licence/` (cosine of
the embeddings above 0.99, lengths within 5 %) are dropped. This comparison is the only use made
of those clips.
"""

import argparse
import csv
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import numpy as np
import numpy.typing as npt

from driftscore.backbones.mn04 import Tagger, load_tagger
from driftscore.files import replacing
from training.collect import (
    RATE,
    SHARED,
    WORK,
    Samples,
    Segment,
    cut,
    decode,
    read_audio,
    read_segments,
)

Matrix = npt.NDArray[np.float32]
TAGS = 527
SPEECH, MUSIC = 0, 137
"""Indices of these two among AudioSet's 527 tags."""
PIECE_SECONDS = (5.0, 2.5)
STEADY_DB = 15.0
STEADY_SECONDS = 4.0


@cache
def tagger() -> Tagger:
    """Return the teacher, loaded once per process."""
    return load_tagger(SHARED / "models" / "mn04")


def samples_of(start: int, length: int) -> Samples:
    """Return a part of `audio.i16` as float samples."""
    return read_audio()[start : start + length].astype(np.float32) / 32_767


def label_segment(span: tuple[int, int]) -> Matrix:
    """Return logits and embedding of one segment, concatenated."""
    return np.concatenate(tagger().logits_and_embedding(samples_of(*span)))


def label_piece(span: tuple[int, int]) -> Matrix:
    """Return the logits of one piece."""
    return tagger().logits(samples_of(*span))


def _label_file(name: str) -> list[tuple[int, Matrix]]:
    """Return (length, embedding) of the parts of a clip that must not be trained on."""
    parts = cut(decode((SHARED / "audio" / name).read_bytes()), most=60)
    return [(p.size, tagger().logits_and_embedding(p)[1]) for p in parts]


def test_clips() -> list[str]:
    """Return the files of the manifest that are never trained on."""
    with open(SHARED / "audio" / "manifest.csv", newline="") as handle:
        return [row["file"] for row in csv.DictReader(handle) if row["split"] != "train"]


def near_duplicates(
    embeddings: Matrix, lengths: npt.NDArray[np.int64], pool: ProcessPoolExecutor
) -> npt.NDArray[np.bool_]:
    """Return which segments nearly equal a test clip."""
    parts = [p for found in pool.map(_label_file, test_clips(), chunksize=8) for p in found]
    others = np.stack([embedding for _, embedding in parts])
    other_lengths = np.array([length for length, _ in parts])
    cosines = _unit(embeddings) @ _unit(others).T
    same_length = np.abs(np.log(lengths[:, None] / other_lengths)) < 0.05
    return ((cosines > 0.99) & same_length).any(axis=1)


def _unit(rows: Matrix) -> Matrix:
    """Return rows scaled to unit norm."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def statistics(logits: Matrix, weights: npt.NDArray[np.float64]) -> tuple[Matrix, Matrix]:
    """Return the weighted mean and standard deviation of each tag."""
    mean = np.average(logits, axis=0, weights=weights)
    spread = np.sqrt(np.average(np.square(logits - mean), axis=0, weights=weights))
    return mean.astype(np.float32), spread.astype(np.float32)


def sampling_weights(logits: Matrix, kinds: list[str]) -> npt.NDArray[np.float64]:
    """Return the probability of drawing each segment.

    Each kind has a fixed share. Within a kind, a segment counts by the inverse square root of
    the number of segments with the same strongest tag (by z-score), so that thousands of spoken
    words do not outweigh a single cow. Segments whose strongest logit is speech or music count
    a quarter of that.
    """
    shares = {"esc50": 0.45, "ambient": 0.08, "effects": 0.37, "music": 0.05, "speech": 0.05}
    scores = (logits - logits.mean(axis=0)) / logits.std(axis=0)
    top = scores.argmax(axis=1)
    rarity = 1.0 / np.sqrt(np.bincount(top, minlength=logits.shape[1])[top])
    rarity[np.isin(logits.argmax(axis=1), (SPEECH, MUSIC))] *= 0.25
    kind = np.array(kinds)
    weights = np.zeros(len(kinds))
    for name, share in shares.items():
        members = kind == name
        if members.any():
            weights[members] = share * rarity[members] / rarity[members].sum()
    return weights / weights.sum()


def pieces_of(segment: Segment) -> list[tuple[int, int, float]]:
    """Return (start, length, seconds) of the shorter pieces of a segment.

    A segment longer than 1.2 times the piece's length is cut into round(length / piece) pieces,
    evenly spread. Pieces more than 40 dB below the segment are left out as silence.
    """
    samples, found = samples_of(segment.start, segment.length), []
    floor = 1e-4 * float(np.square(samples).mean())
    for seconds in PIECE_SECONDS:
        size = int(seconds * RATE)
        if segment.length <= 1.2 * size:
            continue
        count = round(segment.length / size)
        for offset in np.linspace(0, segment.length - size, count).astype(int):
            if np.square(samples[offset : offset + size]).mean() > floor:
                found.append((segment.start + int(offset), size, seconds))
    return found


def is_steady(segment: Segment) -> bool:
    """Return whether a segment can serve as background noise.

    It lasts at least 4 s, and the 10th and 90th percentiles of its level in blocks of 50 ms
    differ by less than 15 dB.
    """
    if segment.length < STEADY_SECONDS * RATE:
        return False
    samples, block = samples_of(segment.start, segment.length), RATE // 20
    blocks = samples[: samples.size // block * block].reshape(-1, block)
    low, high = np.percentile(10 * np.log10(np.square(blocks).mean(axis=1) + 1e-12), (10, 90))
    return bool(high - low < STEADY_DB)


def label_pieces(segments: list[Segment], whole: Matrix, pool: ProcessPoolExecutor) -> None:
    """Write `pieces.npz`."""
    shorter = list(pool.map(pieces_of, segments, chunksize=64))
    rows = [(i, *piece) for i, found in enumerate(shorter) for piece in found]
    logits = list(pool.map(label_piece, [(r[1], r[2]) for r in rows], chunksize=64))
    rows = [(i, s.start, s.length, 0.0) for i, s in enumerate(segments)] + rows
    segment, start, length, seconds = (np.array(column) for column in zip(*rows, strict=True))
    with replacing(WORK / "pieces.npz") as partial:
        np.savez(
            partial,
            segment=segment,
            start=start,
            length=length,
            seconds=seconds,
            logits=np.concatenate([whole, np.stack(logits)]).astype(np.float16),
            steady=np.array(list(pool.map(is_steady, segments, chunksize=64))),
        )


def main() -> None:
    """Label all segments and their pieces."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--workers", type=int, default=2)
    segments, target = read_segments(), WORK / "teacher.npz"
    done = np.load(target)["rows"] if target.exists() else np.zeros((0, 911), np.float32)
    with ProcessPoolExecutor(parser.parse_args().workers) as pool:
        spans = [(s.start, s.length) for s in segments[len(done) :]]
        new = [r[None] for r in pool.map(label_segment, spans, chunksize=32)]
        rows = np.concatenate([done, *new])
        lengths = np.array([s.length for s in segments])
        twins = near_duplicates(rows[:, TAGS:], lengths, pool)
        weights = sampling_weights(rows[:, :TAGS], [s.kind for s in segments]) * ~twins
        mu, sigma = statistics(rows[:, :TAGS], weights)
        weights /= weights.sum()
        np.savez(WORK / "mn04_stats.npz", mu=mu, sigma=sigma)
        np.savez(target, rows=rows, twins=twins, weights=weights, mu=mu, sigma=sigma)
        label_pieces(segments, rows[:, :TAGS], pool)
    hours = sum(lengths) / RATE / 3600
    print(f"{len(rows)} segments, {hours:.1f} h; {int(twins.sum())} dropped as near-duplicates")


if __name__ == "__main__":
    main()
