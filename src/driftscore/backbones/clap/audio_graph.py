"""CLAP's audio tower as an ONNX graph: log_mel (frames, mels) -> HTS-AT -> (1, d).

HTS-AT is a Swin transformer over the spectrogram. The graph moves data as little as possible.
Attention is the only layer that depends on a token's position, so tokens are kept *in the order of
the windows* throughout: cutting windows is a reshape, and the rolls, partitions and reversals of a
Swin block become one `Gather` of rows between two blocks. Bicubic interpolation is a `Gather` of
four frames with fixed weights, the patch convolution is a matrix product over gathered patches, the
scale of the softmax is folded into the queries, and position bias and shift mask are one constant.
For a fused checkpoint no window is "longer", so its fusion branch never runs and is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones.clap.config import AudioConfig
from driftscore.backbones.clap.text_graph import project
from driftscore.backbones.onnx.bert import IR_VERSION, OPSET
from driftscore.backbones.onnx.graph import Graph, Tensors
from driftscore.errors import FormatError

Positions = NDArray[np.int64]
_MASKED = -100.0  # what transformers adds to separate the parts of a shifted window
_NORM_EPSILON = 1e-5  # torch's default, for the norms that the config does not mention
_WINDOWS_PER_PART = 8  # half a megabyte between two layers of the first stage
_CUBIC = -0.75  # torch's constant of the bicubic kernel


@dataclass(frozen=True)
class AudioShape:
    """What the audio graph depends on, apart from the weights."""

    frames: int
    mels: int
    image: int
    patch: int
    window: int
    depths: tuple[int, ...]
    heads: tuple[int, ...]
    epsilon: float

    @staticmethod
    def of(config: AudioConfig, *, frames: int) -> "AudioShape":
        """Read a checkpoint's audio config; one that the graph does not support is an error."""
        shape = AudioShape(
            frames=frames,
            mels=config["num_mel_bins"],
            image=config["spec_size"],
            patch=_side(config["patch_size"]),
            window=config["window_size"],
            depths=tuple(config["depths"]),
            heads=tuple(config["num_attention_heads"]),
            epsilon=config["layer_norm_eps"],
        )
        if problem := _unsupported(config, shape):
            raise FormatError(
                f"This checkpoint has {problem}, which the export does not support; use it with "
                "--runtime torch"
            )
        return shape


