"""The parts of a checkpoint's `config.json` that the exported graphs depend on."""

from collections.abc import Sequence
from typing import TypedDict


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
