"""Where output goes: what is replaced, what is streamed to, and how a failed write ends."""

import errno
import io
import itertools
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import driftscore
from driftscore import Classifier, Detector, Embedder, Head, UsageError, WriteError
from driftscore.backbones.stored import EmbeddingFile
from driftscore.cli.output import output, say
from driftscore.storage.files import replacing

from .conftest import Run, WriteWav, restore_sigint

ASK = ["--labels", "dog bark, siren", "--backbone", "fake", "--format", "csv"]
COMMAND = [sys.executable, "-m", "driftscore"]
HEADER = "file,label,score,margin,runner_up,unit,error"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def head() -> Head:
    return Head(("a", "b"), np.eye(2, 4, dtype=np.float32), np.zeros(2, np.float32))


@pytest.mark.parametrize("name", ["head.safetensors", "head.npz", "head.json"])
def test_a_new_file_has_the_mode_of_the_umask_and_an_old_one_keeps_its_own(
    tmp_path: Path, name: str
) -> None:
    before = os.umask(0o027)
    try:
        head().save(tmp_path / name)
        assert mode(tmp_path / name) == 0o640
        (tmp_path / name).chmod(0o600)
        head().save(tmp_path / name)
    finally:
        os.umask(before)
    assert mode(tmp_path / name) == 0o600
    assert Head.load(tmp_path / name).labels == ("a", "b")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_target_of_a_symlink_is_replaced_and_the_link_stays(
    run: Run, wav: WriteWav, tmp_path: Path
) -> None:
    target, link, dangling = tmp_path / "real.csv", tmp_path / "link.csv", tmp_path / "new.csv"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to("real.csv")
    dangling.symlink_to(tmp_path / "later.csv")
    for name in (link, dangling):
        assert run("classify", wav(), *ASK, "--out", name)[0] == 0
        assert name.is_symlink()
        assert name.read_text().startswith(HEADER)
    assert target.read_text().startswith(HEADER)
    assert mode(target) == 0o600


def test_a_symlink_to_itself_is_an_error_in_words(run: Run, wav: WriteWav, tmp_path: Path) -> None:
    loop = tmp_path / "loop.csv"
    loop.symlink_to("loop.csv")
    status, out, err = run("classify", wav(), *ASK, "--out", loop)
    assert (status, out, len(err.splitlines())) == (1, "", 1)
    assert loop.is_symlink()


def test_a_pipe_receives_the_rows_and_stays_a_pipe(run: Run, wav: WriteWav, tmp_path: Path) -> None:
    read: list[bytes] = []
    for name, arguments in (
        ("rows", ["classify", wav(), *ASK]),
        ("head", ["head", *ASK[:4]]),
    ):
        pipe = tmp_path / name
        os.mkfifo(pipe)
        reader = threading.Thread(target=lambda pipe=pipe: read.append(pipe.read_bytes()))
        reader.start()
        assert run(*arguments, "--out", pipe)[0] == 0
        reader.join(60)
        assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert read[0].decode().startswith(HEADER)
    (tmp_path / "head.safetensors").write_bytes(read[1])
    assert Head.load(tmp_path / "head.safetensors").labels == ("dog bark", "siren")


def test_devices_are_written_to_and_never_replaced(run: Run, wav: WriteWav) -> None:
    before = Path("/dev/null").stat()
    for arguments in (["classify", wav(), *ASK], ["head", *ASK[:4]], ["prompts", *ASK[:4]]):
        assert run(*arguments, "--out", "/dev/null")[0] == 0
    after = Path("/dev/null").stat()
    assert stat.S_ISCHR(after.st_mode)
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


def test_a_dash_is_stdout(run: Run, wav: WriteWav, tmp_path: Path) -> None:
    file = wav()
    assert run("classify", file, *ASK, "--out", "-") == run("classify", file, *ASK)
    done = subprocess.run(
        [*COMMAND, "head", *ASK[:4], "-o", "-"], capture_output=True, cwd=tmp_path, check=True
    )
    (tmp_path / "x.safetensors").write_bytes(done.stdout)
    assert Head.load(tmp_path / "x.safetensors").labels == ("dog bark", "siren")
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize("name", ["/dev/stdout", "/proc/self/fd/1"])
def test_our_own_stdout_by_its_path_is_appended_to(
    wav: WriteWav, tmp_path: Path, name: str
) -> None:
    with open(tmp_path / "log", "ab") as log:
        log.write(b"before\n")
        log.flush()
        command = [*COMMAND, "classify", wav(), *ASK, "--out", name]
        assert subprocess.run(command, stdout=log, check=False).returncode == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[:2] == ["before", HEADER]


