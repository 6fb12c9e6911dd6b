"""The network of the `mini` audio tower, local in time.

    log-mel (1, 128, T) -> frame features (384, ceil(T / 32)) -> pooling -> 527 z-scored tag logits

The log-mel is the teacher's: 128 bands, 100 frames per second. The tower has the teacher's form:
MobileNetV3 (Howard et al., 2019), as mn04 (Schmid et al., 2023), with maps of the same sizes after
each stage. It differs in two ways. Inside, its blocks are wider. And the teacher's gates
(squeeze-and-excitation) average a channel over the whole clip; here they average it over the bands
and `GATE_COLUMNS` columns, so that feature frame j, centred on log-mel frame 32 j, depends on the
log-mel frames 32 j - `REACH` to 32 j + `REACH` only. Beyond the ends of its input every convolution
sees zeros. A window with the frame features f_t (a column of 384 channels per frame) has the
embedding

    m = mean_t f_t
    a = sum_t f_t * softmax_t(U tanh(V f_t + v))        attention, one weight per frame and channel
    h = max_t f_t
    unit(C hardswish(D [m ; a ; h] + d) + c)

so the features of a recording are computed once, and any window is a pooling of them. The teacher
has the same with m alone.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional

TAGS = 527
MELS = 128
STRIDE = 32
"""Log-mel frames per feature frame."""
STEM = 16
CHANNELS = 384
ATTENTION = 16
HIDDEN = 512
GATE_COLUMNS = 5


@dataclass(frozen=True)
class Block:
    """The sizes of one block."""

    kernel: int
    inner: int
    outward: int
    gate: int = 0
    """Hidden channels of the gate, or 0 for a block without one."""
    stride: int = 1


STAGES = (
    (Block(3, 16, 16), Block(3, 32, 16, stride=2), Block(3, 48, 16)),
    (Block(5, 48, 16, gate=16, stride=2), Block(5, 80, 16, gate=16), Block(5, 80, 16, gate=16)),
    (
        Block(3, 192, 32, stride=2),
        Block(3, 160, 32),
        Block(3, 144, 32),
        Block(3, 144, 32),
        Block(3, 384, 48, gate=96),
        Block(3, 544, 48, gate=128),
    ),
    (
        Block(5, 768, 64, gate=96, stride=2),
        Block(5, 960, 64, gate=112),
        Block(5, 960, 64, gate=112),
    ),
)
"""The blocks of each stage; the first two stages have ReLU, the others hardswish, as the teacher's.
Their last maps have the channels of the teacher's."""


