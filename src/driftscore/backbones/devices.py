"""Where a model runs: the CPU or a GPU, and batches of windows that fit into its memory.

    auto      torch: the GPU that torch sees first, else the CPU; onnxruntime: the CPU
    cpu       one window at a time, the same bits in any order
    cuda, cuda:1, mps     batches; the last bits of a window depend on its batch
    cuda/bf16, cuda/fp16  torch computes products in half precision (autocast): other numbers

A runtime and a device can be one text, as on the command line: torch:cuda:1, onnx:cuda, cuda.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np

from driftscore.backbones.protocol import Features
from driftscore.backbones.vectors import Matrix
from driftscore.errors import UsageError, unknown

AUTO, CPU = "auto", "cpu"
RUNTIMES = ("auto", "torch", "onnx")
_DEVICE = re.compile(r"(auto|cpu|mps|cuda(:\d{1,3})?)(/(bf16|fp16))?")
_HALF = {"bf16": "bfloat16", "fp16": "float16"}
_WINDOW_BYTES = 2**28
"""Memory that a window may need in a batch: what is free divided by it is the first batch."""
_MAX_BATCH = 64


def device_name(device: object) -> str:
    """Return the name of a device, also of a number (-1 for the CPU) or an object of torch."""
    if isinstance(device, int) and not isinstance(device, bool):
        return CPU if device < 0 else f"cuda:{device}"
    name = str(AUTO if device is None else device)
    if not _DEVICE.fullmatch(name):
        raise UsageError(
            f"No device called {name!r}; use auto, cpu, cuda, cuda:1 or mps, "
            "or one of them in half precision, as in cuda/bf16"
        )
    return name


def split_runtime(text: str | None) -> tuple[str | None, str]:
    """Return the runtime and the device of a text such as torch:cuda:1, onnx or cuda."""
    runtime, _, device = (text or AUTO).partition(":")
    if _DEVICE.fullmatch(text or AUTO):
        return None, text or AUTO
    if runtime not in RUNTIMES:
        raise unknown("runtime", runtime, (*RUNTIMES, "cpu", "cuda", "mps"))
    return runtime, device_name(device or AUTO)


def torch_device(device: str) -> str:
    """Return the device that torch is to use, which must be there."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mps = torch.backends.mps.is_available()
    place, slash, half = device.partition("/")
    if place == AUTO:
        return ("cuda" if count else "mps" if mps else CPU) + slash + half
    index = int(place.partition(":")[2] or 0)
    if (place.startswith("cuda") and index >= count) or (place == "mps" and not mps):
        raise UsageError(f"torch sees no {place} here: it has {count} CUDA devices; use auto")
    return device


def torch_place(device: str) -> str:
    """Return where tensors are moved to: the device without its precision."""
    return device.partition("/")[0]


@contextmanager
def inference(device: str) -> Iterator[None]:
    """Run torch without gradients, in half precision if the device says so."""
    import torch

    place, _, half = device.partition("/")
    kind = place.partition(":")[0]
    reduced = torch.autocast(kind, getattr(torch, _HALF[half])) if half else nullcontext()
    with torch.inference_mode(), reduced:
        yield


def onnxruntime_providers() -> list[str]:
    """Return what the installed onnxruntime can run a graph with."""
    import onnxruntime

    return list(onnxruntime.get_available_providers())


def onnx_providers(device: str) -> Sequence[str | tuple[str, dict[str, int]]]:
    """Return the providers of onnxruntime for a device, which must be there."""
    if "/" in device:
        raise UsageError(f"{device}: half precision is for models that run in torch")
    if device in (AUTO, CPU):
        return ["CPUExecutionProvider"]
    name = "CoreMLExecutionProvider" if device == "mps" else "CUDAExecutionProvider"
    if name not in onnxruntime_providers():
        raise UsageError(
            f"The installed onnxruntime has no {name}, which {device} needs; install one that has "
            "it, such as onnxruntime-gpu, or use cpu"
        )
    options = {"device_id": int(device.partition(":")[2] or 0)} if device != "mps" else {}
    return [(name, options), "CPUExecutionProvider"]


def first_batch(device: str, batch_size: int | None) -> int:
    """Return the windows of a batch: as asked for, else by the free memory; on a CPU one."""
    if batch_size is not None:
        if not isinstance(batch_size, int) or not 1 <= batch_size <= 4096:
            raise UsageError(f"batch_size must be from 1 to 4096, got {batch_size!r}")
        return batch_size
    place = torch_place(device)
    if not place.startswith("cuda"):
        return 1 if place == CPU else 16
    import torch

    return int(min(_MAX_BATCH, max(1, torch.cuda.mem_get_info(place)[0] // _WINDOW_BYTES)))


@dataclass
class WindowBatches:
    """Windows in batches of one shape; a batch that needs too much memory is halved for good."""

    size: int = 1

    def run(
        self, encode: Callable[[Sequence[Features]], Matrix], windows: Sequence[Features]
    ) -> Matrix:
        """Return the rows of all windows, in order."""
        rows: list[Matrix] = []
        first = 0
        while first < len(windows):
            last = first + 1
            while last < min(len(windows), first + self.size) and (
                windows[last].shape == windows[first].shape
            ):
                last += 1
            try:
                rows.append(encode(windows[first:last]))
            except Exception as error:  # each runtime has a class of its own
                if "out of memory" not in f"{type(error).__name__} {error}".lower().replace(
                    "outofmemory", "out of memory"
                ):
                    raise
                if last - first == 1:
                    raise UsageError(
                        "The device has too little memory for one window; use --runtime cpu"
                    ) from error
                self.size = (last - first) // 2
            else:
                first = last
        return np.concatenate(rows)
