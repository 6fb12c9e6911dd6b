"""What the `mini` audio tower sees: 64 log-mel bands, 50 frames a second, of 32 kHz mono.

Half the bands and half the frames of its teacher's front end, by the same formula.
"""

from driftscore.backbones._log_mel import FrontEnd, Samples, Spectrogram
from driftscore.backbones._log_mel import log_mel as _log_mel

RATE = 32_000
SECONDS = 10.0
FRONT_END = FrontEnd(rate=RATE, n_fft=1024, window=1024, hop=640, mels=64, top_hz=15_000.0)


def log_mel(samples_32k: Samples) -> Spectrogram:
    """Return the tower's input for one clip, (64, frames)."""
    return _log_mel(samples_32k, FRONT_END)
