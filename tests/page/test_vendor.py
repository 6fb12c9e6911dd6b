"""Third-party JavaScript of the page: exactly what the script fetched, each with its licence."""

import hashlib
import subprocess
import sys

from tests.conftest import PROJECT

VENDOR = PROJECT / "src" / "driftscore" / "service" / "static" / "vendor"


def test_the_vendored_files_are_those_of_the_list() -> None:
    lines = (VENDOR / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.name != "SHA256SUMS"
    }
    assert found == listed


def test_every_library_has_its_licence() -> None:
    for path in [*VENDOR.glob("*.js"), *VENDOR.glob("*.css")]:
        licence = VENDOR / f"{path.stem}.LICENSE"
        assert "icense" in licence.read_text(encoding="utf-8"), path.name
    assert "MIT" in (VENDOR / "preact.LICENSE").read_text(encoding="utf-8")


def test_the_script_finds_a_file_that_was_changed() -> None:
    script = PROJECT / "scripts" / "vendor_page.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
