"""A running service and a real browser for the tests of the page.

The browser is Debian's Chromium (apt-get install chromium), driven by playwright; where either is
missing, the tests that need them are skipped with the reason. The microphone is Chromium's own fake
one, which beeps once per second.
"""

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from driftscore import Embedder
from driftscore.service.app import create_app
from driftscore.service.settings import Limits, ServiceSettings

from .day_store import DayStore

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, ViewportSize

LARGEST_BODY = 3_000_000
CHROMIUM_ARGUMENTS = (
    "--no-sandbox",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
)


@dataclass(frozen=True)
class Site:
    """A service that runs for the tests: its address and its store of live events."""

    url: str
    store: DayStore


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve the page with `mini` at a free port of this machine."""
    store = DayStore(tmp_path_factory.mktemp("live") / "events.db")
    settings = ServiceSettings(
        backbone=Embedder("mini", text_cache=False),
        limits=Limits(body_bytes=LARGEST_BODY, seconds=120),
        event_store=store,
    )
    with running(settings) as url:
        yield Site(url, store)


class running:  # noqa: N801 (a context manager that is used like a function)
    """Serve an application in a thread for as long as the block lasts."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.app = create_app(settings)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.server = uvicorn.Server(uvicorn.Config(self.app, log_level="error"))
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],), daemon=True)

    def __enter__(self) -> str:
        self.thread.start()
        state, until = self.app.state.service, time.monotonic() + 60
        while not self.server.started or state.reason_not_ready:
            if time.monotonic() > until:
                pytest.fail(f"The service did not start: {state.reason_not_ready}")
            time.sleep(0.05)
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(timeout=60)


@pytest.fixture(scope="module")  # its event loop runs in this thread until it is closed
def browser() -> "Iterator[Browser]":
    """Start Chromium, or skip with what is missing."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("PLAYWRIGHT IS MISSING: pip install playwright")
    names = (os.environ.get("DRIFTSCORE_CHROMIUM", ""), "chromium", "chromium-browser")
    program = next((found for name in names if name and (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("CHROMIUM IS MISSING: apt-get install chromium, or set DRIFTSCORE_CHROMIUM")
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=program, args=list(CHROMIUM_ARGUMENTS))
        yield opened
        opened.close()


@dataclass
class Visit:
    """One visit of the page: where it is, and everything that its console said."""

    page: "Page"
    url: str
    said: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()
    """Parts of messages that a test provokes: Chromium logs every answer that is an error."""

    def open(self, fragment: str = "") -> "Page":
        """Open the page, with what a link would carry."""
        self.page.goto(f"{self.url}/#{fragment}")
        self.page.wait_for_selector("#panel .card:visible")
        return self.page

    def check(self) -> None:
        """Fail if the console said anything that the test did not provoke."""
        strange = [text for text in self.said if not any(part in text for part in self.expected)]
        assert not strange, strange


@pytest.fixture
def visit(browser: "Browser", site: Site, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """Return a fresh visit; the parameter is what the browser is like (size, colours, touch)."""
    with visiting(browser, site.url, **getattr(request, "param", {})) as found:
        yield found


@contextmanager
def visiting(browser: "Browser", url: str, **options: Any) -> Iterator[Visit]:
    """Yield a fresh visit of a service, and check at its end what its console said."""
    size: ViewportSize = options.pop("viewport", {"width": 1280, "height": 860})
    context = browser.new_context(viewport=size, **options)
    page = context.new_page()
    page.set_default_timeout(60_000)
    found = Visit(page, url)

    def note(message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            found.said.append(f"{message.type}: {message.text} {message.location.get('url', '')}")

    page.on("console", note)
    page.on("pageerror", lambda error: found.said.append(f"exception: {error}"))
    page.on("request", lambda asked: _stay_here(asked.url, found))
    yield found
    context.close()
    found.check()


def _stay_here(url: str, visit: Visit) -> None:
    """Note a request to another place: the page works offline."""
    if not url.startswith((visit.url, "blob:", "data:")):
        visit.said.append(f"request to another place: {url}")


@pytest.fixture(scope="session")
def axe() -> str:
    """Return axe-core, or skip with how to get it."""
    path = Path(__file__).parent / "vendor" / "axe.min.js"
    if not path.is_file():
        pytest.skip("AXE-CORE IS MISSING: python scripts/vendor_page.py --axe (needs npm)")
    return path.read_text(encoding="utf-8")
