"""Pictures of events: png, svg, or a page of html that needs nothing else.

    track = PictureTrack(detector.watch.names)
    events = list(detector.events("night.flac", watcher=track))
    plot_recording("night.png", track, events, name="night.flac", start=start_of("night.flac"))

For many recordings, `HourCounts` collects their events and `plot_hours` draws a heatmap of label by
hour of day. Drawing needs matplotlib (extra `plot`), which is imported when a picture is drawn.
"""

from driftscore.pictures.saving import check_picture, plot_hours, plot_recording
from driftscore.pictures.tracks import HourCounts, PictureTrack

__all__ = ["HourCounts", "PictureTrack", "check_picture", "plot_hours", "plot_recording"]
