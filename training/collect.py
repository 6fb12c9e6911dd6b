"""Collect the recordings that the audio tower is trained on: `python -m training.collect`.

Three kinds of source, all with licences that allow commercial use: the clips of
`../shared/audio/train` whose manifest line states such a licence; the sound files in packages of
Debian main (downloaded with apt-get and unpacked, never installed; zip archives are opened); and
those in public git repositories at a fixed commit (read from `repositories/owner+name`, a git
directory, which is cloned from GitHub if it does not exist). The last two are listed in
`sources.toml`. Files whose name contains the Freesound number of a test clip are left out;
`training.teacher` leaves out near-duplicates of test clips by their sound.

Written to the training folder (`$DRIFTSCORE_TRAINING`): `audio.i16` (mono int16 at 32 kHz, segments
of at most ten seconds, one after another), `segments.csv` (start, length, source, path and kind of
each segment) and `files.csv` (source, version or commit, licence, path and sha256 of each file).
Sources that are in the files already are skipped, so the pool can grow while a training runs.
"""

import argparse
import csv
import hashlib
import io
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parent
WORK = Path(os.environ.get("DRIFTSCORE_TRAINING", "~/driftscore-training")).expanduser()
SHARED = Path(os.environ.get("DRIFTSCORE_SHARED", ROOT.parent.parent / "shared"))
RATE = 32_000
SEGMENT = 10 * RATE
SOUNDS = (".ogg", ".oga", ".wav", ".flac", ".mp3", ".opus", ".au", ".aiff", ".aif", ".voc")
ARCHIVES = (".zip", ".pk3", ".pk4", ".wz")
CARVED = (".rcc", ".cat")
"""Container formats (Qt resources, OpenTTD) that store sound files uncompressed."""
FREE = ("CC0", "CC-BY", "CC-BY-4.0", "Public-Domain")
FREE_BY_TEXT = ("blanket_", "ambientsounds_")
"""Ambient recordings whose licence files name a free licence for each recording."""

Samples = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Segment:
    """Position of one segment in `audio.i16`, in samples, and its origin."""

    start: int
    length: int
    package: str
    path: str
    kind: str


@dataclass(frozen=True)
class Source:
    """One package of Debian main or one git repository ("owner/name"), and how much to take.

    `version` is a package's version or a repository's commit. `keep` and `skip` are parts of paths:
    a file is taken if its path contains one of `keep` (if there are any) and none of `skip`.
    """

    name: str
    version: str
    licence: str
    kind: str = "effects"
    most_files: int = 100_000
    most_segments: int = 8
    keep: tuple[str, ...] = ("",)
    skip: tuple[str, ...] = ()

    def takes(self, path: str) -> bool:
        """Return whether a file is to be used."""
        return any(part in path for part in self.keep) and not any(p in path for p in self.skip)


def sources() -> list[Source]:
    """Return the repositories and packages of `sources.toml`."""
    listed = tomllib.loads((ROOT / "sources.toml").read_text())
    rows = [*listed["repository"], *listed["package"]]
    lists = ("keep", "skip")
    fields_of: list[dict[str, Any]] = [
        {key: tuple(value) if key in lists else value for key, value in row.items()} for row in rows
    ]
    return [Source(**values) for values in fields_of]


def repository(name: str) -> Path:
    """Return the git directory of a repository, cloned if necessary."""
    home = WORK / "repositories" / name.replace("/", "+")
    if not home.exists():
        url = f"https://github.com/{name}"
        subprocess.run(["git", "clone", "--bare", "--quiet", url, home], check=True)
    return home


def repository_files(source: Source) -> Iterator[tuple[str, bytes]]:
    """Yield (path, contents) of a repository's sound files; missing large files are left out."""
    git = ["git", "-C", str(repository(source.name))]
    listing = subprocess.run(
        [*git, "ls-tree", "-r", "-z", source.version], capture_output=True, check=True
    ).stdout.decode()
    for entry in listing.split("\0"):
        about, _, path = entry.partition("\t")
        if not path.lower().endswith(SOUNDS) or not source.takes(path):
            continue
        blob = subprocess.run(
            [*git, "cat-file", "blob", about.split()[2]],
            capture_output=True,
            check=False,
            env={**os.environ, "GIT_NO_LAZY_FETCH": "1"},
        )
        if blob.returncode == 0 and not blob.stdout.startswith(b"version https://git-lfs"):
            yield path, blob.stdout


def package_folder(source: Source) -> Path:
    """Return the folder with the package's sound files and archives, unpacked if necessary."""
    debs, home = WORK / "debs", WORK / "unpacked" / source.name
    if (home / "done").exists():
        return home
    debs.mkdir(parents=True, exist_ok=True)
    if not list(debs.glob(f"{source.name}_*.deb")):
        subprocess.run(["apt-get", "download", "-q", source.name], cwd=debs, check=True)
    deb = max(debs.glob(f"{source.name}_*.deb"))
    home.mkdir(parents=True, exist_ok=True)
    wanted = [f"*{ending}" for ending in (*SOUNDS, *ARCHIVES, *CARVED)]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as tar:
        subprocess.run(
            ["tar", "-x", "-C", home, "--wildcards", "--ignore-case", *wanted, "*/copyright"],
            stdin=tar.stdout,
            stderr=subprocess.DEVNULL,  # a pattern that matches nothing is not an error here
            check=False,
        )
    (home / "done").touch()
    return home


