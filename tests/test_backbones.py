"""What every backbone has in common: one protocol, pickling, cheap families found by name."""

import copy
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from driftscore import Backbone, errors, load_backbone
from driftscore.backbones import backbone_names
from driftscore.backbones.mini import HOME
from driftscore.backbones.mn04 import minilm
from driftscore.backbones.onnx.sessions import OnnxSession, open_session
from driftscore.errors import (
    DriftscoreError,
    MismatchError,
    MissingExtraError,
    install_command,
)

from .conftest import PROJECT, noise_clip

TEXTS = ["dog bark", "the sound of rain", "siren"]
MODELS = ["fake", "stored", "mini", "mn04", "clap-torch", "clap-onnx",
          "published", "published:quantized", "pe_audio", "mteb"]  # fmt: skip


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    name: str = request.param
    if name == "stored":
        path = tmp_path_factory.mktemp("stored") / "texts.npz"
        rows = load_backbone("fake").embed_text(TEXTS)
        np.savez(path, texts=TEXTS, text_embeddings=rows, model="my-clap")
        return load_backbone(path)
    if name == "mn04":
        return _mn04(request.getfixturevalue("shared"), tmp_path_factory)
    if name.startswith("clap"):
        return _clap(name.partition("-")[2], tmp_path_factory)
    if name.startswith("published"):
        return _published(name, tmp_path_factory.mktemp("published") / "clap")
    if name == "mteb":
        pytest.importorskip("mteb", reason="MTEB IS NOT INSTALLED")
        from .small_mteb import register

        return load_backbone(f"mteb:{register()}")
    if name == "pe_audio":
        return _pe_audio(tmp_path_factory.mktemp("pe_audio"))
    return load_backbone(name)


def _published(name: str, home: Path) -> Backbone:
    pytest.importorskip("onnx", reason="ONNX IS NOT INSTALLED")
    from .small_onnx_clap import save_export

    save_export(home, variants=("", "_quantized"))
    return load_backbone(name.replace("published", str(home)))


def _pe_audio(home: Path) -> Backbone:
    transformers = pytest.importorskip("transformers", reason="TRANSFORMERS IS NOT INSTALLED")
    if not hasattr(transformers, "PeAudioModel"):
        pytest.skip("TRANSFORMERS HAS NO PeAudioModel: version 5 does")
    from .small_pe_audio import save_pe_audio

    return load_backbone(save_pe_audio(home))


