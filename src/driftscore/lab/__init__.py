"""The lab: where claims about noise are measured. Nothing outside the lab imports it.

    conditions, metrics, seeds      what is measured, by which numbers, with which randomness
    mixing/                         sounds, loudness, reverberation and the mixing methods
    corpora/                        datasets and noises, and how they are downloaded
    runs/                           a grid: planned, embedded, scored and stored
    report/                         stored rows -> tables, figures and a page

Imports point upwards in this list only.
"""
