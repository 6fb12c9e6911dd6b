"""What is given as a recording from Python or by URL: a bad one is its own error result."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import soundfile

from driftscore import Audio, AudioError, Backbone, Classifier, Embedder
from driftscore.audio.recordings import MIN_SECONDS, expand, read
from driftscore.backbones import Features
from driftscore.backbones.stored import EmbeddingFile
from driftscore.backbones.vectors import Vector
from driftscore.engines.ray import _parcel
from driftscore.errors import UsageError, WriteError
from driftscore.scoring.meaning import UnclearWordWarning
from driftscore.storage.files import cache_home, replacing

from .conftest import LABELS, Counting, Run, WriteWav, noise_clip

ASK = ["--labels", ", ".join(LABELS), "--backbone", "fake", "-f", "csv"]
needs_ffmpeg = pytest.mark.skipif(not shutil.which("ffmpeg"), reason="FFMPEG IS NOT INSTALLED")


class Broken:
    """A file object, or a path, of someone else's that fails in every way."""

    @property
    def name(self) -> str:
        raise RuntimeError("no name")

    def __fspath__(self) -> str:
        raise RuntimeError("no path")

    def read(self, size: int = -1) -> bytes:
        raise RuntimeError("no bytes")

    def seek(self, *_: int) -> int:
        raise RuntimeError("no seek")

    def tell(self) -> int:
        raise RuntimeError("no place")


def closed_file(tmp_path: Path) -> io.IOBase:
    handle = open(tmp_path / "closed", "w+b")  # noqa: SIM115
    handle.close()
    return handle


SAMPLES = np.ones(16_000, np.float32)
ODD: dict[str, object] = {
    "None": None,
    "an int": 3,
    "True": True,
    "an object": object(),
    "a class": Classifier,
    "an empty list": [],
    "an empty dict": {},
    "a dict without samples": {"array": None, "sampling_rate": 16_000},
    "a dict with a bad rate": {"array": SAMPLES, "sampling_rate": "fast"},
    "a 0-d array": np.array(1.0),
    "an empty array": np.zeros(0),
    "an array of three axes": np.zeros((2, 2, 2)),
    "0-d samples": (np.array(1.0), 16_000),
    "no samples": (np.zeros(0), 16_000),
    "no samples of five channels": (np.zeros((0, 5)), 16_000),
    "samples of three axes": (np.zeros((2, 2, 2)), 16_000),
    "texts as samples": (np.array(["a"]), 16_000),
    "complex samples": (SAMPLES.astype(complex), 16_000),
    "NaN": (SAMPLES * np.nan, 16_000),
    "numbers beyond float32": (np.full(16_000, 1e300), 16_000),
    "a rate of zero": (SAMPLES, 0),
    "a rate of 1 Hz": (SAMPLES, 1),
    "a rate of thirty digits": (SAMPLES, 10**30),
    "a rate of None": (SAMPLES, None),
    "three parts": (SAMPLES, 16_000, 1),
    "20 samples": (SAMPLES[:20], 16_000),
    "a NUL": "a\0b.wav",
    "too long a name": "x" * 5000,
    "an empty name": "",
    "a name that is not Unicode": "\ud800.wav",
    "no bytes": b"",
    "bytes that are no sound": b"RIFF" * 10,
    "a text file": io.StringIO("text"),
    "a broken object": Broken(),
    "an unknown scheme": "nowhere://a/b.wav",
    "a store without its driver": "s3://bucket/a.wav",
    "a store that is not configured": "github://a.wav",
    "a store without its address": "reference://a.wav",
    "no host": "http://",
    "a bad host": "http://[::1/a.wav",
    "an archive that is not there": "zip://a.wav::/nowhere.zip",
    "a chain of nothing": "simplecache::",
}


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("kind", [*ODD, "a closed file"])
def test_an_odd_source_is_its_own_error_and_the_others_are_done(
    wav: WriteWav, fake: Backbone, tmp_path: Path, kind: str, cached: bool
) -> None:
    odd = cast(Any, closed_file(tmp_path) if kind == "a closed file" else ODD[kind])
    classifier = Classifier(LABELS, backbone=Embedder(fake, audio_cache=cached))
    results = list(classifier.classify([wav("a.wav"), odd, wav("b.wav", seed=2)]))
    assert [bool(result.error) for result in results] == [False, True, False]
    assert "\n" not in results[1].error
    assert [bool(e.error) for e in classifier.embed([odd, wav("a.wav")])] == [True, False]
    with pytest.raises(AudioError):
        classifier.scores([odd])


@needs_ffmpeg
def test_a_url_of_m4a_is_given_to_ffmpeg(wav: WriteWav, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="FSSPEC IS NOT INSTALLED")
    path = tmp_path / "a.m4a"
    subprocess.run(["ffmpeg", "-v", "error", "-i", wav(), str(path)], check=True)
    fsspec.filesystem("memory").pipe("/sound/a.m4a", path.read_bytes())
    for url in ("memory://sound/a.m4a", path.as_uri()):
        np.testing.assert_array_equal(read(url).samples, read(path).samples)


