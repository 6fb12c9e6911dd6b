"""CLAPs exported to ONNX by others: small graphs in the same form, and the genuine front end."""

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from driftscore import Audio, Classifier, load_backbone
from driftscore.backbones.clap import Clap, accepts, load
from driftscore.errors import FormatError, UsageError
from driftscore.text.presets import PromptSettings

from .conftest import noise_clip
from .small_onnx_clap import (
    DIM,
    EXTRACTOR,
    audio_graph,
    audio_rows,
    save_export,
    text_rows,
    weights,
)

onnx: Any = pytest.importorskip("onnx", reason="ONNX IS NOT INSTALLED")

TEXTS = ["a dog barking", "rain", "the sound of rain on a roof", "music"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    variants = ("", "_quantized", "_fp16")
    return save_export(tmp_path_factory.mktemp("export") / "clap", variants=variants)


@pytest.fixture(scope="module")
def clap(home: Path) -> Clap:
    return load(home)


def unit(row: Any) -> Any:
    return row / np.linalg.norm(row)


def test_audio_embeddings_equal_the_graph_computed_in_numpy(clap: Clap) -> None:
    for clip in (noise_clip(10.0, rate=48_000), noise_clip(1.3, rate=48_000, seed=3)):
        expected = unit(audio_rows(clap.features(clip.samples), weights()))
        np.testing.assert_allclose(clap.embed_audio([clip])[0], expected, atol=1e-5)


def test_text_embeddings_equal_the_graph_computed_in_numpy(clap: Clap) -> None:
    expected = [unit(text_rows(clap.tokenizer.encode(text).ids, weights())) for text in TEXTS]
    np.testing.assert_allclose(clap.embed_text(TEXTS), expected, atol=1e-5)


def test_a_graph_with_an_attention_mask_gives_the_same(clap: Clap, tmp_path: Path) -> None:
    masked = load(save_export(tmp_path / "masked", mask=True))
    np.testing.assert_array_equal(masked.embed_text(TEXTS), clap.embed_text(TEXTS))


def test_the_genuine_tokenizer_and_settings_give_the_genuine_ids_and_log_mel(
    shared: Path, tmp_path: Path
) -> None:
    golden = shared / "models" / "clap_htsat_unfused_golden"
    settings = json.loads((golden / "golden_params.json").read_text())
    for name in ("sampling_rate", "feature_size", "fft_window_size", "hop_length",
                 "frequency_min", "frequency_max"):  # fmt: skip
        assert EXTRACTOR[name] == settings[name]
    tokenizer = (golden / "tokenizer.json").read_text(encoding="utf-8")
    model = load(save_export(tmp_path / "clap", tokenizer=tokenizer))
    assert model.tokenizer.encode("a dog barking").ids == [0, 102, 2335, 35828, 2]
    samples, rate = soundfile.read(golden / "sample.wav", dtype="float32")
    assert rate == model.rate
    expected = np.load(golden / "golden_mel.npy").reshape(1001, 64)
    np.testing.assert_allclose(model.features(samples), expected, atol=1e-3)


def test_the_names_of_inputs_and_outputs_are_the_genuine_ones(shared: Path) -> None:
    from driftscore.backbones.clap.published import NAMES

    home = shared / "models" / "clap_htsat_unfused_golden"
    genuine = json.loads((home / "golden_onnx_io.json").read_text())
    audio = genuine["audio_input_name"], genuine["audio_output_name"]
    text = genuine["text_input_ids_name"], genuine["text_output_name"]
    assert {"audio": audio, "text": text} == NAMES


def test_a_variant_is_chosen_by_name_and_is_a_model_of_its_own(home: Path, clap: Clap) -> None:
    quantized = load(f"{home}:quantized")
    assert quantized.name.endswith(":quantized")
    assert quantized.fingerprint != clap.fingerprint
    similarity = (quantized.embed_text(TEXTS) * clap.embed_text(TEXTS)).sum(axis=1)
    assert 0.98 < similarity.min() < 0.99999
    assert "quantized" in quantized.runtime
    assert load_backbone(f"{home}:quantized").fingerprint == quantized.fingerprint


def test_a_quantized_text_has_the_same_bits_alone_and_in_any_list(home: Path) -> None:
    model = load(f"{home}:quantized")
    texts = [f"{text} {number}" for number in range(5) for text in TEXTS]
    together = model.embed_text(texts)
    np.testing.assert_array_equal(model.embed_text(texts[::-1])[::-1], together)
    np.testing.assert_array_equal(model.embed_text(texts[7:8])[0], together[7])


def test_a_float16_graph_gets_float16_and_gives_float32(home: Path, clap: Clap) -> None:
    half = load(f"{home}:fp16")
    rows = half.embed_audio([noise_clip(2.0, rate=48_000)])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, clap.embed_audio([noise_clip(2.0, rate=48_000)]), atol=0.02)


