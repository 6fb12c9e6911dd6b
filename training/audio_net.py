"""The network of the `mini` audio tower, local in time.

    log-mel (1, 128, T) -> frame features (384, ceil(T / 32)) -> pooling -> 527 z-scored tag logits

The log-mel is the teacher's: 128 bands, 100 frames per second. Feature frame j is centred on
log-mel frame 32 j, that is on the time 0.32 j s. It depends on the log-mel frames 32 j - 214 to
32 j + 214 only (`Shape.reach`), because the gates pool over frequency, not over time. Beyond the
ends of its input every convolution sees zeros. A window with the frame
features f_t (a column of 384 channels per frame) has the embedding

    p = [mean_t f_t ; max_t f_t]
    a = sum_t f_t * softmax_t(U tanh(V f_t + v))        attention, one weight per frame and channel
    unit(A p + b + C hardswish(D [p ; a] + d))

so the features of a recording are computed once, and any window is a pooling of them. The hidden
layer gives the pooled features what the teacher has too: a step that is not linear after pooling.
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


@dataclass(frozen=True)
class Shape:
    """Widths of the stages, and the number of residual blocks after each halving of the map.

    The two layers of the stem are followed by a separable block each.
    """

    stem: tuple[int, int] = (16, 32)
    widths: tuple[int, ...] = (48, 96, 192)
    blocks: tuple[int, ...] = (1, 1, 2)
    head: int = 384
    attention: int = 16
    hidden: int = 96

    @property
    def reach(self) -> int:
        """Return how many log-mel frames to each side of its centre a feature frame depends on."""
        reach, step = 2 + 2 + 2 + 4, 4
        for blocks in self.blocks:
            reach, step = reach + step, 2 * step
            reach += 2 * blocks * step
        return reach


def _convolution(inward: int, outward: int, *, stride: int = 1, kernel: int = 3) -> nn.Sequential:
    """Return a convolution with batch norm."""
    return nn.Sequential(
        nn.Conv2d(inward, outward, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outward),
    )


class Separable(nn.Module):
    """A 3x3 convolution of each channel and one that mixes channels, added to the input."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.widen = _convolution(width, inner, kernel=1)
        self.each = nn.Sequential(
            nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False), nn.BatchNorm2d(inner)
        )
        self.mix = _convolution(inner, width, kernel=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a map of the same shape."""
        y = functional.relu(self.each(functional.relu(self.widen(x))))
        return functional.relu(x + self.mix(y))


class Residual(nn.Module):
    """Two 3x3 convolutions with a gate per channel and frame, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = _convolution(width, width)
        self.second = _convolution(width, width)
        self.gate = nn.Sequential(
            nn.Conv2d(width, width // 4, 1),
            nn.ReLU(),
            nn.Conv2d(width // 4, width, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return a map of the same shape."""
        y = self.second(functional.relu(self.first(x)))
        return functional.relu(x + y * self.gate(y.mean(2, keepdim=True)))


class AudioTower(nn.Module):
    """Log-mel (batch, 1, 128, frames) to z-scored logits (batch, 527)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        first, width = shape.stem
        layers: list[nn.Module] = [_convolution(1, first, stride=2, kernel=5), nn.ReLU()]
        layers += [Separable(first, first), _convolution(first, width, stride=2), nn.ReLU()]
        layers += [Separable(width, 2 * width)]
        taught = [len(layers)]
        for wider, blocks in zip(shape.widths, shape.blocks, strict=True):
            layers += [_convolution(width, wider, stride=2), nn.ReLU()]
            layers += [Residual(wider) for _ in range(blocks)]
            width = wider
            taught.append(len(layers))
        bands = MELS // 2 ** (2 + len(shape.widths))
        self.taught = taught
        """After how many layers the teacher has a map of the same size, for each such map."""
        self.maps = nn.Sequential(*layers)
        self.collapse = nn.Sequential(
            nn.Conv2d(width, shape.head, (bands, 1), bias=False), nn.BatchNorm2d(shape.head)
        )
        self.tags = nn.Linear(2 * shape.head, TAGS)
        self.attention = nn.Sequential(
            nn.Conv1d(shape.head, shape.attention, 1),
            nn.Tanh(),
            nn.Conv1d(shape.attention, shape.head, 1, bias=False),
        )
        self.hidden = nn.Linear(3 * shape.head, shape.hidden)
        self.extra = nn.Linear(shape.hidden, TAGS, bias=False)
        # Both zero: a tower with the second edition's weights starts as the second edition.
        nn.init.zeros_(self.attention[2].weight)
        nn.init.zeros_(self.extra.weight)

    def features(self, log_mel: Tensor) -> Tensor:
        """Return the frame features, (batch, channels, frames)."""
        return self.features_and_maps(log_mel)[0]

    def features_and_maps(self, log_mel: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the frame features and the maps of which the teacher has some of the same size."""
        maps, x = [], log_mel
        for number, layer in enumerate(self.maps, start=1):
            x = layer(x)
            if number in self.taught:
                maps.append(x)
        return functional.relu(self.collapse(x))[:, :, 0], maps

    def pool(self, features: Tensor) -> Tensor:
        """Return the z-scored logits of windows given by their frame features."""
        plain = torch.cat([features.mean(2), features.amax(2)], dim=1)
        attended = (features * self.attention(features).softmax(dim=2)).sum(dim=2)
        hidden = functional.hardswish(self.hidden(torch.cat([plain, attended], dim=1)))
        return self.tags(plain) + self.extra(hidden)

    def forward(self, log_mel: Tensor) -> Tensor:
        """Return the z-scored logits of a batch of clips of one length."""
        return self.pool(self.features(log_mel))


@torch.no_grad()
def load_exported(tower: AudioTower, home: Path, mels: Tensor) -> None:
    """Copy the weights of an exported model (`audio.onnx` and `pool.onnx`) into `tower`.

    The statistics of the batch norms, which an exported model does not contain, are computed from
    `mels`.
    """
    pairs = iter(_exported_pairs(home / "audio.onnx"))
    for layer in [*tower.maps, tower.collapse]:
        if isinstance(layer, nn.Sequential):
            _put(layer, next(pairs))
        elif isinstance(layer, Separable):
            for part in (layer.widen, layer.each, layer.mix):
                _put(part, next(pairs))
        elif isinstance(layer, Residual):
            _put(layer.first, next(pairs))
            _put(layer.second, next(pairs))
            for number in (0, 2):
                weight, bias = next(pairs)
                layer.gate[number].weight.copy_(weight)
                layer.gate[number].bias.copy_(bias)
    pooling = _exported_arrays(home / "pool.onnx")
    for target, value in zip(pool_weights(tower), pooling, strict=True):
        target.copy_(value)
    renew_statistics(tower, mels)


def pool_weights(tower: AudioTower) -> list[Tensor]:
    """Return the weights of the pooling in the order in which they are exported."""
    inner, outer = tower.attention[0], tower.attention[2]
    hidden, extra = tower.hidden, tower.extra
    weights = (inner.weight, inner.bias, outer.weight, hidden.weight, hidden.bias, extra.weight)
    return [tower.tags.weight, tower.tags.bias, *weights]


def _exported_arrays(model: Path) -> list[Tensor]:
    """Return the float16 weights of an exported model, in order."""
    arrays = [numpy_helper.to_array(t) for t in onnx.load(str(model)).graph.initializer]
    return [torch.from_numpy(a.astype(np.float32)) for a in arrays if a.dtype == np.float16]


def _exported_pairs(model: Path) -> list[tuple[Tensor, Tensor]]:
    """Return (weight, bias) of each layer of an exported model."""
    arrays = _exported_arrays(model)
    return list(zip(arrays[0::2], arrays[1::2], strict=True))


def _put(layer: nn.Module, pair: tuple[Tensor, Tensor]) -> None:
    """Set a convolution with batch norm to compute `weight * x + bias`, filters of unit norm."""
    weight, bias = pair
    norms = weight.flatten(1).norm(dim=1)
    layer[0].weight.copy_(weight / norms[:, None, None, None])
    layer[1].weight.copy_(norms)
    layer[1].bias.copy_(bias)


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
