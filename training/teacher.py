"""Prepare the pool with the teacher, mn04: `python -m training.teacher`.

Every segment of the pool is labelled once, as it is, to leave out what must not be trained on and
to balance what is drawn. (The targets of training are made on the fly, see `training.mixtures`.)
Written to the training folder:

- `teacher.npz`: logits (n, 527) and embeddings (n, 384) of the segments side by side (`rows`),
  `twins` (near-duplicates of clips that are tested or validated on), `steady` (can serve as
  background noise), `weights` (probability of drawing each segment).
- `mn04_stats.npz`: mean `mu` and standard deviation `sigma` of each tag, for
  `training.text_anchors`.
  They are those of the tag space that ships, because the student continues in that space.

Near-duplicates: a segment is compared with every clip of `events`, `noise` and
`noise_unclear_licence`, with the validation clips and noises of `train`, and with the sets in the
folders `sets/` and `repositories/` of the training folder that are tested on. It is left out if the
teacher's embeddings have a cosine above 0.9 and its log-mel, at the best shift in time, correlates
by more than 0.85 with the clip's. This comparison is the only use made of those clips.
"""

import argparse
import csv
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import scipy.fft

from training.collect import (
    RATE,
    SHARED,
    WORK,
    Samples,
    Segment,
    Source,
    cut,
    decode,
    is_free,
    read_audio,
    read_segments,
    repository_files,
    sources,
)
from training.product import coarse_log_mel, load_space, replacing, tagger

Matrix = npt.NDArray[np.float32]
TAGS = 527
SPEECH, MUSIC = 0, 137
"""Indices of these two among AudioSet's 527 tags."""
SHARES = {"esc50": 0.18, "ambient": 0.17, "effects": 0.45, "music": 0.10, "speech": 0.10}
"""Share of each kind of source among the segments that are drawn."""
STEADY_DB = 15.0
STEADY_SECONDS = 4.0
TWIN_COSINE, TWIN_CORRELATION = 0.9, 0.85
TEST_REPOSITORIES = (
    Source(
        "Stevens05/SASED", "66b1f3d1e2457689367a843b5f2566ecfb58ada8", "", keep=("data/train/",)
    ),
    Source("YashNita/Animal-Sound-Dataset", "574b5e2d9b071f142b464bb7b43d6a736ebb0dac", ""),
)


def samples_of(start: int, length: int) -> Samples:
    """Return a part of `audio.i16` as float samples."""
    return read_audio()[start : start + length].astype(np.float32) / 32_767


def label_segment(span: tuple[int, int]) -> Matrix:
    """Return logits and embedding of one segment, concatenated."""
    return np.concatenate(tagger().logits_and_embedding(samples_of(*span)))


def test_contents() -> Iterator[bytes]:
    """Yield the files that are tested or validated on."""
    with open(SHARED / "audio" / "manifest.csv", newline="") as handle:
        for row in csv.DictReader(handle):
            if row["split"] != "train" or not is_free(row):
                yield (SHARED / "audio" / row["file"]).read_bytes()
    for path in sorted((WORK / "sets").glob("*/*/*/*.wav")):
        yield path.read_bytes()
    for source in TEST_REPOSITORIES:
        for _, contents in repository_files(source):
            yield contents


def _fingerprints(contents: bytes) -> list[tuple[Matrix, Matrix]]:
    """Return (embedding, log-mel) of the parts of a file."""
    try:
        parts = cut(decode(contents), most=60)
    except RuntimeError:
        return []
    return [(tagger().logits_and_embedding(p)[1], coarse_log_mel(p)) for p in parts]


def test_fingerprints(processes: ProcessPoolExecutor) -> tuple[Matrix, list[Matrix]]:
    """Return the embeddings and log-mels of all test clips; computed once, then read."""
    target = WORK / "test_clips.npz"
    if not target.exists():
        found = processes.map(_fingerprints, test_contents(), chunksize=16)
        parts = [part for parts in found for part in parts]
        mels = [mel.astype(np.float16) for _, mel in parts]
        edges = np.cumsum([0, *(mel.shape[1] for mel in mels)])
        with replacing(target) as partial, open(partial, "wb") as file:
            np.savez(file, embeddings=[e for e, _ in parts], mels=np.hstack(mels), edges=edges)
    with np.load(target) as file:
        mels, edges = file["mels"].astype(np.float32), file["edges"]
        return file["embeddings"], [mels[:, a:b] for a, b in pairwise(edges)]


def near_duplicates(
    embeddings: Matrix, segments: list[Segment], processes: ProcessPoolExecutor
) -> npt.NDArray[np.bool_]:
    """Return which segments nearly equal a test clip."""
    others, mels = test_fingerprints(processes)
    near = _unit(embeddings) @ _unit(others).T > TWIN_COSINE
    twins = np.zeros(len(segments), bool)
    for number in np.flatnonzero(near.any(axis=1)):
        mel = coarse_log_mel(samples_of(segments[number].start, segments[number].length))
        candidates = (mels[other] for other in np.flatnonzero(near[number]))
        twins[number] = any(correlation(mel, other) > TWIN_CORRELATION for other in candidates)
    return twins