def test_urls_that_cannot_be_reached_are_rows(run: Run, wav: WriteWav) -> None:
    pytest.importorskip("fsspec", reason="FSSPEC IS NOT INSTALLED")
    bad = ["nowhere://*.wav", "s3://bucket", "github://x/*", "reference://x", "gs://b/a.wav"]
    assert expand(bad) == bad
    status, out, err = run("classify", bad[0], wav("a.wav"), *bad[1:], wav("b.wav"), *ASK)
    rows = out.splitlines()[1:]
    assert (status, len(rows)) == (1, 7)
    assert [row.endswith("raw,") for row in rows] == [False, True, *[False] * 4, True]
    assert err == "5 of 7 recordings could not be used\n"


@pytest.mark.parametrize("url", ["nowhere://x.csv", "github://x.csv", "s3://bucket/x.csv"])
def test_output_to_a_url_that_cannot_be_reached_is_one_sentence(
    run: Run, wav: WriteWav, url: str
) -> None:
    pytest.importorskip("fsspec", reason="FSSPEC IS NOT INSTALLED")
    status, out, err = run("classify", wav(), *ASK, "--out", url)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert "cannot be reached" in err


def test_a_store_that_refuses_a_file_is_a_write_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec", reason="FSSPEC IS NOT INSTALLED")

    def refuse(*_: object, **__: object) -> None:
        raise LookupError("AccessDenied")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "put_file", refuse)
    with pytest.raises(WriteError, match=r"memory://x\.csv: AccessDenied"):  # noqa: SIM117
        with replacing("memory://x.csv") as partial:
            partial.write_text("rows")


def test_a_recording_shorter_than_a_frame_is_refused_and_a_longer_one_is_embedded(
    fake: Backbone, mini: Backbone
) -> None:
    short, enough = noise_clip(MIN_SECONDS * 0.9), noise_clip(MIN_SECONDS * 1.1)
    for model in (fake, mini):
        embedder = Embedder(model)
        errors = [found.error for found in embedder.embed([short, enough])]
        assert ["too short" in error for error in errors] == [True, False]
        with pytest.raises(AudioError, match=r"too short: 2\d ms"):
            list(embedder.slide(short, window_s=2.0))
        assert list(embedder.slide(enough, window_s=2.0))


class Spoiled(Counting):
    """A model that returns NaN."""

    def encode(self, features: Features) -> Vector:
        return super().encode(features) * np.float32(np.nan)


def test_sliding_refuses_embeddings_that_are_not_finite(fake: Backbone) -> None:
    with pytest.raises(AudioError, match="NaN or infinity"):
        list(Embedder(Spoiled(fake)).slide(noise_clip(5.0), window_s=2.0))
    with pytest.raises(UsageError, match="at most 2 s, got 4 s"):
        list(Embedder(fake).slide(noise_clip(5.0)))