def test_a_fused_graph_gets_four_equal_views(home: Path, tmp_path: Path, clap: Clap) -> None:
    shutil.copytree(home, tmp_path / "fused")
    onnx.save(audio_graph(weights(), fused=True), tmp_path / "fused" / "onnx" / "audio_model.onnx")
    clip = noise_clip(2.0, rate=48_000)
    found = load(tmp_path / "fused").embed_audio([clip])
    np.testing.assert_allclose(found, clap.embed_audio([clip]), atol=1e-5)


def test_a_variant_that_is_absent_names_those_that_are_there(tmp_path: Path) -> None:
    home = save_export(tmp_path / "clap", variants=("_quantized",))
    with pytest.raises(UsageError, match=r"no variant fp32, but quantized; .*clap:quantized"):
        load(home)
    with pytest.raises(UsageError, match="no variant q4"):
        load(f"{home}:q4")
    assert load(f"{home}:quantized").dim == DIM


def test_an_export_needs_neither_torch_nor_transformers_nor_onnx(
    home: Path, tmp_path: Path
) -> None:
    soundfile.write(tmp_path / "a.wav", noise_clip(1.0).samples, 16_000)
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'onnx'): sys.modules[name] = None\n"
        f"from driftscore import Classifier\n"
        f"c = Classifier(['rain', 'dog'], backbone={str(home)!r})\n"
        f"print(c.predict([{str(tmp_path / 'a.wav')!r}])[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() in ("rain", "dog"), done.stderr


def test_the_fingerprint_depends_on_the_graphs_the_tokenizer_and_the_front_end(
    home: Path, clap: Clap, tmp_path: Path
) -> None:
    found = {clap.fingerprint, load(save_export(tmp_path / "other", seed=1)).fingerprint}
    for name, old, new in (
        ("preprocessor_config.json", '"frequency_min": 50', '"frequency_min": 60'),
        ("tokenizer.json", '"version"', ' "version"'),
    ):
        changed = tmp_path / name
        shutil.copytree(home, changed)
        content = (changed / name).read_text()
        assert old in content
        (changed / name).write_text(content.replace(old, new))
        found.add(load(changed).fingerprint)
    assert len(found) == 4
    assert load(home).fingerprint == clap.fingerprint


def test_a_copied_model_gives_the_same_bits(clap: Clap) -> None:
    again: Clap = pickle.loads(pickle.dumps(clap))
    np.testing.assert_array_equal(again.embed_text(TEXTS), clap.embed_text(TEXTS))


def test_it_classifies_with_das(home: Path) -> None:
    settings = PromptSettings(pack="generic5")
    classifier = Classifier(["rain", "dog"], backbone=home, rule="das", prompts=settings)
    assert classifier.predict([noise_clip(12.0)])[0] in ("rain", "dog")


def test_hub_ids_with_and_without_a_variant_are_accepted(home: Path) -> None:
    assert accepts("Xenova/clap-htsat-unfused")
    assert accepts("Xenova/clap-htsat-unfused:quantized")
    assert accepts(f"{home}:quantized")
    assert not accepts("Xenova/clap-htsat-unfused:other")


