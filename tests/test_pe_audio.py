"""PE-AV through small random checkpoints, against transformers and the published definition."""

import json
import pickle
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from driftscore import Classifier, load_backbone
from driftscore.backbones import hub
from driftscore.backbones.pe_audio import KNOWN, PeAudio, accepts, load
from driftscore.errors import (
    DownloadError,
    FormatError,
    MismatchError,
    MissingExtraError,
    UsageError,
)
from driftscore.text.presets import PromptSettings

from .conftest import Lazily, noise_clip

torch = Lazily("torch")
transformers = Lazily("transformers")
if int(version("transformers").partition(".")[0]) < 5:
    pytest.skip("TRANSFORMERS HAS NO PeAudioModel: version 5 does", allow_module_level=True)

from .small_pe_audio import DIM, save_pe_audio, small_model  # noqa: E402

TEXTS = ["the sound of rain", "dog", "a much longer sentence about a dog with rain", "siren"]


@pytest.fixture(scope="module", params=["pe_audio", "pe_audio_video"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    return save_pe_audio(folder, video=request.param == "pe_audio_video")


@pytest.fixture(scope="module")
def model(home: Path) -> PeAudio:
    return load(home)


@pytest.fixture(scope="module")
def oracle() -> Any:
    return small_model()


def unit_rows(rows: Any) -> Any:
    return (rows / rows.norm(dim=-1, keepdim=True)).numpy()


@pytest.mark.parametrize("seconds", [0.03, 0.5, 3.001, 10.0])
def test_audio_embeddings_equal_those_of_transformers(
    model: PeAudio, oracle: Any, seconds: float
) -> None:
    clip = noise_clip(seconds, rate=48_000)
    given = transformers.PeAudioFeatureExtractor()(
        clip.samples, sampling_rate=48_000, return_tensors="pt"
    )
    with torch.inference_mode():
        expected = oracle.get_audio_embeds(given["input_values"], given["padding_mask"])
    np.testing.assert_allclose(model.embed_audio([clip]), unit_rows(expected), atol=2e-5)


def test_text_embeddings_read_the_first_token_before_the_final_norm(
    model: PeAudio, oracle: Any, home: Path
) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(home)
    found: list[Any] = []
    hook = oracle.text_model.layers[-1].register_forward_hook(
        lambda module, given, out: found.append(out[0] if isinstance(out, tuple) else out)
    )
    with torch.inference_mode():
        for text in TEXTS:
            oracle.text_model(**tokenizer(text, return_tensors="pt"))
        expected = [oracle.text_audio_head(each[:, 0])[0] for each in found]
        after = [oracle.text_audio_head(oracle.text_model.final_norm(each[:, 0])) for each in found]
    hook.remove()
    rows = model.embed_text(TEXTS)
    np.testing.assert_allclose(rows, unit_rows(torch.stack(expected)), atol=2e-5)
    assert np.abs(rows - unit_rows(torch.cat(after))).max() > 1e-3, "the norm makes no difference"


def test_different_sounds_and_texts_have_different_rows(model: PeAudio) -> None:
    sounds = model.embed_audio([noise_clip(2.0, seed=seed) for seed in range(3)])
    texts = model.embed_text(TEXTS)
    assert (sounds @ sounds.T).min() < 0.999
    assert (texts @ texts.T).min() < 0.9


def test_what_the_model_says_of_itself(model: PeAudio) -> None:
    assert (model.rate, model.hop, model.seconds, model.dim) == (48_000, 1920, 10.0, DIM)
    assert model.logit_scale == pytest.approx(12.5)
    assert model.fingerprint.startswith("pe_audio/")


def test_a_text_embeds_the_same_alone_and_in_any_list(model: PeAudio) -> None:
    texts = [f"{text} {number}" for number in range(5) for text in TEXTS]
    together = model.embed_text(texts)
    np.testing.assert_array_equal(model.embed_text(texts[::-1])[::-1], together)
    np.testing.assert_array_equal(model.embed_text(texts[6:7])[0], together[6])


def test_a_long_clip_embeds_the_same_alone_and_in_a_list(model: PeAudio) -> None:
    long, short = noise_clip(25.0, rate=44_100, seed=1), noise_clip(0.5)
    alone = model.embed_audio([long])[0]
    np.testing.assert_array_equal(model.embed_audio([short, long])[1], alone)


def test_the_form_of_the_checkpoint_makes_no_difference(tmp_path: Path) -> None:
    plain, video = save_pe_audio(tmp_path / "a"), save_pe_audio(tmp_path / "v", video=True)
    assert load(plain).fingerprint == load(video).fingerprint


def test_the_fingerprint_depends_on_the_weights_and_the_window(home: Path, tmp_path: Path) -> None:
    other = save_pe_audio(tmp_path / "other", seed=1)
    found = {m.fingerprint for m in (load(home), load(other), load(home, seconds=5))}
    assert len(found) == 3
    with pytest.raises(UsageError, match=r"from 0.1 to 400 seconds, got 1000"):
        load(home, seconds=1000)


def test_a_copied_model_notices_that_its_checkpoint_has_changed(tmp_path: Path) -> None:
    home = save_pe_audio(tmp_path / "pe")
    content = pickle.dumps(load(home))
    assert len(content) < 2000
    save_pe_audio(home, seed=1)
    with pytest.raises(MismatchError, match="has changed since the model was loaded"):
        pickle.loads(content)


def test_it_classifies_with_das(model: PeAudio) -> None:
    prompts = PromptSettings(pack="generic5")
    classifier = Classifier(["rain", "dog"], backbone=model, rule="das", prompts=prompts)
    assert classifier.predict([noise_clip(1.0)])[0] in ("rain", "dog")


def test_folders_and_known_ids_are_recognised(home: Path, tmp_path: Path) -> None:
    assert accepts(str(home))
    assert load_backbone(home).dim == DIM
    assert all(accepts(name) for name in KNOWN)
    assert not accepts("laion/clap-htsat-unfused")
    assert not accepts(str(tmp_path))


@pytest.mark.parametrize("spec", [KNOWN[0], f"pe_audio:{KNOWN[1]}", "pe_audio:my/own"])
def test_hub_ids_reach_this_family(spec: str) -> None:
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE is set"):
        load_backbone(spec)


def test_a_clap_folder_is_refused_and_so_is_a_model_of_frames(home: Path, tmp_path: Path) -> None:
    for change, message in (
        ({"model_type": "clap"}, "is a clap"),
        ({"model_type": "pe_audio", "architectures": ["PeAudioFrameLevelModel"]}, "frame-level"),
    ):
        config = json.loads((home / "config.json").read_text()) | change
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(FormatError, match=message):
            load(tmp_path)


def test_missing_weights_are_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    home = save_pe_audio(tmp_path / "pe")
    tensors = load_file(home / "model.safetensors")
    del tensors["audio_head.proj.weight"]
    save_file(tensors, home / "model.safetensors", {"format": "pt"})
    with pytest.raises(FormatError, match=r"lacks weights, such as audio_head.proj.weight"):
        load(home)
    (home / "model.safetensors").unlink()
    torch.save({"a": 1}, home / "pytorch_model.bin")
    with pytest.raises(FormatError, match=r"no model.safetensors"):
        load(home)


def test_nothing_is_printed_while_it_is_loaded(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    load(home)
    assert capfd.readouterr() == ("", "")


def test_an_older_transformers_and_a_missing_one_are_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ModuleType("transformers")
    old.__spec__ = transformers.__spec__
    monkeypatch.setitem(sys.modules, "transformers", old)
    with pytest.raises(MissingExtraError, match=r"pip install 'transformers>=5'"):
        load(home)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install '.*\[clap\]'"):
        load(home)


def test_the_parts_of_a_sharded_checkpoint_are_all_read(home: Path, tmp_path: Path) -> None:
    oracle = small_model()
    oracle.save_pretrained(tmp_path, max_shard_size="200KB")
    assert len(hub.weight_files(tmp_path)) > 1
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((home / name).read_bytes())
    np.testing.assert_array_equal(
        load(tmp_path).embed_text(["rain"]), load(home).embed_text(["rain"])
    )
