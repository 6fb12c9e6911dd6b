"""Whether audio holds speech: asked before a clip is written, where people must not be recorded.

Each window of a clip is scored for several words of speech, in units of their spread on other
sounds. If one word reaches the threshold in one window, no audio of the clip is written. Windows
are short and overlap, and the last one ends with the clip, so that all of it is looked at. A model
without a calibration has no such unit: then every clip counts as speech.
"""

import numpy as np

from driftscore.audio.recordings import Audio
from driftscore.classifier import Classifier

WORDS = ("speech", "a person talking", "conversation", "a child speaking", "a man speaking",
         "a woman speaking", "shouting", "whispering", "a voice on the radio")  # fmt: skip
THRESHOLD = 1.1
"""The score from which a word counts, chosen by `python -m training.speech_guard`."""
WINDOW_S, HOP_S = 1.0, 0.5


class SpeechGuard:
    """Looks for speech in clips, with the model that finds the events."""

    def __init__(self, classifier: Classifier) -> None:
        params = {**classifier.get_params(), "labels": WORDS, "head": None, "threshold": THRESHOLD}
        params["backbone"] = getattr(classifier, "embedder_", classifier.backbone)
        self._words = Classifier(**params).fit()  # type: ignore[arg-type]

    def speech(self, clip: Audio) -> str:
        """Return why a clip must not be written; empty if no speech was found in it."""
        if self._words.calibration_ is None:
            return "speech cannot be ruled out: the model has no calibration"
        if not clip.samples.any():
            return ""
        highest = self.highest(clip)
        return f"speech ({highest:.1f} sd)" if highest >= THRESHOLD else ""

    def highest(self, clip: Audio) -> float:
        """Return the highest score of speech in any window of a clip."""
        last = Audio(clip.samples[-round(WINDOW_S * clip.rate) :], clip.rate)
        rows = [
            row
            for part in (clip, last)
            if part.samples.any()
            for _, _, row in self._words.embedder_.slide(part, window_s=WINDOW_S, hop_s=HOP_S)
        ]
        return float(self._words.head_.scores(np.stack(rows)).max()) if rows else float("-inf")
