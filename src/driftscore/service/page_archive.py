"""The archive of `driftscore serve --archive FOLDER`: search it for words, and listen to places.

Only recordings that a search has found are played, by an id: no path of a request is opened.
"""

import hashlib
from pathlib import Path

from driftscore.audio.clock import start_of
from driftscore.audio.recordings import Audio
from driftscore.backbones import Backbone
from driftscore.detector import Detector
from driftscore.engines.archive import open_embeddings
from driftscore.events.search import expected_precisions, search
from driftscore.service.page_opened import read_part


class OpenedArchive:
    """Windows of recordings on disk, and the recordings where they are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sources: dict[str, str] = {}  # recordings that were found, by id
        open_embeddings(folder)  # what is wrong with it is said at the start

    def check(self, backbone: Backbone) -> None:
        """Refuse an archive of another model."""
        open_embeddings(self.folder).check(backbone, what=str(self.folder))

    def search(self, detector: Detector, top: int) -> dict[str, object]:
        """Return the best places of each label, best first; new shards are found as well."""
        stored = open_embeddings(self.folder)
        places = search(detector.head, stored, top=top, labels=len(detector.watch.names))
        precisions = expected_precisions(places, detector.head, detector.calibration, stored)
        rows: list[dict[str, object]] = []
        for place, precision in zip(places, precisions, strict=True):
            key = hashlib.blake2b(place.source.encode(), digest_size=8).hexdigest()
            self._sources[key] = place.source
            start = start_of(place.source)
            rows.append(
                {
                    "id": key,
                    "file": place.source,
                    "label": place.label,
                    "start_s": place.start_s,
                    "end_s": place.end_s,
                    "score": place.score,
                    "precision": precision,
                    "time": "" if start is None else start.text_at(place.start_s),
                    "playable": self._path(place.source) is not None,
                }
            )
        return {"places": rows, "windows": stored.count, "unit": detector.head.unit}

    def part(self, key: str, start_s: float, seconds: float, rate: int) -> Audio | None:
        """Return a part of a recording that was found; None if it is not on this machine."""
        path = self._path(self._sources.get(key, ""))
        return None if path is None else read_part(path, start_s, seconds, rate)

    def _path(self, source: str) -> Path | None:
        """Return where a recording is: as it was named, or beside the archive."""
        paths = (Path(source), self.folder.parent / source)
        return next((path for path in paths if source and path.is_file()), None)
