import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from driftscore.audio.recordings import read
from driftscore.errors import UsageError
from driftscore.lab.corpora.datasets import find_dataset
from training.corpora import shared_events, shared_scenes

from .small_lab import tone, write


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shared_scenes, "SCENES", 6)
    lines = ["file,split,label,environment,avoid_classes,licence,author,source,origin,fold"]
    for number, label in enumerate(("dog", "rain", "sea_waves", "siren")):
        file = f"events/{label}/{number}.wav"
        write(tmp_path / "shared" / file, tone(200 * 2**number, seed=number))
        lines.append(f"{file},events,{label},,,CC0,a,b,c,1")
    (tmp_path / "shared" / "manifest.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "shared"


def test_scenes_have_two_or_three_classes_and_ten_seconds(home: Path) -> None:
    clips = find_dataset("training.corpora:shared_scenes", home).clips()
    assert len(clips) == 6
    assert all(len(clip.labels) > 1 for clip in clips)
    for clip in clips:
        assert len(clip.labels) == len(set(clip.labels)) in (2, 3)
        assert set(clip.labels) <= set(shared_scenes.labels(home))
        info = soundfile.info(clip.path)
        assert info.frames == 10 * shared_scenes.RATE
        assert np.abs(read(clip.path).samples).max() <= 1


def test_scenes_are_generated_once_and_are_the_same_when_generated_again(home: Path) -> None:
    first = shared_scenes.clips(home)
    made = {clip.path: clip.path.read_bytes() for clip in first}
    stamps = {path: path.stat().st_mtime_ns for path in made}
    assert shared_scenes.clips(home) == first
    assert {path: path.stat().st_mtime_ns for path in made} == stamps
    shutil.rmtree(first[0].path.parent)
    assert shared_scenes.clips(home) == first
    assert {path: path.read_bytes() for path in made} == made


def test_a_scene_has_its_events_at_their_times(home: Path) -> None:
    events = shared_events.clips(home)
    chosen, times = shared_scenes._draw(events, 0)
    assert [clip.labels[0] for clip in chosen] == list(shared_scenes.clips(home)[0].labels)
    assert all(0 <= time <= 5 for time in times)


def test_missing_events_are_reported(home: Path) -> None:
    (home / "events" / "dog" / "0.wav").unlink()
    assert shared_scenes.missing(home) == ["events/dog/0.wav"]
    with pytest.raises(UsageError, match="incomplete"):
        find_dataset("training.corpora:shared_scenes", home).clips()
