"""What `classify --timeline` makes besides rows: clock times, clips of events and pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftscore.cli import options as take
from driftscore.cli.reporting import say
from driftscore.clips import AROUND_S, ClipFolder
from driftscore.clock import Start, parse_start, start_of
from driftscore.detector import Detector
from driftscore.errors import UsageError
from driftscore.events import Event

if TYPE_CHECKING:
    from driftscore.pictures import PictureTrack


@dataclass(frozen=True)
class ProductOptions:
    """What is made besides rows."""

    start: take.StartTime = None
    clips: take.ClipsFolder = None
    margin: take.ClipMargin = f"{AROUND_S:g}"
    plot: take.Plot = None

    @property
    def asked(self) -> bool:
        """Whether one of them is asked for, so that events are searched for."""
        return self.start is not None or self.clips is not None or self.plot is not None

    def checked(self, recordings: Sequence[str]) -> "ProductOptions":
        """Return the options; refuse wrong ones before any work is done."""
        if self.start is not None:
            parse_start(self.start)
            if len(recordings) > 1:
                raise UsageError(
                    f"--start says when one recording began, and there are {len(recordings)}; "
                    "name the files like 20261116_031500.wav instead"
                )
        if self.plot is not None:
            from driftscore.pictures import check_picture  # here: most runs draw no picture

            check_picture(self.plot)
        return self

    def made(self, detector: Detector, recordings: Sequence[str]) -> "Products":
        """Return what collects the products of a run."""
        folder = None
        if self.clips is not None:
            margin_s = take.number("--margin", self.margin)
            silent = [label.name for label in detector.watch.labels if not label.clips]
            folder = ClipFolder(self.clips, around_s=margin_s, without=silent)
        return Products(self, detector, folder, len(recordings))


class Products:
    """Collects the products of a run, recording by recording."""

    def __init__(
        self, options: ProductOptions, detector: Detector, clips: ClipFolder | None, count: int
    ) -> None:
        from driftscore.pictures import HourCounts

        self._options = options
        self._detector = detector
        self._clips = clips
        self._written = 0
        self._hours = HourCounts(detector.watch.names)
        self._one = count == 1
        self._zone_told = False
        self._drawn: tuple[PictureTrack, list[Event], str, Start | None] | None = None

    def start(self, recording: str) -> Start | None:
        """Return when a recording began, if that is known; tell once if its zone is a guess."""
        found = start_of(recording, self._options.start)
        if found is not None and not found.zone_known and not self._zone_told:
            self._zone_told = True
            say(f"{recording} began at {found}; if it is another zone, give it with --start")
        return found

    def watcher(self) -> "PictureTrack | None":
        """Return what watches the next recording for its picture."""
        if self._options.plot is None or not self._one:
            return None
        from driftscore.pictures import PictureTrack

        return PictureTrack(self._detector.watch.names, hop_s=self._detector.hop_s)

    def done(
        self,
        recording: str,
        events: list[Event],
        seconds: float,
        start: Start | None,
        watcher: "PictureTrack | None",
    ) -> None:
        """Take a recording that is searched."""
        if self._clips is not None:
            self._written += sum(path is not None for path in self._clips.cut(recording, events))
        if watcher is not None:
            self._drawn = (watcher, events, recording, start)
        else:
            self._hours.add(start, seconds, events)

    def finish(self) -> None:
        """Draw the picture, and tell what was written."""
        if self._clips is not None:
            say(f"{self._written} clips in {self._clips.folder}")
        path = self._options.plot
        if path is None:
            return
        from driftscore.pictures import plot_hours, plot_recording

        if self._drawn is not None:
            track, events, name, start = self._drawn
            plot_recording(path, track, events, name=name, start=start)
        elif not self._one:
            plot_hours(path, self._hours)
        else:
            return
        say(f"Picture in {path}")
