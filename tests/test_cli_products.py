"""What `detect` makes besides rows: clock times, clips, pictures, a Raven table."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

from .conftest import LABELS, Run, noise_clip
from .test_events import place

ASK = ["--labels", ", ".join(LABELS), "--backbone", "fake", "--threshold", "0.02",
       "--window", "1", "--not", "none"]  # fmt: skip


def night(folder: Path, name: str, *, events: bool = True) -> Path:
    """Write a recording of 40 s with a tone from 20 to 23 s, or one in which nothing happens."""
    audio = place()
    samples = audio.samples if events else np.zeros_like(audio.samples) + 1e-4
    soundfile.write(folder / name, samples, audio.rate, subtype="FLOAT")
    return folder / name


def rows(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), delimiter=delimiter))


def test_events_have_the_clock_time_of_their_recording(run: Run, tmp_path: Path) -> None:
    file = night(tmp_path, "20261116_235950.wav")
    status, out, err = run(
        "detect", file, *ASK, "-f", "csv", "--start", "2026-11-16T23:59:50+01:00"
    )
    assert status == 0, err
    found = rows(out)
    assert found
    for row in found:
        second = float(row["start_s"]) - 10
        assert row["time"] == f"2026-11-17T00:00:{second:06.3f}+01:00"
    assert "time zone of this machine" not in err
    named = run("detect", file, *ASK, "-f", "csv")
    assert rows(named[1])[0]["time"][:22] == found[0]["time"][:22]
    assert named[2].count("in the time zone of this machine") == 1
    status, _, err = run("detect", file, file, *ASK, "--start", "now")
    assert (status, "a date and a time" in err) == (2, True)


def test_the_times_of_raven_go_on_through_recordings_without_an_event(
    run: Run, tmp_path: Path
) -> None:
    files = [night(tmp_path, "a.wav"), night(tmp_path, "b.wav", events=False),
             night(tmp_path, "c.wav")]  # fmt: skip
    single = rows(run("detect", files[0], *ASK, "-f", "raven")[1], "\t")
    assert single
    status, out, err = run("detect", *files, *ASK, "-f", "raven")
    assert status == 0, err
    found = rows(out, "\t")
    assert {row["Begin File"] for row in found} == {"a.wav", "c.wav"}
    for row in found:
        before = 80.0 if row["Begin File"] == "c.wav" else 0.0
        assert float(row["Begin Time (s)"]) == pytest.approx(before + float(row["File Offset (s)"]))
        assert float(row["High Freq (Hz)"]) == place().rate / 2
    assert [row["Selection"] for row in found] == [str(n + 1) for n in range(len(found))]


def test_clips_and_a_picture_are_made_in_the_same_run(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: make setup")
    file, clips, plot = night(tmp_path, "a.wav"), tmp_path / "clips", tmp_path / "a.svg"
    status, out, err = run(
        "detect", file, *ASK, "-f", "csv", "--clips", clips, "--set", "margin_s=1", "--plot", plot
    )
    assert status == 0, err
    found = rows(out)
    lengths = sorted(soundfile.info(path).duration for path in clips.iterdir())
    expected = sorted(min(40, float(r["end_s"]) + 1) - max(0, float(r["start_s"]) - 1)
                      for r in found)  # fmt: skip
    assert lengths == pytest.approx(expected, abs=1e-3)
    assert plot.read_text("utf-8").startswith("<?xml")


def test_a_folder_of_recordings_is_drawn_by_hour_of_day(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: make setup")
    files = [night(tmp_path, f"20261116_{hour}0000Z.wav") for hour in ("03", "17")]
    plot = tmp_path / "day.png"
    status, _, err = run("detect", *files, *ASK, "-f", "csv", "--plot", plot)
    assert status == 0, err
    assert f"Picture in {plot}" in err
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_wrong_picture_is_refused_before_any_work(run: Run, tmp_path: Path) -> None:
    status, out, err = run("detect", tmp_path / "none.wav", *ASK, "--plot", tmp_path / "a.gif")
    assert (status, out) == (2, "")
    assert "A picture is .png or .svg" in err


def test_classify_gives_raven_the_times_and_bands_that_detect_gives(
    run: Run, tmp_path: Path
) -> None:
    files = [str(tmp_path / f"{number}.wav") for number in range(3)]
    for file in files:
        soundfile.write(file, noise_clip(3.0, rate=22_050).samples, 22_050)
    command = "classify", *files, "-l", "dog, siren", "-b", "fake", "-f", "raven"
    table = rows(run(*command)[1], "\t")
    assert [row["Begin Time (s)"] for row in table] == ["0.000000", "3.000000", "6.000000"]
    assert {row["File Offset (s)"] for row in table} == {"0.000000"}
    assert {row["High Freq (Hz)"] for row in table} == {"11025.0"}
    assert rows(run(*command, "--threshold", "1e9")[1], "\t") == []