def test_weights_in_a_file_beside_the_graph_are_read(clap: Clap, tmp_path: Path) -> None:
    home = save_export(tmp_path / "clap")
    for kind in ("audio", "text"):
        graph = home / "onnx" / f"{kind}_model.onnx"
        onnx.save(
            onnx.load(graph), graph, save_as_external_data=True, size_threshold=0,
            location=f"{kind}_model.onnx_data",
        )  # fmt: skip
    model = load(home)
    np.testing.assert_array_equal(model.embed_text(TEXTS), clap.embed_text(TEXTS))
    assert model.fingerprint != clap.fingerprint
    data = home / "onnx" / "text_model.onnx_data"
    data.write_bytes(data.read_bytes()[::-1])
    assert load(home).fingerprint != model.fingerprint


@pytest.mark.parametrize("place", ["../secret", "/etc/hostname", "sub/secret", "..\\secret", "C:x"])
def test_weights_elsewhere_are_refused(tmp_path: Path, place: str) -> None:
    home = save_export(tmp_path / "clap")
    (home / "secret").write_bytes(bytes(2**16))
    graph = home / "onnx" / "text_model.onnx"
    model = onnx.load(graph)
    for constant in model.graph.initializer:
        constant.data_location = onnx.TensorProto.EXTERNAL
        constant.external_data.add(key="location", value=place)
        constant.ClearField("raw_data")
    graph.write_bytes(model.SerializeToString())
    with pytest.raises(FormatError, match="not a file beside it"):
        load(home)


def test_a_missing_file_of_weights_is_named(tmp_path: Path) -> None:
    home = save_export(tmp_path / "clap")
    graph = home / "onnx" / "text_model.onnx"
    onnx.save(onnx.load(graph), graph, save_as_external_data=True, size_threshold=0, location="w")
    (home / "onnx" / "w").unlink()
    with pytest.raises(FormatError, match="refers to cannot be read"):
        load(home)


def test_damaged_and_foreign_graphs_are_named(home: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(home, broken)
    text = broken / "onnx" / "text_model.onnx"
    text.write_bytes(text.read_bytes()[:-20])
    with pytest.raises(FormatError, match=r"text_model.onnx is not an ONNX graph"):
        load(broken)
    text.write_bytes(onnx.ModelProto(ir_version=8).SerializeToString())  # a graph of nothing
    with pytest.raises(FormatError, match=r"text_model.onnx cannot be loaded"):
        load(broken).embed_text(["rain"])
    shutil.copy(home / "onnx" / "audio_model.onnx", text)
    with pytest.raises(FormatError, match="must compute text_embeds from input_ids; it computes"):
        load(broken).embed_text(["rain"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", '{"model_type": "clap", "projection_dim": -1}', "dimension -1"),
        ("preprocessor_config.json", "{}", "padding must be"),
        ("preprocessor_config.json", json.dumps(EXTRACTOR | {"hop_length": 0}), "hop_length"),
        ("preprocessor_config.json", json.dumps(EXTRACTOR | {"fft_window_size": "a"}), "a number"),
        ("preprocessor_config.json", "[]", "must be a JSON object"),
        ("preprocessor_config.json", "[" * 100_000, "nested too deeply"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    home: Path, tmp_path: Path, name: str, content: str, message: str
) -> None:
    shutil.copytree(home, tmp_path / "clap")
    (tmp_path / "clap" / name).write_text(content)
    with pytest.raises(FormatError, match=message):
        load(tmp_path / "clap")


def test_other_runtimes_are_refused(home: Path) -> None:
    with pytest.raises(UsageError, match="runs in onnxruntime only"):
        load(home, runtime="torch")
    assert load(home, runtime="onnx").embed_audio([Audio(np.ones(9_999, np.float32), 48_000)]).any()
