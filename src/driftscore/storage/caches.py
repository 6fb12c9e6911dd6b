"""What driftscore keeps in its cache folder, how large it is, and how to delete it.

The folder is `$DRIFTSCORE_CACHE`, or the platform's own cache folder. Everything in it can be
computed or downloaded again; results of the lab and downloaded corpora take long, so they are
deleted only by name. Nothing outside the folder is ever deleted, also not through a link.
"""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from driftscore.errors import UsageError, WriteError, unknown
from driftscore.storage.files import cache_home, chosen_home


@dataclass(frozen=True)
class Cache:
    """One cache: its name, what it holds, and where its files and folders are."""

    name: str
    summary: str
    home: Path
    """The folder that it is in: the cache folder, or a folder that a user has chosen."""
    patterns: tuple[str, ...]
    """Its files and folders inside `home`, as glob patterns."""
    by_name_only: bool = False
    """Whether it is cleared only if it is named."""
    chosen_by: str = ""
    """The environment variable that puts it outside the cache folder; it is then not cleared."""

    @property
    def path(self) -> Path:
        """Where it is, whether it exists or not; the cache folder if it is more than one file."""
        return self.home / self.patterns[0].rstrip("*") if len(self.patterns) == 1 else self.home

    @property
    def entries(self) -> list[Path]:
        """Its files and folders that exist."""
        return sorted({path for pattern in self.patterns for path in self.home.glob(pattern)})

    def files(self) -> list[Path]:
        """Return its files; links are not followed."""
        files: list[Path] = []
        for entry in self.entries:
            if entry.is_dir() and not entry.is_symlink():
                files += (path for path in entry.rglob("*") if path.is_symlink() or path.is_file())
            else:
                files.append(entry)
        return files

    def size(self) -> int:
        """Return the size of its files, in bytes."""
        return sum(path.lstat().st_size for path in self.files())

    def clear(self) -> int:
        """Delete its files and folders, and return their bytes; of a link only the link."""
        if self.chosen_by:
            raise UsageError(
                f"The cache {self.name!r} is outside the cache folder ({self.chosen_by}="
                f"{self.path}): delete it by hand"
            )
        size = self.size()
        for entry in self.entries:
            try:
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink(missing_ok=True)
            except OSError as error:
                raise WriteError(f"Cannot delete {entry}: {error.strerror or error}") from error
        return size


def list_caches() -> list[Cache]:
    """Return all caches, also those that are empty."""
    home = cache_home()
    models = ("exports", "mn04-*.onnx", "mn04-*.sha256", "mn04_as_mAP_432.pt")
    caches = [
        Cache("texts", "embeddings of texts and labels", home, ("texts.sqlite*",)),
        Cache("audio", "embeddings of recordings, by content", home, ("audio.sqlite*",)),
        Cache("windows", "windows of recordings, for --resume and --cache", home, ("windows",)),
        Cache("models", "exported and downloaded models", home, models),
        Cache("loudness", "loudness of recordings (lab)", home, ("loudness.sqlite*",)),
        Cache("figures", "fonts that matplotlib has found", home, ("matplotlib",)),
        Cache("scenes", "scenes of the shared recordings (lab)", home, ("scenes",)),
        Cache("soundscapes", "long recordings with events (lab)", home, ("soundscapes",)),
    ]
    for name, summary in (
        ("data", "downloaded datasets and noises (lab)"),
        ("lab", "results and embeddings of the lab"),
    ):
        variable = f"DRIFTSCORE_{name.upper()}"
        path, chosen_by = chosen_home(name), variable if os.environ.get(variable) else ""
        caches.append(Cache(name, summary, path.parent, (path.name,), True, chosen_by))
    return caches


def find_caches(names: Iterable[str] = ()) -> list[Cache]:
    """Return the caches of these names; without names, those that are not `by_name_only`."""
    caches = {cache.name: cache for cache in list_caches()}
    chosen = dict.fromkeys(names) or [c.name for c in caches.values() if not c.by_name_only]
    for name in chosen:
        if name not in caches:
            raise unknown("cache", name, caches)
    return [caches[name] for name in chosen]
