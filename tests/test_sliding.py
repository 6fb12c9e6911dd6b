"""Windows of any length at any hop, by pooling frames that were computed once."""

from collections.abc import Sequence

import numpy as np
import pytest

from driftscore import Audio, Backbone, UsageError
from driftscore.audio.recordings import Samples
from driftscore.backbones import Features
from driftscore.backbones.protocol import LocalBackbone
from driftscore.backbones.vectors import Matrix, Vector, unit
from driftscore.engines.window_stream import (
    BLOCK_S,
    WindowEmbedding,
    sliding_embeddings,
    window_stream,
)

from .conftest import noise_clip

RATE = 8_000
FRAME_S = 0.25
STEP = 2_000


class Local(LocalBackbone):
    """A model of frames: each is the band energies of its own quarter second and its neighbours."""

    name, fingerprint, dim, rate, seconds = "local", "local/1", 16, RATE, 4.0
    frame_s, context_s = FRAME_S, FRAME_S

    def __init__(self, context_s: float = FRAME_S) -> None:
        self.framed = self.taken = 0
        self.context_s = context_s

    def features(self, samples: Samples) -> Features:
        self.taken += len(samples)
        return samples

    def frames(self, features: Features) -> Features:
        parts = features[: len(features) // STEP * STEP].reshape(-1, STEP).astype(np.float64)
        self.framed += len(parts)
        power = np.abs(np.fft.rfft(parts))[:, 1:961].reshape(len(parts), 16, 60).mean(axis=2)
        padded = np.pad(np.log1p(power), ((1, 1), (0, 0)))
        return np.asarray((padded[:-2] + padded[1:-1] + padded[2:]).T, np.float32)

    def pool(self, frames: Features) -> Vector:
        row: Vector = unit((frames.mean(axis=1) + frames.max(axis=1))[None].astype(np.float32))[0]
        return row

    def encode(self, features: Features) -> Vector:
        return self.pool(self.frames(features))

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        return np.eye(16, dtype=np.float32)[: len(texts)]


def slide(recording: Audio, window_s: float = 4.0, hop_s: float = 0.5) -> list[WindowEmbedding]:
    return list(sliding_embeddings(recording, Local(), window_s=window_s, hop_s=hop_s))


def frames_of_the_whole(audio: Audio) -> Features:
    silent = np.zeros(STEP, np.float32)
    return Local().frames(np.concatenate([silent, audio.samples, silent]))[:, 1:-1]


@pytest.mark.parametrize("seconds", [4.0, 19.75, 20.0, 47.5, 61.0])
def test_a_window_is_the_pooling_of_its_frames(seconds: float) -> None:
    audio = noise_clip(seconds, rate=RATE)
    found, frames = slide(audio), frames_of_the_whole(audio)
    assert len(found) == int((seconds - 4.0) / 0.5) + 1
    for number, (start, end, row) in enumerate(found):
        assert (start, end) == (0.5 * number, 0.5 * number + 4.0)
        expected = Local().pool(frames[:, 2 * number : 2 * number + 16])
        np.testing.assert_allclose(row, expected, atol=1e-6)


@pytest.mark.parametrize("sizes", [[800], [800, 40_000, 2_400], [60_000]])
def test_a_stream_computes_features_once_and_early_windows_are_those_that_follow(
    sizes: list[int],
) -> None:
    audio, model = noise_clip(40.0, rate=RATE), Local(context_s=8 * FRAME_S)
    stream = window_stream(model, window_s=4.0, hop_s=0.5, block_s=2 * FRAME_S)
    windows: list[WindowEmbedding] = []
    early: list[WindowEmbedding] = []
    position = number = 0
    while position < len(audio.samples):
        size = sizes[number % len(sizes)]
        windows += stream.feed(audio.samples[position : position + size])
        position, number = position + size, number + 1
        ahead = stream.early()
        # Those that were complete before they were early are not returned again.
        assert all(window[0] > windows[-1][0] for window in ahead if windows)
        early += ahead
    windows += stream.finish()
    assert model.taken < 4 * len(audio.samples)  # without what is known it would be 9 times
    assert early
    assert [window[0] for window in early] == sorted({window[0] for window in early})
    complete = {window[0]: window[2] for window in windows}
    for start_s, _, row in early:  # enough is around the frames of `Local`
        np.testing.assert_array_equal(row, complete[start_s])
    for (start_s, _, row), expected in zip(windows, slide(audio), strict=True):
        assert start_s == expected[0]
        np.testing.assert_array_equal(row, expected[2])


def test_frames_are_computed_once_whatever_the_hop() -> None:
    audio = noise_clip(100.0, rate=RATE)
    fine, coarse = Local(), Local()
    for model, hop_s in ((fine, 0.25), (coarse, 4.0)):
        list(sliding_embeddings(audio, model, window_s=4.0, hop_s=hop_s))
    assert fine.framed == coarse.framed
    assert fine.framed <= 1.15 * (100 / FRAME_S) + 2 * BLOCK_S


def test_the_embeddings_do_not_depend_on_what_comes_later() -> None:
    """A stream that goes on gives the bits of the file so far."""
    long = noise_clip(90.0, rate=RATE)
    short = Audio(long.samples[: 70 * RATE], RATE)
    ends = {start: row for start, _, row in slide(long)}
    for start, end, row in slide(short):
        if end <= 60.0:
            np.testing.assert_array_equal(row, ends[start])


def test_a_short_recording_is_one_window() -> None:
    [(start, end, row)] = slide(noise_clip(1.5, rate=RATE))
    assert (start, end) == (0.0, 1.5)
    assert np.linalg.norm(row) == pytest.approx(1, abs=1e-5)


def test_silent_windows_are_left_out() -> None:
    samples = np.zeros(60 * RATE, np.float32)
    samples[30 * RATE : 31 * RATE] = noise_clip(1.0, rate=RATE).samples
    starts = [start for start, _, _ in slide(Audio(samples, RATE))]
    assert starts == [26.5 + 0.5 * n for n in range(9)]


def test_windows_are_taken_to_the_nearest_frame() -> None:
    starts = [start for start, _, _ in slide(noise_clip(10.0, rate=RATE), 2.1, 0.3)]
    np.testing.assert_allclose(starts, 0.3 * np.arange(len(starts)))


def test_another_model_encodes_each_window(fake: Backbone) -> None:
    audio = noise_clip(5.0)
    found = list(sliding_embeddings(audio, fake, window_s=2.0, hop_s=0.5))
    assert [(start, end) for start, end, _ in found] == [(0.5 * n, 0.5 * n + 2) for n in range(7)]
    second = Audio(audio.samples[8_000 : 8_000 + 32_000], 16_000)
    np.testing.assert_array_equal(found[1][2], fake.embed_audio([second])[0])


@pytest.mark.parametrize(("window_s", "hop_s"), [(4.0, 0.0), (4.0, -1.0), (1.0, 2.0)])
def test_a_hop_is_positive_and_at_most_a_window(window_s: float, hop_s: float) -> None:
    with pytest.raises(UsageError, match="hop must be positive and at most the window"):
        slide(noise_clip(5.0, rate=RATE), window_s, hop_s)