def _reach() -> int:
    """Return how many log-mel frames to each side of its centre a feature frame depends on."""
    reach, step = 1, 2
    for block in (block for stage in STAGES for block in stage):
        reach += step * (block.kernel // 2)
        step *= block.stride
        reach += step * (GATE_COLUMNS // 2) * bool(block.gate)
    return reach


REACH = _reach()


def _convolution(
    inward: int, outward: int, *, stride: int = 1, kernel: int = 1, groups: int = 1
) -> nn.Sequential:
    """Return a convolution with batch norm."""
    return nn.Sequential(
        nn.Conv2d(inward, outward, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outward),
    )


class Inverted(nn.Module):
    """An inverted residual: widen, convolve each channel, gate, mix; added to the input if it fits.

    A block that is as wide inside as its input does not widen.
    """

    def __init__(self, inward: int, block: Block, *, smooth: bool) -> None:
        super().__init__()
        self.smooth, inner = smooth, block.inner
        self.widen = None if inner == inward else _convolution(inward, inner)
        self.each = _convolution(
            inner, inner, stride=block.stride, kernel=block.kernel, groups=inner
        )
        self.gate = (
            nn.Sequential(
                nn.AvgPool2d((1, GATE_COLUMNS), 1, (0, GATE_COLUMNS // 2), count_include_pad=False),
                nn.Conv2d(inner, block.gate, 1),
                nn.ReLU(),
                nn.Conv2d(block.gate, inner, 1),
                nn.Sigmoid(),
            )
            if block.gate
            else None
        )
        self.mix = _convolution(inner, block.outward)
        self.added = block.stride == 1 and inward == block.outward

    def forward(self, x: Tensor) -> Tensor:
        """Return the next map."""
        active = functional.hardswish if self.smooth else functional.relu
        y = x if self.widen is None else active(self.widen(x))
        with torch.autocast("cpu", enabled=False):  # float32 is faster here than bfloat16
            each = self.each[0](y.float())
        y = active(self.each[1](each))
        if self.gate is not None:
            y = y * self.gate(y.mean(2, keepdim=True))
        y = self.mix(y)
        return x + y if self.added else y


class AudioTower(nn.Module):
    """Log-mel (batch, 1, 128, frames) to z-scored logits (batch, 527)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _convolution(1, STEM, stride=2, kernel=3)
        width, stages = STEM, []
        for number, sizes in enumerate(STAGES):
            blocks = []
            for block in sizes:
                blocks.append(Inverted(width, block, smooth=number > 1))
                width = block.outward
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.ModuleList(stages)
        self.head = _convolution(width, CHANNELS)
        self.attention = nn.Sequential(
            nn.Conv1d(CHANNELS, ATTENTION, 1),
            nn.Tanh(),
            nn.Conv1d(ATTENTION, CHANNELS, 1, bias=False),
        )
        self.hidden = nn.Linear(3 * CHANNELS, HIDDEN)
        self.tags = nn.Linear(HIDDEN, TAGS)
        nn.init.zeros_(self.attention[2].weight)  # at first the attention is the mean

    def features(self, log_mel: Tensor) -> Tensor:
        """Return the frame features, (batch, channels, frames)."""
        return self.features_and_maps(log_mel)[0]

    def features_and_maps(
        self, log_mel: Tensor, taught: list[Tensor] | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the frame features, and the map after each stage.

        With maps that the teacher has after each stage, every stage gets the teacher's map before
        it in place of the student's.
        """
        maps: list[Tensor] = []
        x = functional.hardswish(self.stem(log_mel))
        for number, stage in enumerate(self.stages):
            maps.append(stage(x))
            x = maps[-1] if taught is None else taught[number]
        return functional.hardswish(self.head(x)).mean(2), maps

    def pool(self, features: Tensor) -> Tensor:
        """Return the z-scored logits of windows given by their frame features."""
        attended = (features * self.attention(features).softmax(dim=2)).sum(dim=2)
        parts = [features.mean(2), attended, features.amax(2)]
        hidden = self.hidden(torch.cat(parts, dim=1))
        return self.tags(functional.hardswish(hidden))

    def forward(self, log_mel: Tensor) -> Tensor:
        """Return the z-scored logits of a batch of clips of one length."""
        return self.pool(self.features(log_mel))

    def convolutions(self) -> list[nn.Module]:
        """Return the convolutions before the pooling, in order, with their batch norms if any."""
        found: list[nn.Module] = [self.stem]
        for block in (block for stage in self.stages for block in stage):
            gate = [block.gate[1], block.gate[3]] if block.gate is not None else []
            found += [part for part in (block.widen, block.each) if part is not None]
            found += [*gate, block.mix]
        return [*found, self.head]

    def pool_weights(self) -> list[Tensor]:
        """Return the weights of the pooling in the order in which they are exported."""
        inner, outer = self.attention[0], self.attention[2]
        hidden, tags = self.hidden, self.tags
        weights = (inner.weight, inner.bias, outer.weight, hidden.weight, hidden.bias)
        return [*weights, tags.weight, tags.bias]


@torch.no_grad()
def load_exported(tower: AudioTower, home: Path, mels: Tensor) -> None:
    """Copy the weights of an exported model (`audio.onnx` and `pool.onnx`) into `tower`.

    The statistics of the batch norms, which an exported model does not contain, are computed from
    `mels`.
    """
    arrays = iter(_exported_arrays(home / "audio.onnx"))
    for layer in tower.convolutions():
        weight, bias = next(arrays), next(arrays)
        if isinstance(layer, nn.Sequential):
            norms = weight.flatten(1).norm(dim=1)
            layer[0].weight.copy_(weight / norms[:, None, None, None])
            layer[1].weight.copy_(norms)
            layer[1].bias.copy_(bias)
        else:
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
    pooling = _exported_arrays(home / "pool.onnx")
    for target, value in zip(tower.pool_weights(), pooling, strict=True):
        target.copy_(value)
    renew_statistics(tower, mels)


def _exported_arrays(model: Path) -> list[Tensor]:
    """Return the float16 weights of an exported model, in order."""
    arrays = [numpy_helper.to_array(t) for t in onnx.load(str(model)).graph.initializer]
    return [torch.from_numpy(a.astype(np.float32)) for a in arrays if a.dtype == np.float16]


@torch.no_grad()
def renew_statistics(tower: AudioTower, mels: Tensor) -> None:
    """Set every batch norm's statistics to those of `mels` without changing its function."""

    def renew(norm: nn.BatchNorm2d, inputs: tuple[Tensor, ...]) -> None:
        scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        bias = norm.bias - scale * norm.running_mean
        variance, mean = torch.var_mean(inputs[0], dim=(0, 2, 3))
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(variance)
        norm.weight.copy_(scale * torch.sqrt(variance + norm.eps))
        norm.bias.copy_(bias + scale * mean)

    norms = [m for m in tower.modules() if isinstance(m, nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(renew) for norm in norms]
    tower.eval()(mels)
    for hook in hooks:
        hook.remove()
