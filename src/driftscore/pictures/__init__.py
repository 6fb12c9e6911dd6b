"""Pictures of events as png or svg.

Comes in: a recording's spectrogram, scores and events as they pass, or events by hour of day. Goes
out: a file. May import `events`, `audio`, `formats` and `storage`.

    track = PictureTrack(detector.watch.names)
    events = list(detector.events("night.flac", observer=track))
    plot_recording("night.png", track, events, name="night.flac", start=start_of("night.flac"))

Drawing needs matplotlib (extra `plot`), which is imported when a picture is drawn.
"""

from driftscore.pictures.drawing import check_picture, plot_hours, plot_recording
from driftscore.pictures.tracks import HourCounts, PictureTrack

__all__ = ["HourCounts", "PictureTrack", "check_picture", "plot_hours", "plot_recording"]
