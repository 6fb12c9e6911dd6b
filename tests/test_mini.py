"""The embedded model as it ships: whole, small, deterministic, and good at real sounds."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from driftscore import Classifier, build_bank, compile_head, load_backbone
from driftscore.backbones import embed_recording
from driftscore.backbones.mini import HOME, load
from driftscore.errors import FormatError, UsageError

from .conftest import noise_clip


@pytest.fixture(scope="module")
def mini():
    return load_backbone("mini")


def test_the_model_is_at_most_fifteen_megabytes():
    assert sum(file.stat().st_size for file in HOME.iterdir()) <= 15_000_000


def test_rows_are_unit_float32_of_the_models_width(mini):
    rows = (mini.embed_text(["rain"]), mini.embed_audio([noise_clip(0.2), noise_clip(14.0)]))
    for found in rows:
        assert found.dtype == np.float32
        assert found.shape[1] == mini.dim
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("seconds", [0.05, 1.0, 5.0, 10.0, 25.0])
def test_a_clip_embeds_the_same_alone_in_a_batch_in_another_order_and_again(mini, seconds):
    clip, others = noise_clip(seconds, rate=44_100), [noise_clip(1.0, seed=s) for s in (1, 2, 3)]
    alone = mini.embed_audio([clip])[0]
    np.testing.assert_array_equal(mini.embed_audio([clip, *others])[0], alone)
    np.testing.assert_array_equal(mini.embed_audio([*others, clip])[-1], alone)
    np.testing.assert_array_equal(embed_recording(clip, mini), alone)


def test_a_text_embeds_the_same_alone_and_in_a_batch(mini):
    texts = [f"{sound} with {noise}" for sound in ("dog", "sea waves") for noise in ("hum", "rain")]
    together = mini.embed_text(texts)
    for row, text in zip(together, texts, strict=True):
        np.testing.assert_array_equal(mini.embed_text([text])[0], row)


@pytest.mark.parametrize("label", ["собака", "犬", "dog, كلب"])
def test_a_word_without_a_known_piece_gets_a_clear_message(mini, label):
    with pytest.raises(UsageError, match=r"knows no piece of .* in English"):
        Classifier(["siren", label.split(", ")[-1]], backbone=mini).fit()


@pytest.mark.parametrize("name", ["audio.onnx", "text.onnx", "tokenizer.json"])
@pytest.mark.parametrize("harm", ["edited", "truncated", "missing"])
def test_a_damaged_model_is_refused_by_its_checksum_in_words(tmp_path, name, harm):
    home = shutil.copytree(HOME, tmp_path / "mini")
    content = bytearray((home / name).read_bytes())
    if harm == "missing":
        (home / name).unlink()
    else:
        content[len(content) // 2] ^= 1
        (home / name).write_bytes(content if harm == "edited" else content[:-100])
    with pytest.raises(FormatError, match=r"is damaged or edited|is not whole"):
        load(home)


def test_it_runs_without_torch_transformers_or_onnx():
    code = (
        "import sys; sys.modules.update(torch=None, transformers=None, onnx=None, scipy=None)\n"
        "import numpy as np, driftscore\n"
        "ears = driftscore.Classifier(['siren', 'rain'])\n"
        "print(ears.predict([(np.random.default_rng(0).normal(size=32000), 32000)])[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() in ("siren", "rain"), done.stderr


def test_it_hears_the_demos_own_sounds():
    from .conftest import PROJECT

    sounds = sorted((PROJECT / "demo" / "sounds").glob("*.flac"))
    assert sum(file.stat().st_size for file in sounds) < 2_000_000
    named = [file for file in sounds if file.stem != "street"]
    labels = [file.stem for file in named]
    found = Classifier([*labels, "dog bark", "car engine", "birds singing"]).predict(named)
    assert list(found) == labels


def test_real_recordings_are_labelled_as_well_as_the_model_card_says(mini, shared):
    """The bar is 65 %; the shipped weights always give the same figure."""
    from driftscore.lab.datasets import shared_events

    home = shared / "audio"
    labels, clips = shared_events.labels(home), shared_events.clips(home)
    head = compile_head(build_bank(labels, mini), "cosine")
    scores = head.scores(np.stack([embed_recording(clip.path, mini) for clip in clips]))
    truth = [labels.index(clip.labels[0]) for clip in clips]
    assert np.mean(scores.argmax(axis=1) == truth) >= 0.65
