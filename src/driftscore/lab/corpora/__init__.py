"""Corpora: datasets, noises and soundscapes, where they are stored and how they are downloaded.

In: a name and a folder. Out: labelled clips, excerpts of noise, and long soundscapes with their
truth. It may import mixing, text, audio and storage, not the runs or reports of the lab.
"""
