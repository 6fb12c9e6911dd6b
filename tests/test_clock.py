"""When a recording starts: as given, by its name, by its metadata, or unknown."""

import struct
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driftscore.audio.clock import (
    GIVEN,
    METADATA,
    NAME,
    from_metadata,
    from_name,
    parse_start,
    start_of,
)
from driftscore.errors import UsageError

NIGHT = datetime(2026, 11, 16, 3, 15)
WINTER = timezone(timedelta(hours=1))


@pytest.fixture(autouse=True)
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the zone of this machine to one without summer time."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def wav(path: Path, *chunks: bytes, kind: bytes = b"RIFF") -> Path:
    """Write a wav of a few samples with further chunks around them."""
    form = struct.pack("<HHIIHH", 1, 1, 16000, 32000, 2, 16)
    before = chunk(b"fmt ", form)
    content = b"WAVE" + before + b"".join(chunks[:1]) + chunk(b"data", bytes(7))
    content += b"".join(chunks[1:])
    path.write_bytes(kind + struct.pack("<I", len(content)) + content)
    return path


def bext(date: bytes, clock: bytes) -> bytes:
    return chunk(b"bext", bytes(320) + date.ljust(10, b"\0") + clock.ljust(8, b"\0") + bytes(264))


def info(name: bytes, text: str) -> bytes:
    return chunk(b"LIST", b"INFO" + chunk(name, text.encode() + b"\0"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("20261116_031500.wav", NIGHT),
        ("20261116_031500T.WAV", NIGHT),
        ("SM4A_20261116_031500.wav", NIGHT),
        ("S4A-12345_20261116$031500.wav", NIGHT),
        ("yard 2026-11-16 03.15.00.flac", NIGHT),
        ("2026-11-16T03-15-00", NIGHT),
        ("20261116031500.mp3", NIGHT),
        ("/data/20250101_000000/20261116_031500_20261116_041500.wav", NIGHT),
        (r"C:\nights\20261116-031500.wav", NIGHT),
        ("20261116T031500Z.wav", NIGHT.replace(tzinfo=UTC)),
        ("20261116T031500Zoo.wav", NIGHT),
        ("20261116T031500+0100_REC.flac", NIGHT.replace(tzinfo=WINTER)),
        ("2026-11-16T03-15-00+01-00.flac", NIGHT.replace(tzinfo=WINTER)),
        ("20261116_031500-0001.wav", NIGHT),
        ("5EC5A158.WAV", datetime(2020, 5, 20, 21, 30, tzinfo=UTC)),
        ("99991399_250000_20261116_031500.wav", NIGHT),
    ],
)
def test_a_name_tells_the_time(name: str, expected: datetime) -> None:
    found = from_name(name)
    assert found == expected
    assert found is not None
    assert found.utcoffset() == expected.utcoffset()


@pytest.mark.parametrize(
    "name",
    ["night.wav", "20261116.wav", "20261116_0315.wav", "20261399_031500.wav", "20261116_250000.wav",
     "57123456.WAV", "DEADBEEF.WAV", "5ec5a158.wav", "120261116_031500.wav", "", "ZOOM0001.WAV",
     "20261116_031500_00-12-03.5_dog-bark.flac", "18991116_031500.wav", "\u0662\u0660\u0662\u0666"],
)  # fmt: skip
def test_other_names_do_not(name: str) -> None:
    assert from_name(name) is None


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([bext(b"2026-11-16", b"03:15:00")], NIGHT),
        ([bext(b"2026_11_16", b"03-15-00")], NIGHT),
        ([b"", bext(b"2026:11:16", b"03.15.00")], NIGHT),
        ([info(b"ICRD", "2026-11-16T03:15:00+01:00")], NIGHT.replace(tzinfo=WINTER)),
        ([info(b"ICRD", "2026-11-16 03:15:00")], NIGHT),
        ([info(b"ICMT", "Recorded at 03:15:00 16/11/2026 (UTC+1) by AudioMoth 24F3")],
         NIGHT.replace(tzinfo=WINTER)),
        ([info(b"ICMT", "Recorded at 03:15:00.125 16/11/2026 (UTC-3:30) by AudioMoth")],
         NIGHT.replace(tzinfo=timezone(-timedelta(hours=3, minutes=30)))),
        ([info(b"ICMT", "Recorded at 03:15:00 16/11/2026 (UTC) by AudioMoth")],
         NIGHT.replace(tzinfo=UTC)),
        ([info(b"ICMT", "Recorded at 03:15:00 16/11/2026 by AudioMoth 24F3")],
         NIGHT.replace(tzinfo=UTC)),
        ([chunk(b"guan", b"GUANO|Version:1.0\nTimestamp:2026-11-16T03:15:00+01:00\nNote: x")],
         NIGHT.replace(tzinfo=WINTER)),
        ([bext(b"2000-01-01", b"00:00:00"), chunk(b"guan", b"Timestamp: 2026-11-16T03:15:00Z")],
         NIGHT.replace(tzinfo=UTC)),
        ([info(b"ICRD", "2026-11-16")], None),
        ([info(b"ICMT", "Recorded at 03:15:00 16/13/2026 (UTC)")], None),
        ([bext(b"", b"")], None),
        ([chunk(b"guan", b"Timestamp: yesterday, at about three")], None),
    ],
)  # fmt: skip
def test_metadata_tell_the_time(
    tmp_path: Path, chunks: list[bytes], expected: datetime | None
) -> None:
    found = from_metadata(wav(tmp_path / "a.wav", *chunks))
    assert found == expected
    if found is not None and expected is not None:
        assert found.utcoffset() == expected.utcoffset()


