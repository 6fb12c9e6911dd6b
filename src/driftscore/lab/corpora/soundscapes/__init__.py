"""Long soundscapes with known events: what the detection of events is measured on.

`truth.py` says what a soundscape is, `drawing.py` fixes one, `rendering.py` writes its audio.
"""
