"""Windows on disk: an interrupted search continues, and gives the events of one that was not."""

import errno
import os
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from driftscore import Audio, Backbone
from driftscore.engines.window_log import WindowLog, record_size, window_log
from driftscore.engines.window_stream import WindowEmbedding, window_stream

from .conftest import WriteWav, noise_clip
from .test_sliding import RATE, Local


def logged(path: Path, dim: int = 16) -> WindowLog:
    return WindowLog(path / "a.windows", dim)


def windows_of(
    audio: Audio, log: WindowLog | None, model: Local | None = None
) -> list[WindowEmbedding]:
    stream = window_stream(model or Local(), window_s=4.0, hop_s=0.5, block_s=5.0, store=log)
    found: list[WindowEmbedding] = []
    for part in np.array_split(audio.samples, 13):
        found += stream.feed(part)
    return found + stream.finish()


def same(one: list[WindowEmbedding], other: list[WindowEmbedding]) -> bool:
    return len(one) == len(other) and all(
        a[:2] == b[:2] and np.array_equal(a[2], b[2]) for a, b in zip(one, other, strict=True)
    )


def with_silence() -> Audio:
    samples = noise_clip(60.0, rate=RATE).samples.copy()
    samples[20 * RATE : 30 * RATE] = 0
    return Audio(samples, RATE)


@pytest.mark.parametrize("kept", [0, 1, 7, 40, 47, 90, 113])
def test_a_search_that_continues_gives_the_same_windows(tmp_path: Path, kept: int) -> None:
    audio, log = with_silence(), logged(tmp_path)
    with log.writing(keep=True):
        expected = windows_of(audio, log)
    content = log.path.read_bytes()
    assert len(content) == 113 * record_size(16)
    log.path.write_bytes(content[: kept * record_size(16) + 5])  # cut within a record
    again, model = logged(tmp_path).read(), Local()
    assert len(again.done) == min(kept, 113)
    with again.writing(keep=True):
        assert same(windows_of(audio, again, model), expected)
    assert log.path.read_bytes() == content
    if kept == 113:
        assert model.framed < 30  # of 240 frames
    assert same(windows_of(audio, None), expected)


def test_a_model_that_encodes_windows_continues_as_well(tmp_path: Path, fake: Backbone) -> None:
    audio = noise_clip(9.0)

    def found(log: WindowLog) -> list[WindowEmbedding]:
        stream = window_stream(fake, window_s=2.0, hop_s=0.5, store=log)
        return stream.feed(audio.samples) + stream.finish()

    log = logged(tmp_path, fake.dim)
    with log.writing(keep=True):
        expected = found(log)
    log.path.write_bytes(log.path.read_bytes()[: 5 * record_size(fake.dim)])
    again = logged(tmp_path, fake.dim).read()
    assert len(again.done) == 5
    with again.writing(keep=True):
        assert same(found(again), expected)


def test_a_damaged_record_ends_what_is_known(tmp_path: Path) -> None:
    log = logged(tmp_path)
    with log.writing(keep=True):
        windows_of(noise_clip(20.0, rate=RATE), log)
    content = bytearray(log.path.read_bytes())
    content[10 * record_size(16) + 9] ^= 1
    log.path.write_bytes(content)
    assert len(logged(tmp_path).read().done) == 10


def test_the_file_is_deleted_at_the_end_and_kept_after_an_error(tmp_path: Path) -> None:
    log = logged(tmp_path)
    with suppress(RuntimeError), log.writing():
        log.add(np.ones(16, np.float32))
        raise RuntimeError
    assert len(logged(tmp_path).read().done) == 1
    assert log.path.stat().st_mode & 0o777 == 0o600
    with logged(tmp_path).writing():
        pass
    assert not log.path.exists()


def test_a_log_on_a_read_only_disk_is_read_and_one_that_cannot_be_made_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logged(tmp_path)
    with log.writing(keep=True):
        log.add(np.ones(16, np.float32))

    def read_only(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("os.open", read_only)
    again = logged(tmp_path).read()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with again.writing(keep=True):
            assert len(again.done) == 1
    with (
        pytest.warns(UserWarning, match=r"The window cache .* cannot be used \([^\[]*\)"),
        logged(tmp_path / "new").writing(),
    ):
        pass


def test_a_changed_file_has_another_log(wav: WriteWav, fake: Backbone) -> None:
    file = wav()
    first = window_log(file, fake, window_s=2.0, hop_s=0.5)
    other = window_log(file, fake, window_s=2.0, hop_s=1.0)
    Path(file).write_bytes(Path(file).read_bytes() + b"\0")
    changed = window_log(file, fake, window_s=2.0, hop_s=0.5)
    assert first is not None
    assert other is not None
    assert changed is not None
    assert len({first.path, other.path, changed.path}) == 3
    assert window_log(noise_clip(1.0), fake, window_s=2.0, hop_s=0.5) is None
