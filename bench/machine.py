"""Describe the machine of a measurement: processor, memory, system and versions.

Host names and paths are left out.
"""

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = (
    "driftscore",
    "numpy",
    "onnxruntime",
    "ai-edge-litert",
    "torch",
    "transformers",
    "scikit-learn",
    "soundfile",
    "soxr",
)


def describe_machine() -> dict[str, str | int | float]:
    """Return the processor, the number of its cores, the memory and the operating system."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 1,
        "ram_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "os": _system(),
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed libraries that affect speed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit(folder: Path) -> str:
    """Return the commit of a folder, with "+ changes" if it is modified; empty without git."""
    try:
        head, status = (
            subprocess.run(["git", *what], cwd=folder, capture_output=True, text=True, check=True)
            for what in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "-uno"])
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.stdout.strip() + (" + changes" if status.stdout.strip() else "")


def without_places(text: str) -> str:
    """Return a text with absolute paths cut to their last part."""
    return re.sub(r"(?<![\w.:/])(?:/[\w.+@-]+)+/", "", text)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.release()}"
