"""The towers of an exported CLAP in onnxruntime or OpenVINO, checked against torch's embeddings.

Before a tower is used, it must give the embeddings of the probe on this machine, with the installed
version of the runtime.
"""

import importlib.util
import os
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones.clap.exported import Export, Probe
from driftscore.backbones.clap.model import TEXT_ROWS
from driftscore.backbones.onnx.external_data import check_no_external_data
from driftscore.backbones.onnx.sessions import InputArray, OnnxRun, OpenvinoRun
from driftscore.backbones.onnx.tokenizer import Tokenizer, open_tokenizer
from driftscore.backbones.protocol import Features
from driftscore.errors import MismatchError, MissingExtraError
from driftscore.reading import reading
from driftscore.vectors import Matrix, Vector, unit

TOLERANCE = 1e-4
"""Largest difference from torch in any number of a unit embedding."""

Tower = Callable[[InputArray], NDArray[np.float32]]


def choose(export: Export, runtime: str) -> tuple[str, str]:
    """Return the runtime to use, and a note that says why."""
    where = f"the export in {export.home} ({export.precision})"
    if runtime != "auto":
        return runtime, f"{runtime}, as requested, on {where}"
    if importlib.util.find_spec("openvino"):
        return "openvino", f"openvino, since it is installed, on {where}"
    return "onnx", f"onnxruntime, since openvino is not installed, on {where}"


def open_towers(export: Export, runtime: str) -> "OnnxTowers":
    """Return the towers of an export in a runtime."""
    if runtime == "openvino" and importlib.util.find_spec("openvino") is None:
        raise MissingExtraError("The runtime openvino", "openvino")
    return OnnxTowers(export, runtime)


def tokenizer_of(export: Export) -> Tokenizer:
    """Return the tokenizer of an export; its file already says not to pad and where to cut."""
    with reading(export.home / "tokenizer.json", "tokenizer"):
        return open_tokenizer(export.read("tokenizer.json").decode())


class OnnxTowers:
    """Towers that are opened and checked against the probe when they are first used.

    OpenVINO runs the audio tower; the text tower runs in onnxruntime in either case. A pickled or
    copied object holds the export's folder and opens the towers again.
    """

    def __init__(self, export: Export, runtime_name: str) -> None:
        self.export = export
        self.runtime_name = runtime_name
        self.parallel = os.cpu_count() or 1
        # int8 rounds all rows of a call with one scale, so a row would depend on the others.
        self.text_rows = TEXT_ROWS if export.precision == "fp32" else 1
        self._opened: dict[str, Tower] = {}
        self._opening = threading.Lock()

    def __reduce__(self) -> tuple[type["OnnxTowers"], tuple[Export, str]]:
        return type(self), (
            replace(self.export, home=self.export.home.resolve()),
            self.runtime_name,
        )

    def audio(self, log_mel: Features) -> Vector:
        """Return the embedding of the log-mel of one window."""
        row: Vector = self._tower("audio")(log_mel)[0]
        return row

    def text(self, ids: NDArray[np.int64]) -> Matrix:
        """Return the embeddings of texts of one token length."""
        return self._tower("text")(ids)

    def _tower(self, kind: str) -> Tower:
        with self._opening:
            if kind not in self._opened:
                self._opened[kind] = self._open(kind)
            return self._opened[kind]

    def _open(self, kind: str) -> Tower:
        # Texts vary in length, which onnxruntime handles well and OpenVINO less so.
        run = OpenvinoRun if (self.runtime_name, kind) == ("openvino", "audio") else OnnxRun
        name = f"{kind}.onnx"
        graph = self.export.read(name)
        check_no_external_data(graph, where=str(self.export.home / name))
        tower = run(graph)
        probe = Probe.load(self.export.home)
        with reading(self.export.home, "export of a CLAP"):
            difference = probe_difference(kind, tower, probe)
        if not difference <= TOLERANCE and self.export.precision == "fp32":
            raise MismatchError(
                f"{self.runtime_name} gives {kind} embeddings that differ from torch's by "
                f"{difference:.1e} on this machine (allowed: {TOLERANCE:.0e}); use another "
                "--runtime, and please report it"
            )
        return tower


def probe_difference(kind: str, tower: Tower, probe: Probe) -> float:
    """Return the largest difference of a tower's unit embeddings from torch's on the probe."""
    if kind == "audio":
        rows = np.concatenate([tower(mel) for mel in probe.log_mel])
        return float(np.abs(unit(rows) - probe.audio).max())
    return float(np.abs(unit(tower(probe.ids)) - probe.text).max())