def correlation(first: Matrix, second: Matrix) -> float:
    """Return the correlation of two log-mels at the best shift, where at least half overlaps.

    Each band's mean is removed first, so that steady sounds of one colour do not match.
    """
    short, long = sorted((first, second), key=lambda mel: mel.shape[1])
    short, long = (mel - mel.mean(axis=1, keepdims=True) for mel in (short, long))
    size = scipy.fft.next_fast_len(short.shape[1] + long.shape[1], real=True)
    edge = short.shape[1] // 2
    one, other = scipy.fft.rfft(short, size), scipy.fft.rfft(long, size)
    products = scipy.fft.irfft((np.conj(one) * other).sum(axis=0), size)
    energies = np.concatenate([[0.0], np.cumsum(np.square(long).sum(axis=0))])
    shifts = np.arange(-edge, long.shape[1] - short.shape[1] + edge + 1)
    begin = np.clip(shifts, 0, long.shape[1])
    end = np.clip(shifts + short.shape[1], 0, long.shape[1])
    norms = np.sqrt(np.square(short).sum() * (energies[end] - energies[begin])) + 1e-9
    return float((products[shifts] / norms).max())


def _unit(rows: Matrix) -> Matrix:
    """Return rows scaled to unit norm."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def still_wanted(segments: list[Segment]) -> npt.NDArray[np.bool_]:
    """Return which segments `sources.toml` takes, each file once.

    A file may have been skipped since it was collected, or be in two repositories.
    """
    listed = {source.name: source for source in sources()}
    with open(WORK / "files.csv", newline="") as handle:
        digests = {(r["source"], r["path"]): r["sha256"] for r in csv.DictReader(handle)}
    first = {digest: key for key, digest in reversed(digests.items())}
    wanted = []
    for segment in segments:
        key = segment.package, segment.path
        taken = key[0] == "shared" or (key[0] in listed and listed[key[0]].takes(key[1]))
        wanted.append(taken and first[digests[key]] == key)
    return np.array(wanted)


def sampling_weights(logits: Matrix, kinds: list[str]) -> npt.NDArray[np.float64]:
    """Return the probability of drawing each segment.

    Each kind has a fixed share. Within a kind, a segment counts by the inverse square root of
    the number of segments with the same strongest tag (by z-score), so that thousands of spoken
    words do not outweigh a single cow. Segments whose strongest logit is speech or music count
    a quarter of that.
    """
    scores = (logits - logits.mean(axis=0)) / logits.std(axis=0)
    top = scores.argmax(axis=1)
    rarity = 1.0 / np.sqrt(np.bincount(top, minlength=logits.shape[1])[top])
    rarity[np.isin(logits.argmax(axis=1), (SPEECH, MUSIC))] *= 0.25
    kind = np.array(kinds)
    weights = np.zeros(len(kinds))
    for name, share in SHARES.items():
        members = kind == name
        if members.any():
            weights[members] = share * rarity[members] / rarity[members].sum()
    return weights / weights.sum()


def is_steady(span: tuple[int, int]) -> bool:
    """Return whether a segment can serve as background noise.

    It lasts at least 4 s, and the 10th and 90th percentiles of its level in blocks of 50 ms
    differ by less than 15 dB.
    """
    if span[1] < STEADY_SECONDS * RATE:
        return False
    samples, block = samples_of(*span), RATE // 20
    blocks = samples[: samples.size // block * block].reshape(-1, block)
    low, high = np.percentile(10 * np.log10(np.square(blocks).mean(axis=1) + 1e-12), (10, 90))
    return bool(high - low < STEADY_DB)


def main() -> None:
    """Label the segments that were added to the pool and compute the weights of all."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--workers", type=int, default=2)
    segments, target = read_segments(), WORK / "teacher.npz"
    done = np.load(target)["rows"] if target.exists() else np.zeros((0, 911), np.float32)
    spans = [(s.start, s.length) for s in segments]
    with ProcessPoolExecutor(parser.parse_args().workers) as processes:
        new = [r[None] for r in processes.map(label_segment, spans[len(done) :], chunksize=32)]
        rows = np.concatenate([done, *new])
        twins = near_duplicates(rows[:, TAGS:], segments, processes)
        steady = np.array(list(processes.map(is_steady, spans, chunksize=64)))
    wanted = still_wanted(segments)
    weights = sampling_weights(rows[:, :TAGS], [s.kind for s in segments]) * ~twins * wanted
    weights /= weights.sum()
    space = load_space()
    np.savez(WORK / "mn04_stats.npz", mu=space.mu, sigma=space.sigma)
    with replacing(target) as partial, open(partial, "wb") as file:
        np.savez(file, rows=rows, twins=twins, steady=steady, weights=weights)
    hours = sum(s.length for s in segments) / RATE / 3600
    print(f"{len(rows)} segments, {hours:.1f} h; {int((~wanted).sum())} no longer wanted")
    print(f"{int(twins.sum())} dropped as near-duplicates of test clips:")
    for number in np.flatnonzero(twins):
        print(f"  {segments[number].package}: {segments[number].path}")


if __name__ == "__main__":
    main()
