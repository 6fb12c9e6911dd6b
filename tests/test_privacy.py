"""Nothing is looked up, connected to or written outside the cache and the output."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import driftscore

from .conftest import WriteWav

RUN = ["-m", "driftscore"]
ASK = ["--labels", "dog bark, siren"]
HUB = """
import os
os.environ["HF_HUB_OFFLINE"] = "1"
from driftscore.backbones import hub
with hub.offline_if_unreachable():
    import huggingface_hub.constants
assert huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY
assert "HF_HUB_DISABLE_TELEMETRY" not in os.environ
"""
COMMANDS = {
    "classify": [*RUN, "classify", "{wav}", *ASK, "--cache", "--out", "{out}/rows.csv"],
    "embed": [*RUN, "embed", "{wav}", "--out", "{out}/clips.npz"],
    "head": [*RUN, "head", *ASK, "--out", "{out}/a.safetensors"],
    "calibrate": [*RUN, "calibrate", "{wav}", "--backbone", "fake", "--out", "{out}/c.safetensors"],
    "list": [*RUN, "list", "backbones"],
    "cache": [*RUN, "cache"],
    "lab": [*RUN, "lab", "status"],
    "hub": ["-c", HUB],
}  # fmt: skip
_WRITES = re.compile(r'(?:openat\([^"]*|creat\(|mkdir\(|mkdirat\([^"]*)"([^"]+)"(.*)')


def environment(home: Path) -> dict[str, str]:
    """Return an environment with an empty home and none of the settings of who runs the tests."""
    source = str(Path(driftscore.__file__).parent.parent)
    (home / "tmp").mkdir(parents=True)
    return {
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": source,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_reaches_no_network_and_writes_only_its_output_and_cache(
    wav: WriteWav, tmp_path: Path, name: str
) -> None:
    needed = {"hub": "huggingface_hub"}.get(name, "numpy")
    if find_spec(needed) is None:
        pytest.skip(f"{needed.upper()} IS NOT INSTALLED")
    home, out, log = tmp_path / "home", tmp_path / "out", tmp_path / "trace"
    out.mkdir()
    arguments = [part.format(wav=wav(), out=out) for part in COMMANDS[name]]
    command = [sys.executable, *arguments]
    if shutil.which("strace"):
        calls = "trace=network,openat,creat,mkdir,mkdirat"
        command = ["strace", "-f", "-qq", "-s", "400", "-e", calls, "-o", str(log), *command]
    elif shutil.which("unshare"):
        command = ["unshare", "--net", "--map-root-user", *command]
    else:
        pytest.skip("NEITHER STRACE NOR UNSHARE IS INSTALLED: the network is not watched")
    done = subprocess.run(
        command, env=environment(home), cwd=out, capture_output=True, text=True, check=False
    )
    if "PTRACE" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(f"PROCESSES CANNOT BE WATCHED HERE: {done.stderr.splitlines()[0]}")
    assert done.returncode in (0, 1), done.stderr
    left = [path for path in home.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(home / ".cache" / "driftscore") for path in left), left
    if log.exists():
        check(log.read_text(errors="replace"), (home / ".cache" / "driftscore", home / "tmp", out))


def check(trace: str, allowed: tuple[Path, ...]) -> None:
    """Assert that a trace holds no internet socket, and no write outside of folders."""
    for line in trace.splitlines():
        assert not re.search(r"AF_INET6?\b", line), line
        if found := _WRITES.search(line):
            path, rest = found.groups()
            writes = "mkdir" in line or re.search(r"O_WRONLY|O_RDWR|O_CREAT", rest)
            if not writes or path.startswith(("/dev/", "/proc/")) or "EEXIST" in rest:
                continue
            whole = Path(path) if path.startswith("/") else allowed[-1] / path
            inside = any(whole.is_relative_to(place) for place in allowed)
            assert inside or whole == allowed[0].parent, line


def test_the_check_sees_a_lookup_and_a_foreign_file(tmp_path: Path) -> None:
    for line in (
        "1 socket(AF_INET, SOCK_DGRAM|SOCK_CLOEXEC, IPPROTO_IP) = 3",
        '1 openat(AT_FDCWD, "/home/me/.deviceid", O_WRONLY|O_CREAT, 0666) = 3',
        '1 mkdir("/home/me/.cache/Microsoft", 0777) = 0',
    ):
        with pytest.raises(AssertionError):
            check(line, (tmp_path,))
    check('1 openat(AT_FDCWD, "/etc/hosts", O_RDONLY) = 3', (tmp_path,))


UNCHANGED = """
import gc, logging, os, signal, sys, threading, warnings, numpy
def state():
    return (dict(os.environ), gc.get_threshold(), gc.isenabled(), sys.excepthook,
            [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)], threading.excepthook,
            list(logging.getLogger().handlers), list(warnings.filters), sys.getswitchinterval())
before = state()
import driftscore
for name in dir(driftscore):
    getattr(driftscore, name)
assert state() == before, state()
clip = numpy.random.default_rng(1).normal(0, 0.1, 32000).astype("float32")
driftscore.Classifier(["dog bark", "siren"]).predict([driftscore.Audio(clip, 32000)])
assert dict(os.environ) == before[0]
"""


def test_importing_and_using_the_library_changes_nothing_in_the_host_program(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCHANGED],
        env=environment(tmp_path / "home"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
