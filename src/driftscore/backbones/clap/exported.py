"""CLAPs exported to ONNX: what an export consists of, and where one is found.

An export is a folder: `audio.onnx`, `text.onnx`, `tokenizer.json`, `probe.npz` (log-mels and texts
with the embeddings that torch gave them) and `manifest.json` (the model's description, the
checksums and the measured agreement with torch). It is written by `export`. Before a tower is used,
it must give the embeddings of the probe on this machine, with the installed onnxruntime.

Exports are kept in the cache by fingerprint, or in a folder that the user names and can copy to a
machine that has neither torch nor the checkpoint.
"""

import hashlib
import json
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from driftscore.backbones.clap.model import TEXT_ROWS, Clap, Description, OnnxTower, OnnxTowers
from driftscore.backbones.devices import CPU, onnx_providers
from driftscore.backbones.hub import local_folder
from driftscore.backbones.onnx.external_data import check_no_external_data
from driftscore.backbones.onnx.sessions import open_session, open_tokenizer, read_intact
from driftscore.backbones.vectors import Matrix, unit
from driftscore.errors import FormatError, MismatchError
from driftscore.storage.checked import decode
from driftscore.storage.files import cache_home, is_folder, read_text, reading, sha256
from driftscore.storage.npz import read_npz

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

KIND = "driftscore clap export"
REVISION = 1
"""Part of the folder name of a cached export; raise it whenever the graphs change."""
_SOURCES = ("config.json", "preprocessor_config.json", "tokenizer.json", "*.safetensors")
TOLERANCE = 1e-4
"""Largest difference from torch in any number of a unit embedding."""
_PROBE = "probe.npz"
_AGAIN = "make it again with driftscore export"


class Manifest(Struct, frozen=True):
    """The file `manifest.json`."""

    kind: str
    model: Description
    precision: str
    source: str
    sha256: dict[str, str]
    agreement: dict[str, float]
    made_with: dict[str, str] = {}


@dataclass(frozen=True)
class Export:
    """The folder of an export and its manifest."""

    home: Path
    manifest: Manifest

    def read(self, name: str) -> bytes:
        """Return the content of a file; one with another checksum is an error."""
        return read_intact(self.home / name, self.manifest.sha256.get(name), advice=_AGAIN)


@dataclass(frozen=True, eq=False)
class Probe:
    """Inputs of the two towers, with the unit embeddings that torch computed for them."""

    log_mel: NDArray[np.float32]
    audio: Matrix
    ids: NDArray[np.int64]
    text: Matrix

    def save(self, home: Path) -> None:
        """Write the probe into the folder of an export."""
        np.savez(home / _PROBE, **vars(self))

    @staticmethod
    def load(home: Path) -> "Probe":
        """Read the probe from the folder of an export."""
        names, what = ("log_mel", "audio", "ids", "text"), "probe of an export"
        arrays = read_npz(home / _PROBE, names, what=what)
        with reading(home / _PROBE, what, advice=_AGAIN):
            mel, audio, ids, text = (arrays[name] for name in names)
            kinds = "".join(array.dtype.kind for array in (mel, audio, ids, text))
            if kinds != "ffif" or (audio.ndim, ids.ndim, text.ndim) != (2, 2, 2):
                raise ValueError(f"its arrays have the types {kinds!r}, or the wrong shapes")
            if not len(mel) == len(audio) > 0 or not len(ids) == len(text) > 0:
                raise ValueError("its arrays have different lengths")
            mel, audio, text = (array.astype(np.float32) for array in (mel, audio, text))
            return Probe(mel, audio, ids.astype(np.int64), text)


def is_export(home: Path) -> bool:
    """Return whether a folder is an export."""
    files = (home / "manifest.json", home / "audio.onnx")
    return is_folder(home) and all(file.is_file() for file in files)


def exports_home() -> Path:
    """Return the cache's folder of exports."""
    return cache_home() / "exports"


def home_of(fingerprint: str) -> Path:
    """Return the folder of a model's export in the cache."""
    return exports_home() / f"{hashlib.sha256(fingerprint.encode()).hexdigest()[:32]}-{REVISION}"