@pytest.mark.parametrize("command", ["classify", "head"])
def test_a_site_that_cannot_be_written_is_one_sentence(
    run: Run, wav: WriteWav, tmp_path: Path, command: str
) -> None:
    (tmp_path / "file").write_text("x")
    arguments = [command, wav(), *ASK] if command == "classify" else [command, *ASK[:4]]
    before = sorted(tmp_path.rglob("*"))
    for out in (
        str(tmp_path / "file" / "out.csv"),
        "/dev/full",
        "/proc/out.csv",
        str(tmp_path / ("x" * 300)),
        str(tmp_path),
        "",
        "a\0b",
    ):
        status, shown, err = run(*arguments, "--out", out)
        assert status in (1, 2), out
        assert (shown, len(err.splitlines())) == ("", 1), err
        assert err.startswith("error: ")
        assert "unexpected" not in err
        left = [path for path in sorted(tmp_path.rglob("*")) if "cache" not in path.parts]
        assert left == [path for path in before if "cache" not in path.parts]


@pytest.mark.parametrize("name", ["x.safetensors", "x.npz", "x.json"])
def test_a_disk_that_fills_up_leaves_the_old_file(tmp_path: Path, name: str) -> None:
    """A limit on the size of files stands for the full disk: the write fails half way."""
    resource = pytest.importorskip("resource")
    head().save(tmp_path / name)
    old = (tmp_path / name).read_bytes()
    large = Head(("a", "b"), np.ones((2, 90_000), np.float32), np.zeros(2, np.float32))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(WriteError, match=r"Cannot write .*: File too large"):
            large.save(tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / name).read_bytes() == old
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_name_of_255_characters_can_be_written(tmp_path: Path) -> None:
    name = "x" * 251 + ".csv"
    with replacing(tmp_path / name) as partial:
        partial.write_text("rows")
    assert (tmp_path / name).read_text() == "rows"


def test_an_error_of_ours_in_the_block_keeps_its_class_and_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")

    def fail() -> None:
        with replacing(tmp_path / "a") as partial:
            partial.write_text("half")
            raise UsageError("why")

    with pytest.raises(UsageError, match="why"):
        fail()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("redirect", [">/dev/full", ">&-"])
@pytest.mark.parametrize("command", ["classify {} --labels dog,cat -b fake", "--help"])
def test_a_stdout_that_is_full_or_closed_is_one_sentence(
    wav: WriteWav, redirect: str, command: str
) -> None:
    line = f"{sys.executable} -m driftscore {command.format(wav())} {redirect}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "stdout" in done.stderr


