"""What the teacher (mn04) says of every segment: `python -m training.teacher`.

Written to `training/work/`: `teacher.npz` with the logits (n, 527) and embeddings (n, 384) of
the segments, in their order; whether each is kept; how often to draw it; and the z-score
statistics mu, sigma by these weights (also alone, for the text side, as `mn04_stats.npz`).
Segments that all but equal a clip of `events/`, `noise/` or `noise_unclear_licence/` (cosine of
the embeddings above 0.99, lengths within 5 %) are dropped: comparing is the only use made of
those clips.
"""

import argparse
import csv
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import numpy as np
import numpy.typing as npt

from driftscore.backbones.mn04 import Tagger, load_tagger
from training.collect import SHARED, WORK, cut, decode, read_audio, read_segments

Matrix = npt.NDArray[np.float32]
SPEECH, MUSIC = 0, 137
"""The places of these two among AudioSet's 527 tags."""


@cache
def tagger() -> Tagger:
    """Return the teacher, once a process."""
    return load_tagger(SHARED / "models" / "mn04")


def listen(start_and_length: tuple[int, int]) -> Matrix:
    """Return logits and embedding of one segment, side by side."""
    start, length = start_and_length
    samples = read_audio()[start : start + length].astype(np.float32) / 32_767
    return np.concatenate(tagger().logits_and_embedding(samples))


def _listen_to_file(name: str) -> list[tuple[int, Matrix]]:
    """Return (length, embedding) of the pieces of a clip that must not be trained on."""
    pieces = cut(decode((SHARED / "audio" / name).read_bytes()), most=60)
    return [(p.size, tagger().logits_and_embedding(p)[1]) for p in pieces]


def kept_back() -> list[str]:
    """Return the files of the manifest that are never trained on."""
    with open(SHARED / "audio" / "manifest.csv", newline="") as handle:
        return [row["file"] for row in csv.DictReader(handle) if row["split"] != "train"]


def near_duplicates(
    embeddings: Matrix, lengths: npt.NDArray[np.int64], pool: ProcessPoolExecutor
) -> npt.NDArray[np.bool_]:
    """Return which segments all but equal a clip that is kept back."""
    pieces = [p for found in pool.map(_listen_to_file, kept_back(), chunksize=8) for p in found]
    others = np.stack([embedding for _, embedding in pieces])
    other_lengths = np.array([length for length, _ in pieces])
    cosines = _unit(embeddings) @ _unit(others).T
    same_length = np.abs(np.log(lengths[:, None] / other_lengths)) < 0.05
    return ((cosines > 0.99) & same_length).any(axis=1)


def _unit(rows: Matrix) -> Matrix:
    """Return rows of length one."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def statistics(logits: Matrix, weights: npt.NDArray[np.float64]) -> tuple[Matrix, Matrix]:
    """Return each tag's weighted mean and standard deviation."""
    mean = np.average(logits, axis=0, weights=weights)
    spread = np.sqrt(np.average(np.square(logits - mean), axis=0, weights=weights))
    return mean.astype(np.float32), spread.astype(np.float32)


def sampling_weights(logits: Matrix, kinds: list[str]) -> npt.NDArray[np.float64]:
    """Return how often to draw each segment.

    Within a group, a segment counts by the inverse root of how many share its strongest tag
    (by z-score), so that the thousands of spoken words don't drown the one cow. What the
    teacher calls speech or music first of all counts a quarter of that.
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


def main() -> None:
    """Label all segments and write `teacher.npz`."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--workers", type=int, default=2)
    segments, target = read_segments(), WORK / "teacher.npz"
    done = np.load(target)["rows"] if target.exists() else np.zeros((0, 911), np.float32)
    with ProcessPoolExecutor(parser.parse_args().workers) as pool:
        spans = [(s.start, s.length) for s in segments[len(done) :]]
        rows = np.concatenate([done, *(r[None] for r in pool.map(listen, spans, chunksize=32))])
        lengths = np.array([s.length for s in segments])
        twins = near_duplicates(rows[:, 527:], lengths, pool)
    weights = sampling_weights(rows[:, :527], [s.kind for s in segments]) * ~twins
    mu, sigma = statistics(rows[:, :527], weights)
    np.savez(WORK / "mn04_stats.npz", mu=mu, sigma=sigma)
    np.savez(target, rows=rows, twins=twins, weights=weights / weights.sum(), mu=mu, sigma=sigma)
    hours = sum(lengths) / 32_000 / 3600
    print(f"{len(rows)} segments, {hours:.1f} h; {int(twins.sum())} dropped as near-duplicates")


if __name__ == "__main__":
    main()
