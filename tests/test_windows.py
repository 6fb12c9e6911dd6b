"""What differs on Windows, simulated: missing modules, drive letters, reserved names, open files.

There is no Windows here. These tests break the code in the way in which Windows would.
"""

import ast
import io
import os
import re
import select
import subprocess
import sys
import threading
from pathlib import Path, PureWindowsPath

import numpy as np
import pytest

from driftscore import UsageError
from driftscore.audio.recordings import expand
from driftscore.backbones import KIND, find_family
from driftscore.backbones.hub import is_hub_id
from driftscore.events.clips import clip_name
from driftscore.events.tracking import Event
from driftscore.live.clips import slug
from driftscore.live.sources import (
    PlayedFile,
    RawFormat,
    StandardInput,
    find_sources,
    pipes,
)
from driftscore.storage.files import is_stream, is_url
from driftscore.system import plugins as registry

from .conftest import Run, WriteWav
from .test_house import SOURCE, TREES, report, where

POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog",
                 "termios", "tty"}  # fmt: skip
POSIX_NAMES = {
    "os": {"chown", "fork", "forkpty", "geteuid", "getpgid", "getuid", "killpg", "mkfifo", "nice",
           "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "sched_getaffinity", "setsid", "sysconf",
           "uname", "wait3", "WNOHANG"},
    "signal": {"SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "SIGUSR2", "alarm", "pause",
               "pthread_sigmask", "setitimer", "sigwait"},
}  # fmt: skip
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
IMPORT_ALL = """
import builtins, importlib, pkgutil, sys

BLOCKED = set(sys.argv[1].split(","))
real = builtins.__import__


def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    ours = str((globals or {}).get("__name__")).startswith("driftscore")
    if ours and name.split(".")[0] in BLOCKED:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return real(name, globals, locals, fromlist, level)


builtins.__import__ = guarded
import driftscore

names = [m.name for m in pkgutil.walk_packages(driftscore.__path__, "driftscore.")]
for name in names:
    if name.endswith("__main__"):
        continue
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:  # the library of an extra, which is not installed
        if error.name.split(".")[0] in BLOCKED | {"driftscore"}:
            raise
print(len(names))
"""


def test_every_module_can_be_imported_without_the_modules_of_posix() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, ",".join(POSIX_MODULES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200


def test_what_only_posix_has_is_used_behind_a_check() -> None:
    """A function that uses os.chown asks hasattr(os, "chown") before, and so on."""
    found = []
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
                continue
            if node.attr in POSIX_NAMES.get(node.value.id, ()):
                asked = f'hasattr({node.value.id}, "{node.attr}")'
                if asked not in path.read_text(encoding="utf-8"):
                    found.append(where(path, node, f"uses {node.value.id}.{node.attr}: {asked}?"))
    assert not found, report(found)


def test_signal_0_ends_a_process_on_windows_and_is_not_sent_there() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(r"os\.kill\(.*, 0\)", text):
            assert 'os.name == "nt"' in text[: found.start()], path


@pytest.mark.parametrize("path", [
    r"C:\sounds\night.wav", "C:/sounds/night.wav", "c://night.wav", r"\\server\share\night.wav",
    "D:night.wav",
])  # fmt: skip
def test_a_path_with_a_drive_is_a_path(path: str) -> None:
    assert not is_url(path)
    assert not is_hub_id(path)
    assert not registry.has(KIND, path)
    assert expand([path]) == [path]  # a row of its own reports that it does not exist
    with pytest.raises(UsageError, match="backbone"):
        find_family(path)
    [source] = find_sources([f"yard={path}"]).values()
    assert isinstance(source, PlayedFile)


@pytest.mark.parametrize(
    "name", ["con", "NUL", "aux.wav", "com1", "a:b", "what?", 'x"y', "x.", " "]
)
def test_names_of_files_made_from_labels_are_names_on_windows(name: str) -> None:
    event = Event(label=name, start_s=1.0, end_s=2.0, score=1.0)
    for made in (f"{clip_name(name, event)}.flac", f"driftscore_{slug(name)}__{slug(name)}_1.flac"):
        assert not RESERVED.fullmatch(made), made
        assert not FORBIDDEN.search(made), made
        assert not PureWindowsPath(made).is_reserved()


def test_a_device_is_written_to_and_not_replaced(run: Run, wav: WriteWav) -> None:
    """Windows reports NUL as a character device, as Linux does for its own."""
    assert is_stream(os.devnull)
    ask = ["--labels", "a, b", "--backbone", "fake"]
    assert run("classify", wav(), *ask, "--out", os.devnull)[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        *(["classify", "{wav}", "--labels", "a, b", "--backbone", "fake", "--format", name, "--out",
           f"rows.{name}"] for name in ("table", "csv", "jsonl", "json", "raven", "excel")),
        *(["head", "--labels", "a, b", "--backbone", "fake", "--out", f"head.{kind}"]
          for kind in ("safetensors", "npz", "json")),
        ["embed", "{wav}", "--backbone", "fake", "--out", "clips.npz"],
        ["prompts", "--labels", "a, b", "--out", "prompts.txt"],
    ],
    ids=lambda arguments: f"{arguments[0]} {arguments[-1]}",
)  # fmt: skip
def test_a_file_is_closed_before_it_is_moved_into_place(
    run: Run, wav: WriteWav, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str]
) -> None:
    """Windows refuses to move or replace a file that is open."""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("NOT RUN: no /proc to see the open files in")
    moved: list[str] = []
    real = os.replace

    def replace(source: os.PathLike[str], target: os.PathLike[str]) -> None:
        for name in (source, target):
            if os.path.realpath(name) in open_files():
                raise PermissionError(13, "The process cannot access the file", os.fspath(name))
        moved.append(os.fspath(target))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.chdir(tmp_path)
    given = [word.format(wav=wav()) for word in arguments]
    for _ in range(2):  # the second one replaces the first
        status, _, err = run(*given)
        assert status == 0, err
    assert [Path(name).name for name in moved].count(arguments[-1]) == 2


