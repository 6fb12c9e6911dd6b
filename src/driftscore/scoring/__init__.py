"""Bank to head to scores: text and statistics, no audio.

Comes in: embeddings of prompts, calibrations. Goes out: heads (W, b), scores, results.
May import: `text`, `backbones`, `storage`, `system`, `errors`.
"""
