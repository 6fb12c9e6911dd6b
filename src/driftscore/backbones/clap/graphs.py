"""CLAP's two towers as ONNX graphs, which give rows that are not unit.

Text: ids (rows, n), texts of one token length -> RoBERTa, its first token pooled -> (rows, d).
Audio: log_mel (frames, mels) -> HTS-AT -> (1, d).

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

from driftscore.backbones.hub import ModelSettings
from driftscore.backbones.onnx.graph import Graph, Tensors, add_layer, embed_ids
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
    def of(config: ModelSettings, *, frames: int) -> "AudioShape":
        """Read a checkpoint's audio config; one that the graph does not support is an error."""
        mels, image, window = (config[k] for k in ("num_mel_bins", "spec_size", "window_size"))
        patch, stride = _side(config["patch_size"]), _side(config["patch_stride"])
        depths, ratio = tuple(config["depths"]), image // mels
        sides = [image // patch // 2**stage for stage in range(len(depths))]
        uncut = all(side % min(side, window) == 0 for side in sides)
        complete = config["enable_patch_layer_norm"] and config["qkv_bias"]
        checks = (
            (patch == stride, f"patches of {patch} with a stride of {stride}"),
            (ratio * mels == image, f"an image of {image} for {mels} mels"),
            (frames <= image * ratio, f"{frames} frames, image {image}"),
            (uncut, "windows that are cut by the edge"),
            (config["hidden_act"] == "gelu", f"the activation {config['hidden_act']}"),
            (config.get("fusion_type") != "channel_map", "fusion by channel map"),
            (config["projection_hidden_act"] == "relu", "a projection without relu"),
            (complete, "layers without norm or bias"),
        )
        for is_supported, problem in checks:
            if not is_supported:
                raise FormatError(
                    f"This checkpoint has {problem}, which the export does not support; use it "
                    "with --runtime torch"
                )
        heads = tuple(config["num_attention_heads"])
        epsilon = config["layer_norm_eps"]
        return AudioShape(frames, mels, image, patch, window, depths, heads, epsilon)


def build_audio(tensors: Tensors, shape: AudioShape) -> bytes:
    """Return an ONNX file with input `log_mel` (frames, mels), output `embedding` (1, d)."""
    graph = Graph(tensors, model="CLAP", extra="export")
    encoder = "audio_model.audio_encoder"
    side = shape.image // shape.patch
    order = _windows(side, min(side, shape.window), 0)
    x = _patches(graph, encoder, shape, order)
    for stage, depth in enumerate(shape.depths):
        layer = f"{encoder}.layers.{stage}"
        if stage:
            # Join each two by two tokens to one; down first, then across, as transformers does.
            side //= 2
            merged = _windows(side, min(side, shape.window), 0)
            row, column = np.divmod(merged, side)
            corners = [
                (2 * row + down) * (2 * side) + 2 * column + across
                for across in (0, 1)
                for down in (0, 1)
            ]
            positions = np.argsort(order)[np.stack(corners, axis=1)]
            name = f"{encoder}.layers.{stage - 1}.downsample"
            weight = graph.tensor(f"{name}.reduction.weight")
            four = graph.node("Gather", x, graph.constant(positions), axis=0)
            flat = graph.node("Reshape", four, graph.integers(-1, weight.shape[1]))
            normed = graph.norm(flat, f"{name}.norm", _NORM_EPSILON)
            x, order = graph.node("MatMul", normed, graph.constant(weight.T)), merged
        window = min(side, shape.window)
        for index in range(depth):
            shift = window // 2 if index % 2 and side > window else 0
            target = _windows(side, window, shift)
            if not np.array_equal(order, target):
                positions = np.argsort(order)[target]
                x = graph.node("Gather", x, graph.constant(positions), axis=0)
            order, name = target, f"{layer}.blocks.{index}"
            bias = _bias(graph, name, side, window, shift)
            # A few windows at a time: they do not affect each other within a block, and the data
            # between its layers stays in the processor's cache (up to a tenth faster on two cores).
            windows = (side // window) ** 2
            parts = windows // _WINDOWS_PER_PART if windows % _WINDOWS_PER_PART == 0 else 1
            pieces = [x] if parts == 1 else graph.split(x, parts)
            biases = [bias] * parts if len(bias) == 1 else np.split(bias, parts)
            done = [
                _block(graph, piece, name, some, heads=shape.heads[stage], epsilon=shape.epsilon)
                for piece, some in zip(pieces, biases, strict=True)
            ]
            x = done[0] if parts == 1 else graph.node("Concat", *done, axis=0)
    normed = graph.norm(x, f"{encoder}.norm", _NORM_EPSILON)
    x = graph.node("ReduceMean", normed, graph.integers(0), keepdims=1)
    width = _project(graph, x, "audio_projection")
    return graph.serialise(
        "clap_audio",
        [("log_mel", np.float32, (shape.frames, shape.mels))],
        [("embedding", np.float32, (1, width))],
    )


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
    # The image is the spectrogram cut into segments of time, one below the other: its row is
    # segment x mels + mel, its column the time within the segment.
    row, column = np.divmod(np.arange(shape.image**2), shape.image)
    segment, mel = np.divmod(row, shape.mels)
    image = (segment * shape.image + column) * shape.mels + mel
    side = shape.image // shape.patch
    cut = image.reshape(side, shape.patch, side, shape.patch).transpose(0, 2, 1, 3)
    patches = cut.reshape(side * side, shape.patch**2).astype(np.int64)
    flat = graph.node("Reshape", x, graph.integers(-1))
    pixels = graph.node("Gather", flat, graph.constant(patches[order]), axis=0)
    name = f"{encoder}.patch_embed"
    kernel = graph.tensor(f"{name}.proj.weight")
    tokens = graph.dense(pixels, kernel.reshape(len(kernel), -1), graph.tensor(f"{name}.proj.bias"))
    return graph.norm(tokens, f"{name}.norm", _NORM_EPSILON)


def _bicubic(frames: int, target: int) -> tuple[Positions, NDArray[np.float32]]:
    """Return the four frames that each interpolated frame is made of, and their weights."""
    position = np.arange(target) * ((frames - 1) / (target - 1))
    start = np.floor(position)
    offset = position - start
    distance = np.abs(np.arange(-1, 3)[None] - offset[:, None])
    near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
    far = ((_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC
    weights = np.where(distance <= 1, near, far)
    taps = np.clip(start[:, None] + np.arange(-1, 3)[None], 0, frames - 1)
    return taps.astype(np.int64), weights.astype(np.float32)


def _windows(side: int, window: int, shift: int) -> Positions:
    """Return the positions of all tokens, window by window, of an image rolled by `shift`."""
    rolled = np.roll(np.arange(side * side).reshape(side, side), (-shift, -shift), axis=(0, 1))
    count = side // window
    return rolled.reshape(count, window, count, window).transpose(0, 2, 1, 3).reshape(-1)


def _bias(graph: Graph, block: str, side: int, window: int, shift: int) -> NDArray[np.float32]:
    """Return the relative position bias of a block: (windows or 1, heads, n, n).

    In a shifted image it separates tokens that only the roll made neighbours.
    """
    table = graph.tensor(f"{block}.attention.self.relative_position_bias_table")
    span = round(len(table) ** 0.5)  # 2 x the trained window - 1
    position = np.stack(np.divmod(np.arange(window**2), window))
    apart = position[:, :, None] - position[:, None, :] + span // 2
    bias = table[apart[0] * span + apart[1]].transpose(2, 0, 1)[None]
    if shift:
        line = np.arange(side)
        region = (line >= side - window).astype(int) + (line >= side - shift)
        regions = (region[:, None] * 3 + region[None]).reshape(-1)[_windows(side, window, 0)]
        regions = regions.reshape(-1, window**2)
        strangers = regions[:, None, :] != regions[:, :, None]
        bias = bias + np.where(strangers, np.float32(_MASKED), np.float32(0))[:, None]
    return bias.astype(np.float32)


def _block(
    graph: Graph, x: str, name: str, bias: NDArray[np.float32], *, heads: int, epsilon: float
) -> str:
    """Apply a Swin block to x (all tokens, width), in windows of as many tokens as `bias` has."""
    tokens = bias.shape[-1]
    shared = graph.constant(bias)
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
    share = graph.node("Softmax", graph.node("Add", similarity, shared), axis=-1)
    merged = graph.node("Transpose", graph.node("MatMul", share, value), perm=[0, 2, 1, 3])
    flat = graph.node("Reshape", merged, graph.integers(-1, width))
    x = graph.node("Add", graph.linear(flat, f"{name}.attention.output.dense"), x)
    normed = graph.norm(x, f"{name}.layernorm_after", epsilon)
    wide = graph.node("Gelu", graph.linear(normed, f"{name}.intermediate.dense"))
    return graph.node("Add", graph.linear(wide, f"{name}.output.dense"), x)


def _side(size: int | Sequence[int]) -> int:
    """Return the side of a square that is given as one number or as two equal ones."""
    sides = {size} if isinstance(size, int) else set(size)
    if len(sides) != 1:
        raise FormatError(f"Patches of {size} are not square; use --runtime torch")
    return int(sides.pop())


def build_text(tensors: Tensors, config: ModelSettings) -> bytes:
    """Return an ONNX file with input `ids` (rows, n) and output `embedding` (rows, d), not unit."""
    if config["hidden_act"] != "gelu" or config["projection_hidden_act"] != "relu":
        raise FormatError(
            "The text tower of this checkpoint has activations other than gelu and relu, which the "
            "export does not support; use it with --runtime torch"
        )
    graph = Graph(tensors, model="CLAP", extra="export")
    model, heads = "text_model", config["num_attention_heads"]
    epsilon, layers = config["layer_norm_eps"], config["num_hidden_layers"]
    # RoBERTa counts positions from the one after the padding token's id.
    first = config["pad_token_id"] + 1
    x = embed_ids(graph, f"{model}.embeddings", first_position=first, epsilon=epsilon)
    for index in range(layers):
        last = index == layers - 1
        name = f"{model}.encoder.layer.{index}"
        x = add_layer(graph, x, name, heads=heads, epsilon=epsilon, first_only=last)
    token = graph.node("Squeeze", x, graph.integers(1))
    pooled = graph.node("Tanh", graph.linear(token, f"{model}.pooler.dense"))
    width = _project(graph, pooled, "text_projection")
    return graph.serialise(
        "clap_text",
        [("ids", np.int64, ("rows", "length"))],
        [("embedding", np.float32, ("rows", width))],
    )


def _project(graph: Graph, x: str, name: str) -> int:
    """Add the two layers that project a tower into the joint space; return the width."""
    hidden = graph.node("Relu", graph.linear(x, f"{name}.linear1"))
    weight, bias = (graph.tensor(f"{name}.linear2.{part}") for part in ("weight", "bias"))
    product = graph.node("MatMul", hidden, graph.constant(weight.T))
    graph.node("Add", product, graph.constant(bias), out="embedding")
    return int(weight.shape[0])
