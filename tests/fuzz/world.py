"""A small world for the fuzz suite: good files of every kind that a command reads.

inputs/    the good files; cases add damaged copies in inputs/case/
out/       where commands are told to write
cache/     the cache folder        home/    the home folder        tmp/    temporary files
work/      the working directory, which no command may change
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import soundfile

import driftscore
from driftscore import Classifier, Embedder, build_bank, load_backbone
from driftscore.backbones.stored import EmbeddingFile
from driftscore.backbones.vectors import unit
from driftscore.decisions import DecisionStore, audited_events, audited_results
from driftscore.decisions.review import read_events
from driftscore.events.tracking import Detection
from driftscore.events.watchlist import WatchList
from driftscore.scoring.calibration import Calibration
from driftscore.text.packs import load_pack
from driftscore.text.presets import load_preset
from tests.conftest import LABELS, changing_noise, noise_clip

CONTAINERS = ("wav", "flac", "ogg", "mp3", "aiff", "au")
FOLDERS = ("inputs", "out", "cache", "home", "tmp", "work")
PACK = """
id = "few"
kind = "phrases"
title = "A few phrases"
provenance = "the fuzz suite"
[[phrase]]
id = "rain"
text = "rain on a roof"
provenance = "the fuzz suite"
[[phrase]]
id = "wind"
text = "wind"
provenance = "the fuzz suite"
"""
PRESET = """
[own]
title = "Mine"
rule = "das"
[own.prompts]
prompt = "the sound of {c}"
[own.rules.das]
beta = 0.5
"""
GRID = """
datasets = ["folder"]
noises = ["recorded"]
snrs = ["clean", 0]
backbones = ["fake"]
rules = ["cosine", "das"]
packs = ["generic5"]
[homes]
folder = "clips"
recorded = "noise"
"""
TEMPLATES = """
id = "one"
kind = "templates"
title = "One template"
provenance = "the fuzz suite"
[[template]]
id = "in"
text = "{c} in {p}"
matched = "{c}"
provenance = "the fuzz suite"
"""


EVENTS = """
file,start_s,end_s,time,label,score,threshold,level_db,snr_db,unit,error
good-wav.wav,0.5,1.0,,dog bark,4.5,3.5,-30.0,,sd,
good-wav.wav,1.0,1.5,,siren,3.5,3.0,-30.0,6.0,sd,
absent.wav,0.0,0.0,,,0.0,,,,sd,cannot be opened
""".lstrip()
WATCH = """
not = ["traffic"]
[[label]]
name = "dog bark"
wordings = ["barking dog"]
threshold = 2.5
[[label]]
name = "siren"
clips = false
"""


@dataclass(frozen=True)
class World:
    """The folders, the good files by kind, and the rows that the good recordings have."""

    root: Path
    files: dict[str, list[Path]] = field(default_factory=dict)
    rows: dict[str, str] = field(default_factory=dict)
    """The csv row of each good recording, without a cache."""

    @property
    def inputs(self) -> Path:
        return self.root / "inputs"

    @property
    def out(self) -> Path:
        return self.root / "out"

    def all_files(self) -> list[Path]:
        """Return every good file that is not a recording."""
        kinds = [paths for kind, paths in self.files.items() if kind != "recordings"]
        return [path for paths in kinds for path in paths]

    def reset(self) -> None:
        """Empty the folders that a case may write to."""
        for name in ("out", "cache", "home", "tmp", "inputs/case"):
            shutil.rmtree(self.root / name, ignore_errors=True)
            (self.root / name).mkdir()
        (self.out / "old.csv").write_text("old\n")
        (self.out / "link.csv").symlink_to("old.csv")

    def snapshot(self) -> dict[str, tuple[int, ...]]:
        """Return what changes whenever one of the files that no command may change is written."""
        stats: dict[str, tuple[int, ...]] = {}
        for name in ("inputs", "work", "tmp", "home"):
            for path in (self.root / name).rglob("*"):
                if ".cache" not in path.parts:
                    about = path.lstat()
                    times = () if path.is_dir() else (about.st_mtime_ns, about.st_ctime_ns)
                    stats[str(path)] = (about.st_mode, about.st_size, about.st_ino, *times)
        return stats


def build_world(root: Path) -> World:
    """Make the folders and all good files."""
    for name in FOLDERS:
        (root / name).mkdir()
    (root / "inputs" / "case").mkdir()
    world = World(root)
    world.files["recordings"] = _recordings(root / "inputs")
    _embeddings(world)
    _texts(world)
    _audit(world)
    _lab(world)
    (root / "work" / "notes.txt").write_text("mine\n")
    return world


def _recordings(home: Path) -> list[Path]:
    found = []
    for number, ending in enumerate(CONTAINERS):
        clip, path = noise_clip(1.5, seed=number), home / f"good-{ending}.{ending}"
        soundfile.write(path, clip.samples, clip.rate)
        found.append(path)
    if shutil.which("ffmpeg"):
        path = home / "good-m4a.m4a"
        command = ["ffmpeg", "-v", "error", "-i", str(found[0]), str(path)]
        subprocess.run(command, check=True)
        found.append(path)
    return found


def _embeddings(world: World) -> None:
    home, fake = world.inputs, load_backbone("fake")
    rows = unit(np.random.default_rng(0).standard_normal((40, fake.dim)).astype(np.float32))
    bank = build_bank(LABELS, fake)
    head = Classifier(LABELS, backbone=Embedder(fake, text_cache=False)).fit().head_
    heads = [home / f"head.{ending}" for ending in ("safetensors", "npz", "json")]
    for path in heads:
        head.save(path)
    bank.save(home / "bank.safetensors")
    made_by = {"backbone": fake.name, "fingerprint": fake.fingerprint}
    calibration = Calibration(rows, unit(rows + 0.1), made_by=made_by)
    calibration.save(home / "calibration.safetensors")
    clips = EmbeddingFile(
        files=tuple(f"{n}.wav" for n in range(8)), audio_rows=rows[:8], name=fake.name,
        fingerprint=fake.fingerprint,
    )  # fmt: skip
    clips.save(home / "clips.npz")
    texts = tuple(Classifier(LABELS, backbone="fake", rule="cosine").texts())
    EmbeddingFile(texts, fake.embed_text(texts), name=fake.name).save(home / "texts.npz")
    np.save(home / "clips.npy", rows[:8])
    world.files.update(
        {
            "heads": heads,
            "calibrations": [home / "calibration.safetensors", home / "bank.safetensors"],
            "embeddings": [home / "clips.npz", home / "texts.npz", home / "clips.npy"],
        }
    )


def _texts(world: World) -> None:
    home = world.inputs
    named = {"pack.toml": PACK, "templates.toml": TEMPLATES, "preset.toml": PRESET}
    named |= {"events.csv": EVENTS, "watch.toml": WATCH}
    for name, content in {**named, "labels.txt": "dog bark\nsiren # loud\nrain\n"}.items():
        (home / name).write_text(content)
    for name in ("pack.toml", "templates.toml"):  # the good ones must be good
        load_pack(home / name)
    load_preset(home / "preset.toml")
    WatchList.load(home / "watch.toml")
    read_events(home / "events.csv")
    world.files.update(
        {
            "packs": [home / "pack.toml", home / "templates.toml"],
            "presets": [home / "preset.toml"],
            "labels": [home / "labels.txt"],
            "events": [home / "events.csv"],
            "watch lists": [home / "watch.toml"],
        }
    )


def _audit(world: World) -> None:
    """Record decisions about labels, with their audio, and about events."""
    path = world.inputs / "audit.db"
    classifier = Classifier(LABELS, backbone=Embedder("fake", text_cache=False))
    recordings = [str(path) for path in world.files["recordings"][:2]]
    with DecisionStore(path, keep_audio=True) as store:
        assert not any(one.error for one in audited_results(store, classifier, recordings))
        settings = Detection(hop_s=0.5, window_s=0.5, threshold=0.01)
        detector = classifier.detector(settings=settings)
        assert list(audited_events(store, detector, changing_noise(1, 2, 3, 1)))
    world.files["audits"] = [path, *sorted(store.copies.iterdir())]


def _lab(world: World) -> None:
    home = world.inputs
    for label, seed in (("dog bark", 1), ("siren", 2)):
        (home / "clips" / label).mkdir(parents=True)
        clip = noise_clip(1.0, rate=8000, seed=seed)
        soundfile.write(home / "clips" / label / "a.wav", clip.samples, clip.rate)
    (home / "noise").mkdir()
    for number in range(2):
        clip = noise_clip(6.0, rate=8000, seed=9 + number)
        soundfile.write(home / "noise" / f"{number}.wav", clip.samples, clip.rate)
    (home / "grid.toml").write_text(GRID)
    world.files["grids"] = [home / "grid.toml"]
    _run_lab(world)


def _run_lab(world: World) -> None:
    """Make a store with rows, and the records of its mixes."""
    home = world.inputs
    source = str(Path(driftscore.__file__).parent.parent)
    changes = {"DRIFTSCORE_CACHE": str(world.root / "cache"), "PYTHONPATH": source}
    for arguments in (
        ["run", str(home / "grid.toml"), "--store", str(home / "store")],
        ["mixes", str(home / "grid.toml"), "--out", str(home / "mixes.jsonl")],
    ):
        # In a process of its own, which closes the database of the store.
        command = [sys.executable, "-m", "driftscore", "lab", *arguments]
        subprocess.run(command, env=os.environ | changes, check=True, capture_output=True)
    world.files["mixes"] = [home / "mixes.jsonl"]
    kept = (p for p in sorted((home / "store").rglob("*")) if p.is_file())
    world.files["stores"] = [path for path in kept if path.stat().st_size < 1_000_000]
