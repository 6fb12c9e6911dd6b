"""The files in `deploy/`: their commands have options that exist, and nothing runs as root."""

import re
import subprocess
from pathlib import Path

import pytest
import typer

from driftscore.cli.listen import app
from driftscore.watchlist import WatchList
from tests.conftest import PROJECT

DEPLOY = PROJECT / "deploy"


def known_options() -> set[str]:
    command = typer.main.get_command(app)
    return {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)}


@pytest.mark.parametrize("name", ["compose.yaml", "driftscore-listen.service"])
def test_the_commands_use_options_that_exist(name: str) -> None:
    text = (DEPLOY / name).read_text("utf-8")
    command = re.search(r"listen [^\n]*(\n      [^\n]+)*", text[text.find("\n      listen") :])
    if name.endswith(".service"):
        command = re.search(r"ExecStart=[^\n]+", text)
    assert command is not None
    used = set(re.findall(r"--[a-z-]+", command[0]))
    assert len(used) >= 3
    assert used <= known_options()


def test_the_example_of_a_watch_list_is_one() -> None:
    watch = WatchList.load(DEPLOY / "watch.toml")
    assert watch.labels[0].confirm == 2
    assert not watch.labels[-1].clips


def test_the_image_does_not_run_as_root() -> None:
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()
    last = [line for line in lines if line.startswith(("USER", "ENTRYPOINT"))]
    assert last == ["USER driftscore", 'ENTRYPOINT ["driftscore"]']


def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    text = (DEPLOY / "driftscore-listen.service").read_text("utf-8")
    unit = tmp_path / "driftscore-listen.service"
    unit.write_text(text.replace("/usr/local/bin/driftscore", "/bin/true"))
    try:
        done = subprocess.run(
            ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("SYSTEMD-ANALYZE IS MISSING: the unit is not checked")
    assert "driftscore-listen" not in done.stderr, done.stderr
