"""Output on streams that lack characters, as the code pages of Windows do; file names with any.

Windows gives names and arguments in Unicode; only the streams have a code page. A character that a
stream lacks is written as an escape. Files by --out are always UTF-8.
"""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

from driftscore.formats import format_names
from driftscore.system.progress import progress_bar

from .conftest import Speak, noise_clip
from .fuzz.cases import all_commands

PAGES = ("cp1252", "cp437", "cp932", "ascii")
"""Western Europe, the consoles of the United States, Japan, and the least that there is."""
NAMES = ("café.wav", "日本.wav", "\N{DOG FACE}.wav")
LABELS = ["--labels", "Hündin, 犬, siren", "--backbone", "fake"]


@pytest.fixture
def sounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of clips with names in several scripts, and one that is not a sound."""
    monkeypatch.chdir(tmp_path)  # paths are short, so that a table does not fold them
    home = Path("sounds")
    home.mkdir()
    clip = noise_clip(2.0)
    for name in NAMES:
        soundfile.write(str(home / name), clip.samples, clip.rate)
    (home / "défectueux.wav").write_bytes(b"no sound")
    return home


def escaped(text: str, page: str) -> str:
    """Return a text with escapes for what a code page lacks."""
    return text.encode(page, "backslashreplace").decode(page)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("format", sorted({*format_names()} - {"audacity"}))
def test_every_format_can_be_written_to_a_stream_of_a_code_page(
    speak: Speak, sounds: Path, page: str, format: str
) -> None:
    status, out, err = speak(page, "classify", sounds, *LABELS, "--format", format)
    assert status == 1, err  # one of them is not a sound
    assert "1 of 4 recordings could not be used" in err
    for name in NAMES:
        shown = json.dumps(name)[1:-1] if format in ("json", "jsonl") else escaped(name, page)
        assert shown in out


@pytest.mark.parametrize("page", PAGES)
def test_events_of_a_file_can_be_written_for_audacity(
    speak: Speak, sounds: Path, page: str
) -> None:
    file = sounds / "日本.wav"
    assert speak(page, "detect", file, *LABELS, "--format", "audacity")[0] == 0
    assert speak(page, "detect", file, *LABELS)[0] == 0


def test_json_loses_nothing_and_csv_shows_escapes(speak: Speak, sounds: Path) -> None:
    for page in PAGES:
        _, out, _ = speak(page, "classify", sounds, *LABELS, "--format", "jsonl")
        names = {Path(json.loads(line)["file"]).name for line in out.splitlines()}
        assert names == {*NAMES, "défectueux.wav"}
    _, out, _ = speak("cp1252", "classify", sounds, *LABELS, "--format", "csv")
    rows = {Path(row["file"].replace("\\", "|")).name for row in csv.DictReader(io.StringIO(out))}
    assert rows == {"café.wav", "défectueux.wav", "|u65e5|u672c.wav", "|U0001f436.wav"}


@pytest.mark.parametrize("format", ["csv", "jsonl", "table"])
def test_a_file_by_out_is_utf_8_whatever_the_streams_are(
    speak: Speak, sounds: Path, tmp_path: Path, format: str
) -> None:
    written = set()
    for page in ("utf-8", *PAGES):
        out = tmp_path / f"{page} 日本.txt"
        assert speak(page, "classify", sounds, *LABELS, "--format", format, "--out", out)[0] == 1
        written.add(out.read_bytes())
    assert len(written) == 1
    assert "日本.wav" in written.pop().decode("utf-8")


@pytest.mark.parametrize("name", sorted({*all_commands(), "", "lab", "data", "audit"}))
def test_every_help_page_can_be_read_and_has_a_short_flag(speak: Speak, name: str) -> None:
    long = speak("ascii", *name.split(), "--help")
    assert long[0] == 0
    assert "Usage: " in long[1]
    assert speak("ascii", *name.split(), "-h") == long


@pytest.mark.parametrize("page", PAGES)
def test_other_commands_and_errors_can_be_read(speak: Speak, sounds: Path, page: str) -> None:
    for arguments in (["doctor"], ["list", "rules"], ["cache"], ["completion", "powershell"],
                      ["prompts", "--labels", "犬, é"]):  # fmt: skip
        status, out, _ = speak(page, *arguments)
        assert status == 0
        assert out
    wrong: list[list[object]] = [
        ["nö日"],
        ["list", "日本"],
        ["classify", "nö/日.wav", *LABELS],
        ["classify", sounds, "--labels", "犬", "--rule", "é日"],
        ["classify", sounds / "*日本語*", *LABELS],
        ["head", *LABELS, "--out", sounds / "日本.wav" / "x.json"],
    ]
    for given in wrong:
        status, _, err = speak(page, *given)
        assert status in (1, 2)
        assert err.strip()


@pytest.mark.parametrize("page", PAGES)
def test_a_progress_bar_can_be_drawn(monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    stream = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(stream, encoding=page, errors="strict"))
    with progress_bar("Embedding recordings", 10, show=True) as advance:
        advance(3)
    sys.stderr.flush()
    assert "3/10" in stream.getvalue().decode(page)


@pytest.mark.skipif(os.name == "nt", reason="WINDOWS HAS NO NAMES OF BYTES")
def test_a_name_that_is_not_utf_8_is_shown_with_escapes(tmp_path: Path) -> None:
    clip = noise_clip(2.0)
    name = os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.wav")
    with open(name, "wb") as file:
        soundfile.write(file, clip.samples, clip.rate, format="WAV")
    done = subprocess.run(
        [sys.executable, "-m", "driftscore", "classify", name, *LABELS, "--format", "csv"],
        env=os.environ | {"PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"bad\\udcff.wav,H\xfcndin," in done.stdout
