"""The settings in the files of a checkpoint: of its two networks, and of its front end."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from driftscore.backbones.clap.log_mel import ClapMel
from driftscore.errors import FormatError

FRONT_END_REVISION = 3
"""Part of the fingerprint; raise it whenever an embedding may change."""
LONGEST = 512
"""Tokens read of a text; RoBERTa has no positions for more."""


class AudioConfig(TypedDict):
    """The configuration of the audio tower."""

    num_mel_bins: int
    spec_size: int
    patch_size: int | Sequence[int]
    patch_stride: int | Sequence[int]
    window_size: int
    depths: Sequence[int]
    num_attention_heads: Sequence[int]
    layer_norm_eps: float
    hidden_act: str
    projection_hidden_act: str
    fusion_type: str | None
    enable_fusion: bool
    enable_patch_layer_norm: bool
    qkv_bias: bool


class TextConfig(TypedDict):
    """The configuration of the text tower."""

    vocab_size: int
    num_hidden_layers: int
    num_attention_heads: int
    layer_norm_eps: float
    pad_token_id: int
    hidden_act: str
    projection_hidden_act: str


class CheckpointConfig(TypedDict):
    """The configuration of both towers."""

    audio_config: AudioConfig
    text_config: TextConfig


def read_mel(extractor: Mapping[str, object], *, where: str) -> ClapMel:
    """Return the front end that a `preprocessor_config.json` describes."""

    def number(name: str, *, low: float, high: float) -> float:
        value = extractor.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _refused(where, f"{name} must be a number, got {value!r}")
        if not low <= value <= high:
            raise _refused(where, f"{name} must be from {low:g} to {high:g}, got {value!r}")
        return value

    def count(name: str, *, low: int, high: int) -> int:
        return int(number(name, low=low, high=high))

    padding = extractor.get("padding")
    if padding not in ("repeatpad", "repeat", "pad"):
        raise _refused(where, f"padding must be repeatpad, repeat or pad, got {padding!r}")
    rate = count("sampling_rate", low=1000, high=1_000_000)
    return ClapMel(
        flavour="htk" if extractor.get("truncation") == "fusion" else "slaney",
        rate=rate,
        n_fft=count("fft_window_size", low=16, high=2**16),
        hop=count("hop_length", low=1, high=2**16),
        mels=count("feature_size", low=1, high=4096),
        low_hz=number("frequency_min", low=0, high=rate / 2),
        high_hz=number("frequency_max", low=0, high=rate / 2),
        length=count("nb_max_samples", low=2**10, high=rate * 600),
        padding=padding,
    )


def _refused(where: str, reason: str) -> FormatError:
    return FormatError(f"The front end of {where} cannot be used: {reason}")
