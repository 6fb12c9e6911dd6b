"""Small random CLAP checkpoints, saved as the hub has them; needs torch and transformers."""

from pathlib import Path
from typing import Any

TEXTS = [
    "the sound of rain",
    "dog",
    "a much longer sentence about a dog with rain on a roof",
    "siren",
]


def extractor(fused: bool) -> Any:
    """Return the feature extractor of transformers, as the checkpoints of LAION set it."""
    import transformers

    truncation = "fusion" if fused else "rand_trunc"
    return transformers.ClapFeatureExtractor(truncation=truncation, frequency_min=50)


def small_tokenizer() -> Any:
    """Train a byte-level tokenizer in RoBERTa's form on a few words."""
    import transformers
    from tokenizers import ByteLevelBPETokenizer
    from tokenizers.processors import RobertaProcessing

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        TEXTS, vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    )
    tokenizer._tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    fast: Any = transformers.PreTrainedTokenizerFast
    return fast(
        tokenizer_object=tokenizer._tokenizer, pad_token="<pad>", bos_token="<s>",
        eos_token="</s>", unk_token="<unk>",
    )  # fmt: skip


def save_clap(home: Path, *, fused: bool, depths: tuple[int, ...] = (1, 1, 1, 1)) -> Path:
    """Save a small random CLAP; stages of two or more blocks have shifted windows."""
    import torch
    import transformers

    torch.manual_seed(5)
    config = transformers.ClapConfig(
        text_config={
            "vocab_size": 600, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
            "intermediate_size": 64, "layer_norm_eps": 1e-12,
        },
        audio_config={
            "patch_embeds_hidden_size": 16, "hidden_size": 128, "depths": list(depths),
            "num_attention_heads": [1, 2, 2, 4], "enable_fusion": fused,
            "fusion_type": "aff_2d" if fused else None,
        },
        projection_dim=48,
    )  # fmt: skip
    model: Any = transformers.ClapModel(config)
    model.eval()
    _spread(model)
    model.save_pretrained(home)
    extractor(fused).save_pretrained(home)
    small_tokenizer().save_pretrained(home)
    return home


def _spread(model: Any) -> None:
    """Draw weights far apart: the rows of a new model are all alike, which would hide mistakes."""
    import torch

    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("bias") or "bias_table" in name:
                tensor.normal_(0, 0.3)
            elif "norm" in name.lower() and name.endswith("weight"):
                tensor.uniform_(0.5, 1.5)
            elif tensor.ndim > 1:
                tensor.normal_(0, 2 / tensor[0].numel() ** 0.5)
        for name, tensor in model.named_buffers():
            if name.endswith("running_mean"):
                tensor.uniform_(-40, -10)
            elif name.endswith("running_var"):
                tensor.uniform_(50, 300)
