"""What the page asks of the service, answered with plain values: rankings, sweeps, events, sound.

Three rules stand side by side: cosine and DAS with their own scores, and the default of the model,
whose scores are standardised where the model has a calibration.
"""

import base64
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import soundfile

from driftscore.audio import Audio, Samples
from driftscore.embedder import Embedder
from driftscore.errors import UsageError
from driftscore.events import Detection
from driftscore.prompts import compose
from driftscore.service.heads import CompiledHead, HeadCache, HeadSpec
from driftscore.service.page_clips import ClipStore, loudest_start_s, part
from driftscore.service.page_mixing import (
    HIGHEST_DB,
    LOWEST_DB,
    fitted,
    in_noise,
    shipped_noise,
    sweep,
)
from driftscore.service.page_spectrogram import spectrogram
from driftscore.service.settings import Limits
from driftscore.vectors import Matrix

Json = dict[str, object]
OWN_NOISE = "clip:"
"""Begins the name of a noise that is a recording of the user."""
_SHOWN_PROMPTS = 4
_PEAK = 0.9  # of a sound that is played: mixtures at low SNRs would clip

RULES = (("cosine", "Cosine", "plain similarity of sound and words"),
         ("das", "DAS", "adds how noise moves the words"),
         ("default", "Default", "the best measured rule for this model"))  # fmt: skip


class Shared(Protocol):
    """The part of the service's state that the page uses."""

    @property
    def embedder(self) -> Embedder:
        """The model and its engine."""

    @property
    def heads(self) -> HeadCache:
        """Compiled heads by what they are made of."""

    @property
    def limits(self) -> Limits:
        """What one request may ask for."""


@dataclass(frozen=True)
class NoisyPart:
    """A part of a recording, and the noise that is added to it."""

    start_s: float = 0.0
    noise: str = "white"
    snr_db: float | None = None

    def __post_init__(self) -> None:
        if self.snr_db is not None and not LOWEST_DB <= self.snr_db <= HIGHEST_DB:
            raise UsageError(
                f"The SNR must lie between {LOWEST_DB:g} and {HIGHEST_DB:g} dB, got {self.snr_db:g}"
            )


