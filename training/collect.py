"""Collect the recordings that the audio tower is trained on: `python -m training.collect`.

Two sources, both with licences that allow commercial use: the clips of `../shared/audio/train`
whose manifest line states such a licence, and the sound files in packages of Debian main (listed
in `sources.toml`; downloaded with apt-get and unpacked, never installed; zip archives are opened).

Written to `training/work/`: `audio.i16` (mono int16 at 32 kHz, segments of at most ten seconds,
one after another) and `segments.csv` (start, length, package, path and kind of each segment).
Packages that are in the files already are skipped.
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
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parent
WORK = ROOT / "work"
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
    """One package of Debian main and how much of it to take."""

    name: str
    version: str
    licence: str
    kind: str = "effects"
    most_files: int = 100_000
    most_segments: int = 8
    skip: tuple[str, ...] = ()


def sources() -> list[Source]:
    """Return the packages of `sources.toml`."""
    listed = tomllib.loads((ROOT / "sources.toml").read_text())["package"]
    return [Source(**{**row, "skip": tuple(row.get("skip", ()))}) for row in listed]


def fetch(source: Source) -> Path:
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


def sound_files(home: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (path, contents) of the sound files in a folder and in the archives within it."""
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


def _package_pieces(source: Source) -> list[tuple[str, npt.NDArray[np.int16]]]:
    """Return (path, segment) for every segment taken from one package."""
    import soundfile

    files = [
        (path, contents)
        for path, contents in sound_files(fetch(source))
        if not any(part in path for part in source.skip)
    ]
    by_hash = {hashlib.sha256(c).hexdigest(): (p, c) for p, c in files}
    chosen = sorted(by_hash)[: source.most_files]
    pieces = []
    for path, contents in sorted((by_hash[key] for key in chosen), key=lambda f: f[0]):
        try:
            parts = cut(decode(contents), source.most_segments)
        except (soundfile.LibsndfileError, RuntimeError, ValueError) as error:
            print(f"{source.name}: {path} skipped: {error}", file=sys.stderr)
            continue
        pieces += [(path, _int16(part)) for part in parts]
    return pieces


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


def _shared_pieces(row: dict[str, str]) -> list[tuple[str, npt.NDArray[np.int16]]]:
    """Return (path, segment) for one clip of `train`."""
    parts = cut(decode((SHARED / "audio" / row["file"]).read_bytes()), most=12)
    return [(row["file"], _int16(part)) for part in parts]


def _append(
    pieces: list[tuple[str, npt.NDArray[np.int16]]], package: str, kind: str, audio: Any, table: Any
) -> None:
    """Append segments to the two files."""
    for path, piece in pieces:
        segment = Segment(audio.tell() // 2, piece.size, package, path, kind)
        audio.write(piece.tobytes())
        table.writerow(asdict(segment))


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
    """Write `audio.i16` and `segments.csv`; packages that they contain already are skipped."""
    WORK.mkdir(exist_ok=True)
    table_path, audio_path = WORK / "segments.csv", WORK / "audio.i16"
    known = {s.package for s in read_segments()} if table_path.exists() else set()
    with (
        open(table_path, "a", newline="") as handle,
        open(audio_path, "ab") as audio,
        ProcessPoolExecutor(workers) as pool,
    ):
        table = csv.DictWriter(handle, [f.name for f in fields(Segment)])
        if not known:
            table.writeheader()
        if "shared" not in known:
            rows = [row for row in shared_rows() if is_free(row)]
            for row, pieces in zip(rows, pool.map(_shared_pieces, rows, chunksize=8), strict=True):
                kind = "esc50" if "/esc50/" in row["file"] else "ambient"
                _append(pieces, "shared", kind, audio, table)
        missing = [source for source in sources() if source.name not in known]
        for source, pieces in zip(missing, pool.map(_package_pieces, missing), strict=True):
            _append(pieces, source.name, source.kind, audio, table)
            handle.flush()
            seconds = sum(piece.size for _, piece in pieces) / RATE
            print(f"{source.name}: {len(pieces)} segments, {seconds / 3600:.2f} h", flush=True)


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
