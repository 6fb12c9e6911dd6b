"""Words to prompts to vectors.

Comes in: labels, packs of phrases and templates, presets. Goes out: prompts, and their embeddings,
each encoded once. May import: `backbones`, `storage`, `system`, `errors`.
"""
