"""The recordings beside the project as corpora: only this repository's people have them.

A grid names them in its table of homes, from the project's root: `training.corpora:shared_events`.
"""

from training.corpora import recorded, shared_events, shared_scenes, shared_soundscapes

__all__ = ["recorded", "shared_events", "shared_scenes", "shared_soundscapes"]
