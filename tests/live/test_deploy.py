"""The files in `deploy/`: their commands have options that exist, and nothing runs as root."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from driftscore.cli.app import all_commands
from driftscore.events.watchlist import WatchList
from driftscore.live.listener import JOIN_S
from tests.conftest import PROJECT

DEPLOY = PROJECT / "deploy"


def known_options(command: str) -> set[str]:
    found = all_commands()[command].params
    return {flag for p in found for flag in (*p.opts, *p.secondary_opts)}


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("compose.yaml", "listen"),
        ("compose.yaml", "serve"),
        ("driftscore-listen.service", "listen"),
    ],
)
def test_the_commands_use_options_that_exist(name: str, command: str) -> None:
    text = (DEPLOY / name).read_text("utf-8")
    found = re.search(
        rf"(?<=[ /]){command} [^\n]*(\n      --[^\n]+)*(?=\n)", _without_comments(text)
    )
    assert found is not None
    used = set(re.findall(r"--[a-z-]+", found[0]))
    assert len(used) >= 2
    assert used <= known_options(command)


def _without_comments(text: str) -> str:
    return "".join(line + "\n" for line in text.splitlines() if not line.lstrip().startswith("#"))


def test_a_stop_lasts_long_enough_for_the_last_event() -> None:
    unit = (DEPLOY / "driftscore-listen.service").read_text("utf-8")
    compose = (DEPLOY / "compose.yaml").read_text("utf-8")
    for found in (
        re.search(r"TimeoutStopSec=(\d+)", unit),
        re.search(r"stop_grace_period: (\d+)s", compose),
    ):
        assert found is not None
        assert int(found[1]) > JOIN_S


def test_the_image_installs_extras_that_exist() -> None:
    made = (DEPLOY / "Dockerfile").read_text("utf-8")
    (extras,) = re.findall(r'"\.\[([a-z,]+)\]"', made)
    known = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (
        {"live", "mqtt", "serve"} <= set(extras.split(",")) <= set(known["optional-dependencies"])
    )


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
