"""Random CLAP checkpoints with the shapes of LAION's models.

Speed does not depend on the values of the weights. They are drawn from a wider distribution than
that of a newly initialised model, so that different sounds and texts get clearly different
embeddings and a wrong result would be noticed.
"""

import math
import os
from pathlib import Path
from typing import TypedDict

from bench.figures import NotHereError
from driftscore.text.prompts import split_labels


class Shape(TypedDict):
    """The part of a CLAP audio configuration that differs between the models."""

    depths: list[int]
    patch_embeds_hidden_size: int
    hidden_size: int


SHAPES: dict[str, Shape] = {
    "clap-htsat-unfused": {
        "depths": [2, 2, 6, 2], "patch_embeds_hidden_size": 96, "hidden_size": 768,
    },
    "larger_clap": {
        "depths": [2, 2, 12, 2], "patch_embeds_hidden_size": 128, "hidden_size": 1024,
    },
}  # fmt: skip
LABELS = split_labels(
    "dog bark, siren, rain, car horn, jackhammer, street music, children playing, gun shot, "
    "engine idling, drilling, air conditioner, rooster, pig, cow, frog, cat, hen, insects, sheep, "
    "crow, sea waves, crackling fire, crickets, chirping birds, water drops, wind, pouring water, "
    "toilet flush, thunderstorm, crying baby, sneezing, clapping, breathing, coughing, footsteps, "
    "laughing, brushing teeth, snoring, drinking, door knock, mouse click, keyboard typing, "
    "door creak, can opening, washing machine, vacuum cleaner, clock alarm, clock tick, "
    "glass breaking, helicopter"
)


def write_checkpoint(shape: str, home: Path) -> Path:
    """Save a random model of a shape, with CLAP's feature extractor and RoBERTa's tokenizer."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.ClapConfig(audio_config=dict(SHAPES[shape]), text_config={})
    model = transformers.ClapModel(config).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if tensor.ndim > 1 and "bias_table" not in name:
                tensor.normal_(0, 2 / math.sqrt(tensor[0].numel()))
        model.audio_model.audio_encoder.batch_norm.running_mean.fill_(-30)
        model.audio_model.audio_encoder.batch_norm.running_var.fill_(200)
    model.save_pretrained(home)
    extractor = transformers.ClapFeatureExtractor(truncation="rand_trunc", frequency_min=50)
    extractor.save_pretrained(home)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(_tokenizer_file()), pad_token="<pad>", bos_token="<s>",
        eos_token="</s>", unk_token="<unk>",
    )  # fmt: skip
    tokenizer.save_pretrained(home)
    return home


def _tokenizer_file() -> Path:
    shared = Path(os.environ.get("DRIFTSCORE_SHARED") or Path(__file__).parents[2] / "shared")
    file = shared / "models" / "clap_htsat_unfused_golden" / "tokenizer.json"
    if not file.is_file():
        raise NotHereError(
            "RoBERTa's tokenizer was not found in ../shared/models (set DRIFTSCORE_SHARED); with "
            "another tokenizer texts would have other lengths"
        )
    return file
