"""Long soundscapes with known events: what the detection of events is measured on.

In: a recipe with a seed, and clips and backgrounds of any dataset and noise. Out: audio, and the
truth beside it. `truth.py` says what a soundscape is, `draw.py` fixes one, `render.py` writes it.
"""
