"""The model that comes with the package: complete, small, deterministic, good on real sounds."""

import csv
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from driftscore import Backbone, Classifier, build_bank, compile_head, load_backbone
from driftscore.audio.recordings import Audio, read
from driftscore.backbones.mini import HOME, load
from driftscore.errors import FormatError, UsageError

from .conftest import noise_clip

CORRECT_EVENTS = 295
"""Of the 400 shared events, those that get the right one of 50 labels with cosine: 73.8 %, as the
model card says. The figure belongs to the weights; change it together with them."""


@pytest.fixture(scope="module")
def mini() -> Backbone:
    return load_backbone("mini")


def test_the_model_is_at_most_fifteen_megabytes() -> None:
    assert sum(file.stat().st_size for file in HOME.iterdir()) <= 15_000_000


def test_rows_are_unit_float32_of_the_models_width(mini: Backbone) -> None:
    rows = (mini.embed_text(["rain"]), mini.embed_audio([noise_clip(0.2), noise_clip(14.0)]))
    for found in rows:
        assert found.dtype == np.float32
        assert found.shape[1] == mini.dim
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("seconds", [0.05, 1.0, 5.0, 10.0, 25.0])
def test_a_clip_embeds_the_same_alone_in_a_batch_in_another_order_and_again(
    mini: Backbone, seconds: float
) -> None:
    clip, others = noise_clip(seconds, rate=44_100), [noise_clip(1.0, seed=s) for s in (1, 2, 3)]
    alone = mini.embed_audio([clip])[0]
    np.testing.assert_array_equal(mini.embed_audio([clip, *others])[0], alone)
    np.testing.assert_array_equal(mini.embed_audio([*others, clip])[-1], alone)
    np.testing.assert_array_equal(mini.embed_audio([clip])[0], alone)


def test_less_than_a_second_is_repeated_up_to_a_second(mini: Backbone) -> None:
    short = noise_clip(0.3, rate=32_000)
    second = Audio(np.resize(short.samples, short.rate), short.rate)
    np.testing.assert_array_equal(*mini.embed_audio([short, second]))
    assert not np.array_equal(*mini.embed_audio([noise_clip(1.2), noise_clip(1.3)]))


def test_a_text_embeds_the_same_alone_and_in_a_batch(mini: Backbone) -> None:
    texts = [f"{sound} with {noise}" for sound in ("dog", "sea waves") for noise in ("hum", "rain")]
    together = mini.embed_text(texts)
    for row, text in zip(together, texts, strict=True):
        np.testing.assert_array_equal(mini.embed_text([text])[0], row)


@pytest.mark.parametrize("label", ["собака", "犬", "كلب"])
def test_a_word_without_a_known_piece_gets_a_clear_message(mini: Backbone, label: str) -> None:
    with pytest.raises(UsageError, match=r"does not know any piece of .* in English"):
        Classifier(["siren", label], backbone=mini).fit()


def test_a_pickled_model_needs_none_of_its_files(tmp_path: Path, mini: Backbone) -> None:
    """A worker of a cluster may have the package elsewhere."""
    home = shutil.copytree(HOME, tmp_path / "mini")
    pickled = pickle.dumps(load(home))
    shutil.rmtree(home)
    copied = pickle.loads(pickled)
    assert copied.fingerprint == mini.fingerprint
    np.testing.assert_array_equal(copied.embed_text(["rain"]), mini.embed_text(["rain"]))


def use(home: Path) -> None:
    model = load(home)
    model.embed_text(["rain"])
    model.embed_audio([noise_clip(1.0)])


@pytest.mark.parametrize("name", ["audio.onnx", "pool.onnx", "text.onnx", "tokenizer.json"])
@pytest.mark.parametrize("harm", ["edited", "truncated", "missing"])
def test_a_damaged_model_is_refused_by_its_checksum(tmp_path: Path, name: str, harm: str) -> None:
    home = shutil.copytree(HOME, tmp_path / "mini")
    content = bytearray((home / name).read_bytes())
    if harm == "missing":
        (home / name).unlink()
    else:
        content[len(content) // 2] ^= 1
        (home / name).write_bytes(content if harm == "edited" else content[:-100])
    with pytest.raises(FormatError, match=r"is damaged or edited|is incomplete"):
        use(home)


def test_it_runs_without_torch_transformers_or_onnx() -> None:
    code = (
        "import sys; sys.modules.update(torch=None, transformers=None, onnx=None, scipy=None)\n"
        "import numpy as np, driftscore\n"
        "classifier = driftscore.Classifier(['siren', 'rain'])\n"
        "print(classifier.predict([(np.random.default_rng(0).normal(size=32000), 32000)])[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() in ("siren", "rain"), done.stderr


def test_real_recordings_are_labelled_as_the_model_card_says(mini: Backbone, shared: Path) -> None:
    with open(shared / "audio" / "manifest.csv", encoding="utf-8", newline="") as file:
        events = [row for row in csv.DictReader(file) if row["split"] == "events"]
    labels = sorted({row["label"] for row in events})
    clips = (read(shared / "audio" / row["file"]) for row in events)
    rows = np.concatenate([mini.embed_audio([clip]) for clip in clips])
    scores = compile_head(build_bank(labels, mini), "cosine").scores(rows)
    truth = np.array([labels.index(row["label"]) for row in events])
    assert (len(labels), len(events)) == (50, 400)
    assert int((scores.argmax(axis=1) == truth).sum()) == CORRECT_EVENTS
