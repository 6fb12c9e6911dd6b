"""The input of the `mini` audio tower: 64 log-mel bands, 50 frames per second, of 32 kHz mono.

That is half the bands and half the frames of its teacher's front end, with the same formula. The
tower makes one frame of sixteen log-mel frames; a frame depends on 104 log-mel frames to each side.
"""

from driftscore.audio import Samples
from driftscore.backbones.onnx.log_mel import FrontEnd, Spectrogram
from driftscore.backbones.onnx.log_mel import log_mel as _log_mel

RATE = 32_000
SECONDS = 10.0
FRONT_END = FrontEnd(rate=RATE, n_fft=1024, window=1024, hop=640, mels=64, top_hz=15_000.0)
FRAME_S = 16 * FRONT_END.hop / RATE
"""Seconds from one frame of the tower to the next."""
CONTEXT_S = (104 + 2) * FRONT_END.hop / RATE
"""Seconds to each side that a frame depends on: the tower's reach and that of the log-mel."""


def log_mel(samples_32k: Samples) -> Spectrogram:
    """Return the tower's input for one window, (64, frames)."""
    return _log_mel(samples_32k, FRONT_END)
