"""mn04 with MiniLM as one backbone, on real recordings."""

import sys
from pathlib import Path

import numpy as np
import pytest

from driftscore import build_bank, compile_head
from driftscore.audio.recordings import read
from driftscore.backbones.mn04 import Mn04, load, minilm, tagger
from driftscore.errors import DriftscoreError, MissingExtraError
from driftscore.text.presets import PromptSettings

from .conftest import noise_clip

pytest.importorskip("onnx", reason="ONNX IS NOT INSTALLED")


@pytest.fixture(scope="module")
def mn04(shared: Path) -> Mn04:
    try:
        minilm.find_weights()
    except DriftscoreError as error:
        pytest.skip(f"NOT RUN: {error}")
    return load(weights=shared / "models" / "mn04")


@pytest.mark.parametrize("seconds", [0.3, 5.0, 25.0])
def test_a_clip_embeds_the_same_alone_and_in_a_batch(mn04: Mn04, seconds: float) -> None:
    clip, other = noise_clip(seconds, rate=44_100), noise_clip(1.0, seed=1)
    alone = mn04.embed_audio([clip])[0]
    np.testing.assert_array_equal(mn04.embed_audio([other, clip])[1], alone)
    assert np.linalg.norm(alone) == pytest.approx(1, abs=1e-6)


def test_real_recordings_get_the_right_label(mn04: Mn04, shared: Path) -> None:
    labels = ["dog", "church_bells", "rain", "keyboard typing"]
    head = compile_head(build_bank(labels, mn04, settings=PromptSettings(pack="generic5")), "das")
    for name in labels[:3]:
        files = sorted((shared / "audio" / "events" / name).glob("*.ogg"))
        scores = head.scores(mn04.embed_audio([read(file) for file in files]))
        right = np.mean(scores.argmax(axis=1) == labels.index(name))
        assert right >= 0.75, name


def test_the_fingerprint_names_all_parts(mn04: Mn04) -> None:
    assert mn04.tagger.fingerprint in mn04.fingerprint
    assert mn04.encoder.fingerprint in mn04.fingerprint
    assert mn04.space.digest in mn04.fingerprint


def test_without_onnx_nothing_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_download(*_: object) -> Path:
        raise AssertionError("the weights are looked for")

    monkeypatch.setenv("DRIFTSCORE_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setattr(tagger, "find_weights", no_download)
    with pytest.raises(MissingExtraError, match="mn04"):
        tagger.load_tagger()
