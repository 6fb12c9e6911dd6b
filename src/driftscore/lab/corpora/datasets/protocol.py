"""What a dataset defines.

A dataset is a module (or any object) with

    ABOUT                        title, licence, citation and official files
    clips(home) -> [Clip]        the labelled clips in a fixed order; nothing is missing then
    labels(home) -> (str, ...)   all labels in a fixed order, also those without a clip
    missing(home) -> [str]       everything that the folder lacks
    default_home() -> Path       optional: its folder, unless it is a folder of the data home
    generated(home) -> Generated optional: the clips that `clips` generates on its first call

`ClassTable` has these functions for a dataset that lists one labelled clip per row of a csv.
"""

from dataclasses import dataclass
from pathlib import Path

from driftscore.lab.corpora.about import Clip, Generated
from driftscore.lab.corpora.folders import Corpus, absent, root, rows


class Dataset(Corpus):
    """A dataset by its name; without a `home` it is read from its default folder."""

    def clips(self) -> list[Clip]:
        """Return the labelled clips in a fixed order; a missing file is an error."""
        return list(self.plugin.clips(self.complete()))

    def generated(self) -> Generated | None:
        """Return how much is generated when the clips are listed; None if they are files."""
        generated = getattr(self.plugin, "generated", None)
        return generated(self.complete()) if generated else None

    def labels(self) -> tuple[str, ...]:
        """Return all labels in a fixed order."""
        return tuple(self.plugin.labels(self.folder))


@dataclass(frozen=True)
class ClassTable:
    """A csv in a dataset's folder, by its columns: a clip, its fold, its class, the class's number.

    `file` is the path of a clip's file, with columns in braces.
    """

    path: str
    file: str
    clip: str
    label: str
    number: str

    def clips(self, home: Path) -> list[Clip]:
        """Return the clips in the order of the table."""
        folder = root(home, self.path)
        return [
            Clip(
                folder / self.file.format_map(row),
                (row[self.label],),
                row["fold"],
                row[self.clip].removesuffix(".wav"),
            )
            for row in self._rows(folder)
        ]

    def labels(self, home: Path) -> tuple[str, ...]:
        """Return the classes in the order of their official numbers."""
        table = self._rows(root(home, self.path))
        return tuple(n for _, n in sorted({(int(r[self.number]), r[self.label]) for r in table}))

    def missing(self, home: Path) -> list[str]:
        """Return everything that the folder lacks."""
        folder = root(home, self.path)
        lacking = absent(folder, [self.path, "audio"])
        return lacking or absent(folder, map(self.file.format_map, self._rows(folder)))

    def _rows(self, folder: Path) -> list[dict[str, str]]:
        return rows(folder / self.path, [self.clip, "fold", self.number, self.label])
