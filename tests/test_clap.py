"""CLAP through small random checkpoints, against transformers itself and genuine values."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from driftscore import Audio, Classifier, build_bank, load_backbone
from driftscore.audio.recordings import windows
from driftscore.backbones.clap import Clap, accepts, load
from driftscore.backbones.onnx.log_mel import ClapMel
from driftscore.errors import DownloadError, FormatError, MissingExtraError, UsageError
from driftscore.text.presets import PromptSettings

from .conftest import LABELS, Lazily, noise_clip
from .small_clap import TEXTS, extractor, save_clap

torch = Lazily("torch")
transformers = Lazily("transformers")

GENERIC = PromptSettings(pack="generic5")


@pytest.fixture(scope="module", params=["unfused", "fused"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clap(tmp_path_factory.mktemp(request.param), fused=request.param == "fused")


@pytest.fixture(scope="module")
def clap(checkpoint: Path) -> Clap:
    return load(checkpoint, runtime="torch")


@pytest.fixture(scope="module")
def oracle(checkpoint: Path) -> Any:
    return transformers.ClapModel.from_pretrained(checkpoint).eval()


def unit_rows(output: Any) -> Any:
    rows = getattr(output, "pooler_output", output).detach().numpy()
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("seconds", [0.03, 0.7, 4.99, 7.0, 10.0])
def test_the_fast_log_mel_equals_the_extractors(fused: bool, seconds: float) -> None:
    clip = noise_clip(seconds, rate=48_000)
    swell = (clip.samples * np.linspace(0, 1, len(clip.samples))).astype(np.float32)
    expected = extractor(fused)(swell, sampling_rate=48_000)["input_features"][0]
    found = ClapMel("htk" if fused else "slaney")(swell)
    assert expected.shape[0] == (4 if fused else 1)
    for channel in expected:
        np.testing.assert_allclose(found, channel, atol=1e-3)


@pytest.mark.parametrize("fused", [False, True])
def test_the_windows_of_a_long_clip_have_the_extractors_log_mel(fused: bool) -> None:
    mel = ClapMel("htk" if fused else "slaney")
    found = list(windows(noise_clip(23.0, rate=48_000), rate=48_000, seconds=10))
    assert len(found) == 4
    for window in found:
        expected = extractor(fused)(window.samples, sampling_rate=48_000)["input_features"]
        np.testing.assert_allclose(mel(window.samples), expected[0][0], atol=1e-3)


def test_the_log_mel_of_a_real_clip_equals_the_genuine_one(shared: Path) -> None:
    home = shared / "models" / "clap_htsat_unfused_golden"
    samples, rate = soundfile.read(home / "sample.wav", dtype="float32")
    golden = np.load(home / "golden_mel.npy").reshape(1001, 64)
    assert rate == 48_000
    np.testing.assert_allclose(ClapMel("slaney")(samples), golden, atol=1e-3)


def test_samples_longer_than_a_window_are_refused() -> None:
    with pytest.raises(UsageError, match="at most 480000 samples, got 480001"):
        ClapMel("slaney")(np.zeros(480_001, np.float32))


def test_the_genuine_tokenizer_gives_the_genuine_ids(shared: Path, clap: Clap) -> None:
    from tokenizers import Tokenizer

    home = shared / "models" / "clap_htsat_unfused_golden"
    tokenizer = Tokenizer.from_file(str(home / "tokenizer.json"))
    real = Clap(clap.towers, clap.description, tokenizer, runtime="torch")
    assert real.tokenizer.encode("a dog barking").ids == [0, 102, 2335, 35828, 2]


def test_genuine_embeddings_rank_a_genuine_dog_first(shared: Path) -> None:
    home = shared / "models" / "clap_htsat_unfused_golden"
    text, audio = np.load(home / "golden_text_embs.npy"), np.load(home / "golden_audio_emb.npy")
    names = ["a dog barking", "rain", "music", "silence", "door creaking"]
    scores = text.reshape(5, 512) @ audio.reshape(512)
    assert names[int(scores.argmax())] == "a dog barking"


def test_audio_embeddings_equal_those_of_transformers(clap: Clap, oracle: Any) -> None:
    clip = noise_clip(10.0, rate=48_000)
    fused = clap.mel.flavour == "htk"
    features = extractor(fused)(clip.samples, sampling_rate=48_000, return_tensors="pt")
    with torch.inference_mode():
        expected = oracle.get_audio_features(
            input_features=features["input_features"].float(),
            is_longer=torch.zeros(1, 1, dtype=torch.bool),
        )
    np.testing.assert_allclose(clap.embed_audio([clip]), unit_rows(expected), atol=1e-5)


def test_text_embeddings_equal_those_of_transformers(
    clap: Clap, oracle: Any, checkpoint: Path
) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        expected = oracle.get_text_features(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
        )
    np.testing.assert_allclose(clap.embed_text(TEXTS), unit_rows(expected), atol=1e-5)


def test_rows_are_unit_float32_of_the_models_width(clap: Clap) -> None:
    for rows in (clap.embed_text(TEXTS), clap.embed_audio([noise_clip(1.0)])):
        assert rows.dtype == np.float32
        assert rows.shape[1] == clap.dim == 48
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


def test_a_long_clip_embeds_the_same_alone_in_a_batch_in_another_order_and_again(
    clap: Clap,
) -> None:
    long = noise_clip(25.0, rate=44_100, seed=1)
    others = [noise_clip(0.5, rate=48_000, seed=seed) for seed in range(2, 9)]
    alone = clap.embed_audio([long])[0]
    np.testing.assert_array_equal(clap.embed_audio([long, *others])[0], alone)
    np.testing.assert_array_equal(clap.embed_audio([*others, long])[-1], alone)
    np.testing.assert_array_equal(clap.embed_audio([long])[0], alone)


def test_no_global_random_state_is_changed_or_used(clap: Clap) -> None:
    clip = noise_clip(25.0, rate=48_000)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    before = _numpy_state(), torch.get_rng_state()
    first = clap.embed_audio([clip])
    np.testing.assert_array_equal(_numpy_state(), before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    np.random.seed(6)  # noqa: NPY002
    np.testing.assert_array_equal(clap.embed_audio([clip]), first)


def _numpy_state() -> Any:
    state: Any = np.random.get_state()  # noqa: NPY002
    return state[1].copy()


def test_a_text_embeds_the_same_alone_and_in_any_batch(clap: Clap) -> None:
    texts = [f"{text} {number}" for number in range(13) for text in TEXTS]
    together = clap.embed_text(texts)
    np.testing.assert_array_equal(clap.embed_text(texts[::-1])[::-1], together)
    for row in (0, 5, 51):
        np.testing.assert_array_equal(clap.embed_text([texts[row]])[0], together[row])


def test_the_fingerprint_depends_on_the_weights_and_the_front_end(
    clap: Clap, checkpoint: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    assert load(checkpoint).fingerprint == clap.fingerprint
    lower, louder = tmp_path / "lower", tmp_path / "louder"
    shutil.copytree(checkpoint, lower)
    settings = lower / "preprocessor_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"frequency_min": 60}))
    shutil.copytree(checkpoint, louder)
    weights = load_file(louder / "model.safetensors")
    weights["logit_scale_a"] += 0.5
    save_file(weights, louder / "model.safetensors", {"format": "pt"})
    found = {load(home).fingerprint for home in (checkpoint, lower, louder)}
    assert len(found) == 3


def test_it_classifies_files(clap: Clap, wav: Callable[..., str]) -> None:
    classifier = Classifier(LABELS, backbone=clap, prompts=GENERIC)
    assert classifier.predict([wav(seconds=12.0)])[0] in LABELS
    assert build_bank(LABELS, clap, settings=GENERIC).drifts.shape == (3, 48)


def test_the_broken_conversion_is_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match=r"larger_clap_music is refused: .* at chance"):
        load_backbone("laion/larger_clap_music")


def test_a_hub_id_that_cannot_be_downloaded_is_named() -> None:
    with pytest.raises(DownloadError, match="'laion/clap-htsat-unfused' cannot be loaded"):
        load_backbone("laion/clap-htsat-unfused")


def test_a_checkpoint_without_safetensors_is_not_loaded(checkpoint: Path, tmp_path: Path) -> None:
    for file in checkpoint.iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    torch.save({"a": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(FormatError, match=r"cannot be loaded.*safetensors"):
        load_backbone(tmp_path)


def test_without_the_extra_the_message_has_the_pip_command(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install '.*\[clap\]'"):
        load_backbone(checkpoint)


def test_claps_are_recognised_and_other_things_are_not(checkpoint: Path, tmp_path: Path) -> None:
    assert accepts(str(checkpoint))
    assert accepts("laion/clap-htsat-unfused")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    for spec in (str(tmp_path), "clips/absent.npz/x", "./models/mine", "fakee"):
        assert not accepts(spec)


@pytest.mark.parametrize("content", ["{", "[]", ""])
def test_a_folder_with_a_damaged_config_is_not_a_clap(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    assert not accepts(str(tmp_path))


def test_a_short_clip_at_another_rate_is_embedded(clap: Clap) -> None:
    samples = np.sin(np.arange(4000) / 9).astype(np.float32)
    assert clap.embed_audio([Audio(samples, 8000)]).shape == (1, 48)
