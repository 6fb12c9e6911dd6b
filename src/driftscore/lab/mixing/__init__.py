"""Mixing: sounds and an SNR come in, the record of a mix and its samples go out.

It measures loudness, simulates rooms and reverberation, and has the methods that put a sound into
noise (`mixings`). It may import audio and storage, not the corpora, runs or reports of the lab.
"""
