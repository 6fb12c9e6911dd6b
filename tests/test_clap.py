"""CLAP through small random checkpoints, against transformers itself and genuine values."""

import json
import shutil

import numpy as np
import pytest
import soundfile

from driftscore import Audio, Classifier, build_bank, load_backbone
from driftscore.audio import windows
from driftscore.backbones._clap_mel import ClapMel
from driftscore.backbones.clap import Clap, accepts
from driftscore.errors import DriftscoreError, MissingExtraError, UsageError

from .conftest import LABELS, noise_clip

torch = pytest.importorskip("torch", reason="TORCH IS NOT INSTALLED")
transformers = pytest.importorskip("transformers", reason="TRANSFORMERS IS NOT INSTALLED")
torch.set_num_threads(1)

TEXTS = [
    "the sound of rain",
    "dog",
    "a much longer sentence about a dog with rain on a roof",
    "siren",
]


def small_tokenizer():
    """Train a byte-level tokenizer in RoBERTa's form on a few words."""
    from tokenizers import ByteLevelBPETokenizer
    from tokenizers.processors import RobertaProcessing

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        TEXTS, vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    )
    tokenizer._tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer._tokenizer, pad_token="<pad>", bos_token="<s>",
        eos_token="</s>", unk_token="<unk>",
    )  # fmt: skip


@pytest.fixture(scope="module", params=["unfused", "fused"])
def checkpoint(request, tmp_path_factory):
    """Save a small random CLAP as a folder, as the hub holds it."""
    fused = request.param == "fused"
    home = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(3)
    config = transformers.ClapConfig(
        text_config={
            "vocab_size": 600, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 64, "projection_dim": 48,
        },
        audio_config={
            "patch_embeds_hidden_size": 16, "hidden_size": 128, "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4], "projection_dim": 48, "enable_fusion": fused,
            "fusion_type": "aff_2d" if fused else None,
        },
        projection_dim=48,
    )  # fmt: skip
    model = transformers.ClapModel(config).eval()
    model.save_pretrained(home)
    extractor(fused).save_pretrained(home)
    small_tokenizer().save_pretrained(home)
    return home


def extractor(fused: bool):
    truncation = "fusion" if fused else "rand_trunc"
    return transformers.ClapFeatureExtractor(truncation=truncation, frequency_min=50)


@pytest.fixture(scope="module")
def clap(checkpoint) -> Clap:
    return load_backbone(checkpoint)


@pytest.fixture(scope="module")
def oracle(checkpoint):
    return transformers.ClapModel.from_pretrained(checkpoint).eval()


def pooled(output):
    return getattr(output, "pooler_output", output).detach().numpy()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("seconds", [0.03, 0.7, 4.99, 7.0, 10.0])
def test_the_fast_log_mel_is_the_extractors(fused, seconds):
    clip = noise_clip(seconds, rate=48_000)
    swell = (clip.samples * np.linspace(0, 1, len(clip.samples))).astype(np.float32)
    expected = extractor(fused)(swell, sampling_rate=48_000)["input_features"][0]
    found = ClapMel("htk" if fused else "slaney")(swell)
    assert expected.shape[0] == (4 if fused else 1)
    for channel in expected:
        np.testing.assert_allclose(found, channel, atol=1e-3)


@pytest.mark.parametrize("fused", [False, True])
def test_the_windows_of_a_long_clip_have_the_extractors_log_mel(fused):
    mel = ClapMel("htk" if fused else "slaney")
    found = list(windows(noise_clip(23.0, rate=48_000), rate=48_000, seconds=10))
    assert len(found) == 4
    for window in found:
        expected = extractor(fused)(window.audio.samples, sampling_rate=48_000)["input_features"]
        np.testing.assert_allclose(mel(window.audio.samples), expected[0][0], atol=1e-3)


def test_the_log_mel_of_a_real_clip_is_the_genuine_one(shared):
    home = shared / "models" / "clap_htsat_unfused_golden"
    samples, rate = soundfile.read(home / "sample.wav", dtype="float32")
    golden = np.load(home / "golden_mel.npy").reshape(1001, 64)
    assert rate == 48_000
    np.testing.assert_allclose(ClapMel("slaney")(samples), golden, atol=1e-3)


def test_the_genuine_tokenizer_gives_the_genuine_ids(shared, clap):
    from tokenizers import Tokenizer

    home = shared / "models" / "clap_htsat_unfused_golden"
    tokenizer = Tokenizer.from_file(str(home / "tokenizer.json"))
    real = Clap(clap.towers, clap.described, tokenizer)
    assert real.token_ids("a dog barking") == [0, 102, 2335, 35828, 2]


def test_genuine_embeddings_rank_a_genuine_dog_first(shared):
    home = shared / "models" / "clap_htsat_unfused_golden"
    text, audio = np.load(home / "golden_text_embs.npy"), np.load(home / "golden_audio_emb.npy")
    names = ["a dog barking", "rain", "music", "silence", "door creaking"]
    scores = text.reshape(5, 512) @ audio.reshape(512)
    assert names[int(scores.argmax())] == "a dog barking"


