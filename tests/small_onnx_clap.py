"""Small CLAPs in the layout of transformers.js: graphs with the names of the published ones.

The audio graph is the mean over time of the log-mel, a dense layer, a nonlinearity and another one;
the text graph averages the embeddings of the ids. Needs the `onnx` package to write them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

DIM, MELS, WIDTH, VOCABULARY = 24, 64, 40, 300
EXTRACTOR = {
    "chunk_length_s": 10, "feature_extractor_type": "ClapFeatureExtractor", "feature_size": 64,
    "fft_window_size": 1024, "frequency_max": 14000, "frequency_min": 50, "hop_length": 480,
    "max_length_s": 10, "n_fft": 1024, "nb_frequency_bins": 513, "nb_max_frames": 1000,
    "nb_max_samples": 480000, "padding": "repeatpad", "padding_side": "right",
    "padding_value": 0.0, "processor_class": "ClapProcessor", "return_attention_mask": False,
    "sampling_rate": 48000, "top_db": None, "truncation": "rand_trunc",
}  # fmt: skip
"""The settings of clap-htsat-unfused, key by key."""


def weights(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {"audio_1": (MELS, WIDTH), "audio_2": (WIDTH, DIM), "words": (VOCABULARY, WIDTH),
              "text_1": (WIDTH, DIM)}  # fmt: skip
    return {name: rng.standard_normal(s).astype(np.float32) / 8 for name, s in shapes.items()}


def audio_rows(mel: Any, w: Mapping[str, Any]) -> Any:
    """Compute in numpy what the audio graph computes, for (frames, mels)."""
    return np.tanh(mel.mean(axis=0) / 40 @ w["audio_1"]) @ w["audio_2"]


def text_rows(ids: Any, w: Mapping[str, Any]) -> Any:
    """Compute in numpy what the text graph computes, for the ids of one text."""
    return np.tanh(w["words"][np.asarray(ids)].mean(axis=0)) @ w["text_1"]


def audio_graph(w: Mapping[str, Any], *, fused: bool = False) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("ReduceMean", ["input_features"], ["mean"], axes=[1, 2], keepdims=0),
        helper.make_node("Mul", ["mean", "scale"], ["small"]),
        helper.make_node("MatMul", ["small", "audio_1"], ["hidden"]),
        helper.make_node("Tanh", ["hidden"], ["bent"]),
        helper.make_node("MatMul", ["bent", "audio_2"], ["audio_embeds"]),
    ]
    shape = ["batch", 4 if fused else "channels", "frames", "mels"]
    inputs = [helper.make_tensor_value_info("input_features", TensorProto.FLOAT, shape)]
    if fused:
        inputs.append(helper.make_tensor_value_info("is_longer", TensorProto.BOOL, ["batch", 1]))
    outputs = [helper.make_tensor_value_info("audio_embeds", TensorProto.FLOAT, ["batch", DIM])]
    constants = [numpy_helper.from_array(w[name], name) for name in ("audio_1", "audio_2")]
    constants.append(numpy_helper.from_array(np.array(1 / 40, np.float32), "scale"))
    return _model(nodes, inputs, outputs, constants)


def text_graph(w: Mapping[str, Any], *, mask: bool = False) -> Any:
    """Return the text graph; like the published one it has no attention_mask unless asked for."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["each"], axis=0),
        helper.make_node("ReduceMean", ["each"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("Tanh", ["mean"], ["bent"]),
        helper.make_node("MatMul", ["bent", "text_1"], ["text_embeds"]),
    ]
    names = ["input_ids", "attention_mask"] if mask else ["input_ids"]
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "n"]) for n in names]
    outputs = [helper.make_tensor_value_info("text_embeds", TensorProto.FLOAT, ["batch", DIM])]
    constants = [numpy_helper.from_array(w[name], name) for name in ("words", "text_1")]
    return _model(nodes, inputs, outputs, constants)


def _model(nodes: Any, inputs: Any, outputs: Any, constants: Any) -> Any:
    from onnx import helper

    graph = helper.make_graph(nodes, "small", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def save_export(
    home: Path,
    *,
    variants: tuple[str, ...] = ("",),
    tokenizer: str | None = None,
    mask: bool = False,
    seed: int = 0,
) -> Path:
    """Write a small export; the suffix "_quantized" is rounded to int8 as the published one is."""
    import onnx

    graphs = home / "onnx"
    graphs.mkdir(parents=True)
    w = weights(seed)
    for suffix in variants:
        for kind, model in (("audio", audio_graph(w)), ("text", text_graph(w, mask=mask))):
            path = graphs / f"{kind}_model{suffix}.onnx"
            onnx.save(model, path)
            if suffix == "_quantized":
                _quantise(path)
            if suffix == "_fp16":
                _halve(path)
    config = {"model_type": "clap", "projection_dim": DIM}
    (home / "config.json").write_text(json.dumps(config))
    (home / "preprocessor_config.json").write_text(json.dumps(EXTRACTOR))
    (home / "tokenizer.json").write_text(tokenizer or small_tokenizer())
    return home


def small_tokenizer() -> str:
    """Return a byte-level tokenizer with RoBERTa's marks."""
    from tokenizers import ByteLevelBPETokenizer
    from tokenizers.processors import RobertaProcessing

    tokenizer = ByteLevelBPETokenizer()
    marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    texts = ["the sound of rain", "a dog barking"]
    tokenizer.train_from_iterator(texts, vocab_size=VOCABULARY, special_tokens=marks)
    tokenizer._tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    written: str = tokenizer._tokenizer.to_str()
    return written


def _quantise(path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(path, path, weight_type=QuantType.QInt8)


def _halve(path: Path) -> None:
    """Give a graph float16 weights, inputs and outputs."""
    import onnx
    from onnx import TensorProto, numpy_helper

    model = onnx.load(path)
    for constant in model.graph.initializer:
        array = numpy_helper.to_array(constant).astype(np.float16)
        constant.CopyFrom(numpy_helper.from_array(array, constant.name))
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    onnx.save(model, path)