def open_files() -> set[str]:
    """Return the files that this process has open."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.add(os.readlink(link))  # noqa: PTH115
        except OSError:  # the one that lists them
            continue
    return found


def test_a_pipe_is_read_where_select_waits_for_sockets_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(10038, "An operation was attempted on something that is not a socket")

    monkeypatch.setattr(pipes, "_WAITS_FOR_PIPES", False)
    monkeypatch.setattr(select, "select", refuse)
    values = (np.arange(100_000) % 2000 - 1000).astype("<i2")
    reading, writing = os.pipe()

    def feed() -> None:
        with open(writing, "wb", buffering=0) as out:
            for part in (values[:333], values[333:70_001], values[70_001:]):
                out.write(part.tobytes())

    writer = threading.Thread(target=feed)
    writer.start()
    source = StandardInput(RawFormat("s16le", 16_000), descriptor=reading)
    blocks = [block.samples for block in source.blocks(threading.Event())]
    writer.join(60)
    os.close(reading)
    np.testing.assert_array_equal(np.concatenate(blocks) * 32_768, values)


def test_a_silent_pipe_is_noticed_and_a_stopped_one_left_where_select_cannot_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipes, "_WAITS_FOR_PIPES", False)
    reading, writing = os.pipe()
    stop = threading.Event()
    pipe = pipes.Pipe(reading, stop)
    assert pipe.read(10, 0.05) is None
    os.write(writing, b"abcdef")
    assert pipe.exactly(4, 1.0) == b"abcd"
    assert pipe.read(10, 1.0) == b"ef"
    os.close(writing)
    assert [pipe.read(10, 1.0), pipe.read(10, 1.0)] == [b"", b""]
    stop.set()
    assert pipe.read(10, 60.0) == b""
    os.close(reading)


def test_lines_of_output_end_as_the_stream_ends_them(run: Run, wav: WriteWav) -> None:
    """Our csv has \\n, which a text stream of Windows turns to \\r\\n; never \\r\\r\\n."""
    _, out, _ = run("classify", wav(), "--labels", "a, b", "--backbone", "fake", "--format", "csv")
    written = io.BytesIO()
    with io.TextIOWrapper(written, encoding="utf-8", newline="\r\n") as stream:
        stream.write(out)
        stream.flush()
        assert b"\r\r\n" not in written.getvalue()
        assert written.getvalue().count(b"\r\n") == 2