def _unsupported(config: AudioConfig, shape: AudioShape) -> str:
    """Return what the graph does not support in a config; empty if it supports everything."""
    ratio = shape.image // shape.mels
    stride = _side(config["patch_stride"])
    sides = [shape.image // shape.patch // 2**stage for stage in range(len(shape.depths))]
    uncut = all(side % min(side, shape.window) == 0 for side in sides)
    checks = (
        (shape.patch == stride, f"patches of {shape.patch} with a stride of {stride}"),
        (ratio * shape.mels == shape.image, f"an image of {shape.image} for {shape.mels} mels"),
        (shape.frames <= shape.image * ratio, f"{shape.frames} frames, image {shape.image}"),
        (uncut, "windows that are cut by the edge"),
        (config["hidden_act"] == "gelu", f"the activation {config['hidden_act']}"),
        (config.get("fusion_type") != "channel_map", "fusion by channel map"),
        (config["projection_hidden_act"] == "relu", "a projection without relu"),
        (config["enable_patch_layer_norm"] and config["qkv_bias"], "layers without norm or bias"),
    )
    return next((problem for supported, problem in checks if not supported), "")


def build_audio(tensors: Tensors, shape: AudioShape) -> bytes:
    """Return an ONNX file with input `log_mel` (frames, mels), output `embedding` (1, d)."""
    graph = Graph(tensors, model="CLAP", extra="export")
    encoder = "audio_model.audio_encoder"
    side = shape.image // shape.patch
    order = _windows(side, min(side, shape.window), 0)
    x = _patches(graph, encoder, shape, order)
    for stage in range(len(shape.depths)):
        x, order = _stage(graph, x, encoder, shape, stage, side, order)
        if stage + 1 < len(shape.depths):
            side //= 2
            merged = _windows(side, min(side, shape.window), 0)
            x = _merge(graph, x, f"{encoder}.layers.{stage}.downsample", order, merged, side)
            order = merged
    normed = graph.norm(x, f"{encoder}.norm", _NORM_EPSILON)
    x = graph.node("ReduceMean", normed, graph.integers(0), keepdims=1)
    width = project(graph, x, "audio_projection")
    return graph.serialise(
        "clap_audio",
        [("log_mel", np.float32, (shape.frames, shape.mels))],
        [("embedding", np.float32, (1, width))],
        opset=OPSET,
        ir=IR_VERSION,
    )


def _stage(
    graph: Graph, x: str, encoder: str, shape: AudioShape, stage: int, side: int, order: Positions
) -> tuple[str, Positions]:
    """Apply the blocks of one stage to an image of `side` tokens; return it and its order."""
    window = min(side, shape.window)
    for index in range(shape.depths[stage]):
        shift = window // 2 if index % 2 and side > window else 0
        wanted = _windows(side, window, shift)
        x, order = _reordered(graph, x, order, wanted), wanted
        name = f"{encoder}.layers.{stage}.blocks.{index}"
        bias = _bias(graph, name, window, _mask(side, window, shift))
        x = _in_parts(
            graph, x, name, bias, windows=(side // window) ** 2, heads=shape.heads[stage],
            epsilon=shape.epsilon,
        )  # fmt: skip
    return x, order


def _patches(graph: Graph, encoder: str, shape: AudioShape, order: Positions) -> str:
    """Turn the spectrogram into patch tokens (tokens, width), in the order given."""
    norm = f"{encoder}.batch_norm"
    gain = graph.tensor(f"{norm}.weight") / np.sqrt(
        graph.tensor(f"{norm}.running_var").astype(np.float64) + _NORM_EPSILON
    )
    bias = graph.tensor(f"{norm}.bias") - graph.tensor(f"{norm}.running_mean") * gain
    x = graph.node("Mul", "log_mel", graph.constant(gain.astype(np.float32)))
    x = graph.node("Add", x, graph.constant(bias.astype(np.float32)))
    long = shape.image * (shape.image // shape.mels)
    if shape.frames < long:
        taps, weights = _bicubic(shape.frames, long)
        frames = graph.node("Gather", x, graph.constant(taps), axis=0)
        x = graph.node(
            "ReduceSum", graph.node("Mul", frames, graph.constant(weights[:, :, None])),
            graph.integers(1), keepdims=0,
        )  # fmt: skip
    flat = graph.node("Reshape", x, graph.integers(-1))
    pixels = graph.node("Gather", flat, graph.constant(_pixels(shape)[order]), axis=0)
    name = f"{encoder}.patch_embed"
    kernel = graph.tensor(f"{name}.proj.weight")
    tokens = graph.dense(pixels, kernel.reshape(len(kernel), -1), graph.tensor(f"{name}.proj.bias"))
    return graph.norm(tokens, f"{name}.norm", _NORM_EPSILON)


def _pixels(shape: AudioShape) -> Positions:
    """Return the positions in the flat (time, mel) spectrogram of the pixels of each patch.

    The image is the spectrogram cut into segments of time, one below the other: its row is
    segment x mels + mel, its column the time within the segment.
    """
    row, column = np.divmod(np.arange(shape.image**2), shape.image)
    segment, mel = np.divmod(row, shape.mels)
    image = ((segment * shape.image + column) * shape.mels + mel).reshape(shape.image, shape.image)
    side = shape.image // shape.patch
    cut = image.reshape(side, shape.patch, side, shape.patch).transpose(0, 2, 1, 3)
    return cut.reshape(side * side, shape.patch**2).astype(np.int64)


def _bicubic(given: int, wanted: int) -> tuple[Positions, NDArray[np.float32]]:
    """Return the four frames that each interpolated frame is made of, and their weights."""
    position = np.arange(wanted) * ((given - 1) / (wanted - 1))
    start = np.floor(position)
    offset = position - start
    distance = np.abs(np.arange(-1, 3)[None] - offset[:, None])
    near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
    far = ((_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC
    weights = np.where(distance <= 1, near, far)
    taps = np.clip(start[:, None] + np.arange(-1, 3)[None], 0, given - 1)
    return taps.astype(np.int64), weights.astype(np.float32)


def _windows(side: int, window: int, shift: int) -> Positions:
    """Return the positions of all tokens, window by window, of an image rolled by `shift`."""
    rolled = np.roll(np.arange(side * side).reshape(side, side), (-shift, -shift), axis=(0, 1))
    count = side // window
    return rolled.reshape(count, window, count, window).transpose(0, 2, 1, 3).reshape(-1)


def _reordered(graph: Graph, x: str, order: Positions, wanted: Positions) -> str:
    if np.array_equal(order, wanted):
        return x
    return graph.node("Gather", x, graph.constant(np.argsort(order)[wanted]), axis=0)


def _mask(side: int, window: int, shift: int) -> NDArray[np.float32]:
    """Return the mask between tokens that only the roll made neighbours, (windows, 1, n, n)."""
    if not shift:
        return np.zeros((1, 1, window**2, window**2), np.float32)
    position = np.arange(side)
    region = (position >= side - window).astype(int) + (position >= side - shift)
    regions = (region[:, None] * 3 + region[None]).reshape(-1)[_windows(side, window, 0)]
    regions = regions.reshape(-1, window**2)
    apart = regions[:, None, :] != regions[:, :, None]
    return np.where(apart, np.float32(_MASKED), np.float32(0))[:, None]


def _bias(graph: Graph, block: str, window: int, mask: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the relative position bias of a block plus the mask: (windows or 1, heads, n, n)."""
    table = graph.tensor(f"{block}.attention.self.relative_position_bias_table")
    span = round(len(table) ** 0.5)  # 2 x the trained window - 1
    position = np.stack(np.divmod(np.arange(window**2), window))
    apart = position[:, :, None] - position[:, None, :] + span // 2
    bias = table[apart[0] * span + apart[1]].transpose(2, 0, 1)
    masked: NDArray[np.float32] = (bias[None] + mask).astype(np.float32)
    return masked


def _in_parts(
    graph: Graph,
    x: str,
    name: str,
    bias: NDArray[np.float32],
    *,
    windows: int,
    heads: int,
    epsilon: float,
) -> str:
    """Apply a Swin block to a few windows at a time.

    Windows do not affect each other within a block, and in small parts the data between its layers
    stays in the processor's cache: a tenth faster in OpenVINO on two cores.
    """
    parts = windows // _WINDOWS_PER_PART if windows % _WINDOWS_PER_PART == 0 else 1
    pieces = [x] if parts == 1 else graph.split(x, parts)
    biases = [bias] * parts if len(bias) == 1 else np.split(bias, parts)
    done = [
        _block(
            graph,
            piece,
            name,
            graph.constant(some),
            tokens=bias.shape[-1],
            heads=heads,
            epsilon=epsilon,
        )
        for piece, some in zip(pieces, biases, strict=True)
    ]
    return done[0] if parts == 1 else graph.node("Concat", *done, axis=0)


def _block(
    graph: Graph, x: str, name: str, bias: str, *, tokens: int, heads: int, epsilon: float
) -> str:
    """Apply a Swin block to x (all tokens, width), in windows of `tokens` tokens each."""
    attention = f"{name}.attention.self"
    weights, biases = (
        [graph.tensor(f"{attention}.{layer}.{part}") for layer in ("query", "key", "value")]
        for part in ("weight", "bias")
    )
    width = weights[0].shape[0]
    scale = np.float32((width // heads) ** -0.5)
    weights[0], biases[0] = weights[0] * scale, biases[0] * scale
    normed = graph.norm(x, f"{name}.layernorm_before", epsilon)
    joined = graph.dense(normed, np.concatenate(weights), np.concatenate(biases))
    split = graph.node("Reshape", joined, graph.integers(-1, tokens, 3, heads, width // heads))
    turned = graph.node("Transpose", split, perm=[2, 0, 3, 1, 4])
    query, key, value = (
        graph.node("Gather", turned, graph.constant(np.array(i, np.int64)), axis=0)
        for i in range(3)
    )
    similarity = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 1, 3, 2]))
    share = graph.node("Softmax", graph.node("Add", similarity, bias), axis=-1)
    merged = graph.node("Transpose", graph.node("MatMul", share, value), perm=[0, 2, 1, 3])
    flat = graph.node("Reshape", merged, graph.integers(-1, width))
    x = graph.node("Add", graph.linear(flat, f"{name}.attention.output.dense"), x)
    normed = graph.norm(x, f"{name}.layernorm_after", epsilon)
    wide = graph.node("Gelu", graph.linear(normed, f"{name}.intermediate.dense"))
    return graph.node("Add", graph.linear(wide, f"{name}.output.dense"), x)


def _merge(graph: Graph, x: str, name: str, order: Positions, wanted: Positions, side: int) -> str:
    """Join each two by two tokens to one; `side` is that of the smaller image."""
    row, column = np.divmod(wanted, side)
    corners = np.stack(  # in the order of transformers: down first, then across
        [
            (2 * row + down) * (2 * side) + 2 * column + across
            for across in (0, 1)
            for down in (0, 1)
        ],
        axis=1,
    )
    four = graph.node("Gather", x, graph.constant(np.argsort(order)[corners]), axis=0)
    weight = graph.tensor(f"{name}.reduction.weight")
    flat = graph.node("Reshape", four, graph.integers(-1, weight.shape[1]))
    normed = graph.norm(flat, f"{name}.norm", _NORM_EPSILON)
    return graph.node("MatMul", normed, graph.constant(weight.T))


def _side(size: int | Sequence[int]) -> int:
    """Return the side of a square that is given as one number or as two equal ones."""
    sides = {size} if isinstance(size, int) else set(size)
    if len(sides) != 1:
        raise FormatError(f"Patches of {size} are not square; use --runtime torch")
    return int(sides.pop())
