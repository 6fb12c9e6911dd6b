"""Archives: search, memory, size, and what int8 costs.

2,000,000 windows of 527 dimensions (random unit rows) in Parquet, searched from the shell with
five words, files in memory; `score` on a .npy of 2,000,000 x 512; an hour of noise in files of a
minute, embedded into an archive and into an npz, in turns. Recall is the share of the 50 best
windows by float32 that are among the 50 best by int8: of random rows (no window stands out, the
hardest case), and of the recordings in ../shared, where that is present (3 s windows every 0.5 s,
50 labels). If usearch is installed, an index of the same windows is built, to see when it pays.
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.clips import write_noise
from bench.figures import Figure, Spread, ratio, scaled
from bench.shell import Ran, driftscore
from driftscore import Classifier, Embedder, Head, load_backbone
from driftscore.backbones.vectors import Matrix, unit
from driftscore.engines.archive import ArchiveAbout, packed_rows, write_shard

WINDOWS, WORDS, TOP = 2_000_000, ("glass breaking", "siren", "dog bark", "owl", "chainsaw"), 50
FIND_S, MOST_MB, HOUR_MB, RECALL = 3.0, 500, 1.5, 98.0
WINDOWS_PER_HOUR = 2400  # 3 s every 1.5 s
_SHARD, _BLOCK = 131_072, 16_384
_SOUNDS = Path(__file__).resolve().parents[2] / "shared" / "audio"


def measure(*, quick: bool) -> list[Figure]:
    """Make archives, then search and score them."""
    windows, turns = (20_000, 2) if quick else (WINDOWS, 7)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        _write_archive(home / "archive", windows)
        half = home / "half"
        half.mkdir()
        shards = sorted((home / "archive").glob("*.parquet"))
        for shard in shards[: max(1, len(shards) // 2)]:
            os.link(shard, half / shard.name)
        runs, halves = ([_find(folder, home) for _ in range(turns + 1)][1:]
                        for folder in (home / "archive", half))  # fmt: skip
        size = sum(path.stat().st_size for path in shards) / windows * WINDOWS_PER_HOUR / 1e6
        return [
            *_searched(runs, halves, windows, len(shards)),
            Figure(
                "an archive per hour of audio, windows of 3 s every 1.5 s",
                Spread.of([size]), "MB", bar=f"<= {HOUR_MB} MB", met=size <= HOUR_MB,
            ),
            *_recalls(_cpu_s(runs) / windows, quick=quick),
            _embedding(home, 2 if quick else 60, 1 if quick else 5),
            _scored(home, windows),
        ]  # fmt: skip


def _find(folder: Path, home: Path) -> Ran:
    out = home / "places.csv"
    return driftscore("find", *WORDS, "--in", folder, "-f", "csv", "-o", out, cache=home / "cache")


def _searched(runs: list[Ran], halves: list[Ran], windows: int, shards: int) -> list[Figure]:
    seconds = Spread.of([ran.seconds for ran in runs])
    half = Spread.of([ran.seconds for ran in halves])
    peak = Spread.of([ran.peak_mb for ran in runs])
    work = f"find, {len(WORDS)} words, {windows:,} windows of 527 dimensions, int8"
    return [
        Figure(
            work, seconds, "s", bar=f"<= {FIND_S:g} s", met=seconds.median <= FIND_S,
            note=f"from the shell, with the start of Python; {shards} shards; of the processor "
            f"{_cpu_s(runs):.2f} s; half of the shards: {half.median:.2f} s, of the processor "
            f"{_cpu_s(halves):.2f} s",
            details={"half_s": half.median},
        ),
        Figure(f"peak memory of {work}", peak, "MB", bar=f"< {MOST_MB} MB",
               met=peak.high < MOST_MB),
    ]  # fmt: skip


def _cpu_s(runs: list[Ran]) -> float:
    return Spread.of([ran.cpu_s for ran in runs]).median


def _write_archive(folder: Path, windows: int) -> None:
    """Write an archive of random rows, in recordings of an hour."""
    folder.mkdir()
    model = load_backbone("mini")
    about = ArchiveAbout(model.name, model.fingerprint, 3.0, 1.5)
    for number, first in enumerate(range(0, windows, _SHARD)):
        numbers = np.arange(first, min(windows, first + _SHARD))
        blocks = [
            packed_rows(_random_rows(len(part), model.dim, first + int(part[0])))
            for part in np.split(numbers, range(_BLOCK, len(numbers), _BLOCK))
        ]
        starts = numbers % WINDOWS_PER_HOUR * 1.5
        write_shard(
            folder / f"part-{number:06d}.parquet",
            [f"nights/{n // WINDOWS_PER_HOUR:05d}.flac" for n in numbers.tolist()],
            np.stack([starts, starts + 3.0], axis=1),
            np.concatenate([codes for codes, _ in blocks]),
            np.concatenate([scales for _, scales in blocks]),
            about,
            time.time(),
        )


def _random_rows(count: int, dim: int, seed: int) -> Matrix:
    rng = np.random.default_rng(seed)
    return unit(rng.standard_normal((count, dim), dtype=np.float32))


def _recalls(find_s: float, *, quick: bool) -> list[Figure]:
    """Compare the best windows by int8, and by an index, with those by float32."""
    head = Classifier(list(WORDS)).fit().head_
    count = 20_000 if quick else 200_000
    random = np.concatenate([_random_rows(_BLOCK, head.dim, n) for n in range(count // _BLOCK + 1)])
    work = f"{len(random):,} random rows, {len(WORDS)} labels"
    figures = [_recall(work, random, head)]
    if _SOUNDS.is_dir():
        labels = sorted(path.name.replace("_", " ") for path in (_SOUNDS / "events").iterdir())
        files = sorted(str(path) for path in _SOUNDS.rglob("*.ogg"))[: 200 if quick else None]
        with Embedder() as embedder:
            outcomes = embedder.windows(files, window_s=3.0, hop_s=0.5)
            rows = np.concatenate([one.rows for one in outcomes if not one.error])
        work = f"{len(rows):,} windows of {len(files):,} recordings, {len(labels)} labels"
        random, head = rows, Classifier(labels).fit().head_
        figures.append(_recall(work, random, head))
    return figures + _index(work, random[:20_000], head, find_s)


def _index(work: str, rows: Matrix, head: Head, find_s: float) -> list[Figure]:
    """Build an index of the same int8 rows, and compare its cost with that of searches."""
    try:
        from usearch.index import Index  # type: ignore[import-not-found]
    except ImportError:
        return []
    codes, _ = packed_rows(rows)
    index = Index(ndim=head.dim, metric="cos", dtype="i8")
    start = time.process_time()
    index.add(np.arange(len(rows)), codes)
    build_s = (time.process_time() - start) / len(rows)
    matches = index.search(packed_rows(unit(head.weights))[0], TOP)
    best = np.argpartition(-rows @ head.weights.T, TOP, axis=0)[:TOP]
    shares = [len(np.intersect1d(best[:, c], match.keys)) for c, match in enumerate(matches)]
    recall = 100 * float(np.mean(shares)) / TOP
    return [
        Figure(
            f"searches after which an index (usearch, HNSW) has cost less: {work}",
            Spread.of([build_s / find_s]), "searches",
            note=f"building takes {1e6 * build_s:.0f} microseconds of the processor per window, "
            f"a search by `find` {1e6 * find_s:.1f}; of the best {TOP} windows the index finds "
            f"{recall:.0f} %, and it takes {index.memory_usage / len(rows):.0f} bytes per window",
        )
    ]  # fmt: skip


def _recall(work: str, rows: Matrix, head: Head) -> Figure:
    codes, scales = packed_rows(rows)
    exact, rounded = (
        np.argpartition(-head.scores(some), TOP, axis=0)[:TOP]
        for some in (rows, codes * scales[:, None])
    )
    shares = [
        100 * len(np.intersect1d(exact[:, c], rounded[:, c])) / TOP for c in range(len(head.labels))
    ]
    mean = float(np.mean(shares))
    return Figure(
        f"recall of the top {TOP}, int8 against float32: {work}",
        Spread.of([mean]), "%", bar=f">= {RECALL:g} %", met=mean >= RECALL,
        note=f"mean over the labels; the lowest is {min(shares):.0f} %",
        details={"by_label": dict(zip(head.labels, shares, strict=True))},
    )  # fmt: skip


def _embedding(home: Path, minutes: int, turns: int) -> Figure:
    """Embed the same recordings into an archive and into an npz."""
    folder = home / "minutes"
    folder.mkdir()
    for number in range(minutes):
        write_noise(folder / f"{number:03d}.wav", 60)
    runs: dict[str, list[Ran]] = {"archive": [], "npz": [], "windows": []}
    for turn in range(turns + 1):
        for name, out in (("archive", f"{home}/made{turn}/"), ("npz", home / "made.npz"),
                          ("windows", home / "windows.npz")):  # fmt: skip
            extra = ["--windows"] if name == "windows" else []
            ran = driftscore("embed", folder, *extra, "-o", out, cache=home / "cache")
            runs[name] += [ran] if turn else []
    seconds = {name: [ran.seconds for ran in of_name] for name, of_name in runs.items()}
    times = ratio(seconds["npz"], seconds["archive"])
    same = ratio(seconds["windows"], seconds["archive"])
    cpu = ", ".join(f"{name} {_cpu_s(of_name):.2f} s" for name, of_name in runs.items())
    return Figure(
        f"embed into an archive, {minutes} recordings of a minute, from the shell",
        scaled(seconds["archive"], 1), "s", peer="embed into an npz",
        theirs=scaled(seconds["npz"], 1), ratio=times, bar="not slower",
        met=times.median >= 1 or times.low <= 1 <= times.high,
        note="windows of 3 s every 1.5 s; the npz has one row per recording; against an npz of "
        f"the same windows {same.median:.2f}x; of the processor: {cpu}",
    )  # fmt: skip


def _scored(home: Path, rows: int) -> Figure:
    """Score a .npy of another tool."""
    path, head = home / "other.npy", home / "head.npz"
    matrix = np.lib.format.open_memmap(path, "w+", np.float32, (rows, 512))
    for first in range(0, rows, _BLOCK):
        some = min(_BLOCK, rows - first)
        matrix[first : first + some] = _random_rows(some, 512, first)
    matrix.flush()
    del matrix
    Head(("a", "b", "c", "d", "e"), _random_rows(5, 512, 1)).save(head)
    ran = driftscore("score", path, "--head", head, "-f", "csv", "-o", home / "rows.csv",
                     cache=home / "cache")  # fmt: skip
    path.unlink()
    return Figure(
        f"peak memory of score on a .npy of {rows:,} x 512, 5 labels, csv",
        Spread.of([ran.peak_mb]), "MB", bar=f"< {MOST_MB} MB", met=ran.peak_mb < MOST_MB,
        note=f"in {ran.seconds:.0f} s",
    )  # fmt: skip