def test_a_wrong_limit_of_hours_is_wrong_usage(
    wav: WriteWav, fake: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given in ("x", "nan", "0", "-1"):
        monkeypatch.setenv("DRIFTSCORE_MAX_HOURS", given)
        with pytest.raises(UsageError, match="DRIFTSCORE_MAX_HOURS must be a positive number"):
            list(Embedder(fake).embed([wav()]))


def test_files_that_macos_writes_beside_others_are_not_recordings(
    wav: WriteWav, tmp_path: Path
) -> None:
    file = wav("x.wav")
    (tmp_path / "._x.wav").write_bytes(b"\0\5\x16\7")
    for given in (str(tmp_path), f"{tmp_path}/*.wav", f"{tmp_path}/**/*.wav"):
        assert expand([given]) == [file]
    pytest.importorskip("fsspec", reason="FSSPEC IS NOT INSTALLED")
    for url in (tmp_path.as_uri(), f"{tmp_path.as_uri()}/*.wav"):
        assert expand([url]) == [Path(file).as_uri()]
    assert expand([str(tmp_path / "._x.wav")]) == [str(tmp_path / "._x.wav")]


@pytest.mark.parametrize("cached", [[], ["--cache"]])
def test_a_working_directory_that_is_gone_matters_only_to_relative_names(
    wav: WriteWav, tmp_path: Path, cached: list[str]
) -> None:
    (tmp_path / "gone").mkdir()
    code = (
        "import os, sys; os.chdir(sys.argv.pop(1)); os.rmdir(os.getcwd());"
        "from driftscore.cli.app import main; main()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "gone"), "classify", wav(), "b.wav"]
    for _ in range(2):
        (tmp_path / "gone").mkdir(exist_ok=True)
        done = subprocess.run(
            [*command, *ASK, *cached], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1, done.stderr
        rows = done.stdout.splitlines()[1:]
        assert [row.endswith("raw,") for row in rows] == [True, False], done.stderr
        assert done.stderr == "1 of 2 recordings could not be used\n"


def test_a_cache_folder_of_someone_else_in_the_temporary_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRIFTSCORE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(Path, "expanduser", lambda _: (_ for _ in ()).throw(RuntimeError("home")))
    user = os.getuid()
    own = tmp_path / f"driftscore-{user}"
    assert cache_home() == own
    assert own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o777)
    with pytest.raises(UsageError, match="set DRIFTSCORE_CACHE"):
        cache_home()
    own.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    own.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="only you can write"):
        cache_home()
    own.unlink()
    own.mkdir(mode=0o700)
    monkeypatch.setattr("os.getuid", lambda: user)
    assert cache_home() == own
    if user == 0:
        os.chown(own, 12345, 12345)
        with pytest.raises(UsageError, match="only you can write"):
            cache_home()


def test_damaged_mp3_files_do_not_flood_stderr(tmp_path: Path) -> None:
    clip = noise_clip(3.0)
    soundfile.write(tmp_path / "a.mp3", clip.samples, clip.rate)
    data = bytearray((tmp_path / "a.mp3").read_bytes())
    for at in range(300, len(data), 150):
        data[at] ^= 0x55
    files = [tmp_path / f"{n}.mp3" for n in range(4)]
    for file in files:
        file.write_bytes(data)
    command = [sys.executable, "-m", "driftscore", "classify", *map(str, files), *ASK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1)
    assert "mpg123" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1, done.stderr


def test_a_stream_takes_embeddings_and_a_file_needs_its_suffix(
    wav: WriteWav, tmp_path: Path, run: Run
) -> None:
    command = [sys.executable, "-m", "driftscore", "embed", wav(), "-b", "fake", "-o", "-"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
    (tmp_path / "x.npz").write_bytes(done.stdout)
    assert EmbeddingFile.load(tmp_path / "x.npz").files == (wav(),)
    assert run("embed", wav(), "-b", "fake", "-o", "/dev/null")[0] == 0
    status, _, err = run("embed", wav(), "-b", "fake", "-o", tmp_path / "x.txt")
    assert (status, len(err.splitlines())) == (2, 1)


def test_a_bare_array_of_clips_is_scored_under_numbers(run: Run, tmp_path: Path) -> None:
    rows = np.eye(3, 64, dtype=np.float32)
    np.save(tmp_path / "clips.npy", rows)
    head = tmp_path / "head.safetensors"
    assert run("head", *ASK[:4], "-o", head)[0] == 0
    from driftscore import Head

    rows = np.eye(3, Head.load(head).dim, dtype=np.float32)
    np.save(tmp_path / "clips.npy", rows)
    status, out, _ = run("score", tmp_path / "clips.npy", "--head", head, "-f", "csv")
    assert status == 0
    names = [line.split(",")[0] for line in out.splitlines()[1:]]
    assert names == ["clips.npy[0]", "clips.npy[1]", "clips.npy[2]"]
    np.save(tmp_path / "clips.npy", rows[0])
    status, out, err = run("score", tmp_path / "clips.npy", "--head", head)
    assert (status, out, len(err.splitlines())) == (1, "", 1)


def test_a_label_without_an_english_word_is_a_warning(mini: Backbone) -> None:
    with pytest.warns(UnclearWordWarning, match=r"'blaffende hond' is not .*'kettingzaag' is not"):
        Classifier(["blaffende hond", "dog bark", "kettingzaag"], backbone=mini).fit()


def test_english_labels_are_not_a_warning(mini: Backbone, recwarn: pytest.WarningsRecorder) -> None:
    names = ["Dog_Bark", "chainsaw", "crying baby", "Sea waves", "church bells", "café"]
    Classifier(names, backbone=mini).fit()
    assert not [one for one in recwarn if one.category is UnclearWordWarning]


def test_multi_is_refused_with_events(run: Run, wav: WriteWav) -> None:
    status, out, err = run("detect", wav(), *ASK, "--multi")
    assert (status, out, len(err.splitlines())) == (2, "", 1)


def test_samples_with_a_rate_are_still_read() -> None:
    assert read((SAMPLES, 16_000)).seconds == 1.0
    assert isinstance(read({"array": SAMPLES, "sampling_rate": 500}), Audio)


def test_what_cannot_be_sent_to_a_cluster_is_its_own_error(tmp_path: Path) -> None:
    for odd in [*ODD.values(), closed_file(tmp_path)]:
        parcel = _parcel(7, cast(Any, odd))
        assert parcel.error or isinstance(parcel.recording, (str, bytes, Audio, io.BytesIO))
        assert "\n" not in parcel.error
    assert _parcel(0, cast(Any, None)).error.startswith("<nonetype> cannot be read")
    assert _parcel(0, (SAMPLES, 16_000)).error == ""


def test_few_file_descriptors_are_enough(wav: WriteWav) -> None:
    files = [wav(f"{n}.wav", seconds=0.5, seed=n) for n in range(40)]
    words = [sys.executable, "-m", "driftscore", "classify", *files, *ASK, "--cache"]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 32; exec "$@"', "sh", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 41
