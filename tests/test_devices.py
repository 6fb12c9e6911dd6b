"""Devices: batches on the CPU, a GPU that only records what is moved, memory that runs out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftscore import Embedder, load_backbone, pipeline
from driftscore.backbones.devices import (
    WindowBatches,
    device_name,
    first_batch,
    onnx_providers,
    split_runtime,
    torch_device,
)
from driftscore.backbones.protocol import Backbone, Features
from driftscore.backbones.vectors import Matrix
from driftscore.engines import EngineSettings
from driftscore.errors import UsageError

from .conftest import noise_clip
from .small_clap import save_clap
from .small_mteb import register
from .small_pe_audio import save_pe_audio

torch: Any = pytest.importorskip("torch", reason="TORCH IS NOT INSTALLED")
pytest.importorskip("transformers", reason="TRANSFORMERS IS NOT INSTALLED")
pytestmark = pytest.mark.xdist_group("torch")

CLIPS = [noise_clip(seconds, seed=n, rate=48_000) for n, seconds in enumerate((1.0, 1.0, 3.0) * 3)]
"""Of two lengths: a batch has windows of one shape."""


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The names of small models of each family that runs in torch."""
    home = tmp_path_factory.mktemp("models")
    clap = save_clap(home / "clap", fused=True)
    return {"clap": str(clap), "pe_audio": str(save_pe_audio(home / "pe")),
            "mteb": f"mteb:{register()}"}  # fmt: skip


@pytest.mark.parametrize("family", ["clap", "pe_audio", "mteb"])
def test_batches_give_the_rows_of_one_by_one(family: str, specs: dict[str, str]) -> None:
    batched = load_backbone(specs[family], device="cpu", batch_size=16)
    alone = load_backbone(specs[family], device="cpu")
    assert (alone.batch, batched.batch) == (1, 16)
    assert batched.fingerprint == alone.fingerprint
    assert batched.cache_key != alone.cache_key  # the last bits may differ
    features = [alone.features(clip.samples) for clip in CLIPS]
    rows, expected = batched.encode_batch(features), alone.encode_batch(features)
    assert rows.shape == (len(CLIPS), alone.dim)
    np.testing.assert_allclose((rows * expected).sum(axis=1), 1, atol=1e-5)
    texts = alone.embed_text(["rain", "dog", "siren", "a bell"])
    np.testing.assert_array_equal(
        np.argsort(-rows @ texts.T, axis=1), np.argsort(-expected @ texts.T, axis=1)
    )


@pytest.mark.parametrize("family", ["clap", "pe_audio", "mteb"])
def test_half_precision_gives_nearly_the_rows_and_another_key(
    family: str, specs: dict[str, str]
) -> None:
    alone, half = (load_backbone(specs[family], device=name) for name in ("cpu", "cpu/bf16"))
    assert half.fingerprint == alone.fingerprint
    assert half.cache_key != alone.cache_key
    features = [alone.features(clip.samples) for clip in CLIPS]
    rows, expected = half.encode_batch(features), alone.encode_batch(features)
    assert rows.dtype == np.float32
    cosines = (rows * expected).sum(axis=1)
    assert (cosines > 0.97).all()
    if family != "mteb":  # the small model has no product that torch would compute in bf16
        assert (cosines < 1 - 1e-7).any()
    assert half.embed_text(["rain"]).dtype == np.float32
    with pytest.raises(UsageError, match="half precision is for models that run in torch"):
        load_backbone("mini", device="cpu/bf16")


