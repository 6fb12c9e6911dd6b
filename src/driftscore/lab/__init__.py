"""The lab: where claims about noise are measured. Nothing outside the lab but the cli imports it.

    conditions, metrics, detection, psds   what is measured, and by which numbers
    mixing/                                sounds, loudness, reverberation, mixing methods
    corpora/  runs/  report/               datasets and noises -> rows in a store -> a page

Imports point upwards in this list only.
"""
