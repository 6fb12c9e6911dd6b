"""CLAP exported to ONNX, against transformers: the same embeddings, then no torch at all."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from driftscore import Audio, Classifier, load_backbone
from driftscore.backbones import _clap_export as exports
from driftscore.errors import FormatError, MismatchError, MissingExtraError, UsageError

from .conftest import noise_clip

torch = pytest.importorskip("torch", reason="TORCH IS NOT INSTALLED")
transformers = pytest.importorskip("transformers", reason="TRANSFORMERS IS NOT INSTALLED")
pytest.importorskip("onnx", reason="ONNX IS NOT INSTALLED")

from driftscore.backbones._clap_writer import export  # noqa: E402

from .test_clap import TEXTS, extractor, small_tokenizer  # noqa: E402

RUNTIMES = ["onnx", "openvino"]


def runtime_or_skip(runtime):
    if runtime == "openvino":
        pytest.importorskip("openvino", reason="OPENVINO IS NOT INSTALLED")
    return runtime


@pytest.fixture(scope="module", params=["unfused", "fused"])
def checkpoint(request, tmp_path_factory):
    """A small random CLAP with shifted windows in every stage that has room for them."""
    fused = request.param == "fused"
    home = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(5)
    config = transformers.ClapConfig(
        text_config={
            "vocab_size": 600, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
            "intermediate_size": 64, "layer_norm_eps": 1e-12,
        },
        audio_config={
            "patch_embeds_hidden_size": 16, "hidden_size": 128, "depths": [2, 2, 3, 2],
            "num_attention_heads": [1, 2, 2, 4], "enable_fusion": fused,
            "fusion_type": "aff_2d" if fused else None,
        },
        projection_dim=48,
    )  # fmt: skip
    model = transformers.ClapModel(config).eval()
    with torch.no_grad():  # a fresh model's rows are all alike, which would hide mistakes
        for name, tensor in model.named_parameters():
            if name.endswith("bias") or "bias_table" in name:
                tensor.normal_(0, 0.3)
            elif "norm" in name.lower() and name.endswith("weight"):
                tensor.uniform_(0.5, 1.5)
            elif tensor.ndim > 1:
                tensor.normal_(0, 2 / tensor[0].numel() ** 0.5)
        for name, tensor in model.named_buffers():
            if name.endswith("running_mean"):
                tensor.uniform_(-40, -10)
            elif name.endswith("running_var"):
                tensor.uniform_(50, 300)
    model.save_pretrained(home)
    extractor(fused).save_pretrained(home)
    small_tokenizer().save_pretrained(home)
    return home


@pytest.fixture(scope="module")
def exported(checkpoint, tmp_path_factory):
    return export(str(checkpoint), tmp_path_factory.mktemp("export") / "out")


@pytest.fixture
def cached(checkpoint, tmp_path, monkeypatch):
    """The export where the cache keeps it."""
    monkeypatch.setenv("DRIFTSCORE_CACHE", str(tmp_path / "cache"))
    return export(str(checkpoint))


def clips():
    swell = noise_clip(7.0, rate=48_000)
    faint = swell.samples * np.linspace(0, 1e-3, len(swell.samples), dtype="f4")
    others = [noise_clip(10.0, rate=48_000), noise_clip(0.4, rate=48_000)]
    return [*others, swell, Audio(faint, 48_000)]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_exported_towers_give_transformers_embeddings(checkpoint, exported, runtime):
    model = load_backbone(exported.home, runtime=runtime_or_skip(runtime))
    oracle = transformers.ClapModel.from_pretrained(checkpoint).eval()
    make = extractor(oracle.config.audio_config.enable_fusion)
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    found = model.embed_audio(clips())
    for row, clip in zip(found, clips(), strict=True):
        given = make(clip.samples, sampling_rate=48_000, return_tensors="pt")
        given["is_longer"] = torch.zeros(1, 1, dtype=torch.bool)
        with torch.inference_mode():
            out = oracle.get_audio_features(**given)
        expected = getattr(out, "pooler_output", out)[0].numpy()
        np.testing.assert_allclose(row, expected / np.linalg.norm(expected), atol=1e-5)
    with torch.inference_mode():
        out = oracle.get_text_features(**tokenizer(TEXTS, padding=True, return_tensors="pt"))
    expected = getattr(out, "pooler_output", out).numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(model.embed_text(TEXTS), expected, atol=1e-5)
    # Rows that were all alike would agree whatever the graph does.
    assert (found @ found.T).min() < 0.9
    assert (expected @ expected.T).min() < 0.9


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_text_has_the_same_bits_in_any_batch_and_place(exported, runtime):
    model = load_backbone(exported.home, runtime=runtime_or_skip(runtime))
    texts = [f"{text} {i}" for i in range(30) for text in TEXTS]
    together = model.embed_text(texts)
    np.testing.assert_array_equal(model.embed_text(texts[::-1])[::-1], together)
    for row in (0, 17, 119):
        np.testing.assert_array_equal(model.embed_text([texts[row]])[0], together[row])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_window_has_the_same_bits_from_any_thread(exported, runtime):
    from concurrent.futures import ThreadPoolExecutor

    model = load_backbone(exported.home, runtime=runtime_or_skip(runtime))
    mels = [model.features(clip.samples) for clip in clips()]
    alone = [model.encode(mel) for mel in mels]
    with ThreadPoolExecutor(4) as pool:
        for expected, found in zip(alone * 4, pool.map(model.encode, mels * 4), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_after_the_export_auto_needs_no_torch(checkpoint, cached, wav):
    clip = wav("clip.wav")
    program = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from driftscore import Classifier\n"
        "ears = Classifier(['dog', 'rain'], backbone=sys.argv[1], rule='cosine').fit()\n"
        "print(ears.backbone_.towers.runtime, ears.scores([sys.argv[2]]).tolist())\n"
    )
    run = [sys.executable, "-c", program, str(checkpoint), str(clip)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runtime, _, scores = done.stdout.partition(" ")
    assert runtime in RUNTIMES
    ears = Classifier(["dog", "rain"], backbone=load_backbone(checkpoint, runtime="torch"),
                      rule="cosine").fit()  # fmt: skip
    np.testing.assert_allclose(json.loads(scores), ears.scores([clip]), atol=1e-5)


def test_auto_says_what_it_chose_and_why(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("DRIFTSCORE_CACHE", str(tmp_path))
    before = load_backbone(checkpoint)
    assert before.towers.runtime == "torch"
    assert "driftscore export" in before.explanation
    export(str(checkpoint))
    monkeypatch.setattr(exports.importlib.util, "find_spec", lambda name: None)
    after = load_backbone(checkpoint)
    assert after.towers.runtime == "onnx"
    assert "openvino" in after.explanation
    with pytest.raises(MissingExtraError, match=r"driftscore\[openvino\]"):
        load_backbone(checkpoint, runtime="openvino")


def test_runtimes_share_a_fingerprint_and_not_a_cache(checkpoint, cached):
    there = load_backbone(checkpoint, runtime="torch")
    here = load_backbone(checkpoint, runtime="onnx")
    assert here.fingerprint == there.fingerprint
    assert here.cache_key != there.cache_key


def test_another_checkpoint_does_not_take_the_export(checkpoint, cached, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(checkpoint, other)
    assert exports.find(str(other)) is not None  # the same content
    settings = other / "preprocessor_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"frequency_min": 60}))
    assert exports.find(str(other)) is None
    with pytest.raises(UsageError, match="driftscore export"):
        load_backbone(other, runtime="onnx")


def test_int8_is_a_model_of_its_own_with_its_cost(checkpoint, exported, tmp_path, monkeypatch):
    monkeypatch.setenv("DRIFTSCORE_CACHE", str(tmp_path))
    made = export(str(checkpoint), int8=True, clips=[noise_clip(3.0, rate=48_000)])
    assert made.precision == "int8"
    assert made.description.fingerprint != exported.description.fingerprint
    assert 0.8 < made.agreement["audio_cosine"] < 1
    assert load_backbone(checkpoint).towers.runtime == "torch", "int8 was taken unasked"
    with monkeypatch.context() as without_checkpoint:
        without_checkpoint.setattr(exports, "checkpoint_folder", lambda name: None)
        assert exports.find(str(checkpoint)) is None, "int8 was taken for the name's sake"
    model = load_backbone(made.home)
    cosines = (model.embed_text(TEXTS) * load_backbone(exported.home).embed_text(TEXTS)).sum(axis=1)
    assert cosines.min() > 0.8


def test_a_runtime_that_disagrees_with_torch_is_refused(exported, tmp_path):
    home = tmp_path / "wrong"
    shutil.copytree(exported.home, home)
    probe = exports.load_probe(home)
    probe["audio"] = -probe["audio"]
    np.savez(home / "probe.npz", **probe)
    model = load_backbone(home, runtime="onnx")
    with pytest.raises(MismatchError, match="differ from torch's"):
        model.embed_audio(clips()[:1])


def test_a_damaged_export_is_a_sentence(exported, tmp_path):
    home = tmp_path / "bad"
    shutil.copytree(exported.home, home)
    with open(home / "audio.onnx", "r+b") as file:
        file.seek(1000)
        file.write(b"\0\1\2\3")
    with pytest.raises(FormatError, match=r"audio.onnx is damaged"):
        load_backbone(home).embed_audio(clips()[:1])
    (home / "manifest.json").write_text("{}")
    with pytest.raises(FormatError, match="driftscore export"):
        load_backbone(home)


def test_a_folder_with_other_things_is_not_written_over(checkpoint, tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(UsageError, match="not empty"):
        export(str(checkpoint), tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "keep"


def test_a_shape_that_the_graph_does_not_cover_is_refused(checkpoint):
    from driftscore.backbones._clap_graph import AudioShape

    config = transformers.ClapConfig().to_dict()["audio_config"]
    AudioShape.of(config, frames=1001)
    for change in ({"patch_stride": [2, 2]}, {"hidden_act": "relu"}, {"spec_size": 250}):
        with pytest.raises(FormatError, match="--runtime torch"):
            AudioShape.of(config | change, frames=1001)


@pytest.mark.parametrize("name", ["mini", "nowhere/at/all"])
def test_what_is_no_clap_is_not_exported(name):
    with pytest.raises(UsageError, match="no CLAP checkpoint"):
        export(name)


def test_an_unknown_runtime_is_told(checkpoint):
    with pytest.raises(UsageError, match="No runtime called 'onyx'; did you mean 'onnx'"):
        load_backbone(checkpoint, runtime="onyx")