def test_the_info_list_that_libsndfile_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    with soundfile.SoundFile(path, "w", 16000, 1) as file:
        file.comment = "Recorded at 03:15:00 16/11/2026 (UTC+1) by AudioMoth 24F319055FDF2902"
        file.write(np.zeros(16001))
    assert from_metadata(path) == NIGHT.replace(tzinfo=WINTER)


def test_a_file_of_more_than_4_gigabytes_keeps_its_size_in_ds64(tmp_path: Path) -> None:
    long = chunk(b"ds64", struct.pack("<QQQI", 0, 4, 0, 0))
    data = b"data" + struct.pack("<I", 0xFFFFFFFF) + bytes(4)
    content = b"WAVE" + long + data + bext(b"2026-11-16", b"03:15:00")
    path = tmp_path / "a.wav"
    path.write_bytes(b"RF64" + struct.pack("<I", 0xFFFFFFFF) + content)
    assert from_metadata(path) == NIGHT


def test_what_is_given_comes_before_the_name_and_the_name_before_the_metadata(
    tmp_path: Path,
) -> None:
    named = wav(tmp_path / "20261116_031500.wav", bext(b"2001-01-01", b"00:00:00"))
    other = wav(tmp_path / "night.wav", bext(b"2026-11-16", b"03:15:00"))
    start = start_of(named, "2026-01-02T03:04:05+01:00")
    assert start is not None
    assert (start.text_at(0.25), start.source) == ("2026-01-02T03:04:05.250+01:00", GIVEN)
    start = start_of(str(named))
    assert start is not None
    assert (start.text_at(90), start.source) == ("2026-11-16T03:16:30.000+09:00", NAME)
    assert not start.zone_known
    assert str(start) == (
        "2026-11-16T03:15:00+09:00 (from its name, in the time zone of this machine)"
    )
    start = start_of(other)
    assert start is not None
    assert (start.source, start.zone_known) == (METADATA, False)
    assert start_of(wav(tmp_path / "b.wav")) is None
    assert start_of((np.zeros(3), 16000)) is None
    assert start_of(tmp_path / "missing.wav") is None


def test_a_name_takes_the_zone_of_metadata_that_show_the_same_time(tmp_path: Path) -> None:
    comment = info(b"ICMT", "Recorded at 03:15:00 16/11/2026 (UTC+1) by AudioMoth 24F3")
    same = start_of(wav(tmp_path / "20261116_031500.wav", comment))
    other = start_of(wav(tmp_path / "20261116_041500.wav", comment))
    assert same is not None
    assert other is not None
    assert (same.text_at(0), same.zone_known) == ("2026-11-16T03:15:00.000+01:00", True)
    assert (other.text_at(0), other.zone_known) == ("2026-11-16T04:15:00.000+09:00", False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-16T03:15:00+01:00", NIGHT.replace(tzinfo=WINTER)),
        (" 2026-11-16 03:15 ", NIGHT),
        ("20261116_031500", NIGHT),
        ("20261116T031500Z", NIGHT.replace(tzinfo=UTC)),
    ],
)
def test_a_start_is_given_with_or_without_a_zone(text: str, expected: datetime) -> None:
    found = parse_start(text)
    assert (found, found.utcoffset()) == (expected, expected.utcoffset())


@pytest.mark.parametrize("text", ["", "now", "2026-11-16", "03:15", "2026-11-16T03:15:00 CET",
                                  "x 20261116_031500", "0001-01-01T00:00:00"])  # fmt: skip
def test_a_start_that_is_no_time_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match=r"such as 2026-11-16T03:15:00\+01:00"):
        parse_start(text)


@settings(deadline=None)
@given(st.text(max_size=60) | st.from_regex(r"[0-9]{8}[T_][0-9]{6}[-+0-9Z]{0,6}"))
def test_any_name_is_a_time_or_nothing(name: str) -> None:
    found = from_name(name)
    assert found is None or 1990 <= found.year < 2100


COMPLETE = (
    chunk(b"LIST", b"INFO" + chunk(b"ICMT", b"Recorded at 03:15:00 16/11/2026 (UTC+1)"))
    + bext(b"2026-11-16", b"03:15:00")
    + chunk(b"guan", b"Timestamp: 2026-11-16T03:15:00Z")
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 900), swap=st.binary(max_size=12), keep=st.integers(0, 1200))
def test_a_damaged_header_is_a_time_or_nothing(
    tmp_path: Path, place: int, swap: bytes, keep: int
) -> None:
    path = wav(tmp_path / "a.wav", COMPLETE)
    content = path.read_bytes()
    path.write_bytes((content[:place] + swap + content[place + len(swap) :])[:keep])
    found = from_metadata(path)
    assert found is None or isinstance(found, datetime)


def test_a_header_of_endless_chunks_is_read_in_bounded_parts(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    empty = b"RIFF\0\0\0\0WAVE" + chunk(b"junk", b"") * 300_000
    path.write_bytes(empty + bext(b"2026-11-16", b"03:15:00"))
    begin = time.perf_counter()
    assert from_metadata(path) is None
    assert time.perf_counter() - begin < 1
    huge = b"RIFF\0\0\0\0WAVE" + b"bext" + struct.pack("<I", 0xFFFFFFF0) + bytes(100_000)
    path.write_bytes(huge)
    assert from_metadata(path) is None
