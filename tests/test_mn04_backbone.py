"""mn04 with MiniLM as one backbone, on real recordings."""

import numpy as np
import pytest

from driftscore import build_bank, compile_head, load_backbone
from driftscore.backbones import embed_recording

from .conftest import noise_clip

pytest.importorskip("onnx", reason="ONNX IS NOT INSTALLED")


@pytest.fixture(scope="module")
def mn04(shared):
    from driftscore.backbones import minilm
    from driftscore.errors import DriftscoreError

    try:
        minilm.find_weights()
    except DriftscoreError as error:
        pytest.skip(f"NOT RUN: {error}")
    return load_backbone("mn04", weights=shared / "models" / "mn04")


@pytest.mark.parametrize("seconds", [0.3, 5.0, 25.0])
def test_a_clip_embeds_the_same_alone_and_in_a_batch(mn04, seconds):
    clip, other = noise_clip(seconds, rate=44_100), noise_clip(1.0, seed=1)
    alone = mn04.embed_audio([clip])[0]
    np.testing.assert_array_equal(mn04.embed_audio([other, clip])[1], alone)
    assert np.linalg.norm(alone) == pytest.approx(1, abs=1e-6)


def test_a_real_dog_is_a_dog(mn04, shared):
    labels = ["dog", "church_bells", "rain", "keyboard typing"]
    head = compile_head(build_bank(labels, mn04, pack="generic5"), "das")
    for name in labels[:3]:
        files = sorted((shared / "audio" / "events" / name).glob("*.ogg"))
        scores = head.scores(np.stack([embed_recording(file, mn04) for file in files]))
        right = np.mean(scores.argmax(axis=1) == labels.index(name))
        assert right >= 0.75, name


def test_the_weights_are_named_in_the_fingerprint(mn04):
    assert mn04.tagger.fingerprint in mn04.fingerprint
    assert mn04.encoder.fingerprint in mn04.fingerprint
    assert mn04.space.digest in mn04.fingerprint