def package_files(source: Source) -> Iterator[tuple[str, bytes]]:
    """Yield (path, contents) of the sound files in a package and in the archives within it."""
    home = package_folder(source)
    for path in sorted(p for p in home.rglob("*") if p.is_file() and not p.is_symlink()):
        ending = path.suffix.lower()
        if ending in SOUNDS:
            yield str(path.relative_to(home)), path.read_bytes()
        elif ending in ARCHIVES and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for name in sorted(archive.namelist()):
                    if Path(name).suffix.lower() in SOUNDS:
                        yield f"{path.relative_to(home)}!{name}", archive.read(name)
        elif ending in CARVED:
            for number, contents in enumerate(carve(path.read_bytes())):
                yield f"{path.relative_to(home)}!{number}", contents


def carve(contents: bytes) -> Iterator[bytes]:
    """Yield the Ogg streams and RIFF files that a container stores uncompressed."""
    starts = [m.start() for m in re.finditer(rb"OggS\x00\x02", contents)]
    for start, after in pairwise([*starts, len(contents)]):
        last = contents.rfind(b"OggS\x00\x04", start, after)
        yield contents[start : after if last < 0 else min(after, last + 65_536)]
    for match in re.finditer(rb"RIFF(....)WAVE", contents, re.DOTALL):
        size = int.from_bytes(match.group(1), "little")
        yield contents[match.start() : match.start() + 8 + size]


def decode(contents: bytes) -> Samples:
    """Return a sound file as mono samples at 32 kHz, at most ten minutes of it."""
    import soundfile
    import soxr

    with soundfile.SoundFile(io.BytesIO(contents)) as sound:
        rate = sound.samplerate
        samples = sound.read(600 * rate, dtype="float32", always_2d=True).mean(axis=1)
    if rate != RATE:
        samples = soxr.resample(samples, rate, RATE, quality="HQ")
    return np.asarray(samples, dtype=np.float32)


def cut(samples: Samples, most: int) -> list[Samples]:
    """Return at most `most` segments of up to ten seconds, evenly spread, without silence."""
    loud = np.flatnonzero(np.abs(samples) > 1e-3)
    if loud.size == 0 or loud[-1] - loud[0] < RATE // 10:
        return []
    samples = samples[loud[0] : loud[-1] + 1]
    count = max(1, round(samples.size / SEGMENT))
    edges = np.linspace(0, samples.size, count + 1).astype(int)
    chosen = sorted({int(i) for i in np.linspace(0, count - 1, min(count, most))})
    pieces = [samples[edges[i] : edges[i + 1]][:SEGMENT] for i in chosen]
    return [p for p in pieces if np.square(p).mean() > 1e-7]


@dataclass(frozen=True)
class File:
    """One decoded file: its digest and its segments."""

    path: str
    sha256: str
    segments: list[npt.NDArray[np.int16]]


def _files(source: Source) -> list[File]:
    """Return the files taken from one source, each content once."""
    import soundfile

    contents_of = repository_files if "/" in source.name else package_files
    by_digest = {
        hashlib.sha256(contents).hexdigest(): (path, contents)
        for path, contents in contents_of(source)
        if source.takes(path) and not test_ids() & set(re.findall(r"\d{4,}", Path(path).name))
    }
    chosen = sorted(by_digest)[: source.most_files]
    files = []
    for digest in sorted(chosen, key=lambda key: by_digest[key][0]):
        path, contents = by_digest[digest]
        try:
            parts = cut(decode(contents), source.most_segments)
        except (soundfile.LibsndfileError, RuntimeError, ValueError) as error:
            print(f"{source.name}: {path} skipped: {error}", file=sys.stderr)
            continue
        files.append(File(path, digest, [_int16(part) for part in parts]))
    return files


@cache
def test_ids() -> frozenset[str]:
    """Return the Freesound numbers of the clips that are tested on.

    They are those of `events`, and, if the sets were written there, of UrbanSound8K and Kitchen20
    in the training folder's `sets/`.
    """
    with open(SHARED / "audio" / "manifest.csv", newline="") as handle:
        origins = [row["origin"] for row in csv.DictReader(handle) if row["split"] == "events"]
    ids = {number for origin in origins for number in re.findall(r"sounds/(\d+)", origin)}
    for manifest in sorted((WORK / "sets").glob("*/manifest.csv")):
        with open(manifest, newline="") as handle:
            ids |= {
                n for row in csv.DictReader(handle) for n in re.findall(r"\d{4,}", row["source"])
            }
    return frozenset(ids)


