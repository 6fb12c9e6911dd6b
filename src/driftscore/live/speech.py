"""Whether audio holds speech: asked before a clip is written, where people should not be recorded.

    score = highest weighted sum of the embedding of a second of the clip
            + highest mean log-odds of a voice in any half second (extra `privacy`)
            - threshold

Seconds are embedded by `mini`, whatever model finds the events; they overlap and end with the clip.
The log-odds are Silero's, of the clip without what is below the human voice and at a fixed level:
rumble and distance change neither. If the score is not negative, no audio of the clip is written.
Without the extra the embeddings decide alone, with a threshold of their own, and more clips without
speech are withheld. Weights and thresholds are fitted by `python -m training.speech_guard --fit`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import soxr

from driftscore.audio.recordings import Audio, Samples
from driftscore.classifier import Classifier
from driftscore.embedder import Embedder
from driftscore.errors import install_command
from driftscore.live import silero

FITTED = Path(__file__).with_name("speech.npz")
"""Weights of the embedding, the two thresholds, and the fingerprint of the model they are for."""
WINDOW_S, HOP_S = 1.0, 0.5
VOICE_HZ, PEAK = 120.0, 0.5
CHUNKS, MAX_ODDS = 16, 9.2
"""Chunks of 32 ms in half a second, and the log-odds to which a chunk is clipped."""


class SpeechGuard:
    """Looks for speech in clips, with `mini` and with Silero's voice activity detector."""

    def __init__(
        self,
        classifier: Classifier | None = None,
        *,
        voices: bool = True,
        notify: Callable[[str], None] = print,
    ) -> None:
        with np.load(FITTED) as fitted:
            self._weights, thresholds = fitted["weights"], fitted["thresholds"]
            model = str(fitted["model"])
        embedder = cast(Embedder | None, getattr(classifier, "embedder_", None))
        same = embedder is not None and embedder.backbone.fingerprint == model
        self._embedder = embedder if same and embedder else Embedder(text_cache=False)
        path = silero.weights_file() if voices else None
        self._voice = None if path is None else silero.Silero(path)
        if voices and path is None:
            notify(
                "Without a voice detector more clips are withheld that hold no speech: "
                + install_command("privacy")
            )
        self._threshold = float(thresholds[int(path is None)])

    def speech(self, clip: Audio) -> str:
        """Return why a clip must not be written; empty if no speech was found in it."""
        score = self.score(clip) if clip.samples.any() else -1.0
        return f"speech ({score:.1f} above)" if score >= 0 else ""

    def score(self, clip: Audio) -> float:
        """Return how much a clip resembles speech, from 0 on enough to withhold it."""
        seconds = float((self.embeddings(clip) @ self._weights).max(initial=-np.inf))
        return seconds + (voice_odds(clip, self._voice) if self._voice else 0.0) - self._threshold

    def embeddings(self, clip: Audio) -> Samples:
        """Return the embeddings of the seconds of a clip that are not silent."""
        last = Audio(clip.samples[-round(WINDOW_S * clip.rate) :], clip.rate)
        rows = [
            row
            for part in (clip, last)
            if part.samples.any()
            for _, _, row in self._embedder.slide(part, window_s=WINDOW_S, hop_s=HOP_S)
        ]
        return np.array(rows, np.float32).reshape(len(rows), len(self._weights))


def voice_odds(clip: Audio, voice: silero.Silero) -> float:
    """Return the highest mean log-odds of a voice in any half second of a clip."""
    samples = without_rumble(soxr.resample(clip.samples, clip.rate, silero.RATE), silero.RATE)
    samples *= PEAK / max(float(np.abs(samples).max()), 1e-5)
    samples = np.pad(samples, (0, max(0, CHUNKS * silero.CHUNK - len(samples))))
    odds = np.clip(voice.log_odds(samples), -MAX_ODDS, MAX_ODDS)
    return float(np.convolve(odds, np.full(CHUNKS, 1 / CHUNKS), "valid").max())


def without_rumble(samples: Samples, rate: int) -> Samples:
    """Return samples with frequencies below the human voice attenuated, 24 dB per octave."""
    hertz = np.maximum(np.fft.rfftfreq(len(samples), 1 / rate), 1e-3)
    spectrum = np.fft.rfft(samples) / np.sqrt(1 + (VOICE_HZ / hertz) ** 8)
    return np.fft.irfft(spectrum, len(samples)).astype(np.float32)
