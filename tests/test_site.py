"""`make docs` builds the site without a warning, and its pages load nothing from elsewhere."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import driftscore
from driftscore.cli.app import all_commands

from .conftest import PROJECT

pytestmark = pytest.mark.slow

LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)[^>]*\ssrc=\"?([^\"\s>]+)"
    r"|<link[^>]*\shref=\"?([^\"\s>]+)|url\(['\"]?([^'\")]+)|@import ['\"]([^'\"]+)"
)
"""What a browser loads by itself; a link that a reader follows is none of these."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs` does; any warning ends the script with an error."""
    if importlib.util.find_spec("zensical") is None:
        pytest.skip("ZENSICAL IS ABSENT: the site is not built (pip install '.[docs]')")
    home = tmp_path_factory.mktemp("site")
    script = [sys.executable, str(PROJECT / "scripts" / "build_docs.py"), str(home)]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(home) in done.stdout
    assert not done.stderr
    return home


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css", ".svg")]
    assert len(files) > 40
    for path in files:
        text = re.sub(r"<(code|pre).*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for found in LOADED.findall(text):
            target = "".join(found)
            assert not re.match(r"(https?:)?//", target), f"{path.relative_to(site)}: {target}"


def test_every_public_name_has_its_place_in_the_reference(site: Path) -> None:
    page = (site / "api.html").read_text(encoding="utf-8")
    for name in set(driftscore.__all__) - {"__version__"}:
        assert f'id="driftscore.{name}"' in page, f"add ::: driftscore.{name} to docs/api.md"


def test_parameters_are_read_from_the_docstrings(site: Path) -> None:
    page = (site / "api.html").read_text(encoding="utf-8")
    assert "the sounds to look for, in words" in page
    assert "----------" not in page
    assert "<p>Parameters" not in page


def test_every_command_and_option_has_its_row(site: Path) -> None:
    overview = (site / "commands" / "index.html").read_text(encoding="utf-8")
    for name, command in all_commands().items():
        page = (site / "commands" / f"{name}.html").read_text(encoding="utf-8")
        assert f'href="{name}.html"' in overview
        inner = getattr(command, "commands", {"": command})
        for one in inner.values():
            flags = {flag for p in one.params for flag in p.opts if flag.startswith("-")}
            for flag in flags - {"--help"}:
                assert f"<code>{flag}</code>" in page, f"{name} {flag}"


def test_every_page_of_the_menu_is_in_the_site(site: Path) -> None:
    text = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in re.findall(r": ([\w/-]+)\.md$", text, re.MULTILINE):
        assert (site / f"{page}.html").is_file(), page
    menu = set(re.findall(r"([\w/-]+)\.md$", text, re.MULTILINE))
    missing = {path.stem for path in (PROJECT / "docs").glob("*.md")} - menu - {"commands"}
    assert not missing, "add them to nav in mkdocs.yml"


def test_search_works_in_pages_that_are_opened_as_files(site: Path) -> None:
    """The browser asks for files only, and finds a page by a word of its text."""
    playwright = pytest.importorskip("playwright.sync_api", reason="PLAYWRIGHT IS ABSENT")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("CHROMIUM IS ABSENT: make browser")
    asked: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("Control+k")
        field = page.get_by_role("combobox", name="Search")
        field.press_sequentially("mosquitto", delay=20)
        page.locator("a[role=option][href*='home-assistant.html']").first.wait_for(timeout=10_000)
        assert field.input_value() == "mosquitto"
        browser.close()
    assert asked
    assert not [url for url in asked if not url.startswith(("file:", "blob:", "data:"))]
