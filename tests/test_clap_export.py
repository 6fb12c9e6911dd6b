"""CLAP exported to ONNX, against transformers: the same embeddings, then without torch."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from driftscore import Audio, Classifier, load_backbone
from driftscore.backbones.clap import exported, load
from driftscore.backbones.clap.exported import Export, Probe
from driftscore.errors import (
    FormatError,
    MismatchError,
    UsageError,
    WriteError,
)

from .conftest import Lazily, noise_clip
from .small_clap import TEXTS, extractor, save_clap

torch = Lazily("torch")
transformers = Lazily("transformers")
onnx = Lazily("onnx")

from driftscore.backbones.clap.export import export  # noqa: E402


@pytest.fixture(scope="module", params=["unfused", "fused"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random CLAP with shifted windows in every stage that has room for them."""
    home = tmp_path_factory.mktemp(request.param)
    return save_clap(home, fused=request.param == "fused", depths=(2, 2, 3, 2))


@pytest.fixture(scope="module")
def made(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Export:
    return export(str(checkpoint), tmp_path_factory.mktemp("export") / "out")


@pytest.fixture
def cached(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Export:
    """The export in the cache."""
    monkeypatch.setenv("DRIFTSCORE_CACHE", str(tmp_path / "cache"))
    return export(str(checkpoint))


def clips() -> list[Audio]:
    swell = noise_clip(7.0, rate=48_000)
    faint = swell.samples * np.linspace(0, 1e-3, len(swell.samples), dtype="f4")
    others = [noise_clip(10.0, rate=48_000), noise_clip(0.4, rate=48_000)]
    return [*others, swell, Audio(faint, 48_000)]


def test_the_exported_towers_give_the_embeddings_of_transformers(
    checkpoint: Path, made: Export
) -> None:
    model = load(made.home)
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
    # Rows that were all alike would agree whatever the graph computes.
    assert (found @ found.T).min() < 0.9
    assert (expected @ expected.T).min() < 0.9


def test_a_text_has_the_same_bits_in_any_batch_and_position(made: Export) -> None:
    model = load(made.home)
    texts = [f"{text} {i}" for i in range(30) for text in TEXTS]
    together = model.embed_text(texts)
    np.testing.assert_array_equal(model.embed_text(texts[::-1])[::-1], together)
    for row in (0, 17, 119):
        np.testing.assert_array_equal(model.embed_text([texts[row]])[0], together[row])


def test_a_window_has_the_same_bits_from_any_thread(made: Export) -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = load(made.home)
    mels = [model.features(clip.samples) for clip in clips()]
    alone = [model.encode(mel) for mel in mels]
    with ThreadPoolExecutor(4) as pool:
        for expected, found in zip(alone * 4, pool.map(model.encode, mels * 4), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_after_the_export_auto_needs_no_torch(
    checkpoint: Path, cached: Export, wav: Callable[..., str]
) -> None:
    clip = wav("clip.wav")
    program = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from driftscore import Classifier, load_backbone\n"
        "model = load_backbone(sys.argv[1])\n"
        "classifier = Classifier(['dog', 'rain'], backbone=model, rule='cosine').fit()\n"
        "print(model.towers.runtime_name, classifier.scores([sys.argv[2]]).tolist())\n"
    )
    run = [sys.executable, "-c", program, str(checkpoint), str(clip)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runtime, _, scores = done.stdout.partition(" ")
    assert runtime == "onnx"
    classifier = Classifier(
        ["dog", "rain"], backbone=load(checkpoint, runtime="torch"), rule="cosine"
    ).fit()
    np.testing.assert_allclose(json.loads(scores), classifier.scores([clip]), atol=1e-5)


def test_auto_says_which_runtime_it_chose_and_why(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTSCORE_CACHE", str(tmp_path))
    before = load(checkpoint)
    assert before.towers.runtime_name == "torch"
    assert "driftscore export" in before.runtime
    export(str(checkpoint))
    after = load(checkpoint)
    assert after.towers.runtime_name == "onnx"
    assert "export in" in after.runtime


def test_runtimes_share_a_fingerprint_but_not_a_cache(checkpoint: Path, cached: Export) -> None:
    there = load(checkpoint, runtime="torch")
    here = load(checkpoint, runtime="onnx")
    assert here.fingerprint == there.fingerprint
    assert here.cache_key == f"{here.fingerprint}+onnx"
    assert there.cache_key == f"{here.fingerprint}+torch"


def test_another_checkpoint_does_not_use_the_export(
    checkpoint: Path, cached: Export, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(checkpoint, other)
    assert exported.find(str(other)) is not None  # the same content
    settings = other / "preprocessor_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"frequency_min": 60}))
    assert exported.find(str(other)) is None
    with pytest.raises(UsageError, match="driftscore export"):
        load(other, runtime="onnx")


def test_a_folder_that_lost_its_checkpoint_has_the_export_made_under_its_name(
    cached: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exported, "local_folder", lambda name: tmp_path)
    export_of_folder = exported.find(cached.manifest.model.name)
    assert export_of_folder is not None
    assert export_of_folder.home == cached.home


def test_an_int8_text_has_the_same_bits_alone_and_in_any_list(
    checkpoint: Path, tmp_path: Path
) -> None:
    model = load(export(str(checkpoint), tmp_path / "int8", int8=True).home, runtime="onnx")
    texts = [f"{text} {i}" for i in range(4) for text in TEXTS]
    together = model.embed_text(texts)
    np.testing.assert_array_equal(model.embed_text(texts[::-1])[::-1], together)
    np.testing.assert_array_equal(model.embed_text(texts[5:6])[0], together[5])


def test_int8_is_a_separate_model_and_its_difference_is_recorded(
    checkpoint: Path, made: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTSCORE_CACHE", str(tmp_path))
    small = export(str(checkpoint), int8=True, clips=[noise_clip(3.0, rate=48_000)])
    assert small.manifest.precision == "int8"
    assert small.manifest.model.fingerprint != made.manifest.model.fingerprint
    assert 0.8 < small.manifest.agreement["audio_cosine"] < 1
    assert load(checkpoint).towers.runtime_name == "torch", "int8 was used without being named"
    with monkeypatch.context() as without_checkpoint:
        without_checkpoint.setattr(exported, "local_folder", lambda name: None)
        assert exported.find(str(checkpoint)) is None, "int8 was used for the name of the model"
    model = load(small.home)
    cosines = (model.embed_text(TEXTS) * load(made.home).embed_text(TEXTS)).sum(axis=1)
    assert cosines.min() > 0.8


def test_a_runtime_that_disagrees_with_torch_is_refused(made: Export, tmp_path: Path) -> None:
    home = tmp_path / "wrong"
    shutil.copytree(made.home, home)
    probe = Probe.load(home)
    replace(probe, audio=-probe.audio).save(home)
    model = load(home, runtime="onnx")
    with pytest.raises(MismatchError, match="differ from torch's"):
        model.embed_audio(clips()[:1])


def test_a_damaged_export_is_refused(made: Export, tmp_path: Path) -> None:
    home = tmp_path / "bad"
    shutil.copytree(made.home, home)
    with open(home / "audio.onnx", "r+b") as file:
        file.seek(1000)
        file.write(b"\0\1\2\3")
    with pytest.raises(FormatError, match=r"audio.onnx is damaged"):
        load_backbone(home).embed_audio(clips()[:1])
    (home / "probe.npz").unlink()
    with pytest.raises(FormatError, match=r"no probe of an export at"):
        load_backbone(home).embed_text(["dog"])
    (home / "manifest.json").write_text("{}")
    with pytest.raises(FormatError, match=r"manifest\.json: kind is missing"):
        load_backbone(home)


def test_a_folder_with_other_files_is_not_overwritten(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(UsageError, match="not empty"):
        export(str(checkpoint), tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "keep"


def test_an_export_that_cannot_be_written_is_a_write_error(
    checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(WriteError, match="Cannot write"):
        export(str(checkpoint), tmp_path / "file" / "out")


def test_a_checkpoint_that_the_graph_does_not_support_is_refused() -> None:
    from driftscore.backbones.clap.graphs import AudioShape

    config = transformers.ClapConfig().to_dict()["audio_config"]
    AudioShape.of(config, frames=1001)
    for change in ({"patch_stride": [2, 2]}, {"hidden_act": "relu"}, {"spec_size": 250}):
        with pytest.raises(FormatError, match="--runtime torch"):
            AudioShape.of(config | change, frames=1001)


@pytest.mark.parametrize("name", ["mini", "nowhere/at/all"])
def test_only_claps_are_exported(name: str) -> None:
    with pytest.raises(UsageError, match="not a CLAP checkpoint"):
        export(name)


def test_an_unknown_runtime_is_refused_with_the_nearest_name(checkpoint: Path) -> None:
    with pytest.raises(UsageError, match="No runtime called 'onyx'; did you mean 'onnx'"):
        load_backbone(checkpoint, runtime="onyx")
