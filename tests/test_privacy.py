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
from driftscore.privacy import VARIABLES

from .conftest import WriteWav

RUN = ["-m", "driftscore"]
ASK = ["--labels", "dog bark, siren"]
OPENVINO = """
from driftscore.backbones.onnx.sessions import OpenvinoRun
try:
    OpenvinoRun(b"not a graph")
except RuntimeError:
    import openvino
    openvino.Core()
else:
    raise SystemExit(3)
"""
COMMANDS = {
    "classify": [*RUN, "classify", "{wav}", *ASK, "--cache", "--out", "{out}/rows.csv"],
    "embed": [*RUN, "embed", "{wav}", "--out", "{out}/clips.npz"],
    "head": [*RUN, "head", *ASK, "--out", "{out}/a.safetensors"],
    "calibrate": [*RUN, "calibrate", "{wav}", "--backbone", "fake", "--out", "{out}/c.safetensors"],
    "list": [*RUN, "list", "backbones"],
    "cache": [*RUN, "cache"],
    "lab": [*RUN, "lab", "status"],
    "openvino": ["-c", OPENVINO],
    "hub": ["-c", "import driftscore, huggingface_hub.constants as c; "
            "assert c.HF_HUB_DISABLE_TELEMETRY"],
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
    needed = {"openvino": "openvino", "hub": "huggingface_hub"}.get(name, "numpy")
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


def test_the_variables_are_set_by_the_import_and_those_of_the_user_are_kept() -> None:
    code = f"import driftscore, os; print(*(os.environ[n] for n in {sorted(VARIABLES)}))"
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    for given, expected in (({}, "1 1 1 0"), ({"DO_NOT_TRACK": "0"}, "0 1 1 0")):
        done = subprocess.run(
            [sys.executable, "-c", code], env=clean | given, capture_output=True, check=True
        )
        assert done.stdout.decode().strip() == expected
