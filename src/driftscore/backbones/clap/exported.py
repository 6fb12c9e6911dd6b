"""CLAPs exported to ONNX: what an export consists of, and where one is found.

An export is a folder: `audio.onnx`, `text.onnx`, `tokenizer.json`, `probe.npz` (log-mels and texts
with the embeddings that torch gave them) and `manifest.json` (the model's description, the
checksums and the measured agreement with torch). It is written by `export` and run by
`onnx_towers`.

Exports are kept in the cache by fingerprint, or in a folder that the user names and can copy to a
machine that has neither torch nor the checkpoint.
"""

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore.arrayfile import read_npz
from driftscore.backbones.clap.log_mel import ClapMel
from driftscore.backbones.clap.model import Description
from driftscore.backbones.hub import cached_folder
from driftscore.errors import FormatError
from driftscore.files import cache_home, sha256
from driftscore.reading import is_folder, read_text, reading
from driftscore.schema import choice, count, mapping, number, table, text, validate
from driftscore.vectors import Matrix

KIND = "driftscore clap export"
REVISION = 1
"""Part of the folder name of a cached export; raise it whenever the graphs change."""
GRAPHS = ("audio.onnx", "text.onnx")
_SOURCES = ("config.json", "preprocessor_config.json", "tokenizer.json", "*.safetensors")
_PROBE = "probe.npz"
_AGAIN = "make it again with driftscore export"
_MEL = table(
    {"flavour": choice("slaney", "htk")},
    {"rate": count, "n_fft": count, "hop": count, "mels": count, "length": count,
     "low_hz": number(0, 1e6), "high_hz": number(0, 1e6), "padding": text},
)  # fmt: skip
_MODEL = table(
    {"name": text, "fingerprint": text, "dim": count, "logit_scale": number(), "mel": _MEL}
)
_MANIFEST = table(
    {"kind": text, "model": _MODEL, "precision": text, "source": text, "sha256": mapping(text),
     "agreement": mapping(number())},
    {"made_with": mapping(text)},
)  # fmt: skip


@dataclass(frozen=True)
class Export:
    """The folder of an export and its manifest."""

    home: Path
    description: Description
    precision: str
    source: str
    sums: Mapping[str, str]
    agreement: Mapping[str, float] = field(default_factory=dict)

    def read(self, name: str) -> bytes:
        """Return the content of a file; one with another checksum is an error."""
        try:
            content = (self.home / name).read_bytes()
        except OSError as error:
            raise FormatError(f"{self.home / name} cannot be read ({error}); {_AGAIN}") from error
        if hashlib.sha256(content).hexdigest() != self.sums.get(name):
            raise FormatError(f"{self.home / name} is damaged or edited; {_AGAIN}")
        return content


@dataclass(frozen=True, eq=False)
class Probe:
    """Inputs of the two towers, with the unit embeddings that torch computed for them."""

    log_mel: NDArray[np.float32]
    audio: Matrix
    ids: NDArray[np.int64]
    text: Matrix

    def save(self, home: Path) -> None:
        """Write the probe into the folder of an export."""
        np.savez(home / _PROBE, log_mel=self.log_mel, audio=self.audio, ids=self.ids,
                 text=self.text)  # fmt: skip

    @staticmethod
    def load(home: Path) -> "Probe":
        """Read the probe from the folder of an export."""
        names, what = ("log_mel", "audio", "ids", "text"), "probe of an export"
        found = read_npz(home / _PROBE, names, what=what)
        with reading(home / _PROBE, what, advice=_AGAIN):
            mel, audio, ids, text = (found[name] for name in names)
            kinds = "".join(array.dtype.kind for array in (mel, audio, ids, text))
            if kinds != "ffif" or (audio.ndim, ids.ndim, text.ndim) != (2, 2, 2):
                raise ValueError(f"its arrays have the types {kinds!r}, or the wrong shapes")
            if not len(mel) == len(audio) > 0 or not len(ids) == len(text) > 0:
                raise ValueError("its arrays have different lengths")
            return Probe(
                mel.astype(np.float32), audio.astype(np.float32), ids.astype(np.int64),
                text.astype(np.float32),
            )  # fmt: skip


def is_export(home: Path) -> bool:
    """Return whether a folder is an export."""
    files = (home / "manifest.json", home / GRAPHS[0])
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
        content = json.loads(written)
        validate(content, _MANIFEST, where=str(path))
        if content["kind"] != KIND:
            raise ValueError(f"its kind is {content['kind']!r}")
        model = content["model"]
        sizes = [value for value in model["mel"].values() if isinstance(value, int)]
        if min([model["dim"], *sizes]) < 1:
            raise ValueError("one of its sizes is 0")
        return Export(
            home,
            Description(**(model | {"mel": ClapMel(**model["mel"])})),
            content["precision"],
            content["source"],
            content["sha256"],
            content["agreement"],
        )


def write_manifest(export: Export, *, made_with: Mapping[str, str]) -> None:
    """Write the manifest. It is written last: a folder without one is not an export."""
    content = {
        "kind": KIND,
        "model": asdict(export.description),
        "precision": export.precision,
        "source": export.source,
        "sha256": dict(export.sums),
        "agreement": dict(export.agreement),
        "made_with": dict(made_with),
    }
    text = json.dumps(content, indent=1) + "\n"
    (export.home / "manifest.json").write_text(text, encoding="utf-8")


def find(name: str) -> Export | None:
    """Return the export of a checkpoint: the folder itself, or the cached one of equal content."""
    if is_export(Path(name)):
        return read_export(Path(name))
    cached = [export for export in _cached() if export.precision == "fp32"]  # int8 only by name
    if not cached:
        return None
    folder = checkpoint_folder(name)
    if folder is None:  # no checkpoint on this machine: an export that was made under its name
        return next((export for export in cached if export.description.name == name), None)
    digest = source_digest(folder)
    return next((export for export in cached if export.source == digest), None)


def _cached() -> Iterator[Export]:
    """Yield the exports of the cache; a damaged one is as good as none, and a warning says so."""
    for home in sorted(exports_home().glob(f"*-{REVISION}")):
        if is_export(home):
            try:
                yield read_export(home)
            except FormatError as error:
                warnings.warn(str(error), stacklevel=2)


def checkpoint_folder(name: str) -> Path | None:
    """Return the folder of a checkpoint: the one given, or the one in the hub's cache."""
    return Path(name) if (Path(name) / "config.json").is_file() else cached_folder(name)


def source_digest(folder: Path) -> str:
    """Return the digest of a checkpoint's files; equal content has the same export."""
    files = sorted(path for pattern in _SOURCES for path in folder.glob(pattern))
    return hashlib.sha256("".join(f"{p.name} {sha256(p)}\n" for p in files).encode()).hexdigest()