def test_a_reader_that_goes_away_is_not_an_error_message(wav: WriteWav) -> None:
    line = f"{sys.executable} -m driftscore list rules | true"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def start_and_block(tmp_path: Path, wav: WriteWav) -> subprocess.Popen[str]:
    """Start a command that waits for the reader of a pipe, with a temporary folder of its own."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "temporary").mkdir()
    command = [*COMMAND, "head", *ASK[:4], "--out", str(tmp_path / "pipe")]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=restore_sigint
    )
    deadline = time.monotonic() + 60
    while not any((tmp_path / "temporary").rglob("content*")):
        assert time.monotonic() < deadline, "nothing was written"
        time.sleep(0.05)
    time.sleep(0.2)
    return process


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_command_that_is_ended_leaves_no_temporary_file(
    tmp_path: Path, wav: WriteWav, number: signal.Signals, status: int
) -> None:
    process = start_and_block(tmp_path, wav)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == status
    assert err == "stopped\n"
    assert not list((tmp_path / "temporary").iterdir())


SLEEPER = """
import sys, time
from driftscore.storage.files import replacing
from driftscore.system.process import interruptible
with interruptible(), replacing(sys.argv[1]) as partial:
    partial.write_text("half")
    print("ready", flush=True)
    while True:
        time.sleep(0.05)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_file_that_is_being_replaced_stays_as_it_was(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "out").write_text("old")
    command = [sys.executable, "-c", SLEEPER, str(tmp_path / "out")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=restore_sigint
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    process.communicate(timeout=120)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("start", [["-m", "driftscore"], ["script"]])
def test_ctrl_c_during_the_imports_is_one_line(tmp_path: Path, start: list[str]) -> None:
    """A numpy that interrupts its own import stands for the key that is pressed early."""
    (tmp_path / "numpy.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    if start == ["script"]:
        (tmp_path / "bin").mkdir()
        script = tmp_path / "bin" / "driftscore"
        script.write_text("from driftscore.__main__ import start\nstart()")
        start = [str(script)]
    source = Path(driftscore.__file__).parent.parent
    paths = os.pathsep.join([str(tmp_path), str(source)])
    done = subprocess.run(
        [sys.executable, *start, "list", "rules"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}, check=False,
        preexec_fn=restore_sigint,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert done.stderr == "stopped\n"


def interrupt_after(monkeypatch: pytest.MonkeyPatch, count: int, owner: type, name: str) -> None:
    """Press Ctrl-C, as it were, when a method that yields has yielded so many values."""
    method = getattr(owner, name)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell does that in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted(*arguments: object, **options: object) -> Iterator[object]:
        yield from itertools.islice(method(*arguments, **options), count)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(owner, name, interrupted)


CONTINUES = (
    ". Run the same command again to continue: recordings that are done are not embedded again"
)


@pytest.mark.parametrize(
    ("options", "owner", "name", "advice"),
    [
        ([], Classifier, "classify", ""),
        (["--cache"], Classifier, "classify", CONTINUES),
        (["--compare", "cosine"], Embedder, "embed", ""),
    ],
)
def test_the_rows_of_classify_are_kept_when_it_is_interrupted(
    run: Run, wav: WriteWav, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    options: list[str], owner: type, name: str, advice: str,
) -> None:  # fmt: skip
    clips = [wav(f"{seed}.wav", seed=seed) for seed in range(3)]
    interrupt_after(monkeypatch, 2, owner, name)
    out = tmp_path / "rows.csv"
    status, _, err = run("classify", *clips, *ASK, *options, "--out", out)
    said = f"stopped after 2 of 3 recordings; what was found so far is kept{advice}"
    assert (status, err.splitlines()[-1]) == (130, said)
    assert [line.split(",")[0] for line in out.read_text().splitlines()] == ["file", *clips[:2]]
    assert not list(tmp_path.glob(".driftscore-*"))


def test_an_interrupted_search_says_where_and_how_to_continue(
    run: Run, wav: WriteWav, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_after(monkeypatch, 0, Detector, "events")
    clip = wav(seconds=20.0)
    for options, where, advice in (
        ([], f" at 0:00:00 of {clip}", ". Run the same command with --resume to continue there"),
        (["--windows"], "", ""),
    ):
        if options:
            interrupt_after(monkeypatch, 2, Embedder, "slide")
        status, out, err = run("detect", clip, *ASK, *options)
        said = f"stopped{where}; what was found so far is kept{advice}"
        assert (status, err.splitlines()[-1]) == (130, said)
        assert len(out.splitlines()) == (3 if options else 1)


@pytest.mark.parametrize(
    ("options", "advice"), [([], ""), (["--cache"], CONTINUES), (["--out", "archive/"], CONTINUES)]
)
def test_an_interrupted_embed_promises_to_continue_only_where_it_does(
    run: Run, wav: WriteWav, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    options: list[str], advice: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    clips = [wav(f"{seed}.wav", seed=seed) for seed in range(3)]
    with monkeypatch.context() as patched:
        interrupt_after(patched, 2, Embedder, "embed")
        interrupt_after(patched, 2, Embedder, "windows")
        command = "embed", *clips, "-b", "fake", "--out", "clips.npz", *options
        status, _, err = run(*command)
    assert (status, err) == (130, f"stopped after 2 of 3 recordings{advice}\n")
    assert not (tmp_path / "clips.npz").exists()
    if "archive/" in options:
        assert "2 recordings in archive/ already" in run(*command)[2]


def test_an_unexpected_error_is_one_line_that_says_how_to_see_more(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("something\nodd")

    monkeypatch.setattr("driftscore.cli.app.app.main", fail)
    status, out, err = run()
    assert (status, out) == (1, "")
    assert err.startswith("error: unexpected RuntimeError: something odd. This is a bug")
    assert "DRIFTSCORE_DEBUG=1" in err
    assert len(err.splitlines()) == 1


def test_the_traceback_is_shown_on_request() -> None:
    done = subprocess.run(
        [*COMMAND, "list", "nothing"],
        capture_output=True, text=True, env={**os.environ, "DRIFTSCORE_DEBUG": "1"}, check=False,
    )  # fmt: skip
    assert "Traceback" in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("embed {sounds} --out {home}/x.foo", "must end in .npz"),
        ("embed {sounds} --out {home}/file/x.npz", "Cannot write"),
        ("calibrate {sounds} --out {home}/file/x.safetensors", "Cannot write"),
        ("calibrate {sounds} --out {home}/x.npz", "must end in .safetensors"),
        ("head --labels a,b --out {home}/file/x.json", "Cannot write"),
        ("head --labels a,b --out {home}/x.foo", "must end in .safetensors or .npz or .json"),
        ("head --examples a={sounds}/a.wav --out {home}/file/x.npz", "Cannot write"),
        ("classify {sounds} --examples a={sounds}/a.wav --out {home}/file/x.csv", "Cannot write"),
        ("detect {sounds}/a.wav --labels a,b --plot {home}/file/x.png", "Cannot write"),
        ("detect {sounds} --labels a,b --plot {home}/x.png", "No recording says when it starts"),
        ("detect {sounds} --labels a,b --audit {home}/file/x.db", "Cannot write"),
        ("detect {sounds} --labels a,b --out {home}/file/x.csv", "Cannot write"),
        ("embed {sounds} --out {home}/file/archive/", "Cannot write"),
        ("classify {sounds} --labels a,b --audit {home}/sounds", "is a folder; name a file"),
        ("detect {sounds} --labels a,b --clips {home}/file/clips", "Cannot write"),
        ("detect {sounds} --labels a,b --format audacity", "takes one recording, and there are 2"),
        ("classify {sounds} --labels a,b --format audacity", "takes one recording"),
        ("classify {sounds} --labels a,b --out {home}/file/x.csv", "Cannot write"),
        ("listen {sounds}/a.wav --labels a,b --clips {home}/file/clips", "Cannot write"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_a_recording_is_read(
    command: str, message: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sounds").mkdir()
    for name in ("a.wav", "b.wav"):
        (tmp_path / "sounds" / name).write_bytes(b"not read")
    (tmp_path / "file").write_bytes(b"")

    def read(*_: object) -> None:
        raise AssertionError("a recording was read")

    monkeypatch.setattr("driftscore.engines.local.sounding_windows", read)
    monkeypatch.setattr("driftscore.audio.recordings.decoded", read)
    words = command.format(sounds=tmp_path / "sounds", home=tmp_path).split()
    status, _, err = run(*words, "--backbone", "fake")
    assert status in (1, 2)
    assert message in err
    assert not (tmp_path / "file").is_dir()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("review {home}/events.csv --answers {home}/answers --out {home}/file/x", "Cannot write"),
        (
            "review {home}/events.csv --answers {home}/answers --watch-out {home}/file/x",
            "must end in .t",
        ),
        ("review {home}/events.csv --answers {home}/answers --watch-out {home}", "is a folder"),
        ("classify -l a,b --out {home}/a.wav {home}/b.wav", "writes text"),
        ("score {home}/a.npz -l a,b --out {home}/a.npz", "writes text"),
        ("listen {home}/a.wav -l a,b --jsonl {home}/events.db", "writes text"),
        ("classify {home}/answers -l a,b --out {home}/answers", "would replace a file"),
        ("review {home}/events.csv --out {home}/events.csv", "would replace a file"),
        ("prompts -l {home}/words.txt --out {home}/words.txt", "would replace a file"),
        ("detect {home}/a.wav -l a --out {home}/x.svg --plot {home}/x.svg", "would replace a file"),
        (
            "detect {home}/a.wav -l a --out {home}/x.csv --audit {home}/x.csv",
            "would replace a file",
        ),
        ("lab mixes {home}/grid.toml --out {home}/grid.toml", "must end in .jsonl"),
        ("lab soundscape {home}/file/x.flac", "Cannot write"),
        ("lab soundscape {home}/x.mp3", "Unsupported format '.mp3'"),
        ("lab rebuild {home}/none.jsonl --out {home}/file/x", "Cannot write"),
        ("find siren --in {home}/none --out {home}/file/x", "Cannot write"),
        ("score {home}/none.npz -l a,b --out {home}/file/x", "Cannot write"),
        ("explain siren -l {home}/none.txt --out {home}/file/x", "Cannot write"),
        ("learn {home}/none.csv --out {home}/x.foo", "must end in .toml or .safetensors"),
        ("learn {home}/none.csv --out {home}/list.toml", "Cannot write {home}/list-examples/"),
        ("serve --archive {home}/answers", "is not a file of embeddings"),
        ("detect {home}/none.wav -l a,b --clips= ", "--clips needs a path, got an empty one"),
        ("serve --store {home}/file/x.db", "Cannot write"),
        ("serve --audit {home}", "is a folder"),
    ],
)
def test_an_output_is_refused_before_answers_are_taken_and_inputs_are_opened(
    command: str, message: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "answers").write_text("y\n")
    (tmp_path / "list-examples").write_bytes(b"")
    (tmp_path / "events.csv").write_text("file,start_s,end_s,label,score\na.wav,0,1,siren,5\n")
    before = set(tmp_path.iterdir())
    status, rows, err = run(*command.format(home=tmp_path).split())
    assert status in (1, 2)
    assert rows == ""
    assert message.format(home=tmp_path) in err
    assert err.count("\n") == 1
    assert set(tmp_path.iterdir()) == before


def test_an_archive_without_its_extra_is_refused_before_a_recording_is_read(
    run: Run, wav: WriteWav, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise AssertionError("a recording was read")

    monkeypatch.setattr("driftscore.audio.recordings.decoded", read)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    status, _, err = run("embed", wav(), "--backbone", "fake", "--out", f"{tmp_path}/archive/")
    assert status == 1
    assert "needs an optional part" in err


def test_an_output_on_a_full_disk_is_refused_before_a_recording_is_read(
    run: Run, wav: WriteWav, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driftscore.storage.files.MIN_FREE_BYTES", 1 << 62)
    clip, home = wav(), tmp_path / "full"
    for command in (
        f"classify {clip} --labels a,b --out {home}/x.csv",
        f"classify {clip} --labels a,b --audit {home}/x.db",
        f"detect {clip} --labels a,b --clips {home}/clips",
        f"embed {clip} --out {home}/x.npz",
        f"listen {clip} --labels a,b --store {home}/x.db",
        f"listen {clip} --labels a,b --jsonl {home}/x.jsonl",
    ):
        status, rows, err = run(*command.split(), "--backbone", "fake")
        assert (status, rows) == (1, "")
        assert "MB are free there" in err
    assert not home.exists()


def test_all_files_that_are_left_out_are_counted(run: Run, wav: WriteWav, tmp_path: Path) -> None:
    wav("a.wav")
    for number, ending in enumerate("bcdefgh", start=1):
        (tmp_path / f"{number}.{ending}").write_bytes(b"x")
    _, _, err = run("classify", str(tmp_path), "--labels", "a,b", "--backbone", "fake")
    assert "7 files left out: .b (1), .c (1), .d (1), .e (1), .f (1), others (2)" in err


def test_a_message_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    monkeypatch.setattr("sys.stderr", Stream())
    say("loop1: no clip")
    assert written == ["loop1: no clip\n"]


def write_to(path: str, text: str, failure: OSError | None = None) -> None:
    with output(path) as stream:
        stream.write(text)
        if failure is not None:
            raise failure


def test_rows_that_were_written_before_the_disk_was_full_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    kept = tmp_path / "rows.csv.partial"
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(WriteError, match=rf"No space left.*could be written are in {kept}"):
        write_to(str(out), "file,label\na.wav,siren\n", full)
    assert kept.read_text() == "file,label\na.wav,siren\n"
    assert list(tmp_path.iterdir()) == [kept]


def test_all_rows_are_elsewhere_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource", reason="NOT RUN: no limit of a file's size here")
    limits, make = resource.getrlimit(resource.RLIMIT_FSIZE), tempfile.mkstemp

    def other_disk(suffix: str, prefix: str) -> tuple[int, str]:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        return make(suffix, prefix, tmp_path)

    monkeypatch.setattr("tempfile.mkstemp", other_disk)
    rows = "".join(f"{number}.wav,siren\n" for number in range(10_000))
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(WriteError, match=r"The rows are in .* instead") as error:
            write_to(str(tmp_path / "rows.csv"), rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    [kept] = tmp_path.iterdir()
    assert str(kept) in str(error.value)
    assert kept.read_text() == rows


def test_what_cannot_be_uploaded_at_the_end_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec", reason="NOT RUN: fsspec is not installed")

    def away(*_: object) -> None:
        raise ConnectionError("the store is away")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "put_file", away)
    with pytest.raises(WriteError, match=r"the store is away\. The content is in") as error:
        write_to("memory://rows.csv", "a.wav,siren\n")
    kept = str(error.value).partition(" is in ")[2]
    assert Path(kept).read_text() == "a.wav,siren\n"


def test_embeddings_that_cannot_be_written_at_the_end_are_kept_elsewhere(
    run: Run, wav: WriteWav, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    clip, out = wav(), tmp_path / "folder" / "x.npz"
    written = EmbeddingFile.save

    def full(file: EmbeddingFile, path: str) -> None:
        if path == str(out):
            raise WriteError(f"Cannot write {path}: No space left on device")
        written(file, path)

    monkeypatch.setattr(EmbeddingFile, "save", full)
    status, _, err = run("embed", clip, "--backbone", "fake", "--out", str(out))
    assert status == 1
    [kept] = tmp_path.glob("driftscore-*.npz")
    assert f"The content is in {kept} instead" in err
    assert len(EmbeddingFile.load(kept).files) == 1