def test_workers_of_a_cluster_load_the_model_with_the_same_batch_size(
    specs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines: list[EngineSettings] = []
    monkeypatch.setattr("driftscore.engines.local.open_engine", engines.append)
    embedder = Embedder(specs["clap"], runtime="torch", batch_size=4)
    embedder.start()
    model = engines[0].model
    assert model is not None
    assert model.load().cache_key == embedder.backbone.cache_key


def test_the_engine_embeds_recordings_in_batches(specs: dict[str, str]) -> None:
    with Embedder(specs["clap"], runtime="torch", batch_size=4, threads=3) as embedder:
        sizes: list[int] = []
        model: Any = embedder.backbone
        encode = model.encode_batch

        def counted(windows: Sequence[Features]) -> Any:
            sizes.append(len(windows))
            return encode(windows)

        model.encode_batch = counted
        batched = list(embedder.embed(CLIPS))
    with Embedder(specs["clap"], runtime="torch:cpu") as embedder:
        alone = list(embedder.embed(CLIPS))
    assert sum(sizes) == sum(len(one.rows) for one in alone)
    assert 1 <= max(sizes) <= 4
    for one, other in zip(batched, alone, strict=True):
        np.testing.assert_array_equal(one.spans, other.spans)
        np.testing.assert_allclose((one.rows * other.rows).sum(axis=1), 1, atol=1e-5)


class WaitingModel(Backbone):
    """A model that takes batches, and says how large they were."""

    name, fingerprint, dim, rate, seconds, batch = "waiting", "waiting", 2, 8000, 1.0, 4

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def encode(self, features: Features) -> Any:
        raise AssertionError("one window was encoded alone")

    def encode_batch(self, features: Sequence[Features]) -> Matrix:
        self.sizes.append(len(features))
        if any(float(one[0]) > 0.9 for one in features):
            raise ValueError("broken")
        return np.stack([np.array([1, one[0]], np.float32) for one in features])

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        return np.ones((len(texts), 2), np.float32)


def test_rows_of_batches_go_to_their_recordings_and_errors_are_not_lost() -> None:
    from driftscore import Audio

    clips = [Audio(np.full(8000, value / 100, np.float32), 8000) for value in range(1, 60)]
    model = WaitingModel()
    with Embedder(model, threads=4) as embedder:
        rows = [one.rows[0, 1] for one in embedder.embed(clips)]
        np.testing.assert_allclose(rows, np.arange(1, 60) / 100, rtol=1e-6)
        assert sum(model.sizes) == 59
        loud = Audio(np.full(8000, 0.95, np.float32), 8000)
        with pytest.raises(ValueError, match="broken"):
            list(embedder.embed([*clips, loud]))


def test_a_batch_that_runs_out_of_memory_is_halved_for_good() -> None:
    calls: list[int] = []

    def encode(windows: Sequence[Features]) -> Matrix:
        calls.append(len(windows))
        if len(windows) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return np.stack(windows)

    batches = WindowBatches(16)
    windows = [np.full(2, n, np.float32) for n in range(10)]
    np.testing.assert_array_equal(batches.run(encode, windows), np.stack(windows))
    assert calls == [10, 5, 2, 2, 2, 2, 2]
    assert batches.size == 2
    windows[1] = np.zeros(3, np.float32)  # another length: a batch of its own
    calls.clear()
    with pytest.raises(ValueError, match="dimension"):
        batches.run(encode, windows)  # np.concatenate of rows of two lengths
    assert calls[:3] == [1, 1, 2]


def test_one_window_that_does_not_fit_and_other_errors_are_errors() -> None:
    def full(windows: Sequence[Features]) -> Matrix:
        raise RuntimeError("MPS backend out of memory")

    def broken(windows: Sequence[Features]) -> Matrix:
        raise RuntimeError("shapes do not match")

    windows = [np.zeros(2, np.float32)] * 4
    with pytest.raises(UsageError, match="too little memory for one window"):
        WindowBatches(4).run(full, windows)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        WindowBatches(4).run(broken, windows)


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Two stand-in GPUs: what is moved to one stays where it is, and is recorded."""
    recorded: list[tuple[str, str]] = []

    def moved(kind: str) -> Any:
        def to(self: Any, device: Any = None, *rest: Any, **more: Any) -> Any:
            if str(device).startswith("cuda"):
                recorded.append((kind, str(device)))
                return self
            return original[kind](self, device, *rest, **more)

        return to

    original = {"module": torch.nn.Module.to, "tensor": torch.Tensor.to}
    monkeypatch.setattr(torch.nn.Module, "to", moved("module"))
    monkeypatch.setattr(torch.Tensor, "to", moved("tensor"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 * 2**30, 8 * 2**30))
    return recorded


@pytest.mark.parametrize("family", ["clap", "pe_audio"])
def test_weights_and_every_input_are_moved_to_the_device(
    family: str, specs: dict[str, str], moves: list[tuple[str, str]]
) -> None:
    alone = load_backbone(specs[family], device="cpu")
    assert moves == []
    model = load_backbone(specs[family], device="cuda:1")
    assert moves == [("module", "cuda:1")]
    assert (model.device, model.batch) == ("cuda:1", 12)
    assert model.fingerprint == alone.fingerprint
    assert "cuda:1" in model.cache_key
    moves.clear()
    rows = model.encode_batch([model.features(clip.samples) for clip in CLIPS])
    assert rows.shape == (len(CLIPS), model.dim)
    assert {device for _, device in moves} == {"cuda:1"}
    inputs = 2 if family == "clap" else 1  # the log-mels, and whether they are longer
    shapes = {model.features(clip.samples).shape for clip in CLIPS}
    assert len(moves) == inputs * (1 if len(shapes) == 1 else len(CLIPS) * 2 // 3)
    moves.clear()
    model.embed_text(["rain"])
    assert moves == [("tensor", "cuda:1")]


def test_auto_uses_what_torch_sees_first(moves: list[tuple[str, str]]) -> None:
    assert torch_device("auto") == "cuda"
    assert torch_device("cuda:1") == "cuda:1"
    assert first_batch("cuda", None) == 12
    assert first_batch("cuda", 16) == 16
    with pytest.raises(UsageError, match="torch sees no cuda:2 here: it has 2 CUDA devices"):
        torch_device("cuda:2")


def test_without_a_gpu_auto_is_the_cpu_and_a_gpu_is_refused() -> None:
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("THERE IS A GPU HERE")
    assert torch_device("auto") == "cpu"
    assert first_batch("cpu", None) == 1
    with pytest.raises(UsageError, match="torch sees no cuda here"):
        torch_device("cuda")
    with pytest.raises(UsageError, match="runs on the CPU only"):
        load_backbone("fake", device="cuda")


def test_devices_and_runtimes_are_named_alike_everywhere() -> None:
    assert [device_name(one) for one in (0, 3, -1, None, "mps")] == [
        "cuda:0", "cuda:3", "cpu", "auto", "mps"
    ]  # fmt: skip
    assert device_name(torch.device("cuda", 1)) == "cuda:1"
    assert split_runtime("torch:cuda:1") == ("torch", "cuda:1")
    assert split_runtime("cuda:1") == (None, "cuda:1")
    assert split_runtime("onnx") == ("onnx", "auto")
    assert split_runtime(None) == (None, "auto")
    for wrong in ("gpu", "torch:tpu", "cuda:x"):
        with pytest.raises(UsageError):
            split_runtime(wrong)
    with pytest.raises(UsageError, match="batch_size must be"):
        first_batch("cpu", 0)


def test_exported_models_run_with_the_providers_of_onnxruntime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import onnxruntime

    assert onnx_providers("cpu") == onnx_providers("auto") == ["CPUExecutionProvider"]
    names = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    with pytest.raises(UsageError, match="has no CUDAExecutionProvider"):
        load_backbone("mini", device="cuda")
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: names)
    used: list[Any] = []
    session = onnxruntime.InferenceSession

    def opened(graph: bytes, options: Any, providers: Any) -> Any:
        used.append(providers)
        return session(graph, options)

    monkeypatch.setattr(onnxruntime, "InferenceSession", opened)
    model = load_backbone("mini", runtime="cuda:1")
    model.embed_text(["rain"])
    assert used == [[("CUDAExecutionProvider", {"device_id": 1}), "CPUExecutionProvider"]]
    assert model.cache_key != model.fingerprint
    with pytest.raises(UsageError, match="has no CoreMLExecutionProvider"):
        load_backbone("mini", device="mps")


def test_the_pipeline_takes_a_device_and_batches_as_transformers_does(
    specs: dict[str, str], moves: list[tuple[str, str]]
) -> None:
    made = pipeline(model=specs["clap"], runtime="torch", device=0, batch_size=3)
    assert (made.backbone.device, made.backbone.batch) == ("cuda:0", 3)
    assert ("module", "cuda:0") in moves
    on_cpu = pipeline(model=specs["clap"], runtime="torch", device=-1)
    clip = CLIPS[0]
    answers = [one(clip, ["rain", "dog"], batch_size=2) for one in (made, on_cpu)]
    assert [item["label"] for item in answers[0]] == [item["label"] for item in answers[1]]
    with pytest.raises(UsageError, match="has its device"):
        pipeline(model=Embedder(specs["clap"]), device=0)


def test_the_command_names_a_device_by_the_runtime(
    specs: dict[str, str], run: Any, tmp_path: Path
) -> None:
    arguments = ("head", "-l", "rain, dog", "-b", specs["clap"], "-o", tmp_path / "head.npz")
    status, _, err = run(*arguments, "--runtime", "torch:cpu")
    assert status == 0, err
    status, _, err = run(*arguments, "--runtime", "torch:cuda:7")
    assert status == 2
    assert "torch sees no cuda:7" in err