def test_audio_embeddings_are_those_of_transformers(clap, oracle, checkpoint):
    clip = noise_clip(10.0, rate=48_000)
    fused = clap.mel.flavour == "htk"
    features = extractor(fused)(clip.samples, sampling_rate=48_000, return_tensors="pt")
    with torch.inference_mode():
        expected = oracle.get_audio_features(
            input_features=features["input_features"].float(),
            is_longer=torch.zeros(1, 1, dtype=torch.bool),
        )
    np.testing.assert_allclose(clap.embed_audio([clip]), pooled(expected), atol=1e-5)


def test_text_embeddings_are_those_of_transformers(clap, oracle, checkpoint):
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        expected = oracle.get_text_features(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
        )
    np.testing.assert_allclose(clap.embed_text(TEXTS), pooled(expected), atol=1e-5)


def test_rows_are_unit_float32_of_the_models_width(clap):
    for rows in (clap.embed_text(TEXTS), clap.embed_audio([noise_clip(1.0)])):
        assert rows.dtype == np.float32
        assert rows.shape[1] == clap.dim == 48
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


def test_a_long_clip_embeds_the_same_alone_in_a_batch_in_another_order_and_again(clap):
    long = noise_clip(25.0, rate=44_100, seed=1)
    others = [noise_clip(0.5, rate=48_000, seed=seed) for seed in range(2, 9)]
    alone = clap.embed_audio([long])[0]
    np.testing.assert_array_equal(clap.embed_audio([long, *others])[0], alone)
    np.testing.assert_array_equal(clap.embed_audio([*others, long])[-1], alone)
    np.testing.assert_array_equal(clap.embed_audio([long])[0], alone)


def test_no_global_random_state_is_touched_or_used(clap):
    clip = noise_clip(25.0, rate=48_000)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first = clap.embed_audio([clip])
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[1])
    np.random.seed(6)  # noqa: NPY002
    np.testing.assert_array_equal(clap.embed_audio([clip]), first)


def test_a_text_embeds_the_same_alone_and_in_any_batch(clap):
    texts = [f"{text} {number}" for number in range(13) for text in TEXTS]
    together = clap.embed_text(texts)
    np.testing.assert_array_equal(clap.embed_text(texts[::-1])[::-1], together)
    for row in (0, 5, 51):
        np.testing.assert_array_equal(clap.embed_text([texts[row]])[0], together[row])


def test_the_fingerprint_follows_the_weights_and_the_front_end(clap, checkpoint, tmp_path):
    from safetensors.torch import load_file, save_file

    assert load_backbone(checkpoint).fingerprint == clap.fingerprint
    lower, louder = tmp_path / "lower", tmp_path / "louder"
    shutil.copytree(checkpoint, lower)
    settings = lower / "preprocessor_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"frequency_min": 60}))
    shutil.copytree(checkpoint, louder)
    weights = load_file(louder / "model.safetensors")
    weights["logit_scale_a"] += 0.5
    save_file(weights, louder / "model.safetensors", {"format": "pt"})
    found = {load_backbone(home).fingerprint for home in (checkpoint, lower, louder)}
    assert len(found) == 3


def test_it_classifies_files(clap, wav):
    ears = Classifier(LABELS, backbone=clap, pack="generic5")
    assert ears.predict([wav(seconds=12.0)])[0] in LABELS
    assert build_bank(LABELS, clap, pack="generic5").drifts.shape == (3, 48)


def test_the_broken_conversion_is_refused_with_the_reason():
    with pytest.raises(UsageError, match=r"larger_clap_music is refused: .* at chance"):
        load_backbone("laion/larger_clap_music")


def test_a_hub_id_that_cannot_be_fetched_is_a_sentence():
    with pytest.raises(DriftscoreError, match="'laion/clap-htsat-unfused' cannot be loaded"):
        load_backbone("laion/clap-htsat-unfused")


def test_a_checkpoint_without_safetensors_is_not_loaded(checkpoint, tmp_path):
    for file in checkpoint.iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    torch.save({"a": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(DriftscoreError, match=r"cannot be loaded.*safetensors"):
        load_backbone(tmp_path)


def test_without_the_extra_the_message_has_the_pip_line(checkpoint, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'driftscore\[clap\]'"):
        load_backbone(checkpoint)


def test_what_is_a_clap_is_told_from_what_is_not(checkpoint, tmp_path):
    assert accepts(str(checkpoint))
    assert accepts("laion/clap-htsat-unfused")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    for spec in (str(tmp_path), "clips/absent.npz/x", "./models/mine", "fakee"):
        assert not accepts(spec)


def test_a_short_clip_at_another_rate_is_taken(clap):
    samples = np.sin(np.arange(4000) / 9).astype(np.float32)
    assert clap.embed_audio([Audio(samples, 8000)]).shape == (1, 48)
