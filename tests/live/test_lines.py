"""The lines of JSON of a listener, and its clips, where the disk is full for a while."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from driftscore import Audio, Classifier
from driftscore.decisions.records import StoredEvent
from driftscore.errors import WriteError
from driftscore.live import outputs as outputs_module
from driftscore.live.clips import EventClips
from driftscore.live.outputs import Outputs
from driftscore.live.outputs.jsonl import JsonLines

from .scenes import scene, stored
from .test_listener import SOUNDS, listened


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: a write fails as on a full disk, also in a line."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def ids(path: Path) -> list[int]:
    return [int(json.loads(line)["id"]) for line in path.read_text().splitlines()]


def test_lines_that_a_full_disk_does_not_take_are_written_when_there_is_space(
    tmp_path: Path,
) -> None:
    path, messages = tmp_path / "events.jsonl", list[str]()
    outputs = Outputs([JsonLines(str(path))], messages.append)
    outputs.send(stored(1))
    with full_disk(path.stat().st_size + 100):
        for id in range(2, 200):  # far more than the buffer that a file has by itself
            outputs.send(stored(id))
    assert messages == [f"error: Cannot write {path}: File too large"]
    outputs.send(stored(200))
    assert ids(path) == list(range(1, 201))
    outputs.close()
    assert outputs.undelivered == 0


def send_more_than_may_wait(outputs: Outputs) -> None:
    for id in range(2, 11):
        outputs.send(stored(id))


def test_lines_are_written_again_after_more_had_to_wait_than_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    monkeypatch.setattr("driftscore.live.outputs.jsonl.MAX_WAITING", 1000)
    outputs = Outputs([JsonLines(str(path))], lambda _: None)
    outputs.send(stored(1))
    with full_disk(path.stat().st_size):
        send_more_than_may_wait(outputs)
    outputs.send(stored(11))
    first, *_, last = ids(path)
    assert (first, last) == (1, 11)
    outputs.close()
    assert outputs.undelivered == 10 - len(ids(path)) + 1


def test_lines_that_wait_are_in_the_new_file_if_the_old_one_is_deleted_to_make_space(
    tmp_path: Path,
) -> None:
    path = tmp_path / "events.jsonl"
    outputs = Outputs([JsonLines(str(path))], lambda _: None)
    outputs.send(stored(1))
    with full_disk(path.stat().st_size + 100):  # the second line is cut
        outputs.send(stored(2))
        path.unlink()
    outputs.send(stored(3))
    assert ids(path) == [2, 3]
    outputs.close()
    assert outputs.undelivered == 0


def test_events_that_a_closed_stdout_does_not_take_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = list[str]()
    outputs = Outputs([JsonLines()], messages.append)
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        outputs.send(stored(1))
        outputs.close()
        monkeypatch.undo()
        with suppress(OSError):
            full.close()
    assert messages == ["error: Cannot write stdout: No space left on device"]
    assert outputs.undelivered == 1


def test_events_that_are_not_in_the_file_at_the_end_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    monkeypatch.setattr("driftscore.live.outputs.jsonl.MAX_WAITING", 1000)
    outputs = Outputs([JsonLines(str(path))], lambda _: None)
    outputs.send(stored(1))
    with full_disk(path.stat().st_size):
        send_more_than_may_wait(outputs)
        outputs.close()
    assert outputs.undelivered == 9
    assert ids(path) == [1]


def test_a_failure_that_lasts_is_reported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, messages = tmp_path / "events.jsonl", list[str]()
    outputs = Outputs([JsonLines(str(path))], messages.append)
    with full_disk(0):
        outputs.send(stored(1))
        outputs.send(stored(2))
        assert len(messages) == 1
        monkeypatch.setattr(outputs_module, "REPEAT_S", 0.0)
        outputs.send(stored(3))
        assert len(messages) == 2
    outputs.close()


def test_a_file_that_was_renamed_or_deleted_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    lines = JsonLines(str(path))
    lines.send(stored(1))
    path.rename(tmp_path / "events.jsonl.1")
    lines.send(stored(2))
    assert (ids(tmp_path / "events.jsonl.1"), ids(path)) == ([1], [2])
    path.unlink()
    lines.send(stored(3))
    assert ids(path) == [3]
    assert lines.close() == 0


def test_a_line_after_one_that_a_power_cut_has_cut_is_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"kind": "ev')
    lines = JsonLines(str(path))
    lines.send(stored(1))
    lines.close()
    assert path.read_text().startswith('{"kind": "ev\n{')
    assert json.loads(path.read_text().splitlines()[1])["id"] == "1"


def test_a_clip_that_a_full_disk_does_not_take_says_so(tmp_path: Path) -> None:
    clips = EventClips(str(tmp_path))
    noise = np.random.default_rng(0).standard_normal(16_000).astype(np.float32)
    with full_disk(1000), pytest.raises(WriteError, match="File too large"):
        clips.write(Audio(noise / np.float32(8), 16_000), stored())
    assert not list(tmp_path.rglob("*.*"))


class FullUntilTidied(EventClips):
    """A folder of clips on a disk that is full until old clips are deleted."""

    tidied = False

    def write(self, audio: Audio, event: StoredEvent) -> str:
        if not self.tidied:
            raise WriteError("Cannot write: No space left on device")
        return super().write(audio, event)

    def tidy(self, *, now: float | None = None) -> int:
        self.tidied = True
        return super().tidy(now=now)


def test_old_clips_are_deleted_before_a_clip_is_written(
    tmp_path: Path, classifier: Classifier
) -> None:
    kept = listened(classifier, scene(40, SOUNDS[:1]), clips=FullUntilTidied(str(tmp_path)))
    assert kept.reported
    assert all(event.clip for event in kept.reported)
