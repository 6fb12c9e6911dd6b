"""Scores over time to events.

Comes in: scores of windows and watch lists. Goes out: events, thresholds, clips.
May import: `detector`, `embedder`, `engines`, `scoring`, and what is below them.
"""