class PageAnswers:
    """Answers for the page, from the service's model and heads and the page's own recordings."""

    def __init__(self, shared: Shared, clips: ClipStore | None = None) -> None:
        self.shared = shared
        self.clips = ClipStore() if clips is None else clips

    @property
    def window_s(self) -> float:
        """Seconds of the part of a recording that is ranked: one window of the model."""
        return float(self.shared.embedder.backbone.seconds)

    def add(self, audio: Audio, name: str) -> Json:
        """Keep a recording, and return its id and pictures of it and of its loudest part."""
        clip = self.clips.add(audio, name)
        start_s = loudest_start_s(audio, self.window_s)
        return {
            "id": clip.id,
            "seconds": audio.seconds,
            "start_s": start_s,
            "spectrogram": picture(part(audio, start_s, self.window_s)),
            "overview": picture(audio) if audio.seconds > self.window_s else None,
        }

    def rank(self, clip_id: str, labels: Sequence[str], mix: NoisyPart) -> Json:
        """Return the scores of a part in noise by each rule, and its spectrogram."""
        heads = self._heads(labels)
        begun = time.perf_counter()  # new words are encoded only once
        audio = self._mixed(clip_id, mix)
        row = self._embed([audio])
        scores = {name: _rounded(made.head.scores(row)[0]) for name, made in heads.items()}
        return {
            "labels": list(heads["default"].head.labels),
            "rules": scores,
            "spectrogram": picture(audio),
            "milliseconds": round(1000 * (time.perf_counter() - begun), 1),
        }

    def sweep(self, clip_id: str, labels: Sequence[str], mix: NoisyPart, right: str = "") -> Json:
        """Return scores at falling SNRs, where each rule fails, and what the labels are made of."""
        heads = self._heads(labels)
        names = heads["default"].head.labels
        if right and right not in names:
            raise UsageError(f"The label {right!r} that counts as right is not one of the labels")
        audio = self._part(clip_id, mix.start_s)
        noise = self._noise(mix.noise, len(audio.samples))
        compiled = {name: made.head for name, made in heads.items()}
        found = sweep(audio, noise, compiled, self._embed, right=right)
        return {
            "labels": list(names),
            "snrs_db": list(found.snrs_db),
            "rules": {name: [_rounded(row) for row in rows] for name, rows in found.scores.items()},
            "right": found.right,
            "down_to_db": dict(found.down_to_db),
            "why": _why(heads["default"], found.right),
        }

    def events(self, clip_id: str, labels: Sequence[str], mix: NoisyPart) -> Json:
        """Return the events of a complete recording, in noise if asked, and its spectrogram."""
        audio = self.clips.get(clip_id).audio
        noise = self._noise(mix.noise, len(audio.samples))
        audio = in_noise(audio, noise, mix.snr_db)
        spec = HeadSpec(tuple(labels)).checked(self.shared.limits)
        found = [
            {"label": e.label, "start_s": e.start_s, "end_s": e.end_s, "score": e.score}
            for e in self.shared.heads.detector(spec, Detection()).events(audio)
        ]
        return {"spectrogram": picture(audio), "events": found}

    def sound(self, clip_id: str, mix: NoisyPart) -> bytes:
        """Return a part in noise as a wav file, to be played."""
        audio = self._mixed(clip_id, mix)
        peak = float(np.abs(audio.samples).max())
        samples = audio.samples * (_PEAK / peak) if peak > _PEAK else audio.samples
        file = io.BytesIO()
        soundfile.write(file, samples, audio.rate, format="WAV", subtype="PCM_16")
        return file.getvalue()

    def _heads(self, labels: Sequence[str]) -> dict[str, CompiledHead]:
        return {name: self._head(name, labels) for name, _, _ in RULES}

    def _head(self, rule: str, labels: Sequence[str]) -> CompiledHead:
        given = tuple(labels)
        spec = HeadSpec(given) if rule == "default" else HeadSpec(given, rule, raw=True)
        return self.shared.heads.get(spec.checked(self.shared.limits))

    def _embed(self, recordings: Sequence[Audio]) -> Matrix:
        return np.stack([one.embedding for one in self.shared.embedder.embed(recordings)])

    def _part(self, clip_id: str, start_s: float) -> Audio:
        return part(self.clips.get(clip_id).audio, start_s, self.window_s)

    def _mixed(self, clip_id: str, mix: NoisyPart) -> Audio:
        audio = self._part(clip_id, mix.start_s)
        if mix.snr_db is None:
            return audio
        return in_noise(audio, self._noise(mix.noise, len(audio.samples)), mix.snr_db)

    def _noise(self, name: str, length: int) -> Samples:
        """Return a noise by its name, or a recording of the user; all are a window long or more."""
        if name.startswith(OWN_NOISE):
            return fitted(self.clips.get(name.removeprefix(OWN_NOISE)).audio.samples, length)
        rate = self.shared.embedder.backbone.rate
        samples = shipped_noise(name, round(self.window_s * rate), rate)
        if length <= len(samples):
            return samples[:length]
        # Forwards and backwards in turn: without a jump where it is repeated.
        return fitted(np.concatenate([samples, samples[::-1]]), length)


def picture(audio: Audio) -> Json:
    """Return a spectrogram as the page draws it: its levels as base64, column by column."""
    found = spectrogram(audio)
    columns, bands = found.levels.shape
    return {
        "columns": columns,
        "bands": bands,
        "levels": base64.b64encode(found.levels.tobytes()).decode(),
        "seconds": found.seconds,
        "low_hz": found.low_hz,
        "high_hz": found.high_hz,
    }


def _rounded(scores: Sequence[float]) -> list[float]:
    return [round(float(score), 5) for score in scores]


def _why(made: CompiledHead, right: str) -> Json:
    """Return what made the default head, and the prompts of the right label."""
    [texts] = compose([right]).labels
    noisy = list(texts.noisy)
    step = max(1, len(noisy) // _SHOWN_PROMPTS)
    return {
        "rule": made.rule,
        "reason": made.why,
        "prompt": texts.prompt,
        "noisy_count": len(noisy),
        "noisy": noisy[step // 2 :: step][:_SHOWN_PROMPTS],
    }
