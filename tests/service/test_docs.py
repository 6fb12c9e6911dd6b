"""The examples of docs/service.md work as they are printed."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from driftscore import load_backbone
from driftscore.embedder import Embedder
from driftscore.service.app import create_app
from driftscore.service.settings import DEFAULT_HOST, DEFAULT_PORT, Limits, ServiceSettings
from tests.conftest import PROJECT

from .conftest import threaded

TEXT = (PROJECT / "docs" / "service.md").read_text(encoding="utf-8")
ADDRESS = f"http://localhost:{DEFAULT_PORT}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    embedder = Embedder(load_backbone("mini"), text_cache=False)
    with threaded(create_app(ServiceSettings(backbone=embedder))) as url:
        yield url


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("line", [line for block in blocks("bash") for line in block.splitlines()])
def test_every_curl_command_is_answered(url: str, line: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("CURL IS ABSENT: the examples are not tried")
    command = line.replace(ADDRESS, url).replace("curl ", "curl -sS --fail-with-body ", 1)
    done = subprocess.run(command, shell=True, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ADDRESS in line
    if "/v1/classify" in line:
        assert done.stdout.startswith('{"label":"siren"')


@pytest.mark.parametrize("code", blocks("python"))
def test_every_example_in_python_names_the_siren(url: str, code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code.replace(ADDRESS, url)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        env={"PATH": ""},
    )
    assert done.stdout.startswith("siren"), done.stderr


def test_the_defaults_are_those_of_the_document() -> None:
    limits, settings = Limits(), ServiceSettings()
    assert f"http://{DEFAULT_HOST}:{DEFAULT_PORT}" in TEXT
    for words in (
        f"| {limits.body_bytes / 1e6:g} MB |",
        f"| {limits.seconds:g} s |",
        f"| {limits.decoded_bytes / 1e6:g} MB over all channels |",
        f"| {limits.labels}, {limits.label_chars} |",
        f"| {limits.texts:,}: ",
        f"| {limits.body_s:g} s |",
        f"| {limits.in_flight_bytes / 1e6:g} MB |",
        f"| {settings.queue}, beside one",
        f"stream | {limits.subscribers} |",
        f"the last {settings.heads} heads",
    ):
        assert words in TEXT, words
