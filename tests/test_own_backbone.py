"""A minimal model of one's own: seven members, in Classifier, banks, events, calibration, lab."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from driftscore import Audio, Classifier, Detection, Embedder, MismatchError, UsageError, build_bank
from driftscore.backbones import MINIMAL, check_backbone
from driftscore.backbones.vectors import Matrix, unit
from driftscore.calibrate import make_calibration
from driftscore.lab.runs.runner import run
from driftscore.lab.runs.store import Store

from .conftest import LABELS, noise_clip
from .lab.small_lab import build, quick, small_grid


class Minimal:
    """Eight bands of a spectrum against the letters of a text; nothing but the seven members."""

    name, fingerprint = "minimal", "minimal/1"
    dim, rate, seconds = 8, 16_000, 1.0

    def embed_audio(self, clips: Sequence[Audio]) -> Matrix:
        bands = [np.array_split(np.abs(np.fft.rfft(clip.samples)), 8) for clip in clips]
        return unit(np.array([[band.mean() for band in one] for one in bands], np.float32))

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        letters = [[text.count(letter) for letter in "abdeiors"] for text in texts]
        return unit(np.array(letters, np.float32) + 0.1)


def test_a_minimal_model_has_nothing_else() -> None:
    assert {name for name in dir(Minimal) if not name.startswith("_")} == set(MINIMAL)


def test_a_minimal_model_is_enough_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Minimal()
    clips = [noise_clip(1.5, seed=seed) for seed in range(30)]
    embedder = Embedder(model, text_cache=False)
    assert build_bank(LABELS, model).prototypes.shape == (3, 8)
    classifier = Classifier(LABELS, backbone=model)
    assert classifier.scores(clips).shape == (30, 3)
    calibration, problems = make_calibration(embedder, clips, most=25)
    assert not problems
    calibrated = Classifier(LABELS, backbone=embedder, calibration=calibration)
    assert calibrated.fit().head_.unit == "cosine"
    detector = calibrated.detector(settings=Detection(false_alarms=1000))
    assert detector.head.unit == "sd"
    assert all(event.label in LABELS for event in detector.events(noise_clip(20.0)))
    quick(monkeypatch)
    home, backbone = build(tmp_path / "home"), f"{__name__}:Minimal"
    grid = small_grid(home, rules=("cosine", "das"), snrs='["clean", 0]', backbone=backbone)
    with Store(tmp_path / "store") as store:
        run(grid, store, workers=1)
        rows = list(store.rows())
    assert rows
    assert not any(row.failed for row in rows)


def test_what_a_model_lacks_or_returns_wrongly_is_said() -> None:
    class NoText:
        name, fingerprint, dim, rate, seconds = "x", "x/1", 8, 16_000, 1.0
        embed_audio = Minimal.embed_audio

    with pytest.raises(UsageError, match="it lacks embed_text; a model has name, fingerprint"):
        check_backbone(NoText())

    class Long(Minimal):
        def embed_text(self, texts: Sequence[str]) -> Matrix:
            return 2 * super().embed_text(texts)

    with pytest.raises(UsageError, match="embed_text of minimal must return rows of length one"):
        build_bank(LABELS, Long())

    class Wide(Minimal):
        dim = 9

    with pytest.raises(MismatchError, match=r"embed_text of minimal returned shape \(3, 8\)"):
        build_bank(LABELS, Wide(), drifts=False)
