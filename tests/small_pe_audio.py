"""Small random PE-AV checkpoints, saved as the hub has them; needs torch and transformers 5."""

import json
from pathlib import Path
from typing import Any

from .small_clap import small_tokenizer

DIM = 32
_BERT_MARKS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "cls_token_id": 0,
               "sep_token_id": 2}  # fmt: skip


def small_model(seed: int = 0) -> Any:
    """Return a small random `PeAudioModel`, with weights far apart."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.PeAudioConfig(
        text_config={
            "model_type": "modernbert", "vocab_size": 600, "hidden_size": DIM,
            "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
        } | _BERT_MARKS,
        audio_config={
            "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 3, "head_dim": 16,
            "dac_config": {"encoder_hidden_size": 4, "codebook_dim": 8},
        },
    )  # fmt: skip
    model: Any = transformers.PeAudioModel(config)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if tensor.ndim > 1 and "alpha" not in name:
                tensor.normal_(0, 1.5 / tensor[0].numel() ** 0.5)
            elif "norm" in name and name.endswith("weight"):
                tensor.uniform_(0.5, 1.5)
        model.text_audio_logit_scale.fill_(12.5)
    return model.eval()


def save_pe_audio(home: Path, *, video: bool = False, seed: int = 0) -> Path:
    """Save a small checkpoint; `video`: in the form of PE-AV, with a video part to be ignored."""
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    model = small_model(seed)
    model.save_pretrained(home)
    small_tokenizer().save_pretrained(home)
    transformers.PeAudioFeatureExtractor().save_pretrained(home)
    if video:
        config = json.loads((home / "config.json").read_text())
        inner = {"audio_config": config.pop("audio_config"), "video_config": {}}
        config |= {"model_type": "pe_audio_video", "audio_video_config": inner,
                   "architectures": ["PeAudioVideoModel"]}  # fmt: skip
        (home / "config.json").write_text(json.dumps(config))
        tensors = load_file(home / "model.safetensors")
        renamed = {
            name if name.startswith("text_model.") else f"audio_model.{name}": tensor
            for name, tensor in tensors.items()
        }
        renamed["video_model.video_head.proj.weight"] = torch.ones(3, 3)
        renamed["audio_video_head.proj.weight"] = torch.ones(3, 3)
        save_file(renamed, home / "model.safetensors", {"format": "pt"})
    return home