def _mn04(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    pytest.importorskip("onnx", reason="ONNX IS NOT INSTALLED")
    try:
        minilm.find_weights()
    except DriftscoreError as error:
        pytest.skip(f"NOT RUN: {error}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTSCORE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return load_backbone("mn04", weights=shared / "models" / "mn04")


def _clap(runtime: str, tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    for module in ("torch", "transformers", "onnx"):
        pytest.importorskip(module, reason=f"{module.upper()} IS NOT INSTALLED")
    from .small_clap import save_clap

    home = save_clap(tmp_path_factory.mktemp("clap"), fused=False)
    if runtime == "torch":
        return load_backbone(home, runtime="torch")
    from driftscore.backbones.clap.export import export

    made = export(str(home), tmp_path_factory.mktemp("export") / "out")
    return load_backbone(made.home, runtime=runtime)


def _embed(model: Backbone) -> list[bytes]:
    """Return the bits of embeddings of texts and, if the model can, of clips."""
    found = [model.embed_text(TEXTS).tobytes()]
    if model.caches_text:  # every model but stored embeddings
        found.append(model.embed_audio([noise_clip(0.5), noise_clip(12.0, seed=1)]).tobytes())
    return found


def test_a_backbone_subclasses_the_protocol(model: Backbone) -> None:
    assert Backbone in type(model).__mro__
    assert model.name
    assert model.fingerprint
    assert model.cache_key.startswith(model.fingerprint)
    assert model.runtime
    assert model.parallel >= 1
    assert model.logit_scale > 0


def test_a_pickled_model_gives_the_same_bits_before_and_after_its_first_use(
    model: Backbone,
) -> None:
    unused: Backbone = pickle.loads(pickle.dumps(model))
    expected = _embed(model)
    used: Backbone = pickle.loads(pickle.dumps(model))
    for again in (unused, used):
        assert again.fingerprint == model.fingerprint
        assert again.cache_key == model.cache_key
        assert _embed(again) == expected


def test_a_deep_copy_gives_the_same_bits(model: Backbone) -> None:
    expected = _embed(model)
    assert _embed(copy.deepcopy(model)) == expected


def test_a_pickled_clap_notices_that_its_checkpoint_has_changed(tmp_path: Path) -> None:
    for module in ("torch", "transformers"):
        pytest.importorskip(module, reason=f"{module.upper()} IS NOT INSTALLED")
    from .small_clap import save_clap

    home = save_clap(tmp_path / "clap", fused=False)
    pickled = pickle.dumps(load_backbone(home, runtime="torch"))
    settings = home / "preprocessor_config.json"
    settings.write_text(settings.read_text().replace('"frequency_min": 50', '"frequency_min": 60'))
    with pytest.raises(MismatchError, match="has changed since the model was loaded"):
        pickle.loads(pickled)


def test_the_features_and_encode_of_a_window_give_the_embedding_of_a_clip(
    model: Backbone,
) -> None:
    if not model.caches_text:
        pytest.skip("stored embeddings have no audio encoder")
    clip = noise_clip(1.0, rate=model.rate)
    row = model.encode(model.features(clip.samples))
    np.testing.assert_array_equal(model.embed_audio([clip])[0], row)


def test_a_pickled_session_holds_only_its_graph() -> None:
    opening = partial(open_session, (HOME / "pool.onnx").read_bytes())
    session = OnnxSession(opening)
    session.open()
    again = pickle.loads(pickle.dumps(session))
    assert len(pickle.dumps(again)) < len(opening.args[0]) + 200
    inputs = {"features": np.ones((1, 384, 9), np.float32)}
    np.testing.assert_array_equal(again.run("embedding", inputs), session.run("embedding", inputs))


def test_the_families_are_found_and_shared_parts_are_not_families() -> None:
    families = set(backbone_names())
    assert {"clap", "fake", "mini", "mn04", "mteb", "pe_audio", "stored"} <= families
    assert not {"hub", "onnx", "protocol"} & families


def test_the_fake_model_does_not_claim_another_runtime(fake: Backbone) -> None:
    assert fake.runtime.startswith("numpy")
    assert "onnx" not in fake.runtime


def test_listing_the_families_imports_no_heavy_library() -> None:
    heavy = [
        "onnxruntime",
        "onnx",
        "torch",
        "transformers",
        "tokenizers",
        "urllib3",
        "mteb",
        "huggingface_hub",
    ]
    code = (
        "import sys; from driftscore.backbones import backbone_names; backbone_names(); "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_extra_can_be_pickled_with_its_message() -> None:
    for error in (MissingExtraError("X", "clap"), MissingExtraError("X", command="pip install y")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is MissingExtraError
        assert str(again) == str(error)
    assert str(error) == "X needs an optional part: pip install y"


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        (None, "driftscore"),
        ('{"url": "https://example.org/driftscore.git", "vcs_info": {}}', "driftscore"),
        ('{"url": "file:///home/me/my%20code/driftscore", "dir_info": {}}',
         "/home/me/my code/driftscore"),
    ],
)  # fmt: skip
def test_the_line_that_adds_an_extra_names_what_was_installed(
    origin: str | None, source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert install_command("clap") == f"pip install '{PROJECT}[clap]'", "in a checkout"

    class Installed:
        def read_text(self, name: str) -> str | None:
            return origin if name == "direct_url.json" else None

    monkeypatch.setattr(errors, "__file__", str(tmp_path / "a" / "driftscore" / "errors.py"))
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed())
    assert install_command("clap") == f"pip install '{source}[clap]'"


def test_rows_are_unit_and_independent_of_their_neighbours(model: Backbone) -> None:
    together = model.embed_text(TEXTS)
    assert together.dtype == np.float32
    assert together.shape == (len(TEXTS), model.dim)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for number, text in enumerate(TEXTS):
        np.testing.assert_array_equal(model.embed_text([text])[0], together[number])
    if not model.caches_text:
        return  # stored embeddings have no audio encoder
    clips = [noise_clip(0.4), noise_clip(model.seconds * 2.3, seed=1), noise_clip(1.0, rate=44_100)]
    rows = model.embed_audio(clips)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(model.embed_audio(clips[::-1])[::-1], rows)