def read_export(home: Path) -> Export:
    """Read the manifest of an export."""
    path, what = home / "manifest.json", "manifest of an export"
    written = read_text(path, what)
    with reading(path, what, advice=_AGAIN):
        manifest = decode(json.loads(written), Manifest, where=str(path))
        if manifest.kind != KIND:
            raise ValueError(f"its kind is {manifest.kind!r}")
        sizes = [value for value in vars(manifest.model.mel).values() if isinstance(value, int)]
        if min([manifest.model.dim, *sizes]) < 1:
            raise ValueError("one of its sizes is 0")
        return Export(home, manifest)


def find(name: str) -> Export | None:
    """Return the export of a checkpoint: the folder itself, or the cached one of equal content.

    A damaged one in the cache is as good as none, and a warning says so.
    """
    if is_export(Path(name)):
        return read_export(Path(name))
    cached = []
    for home in filter(is_export, sorted(exports_home().glob(f"*-{REVISION}"))):
        try:
            export = read_export(home)
        except FormatError as error:
            warnings.warn(str(error), stacklevel=2)
        else:
            if export.manifest.precision == "fp32":  # int8 only by name
                cached.append(export)
    if not cached:
        return None
    folder = local_folder(name)
    if folder is None or not (folder / "config.json").is_file():
        # No checkpoint on this machine: an export that was made under its name.
        return next((export for export in cached if export.manifest.model.name == name), None)
    digest = source_digest(folder)
    return next((export for export in cached if export.manifest.source == digest), None)


def source_digest(folder: Path) -> str:
    """Return the digest of a checkpoint's files; equal content has the same export."""
    files = sorted(path for pattern in _SOURCES for path in folder.glob(pattern))
    return hashlib.sha256("".join(f"{p.name} {sha256(p)}\n" for p in files).encode()).hexdigest()


def open_export(export: Export, device: str = CPU) -> Clap:
    """Return the model of an export, in onnxruntime."""
    onnx_providers(device)
    precision = export.manifest.precision
    with reading(export.home / "tokenizer.json", "tokenizer"):
        # Its file already says not to pad and where to cut.
        tokenizer = open_tokenizer(export.read("tokenizer.json").decode())
    note = f"onnxruntime, on the export in {export.home} ({precision})"
    towers = open_towers(export, device)
    return Clap(towers, export.manifest.model, tokenizer, runtime=note, device=device)


def open_towers(export: Export, device: str = CPU) -> OnnxTowers:
    """Return the towers of an export; each is checked against the probe when it is first used."""
    there = Export(export.home.resolve(), export.manifest)  # for a copy in another process
    audio, text = (
        OnnxTower(partial(_open_tower, there, kind, device)) for kind in ("audio", "text")
    )
    # int8 rounds all rows of a call with one scale, so a row would depend on the others.
    rows = TEXT_ROWS if export.manifest.precision == "fp32" else 1
    return OnnxTowers(audio, text, text_rows=rows)


def _open_tower(export: Export, kind: str, device: str) -> "InferenceSession":
    """Open a tower; one that gives other embeddings than torch is an error."""
    home = export.home
    path, graph = home / f"{kind}.onnx", export.read(f"{kind}.onnx")
    check_no_external_data(graph, where=str(path))
    session, probe = open_session(graph, where=path, device=device), Probe.load(home)
    with reading(home, "export of a CLAP"):
        if kind == "audio":
            expected = probe.audio
            rows = [session.run(None, {"log_mel": mel})[0] for mel in probe.log_mel]
        else:
            rows, expected = session.run(["embedding"], {"ids": probe.ids}), probe.text
        difference = float(np.abs(unit(np.concatenate(rows)) - expected).max())
    if not difference <= TOLERANCE and export.manifest.precision == "fp32":
        raise MismatchError(
            f"onnxruntime gives {kind} embeddings that differ from torch's by "
            f"{difference:.1e} on this machine (allowed: {TOLERANCE:.0e}); use --runtime torch,"
            " and please report it"
        )
    return session