def _int16(samples: Samples) -> npt.NDArray[np.int16]:
    """Return samples as int16, scaled down if they would clip."""
    peak = max(1.0, float(np.abs(samples).max()))
    return np.round(samples / peak * 32_767).astype(np.int16)


def shared_rows() -> list[dict[str, str]]:
    """Return the manifest lines of `train`."""
    with open(SHARED / "audio" / "manifest.csv", newline="") as handle:
        return [row for row in csv.DictReader(handle) if row["split"] == "train"]


def is_free(row: dict[str, str]) -> bool:
    """Return whether the licence in a manifest line allows commercial use."""
    name = Path(row["file"]).name
    return row["licence"] in FREE or name.startswith(FREE_BY_TEXT)


def _shared_file(row: dict[str, str]) -> File:
    """Return one clip of `train`."""
    contents = (SHARED / "audio" / row["file"]).read_bytes()
    segments = [_int16(part) for part in cut(decode(contents), most=12)]
    return File(row["file"], hashlib.sha256(contents).hexdigest(), segments)


class Pool:
    """The files of the pool, open for appending."""

    def __init__(self, audio: BinaryIO, segments: TextIO, files: TextIO) -> None:
        self._audio, self._tables = audio, (segments, files)
        self._segments, self._files = csv.writer(segments), csv.writer(files)
        if segments.tell() == 0:
            self._segments.writerow([f.name for f in fields(Segment)])
        if files.tell() == 0:
            self._files.writerow(["source", "version", "licence", "path", "sha256"])

    def append(self, file: File, source: Source) -> None:
        """Append the segments of one file; the table last, so that it never promises too much."""
        for piece in file.segments:
            start = self._audio.tell() // 2
            self._audio.write(piece.tobytes())
            self._segments.writerow((start, piece.size, source.name, file.path, source.kind))
        row = (source.name, source.version, source.licence, file.path, file.sha256)
        self._files.writerow(row)

    def flush(self) -> None:
        """Write what is buffered: samples first, so that no segment lacks its samples."""
        self._audio.flush()
        for table in self._tables:
            table.flush()


def read_segments() -> list[Segment]:
    """Return the segments collected so far."""
    with open(WORK / "segments.csv", newline="") as handle:
        return [
            Segment(int(r["start"]), int(r["length"]), r["package"], r["path"], r["kind"])
            for r in csv.DictReader(handle)
        ]


def read_audio() -> npt.NDArray[np.int16]:
    """Return the samples of all segments as a memory map."""
    return np.memmap(WORK / "audio.i16", dtype=np.int16, mode="r")


def collect(workers: int) -> None:
    """Extend the pool by the sources that it does not contain yet."""
    WORK.mkdir(parents=True, exist_ok=True)
    known = {s.package for s in read_segments()} if (WORK / "segments.csv").exists() else set()
    with (
        open(WORK / "audio.i16", "ab") as audio,
        open(WORK / "segments.csv", "a", newline="") as segments,
        open(WORK / "files.csv", "a", newline="") as files,
        ProcessPoolExecutor(workers) as processes,
    ):
        pool = Pool(audio, segments, files)
        if "shared" not in known:
            rows = [row for row in shared_rows() if is_free(row)]
            decoded = processes.map(_shared_file, rows, chunksize=8)
            for row, file in zip(rows, decoded, strict=True):
                kind = "esc50" if "/esc50/" in row["file"] else "ambient"
                pool.append(file, Source("shared", row["source"], row["licence"], kind))
            pool.flush()
        missing = [source for source in sources() if source.name not in known]
        for source, taken in zip(missing, processes.map(_files, missing), strict=True):
            for file in taken:
                pool.append(file, source)
            pool.flush()
            lengths = [piece.size for file in taken for piece in file.segments]
            hours = sum(lengths) / RATE / 3600
            print(f"{source.name}: {len(lengths)} segments, {hours:.2f} h", flush=True)


def table() -> str:
    """Return a Markdown table: source, licence, files, segments and minutes collected."""
    known = {source.name: (source.version, source.licence) for source in sources()}
    known["shared"] = ("", "CC0, CC-BY, public domain and two CC-BY-SA noises, clip by clip")
    lines = [
        "| source | version | licence | kind | files | segments | minutes |",
        "|" + " --- |" * 7,
    ]
    by_source: dict[tuple[str, str], list[Segment]] = {}
    for segment in read_segments():
        by_source.setdefault((segment.package, segment.kind), []).append(segment)
    for (package, kind), found in by_source.items():
        version, licence = known.get(package, ("", "no longer listed"))
        files, minutes = len({s.path for s in found}), sum(s.length for s in found) / RATE / 60
        row = (package, version, licence, kind, str(files), str(len(found)), f"{minutes:.1f}")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> None:
    """Parse the command line and collect."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="only print the table of sources")
    settings = parser.parse_args()
    if settings.table:
        print(table())
    else:
        collect(settings.workers)


if __name__ == "__main__":
    main()
