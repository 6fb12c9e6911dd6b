"""Mixing: sounds, their loudness and reverberation, and the methods that put them into noise."""
