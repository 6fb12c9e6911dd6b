"""LAION CLAP and any other transformers CLAP, by hub id or local folder.

Deterministic, unlike the feature extractor of transformers: clips are cut into fixed windows (not
cropped at random), a fused checkpoint gets every window as not "longer" (not one per batch at
random), and no global random state is touched. Windows are encoded one by one and texts in batches
of a fixed shape, so that an embedding on the CPU does not depend on its neighbours, bit for bit.
Weights are read from safetensors only.

The two towers run in torch, the reference, or exported (`driftscore export`) in onnxruntime or
OpenVINO, which need no torch. All of them give the same embeddings to 1e-4 and therefore share a
fingerprint; their last bits differ, so caches keep them apart (`cache_key`).
"""

from driftscore.backbones.clap.loading import DEFAULT, KNOWN, RUNTIMES, accepts, load
from driftscore.backbones.clap.model import Clap

__all__ = ["DEFAULT", "KNOWN", "RUNTIMES", "Clap", "accepts", "load"]
