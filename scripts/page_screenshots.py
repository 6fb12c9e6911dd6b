"""Take the pictures of docs/page.md: `python scripts/page_screenshots.py` (needs Chromium).

The page is served with `mini`, a made-up day of live events and an archive of the computed sounds,
as in the tests.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

PROJECT = Path(__file__).resolve().parent.parent
TARGET = PROJECT / "docs" / "page"
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True}
sys.path.insert(0, str(PROJECT))

from driftscore.decisions.records import Present  # noqa: E402
from driftscore.service.page_archive import OpenedArchive  # noqa: E402
from driftscore.service.settings import ServiceSettings  # noqa: E402
from tests.page.conftest import CHROMIUM_ARGUMENTS, running  # noqa: E402
from tests.page.day_store import DayStore  # noqa: E402
from tests.page.sound_archive import SOUNDS, make_archive  # noqa: E402
from tests.page.steps import drop  # noqa: E402


def opened(browser: Browser, address: str, wait_for: str, **options: object) -> Page:
    """Open the page and wait until it is complete and nothing moves."""
    size = {"width": 1280, "height": 860}
    page = browser.new_context(
        **{"viewport": size, "reduced_motion": "reduce", **options}
    ).new_page()
    page.goto(address)
    page.wait_for_selector(wait_for, timeout=60_000)
    if "tab=live" not in address:  # its stream never ends
        page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1500)
    return page


def take(browser: Browser, url: str) -> None:
    """Take every picture."""
    page = opened(browser, f"{url}/#tab=try", ".event-list li")
    page.screenshot(path=TARGET / "try.png", full_page=True)
    compared = f"{url}/#example=siren&snr=-12&compare=rules"
    page = opened(browser, compared, ".verdict:has-text('recognised')")
    page.screenshot(path=TARGET / "compare.png", full_page=True)
    page = opened(browser, f"{url}/#labels=our doorbell, qwertzu, speech&example=street", ".bar")
    drop(page, ".chip", SOUNDS / "church_bell.flac", SOUNDS / "alarm_clock.flac")
    page.wait_for_selector(".example >> nth=1")
    page.wait_for_timeout(2500)
    page.locator(".words").screenshot(path=TARGET / "examples.png")
    page = opened(browser, f"{url}/#tab=try", ".event-list li", color_scheme="dark", **PHONE)
    page.screenshot(path=TARGET / "phone.png")
    page = opened(browser, f"{url}/#tab=search", "#find")
    page.fill("#find", "siren, church bell, thunder")
    page.keyboard.press("Enter")
    page.wait_for_selector(".places li")
    page.wait_for_timeout(500)
    page.screenshot(path=TARGET / "search.png", full_page=True)
    page = opened(browser, f"{url}/#tab=live", ".events li")
    page.focus(".events li")
    for key in "rrw":
        page.keyboard.press(key)
    page.wait_for_timeout(500)
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=TARGET / "live.png", full_page=True)
    page = opened(browser, f"{url}/#tab=live", ".events li", color_scheme="dark", **PHONE)
    page.screenshot(path=TARGET / "live-phone.png")


def main() -> None:
    """Serve the page and take its pictures."""
    TARGET.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        store = DayStore(Path(folder) / "events.db")
        store.send(Present("street", {"car horn"}))
        program = shutil.which("chromium")
        browser = play.chromium.launch(executable_path=program, args=list(CHROMIUM_ARGUMENTS))
        names = tuple(sorted(path.stem for path in SOUNDS.glob("*.flac")))
        archive = OpenedArchive(make_archive(Path(folder) / "recordings", names))
        with running(ServiceSettings(event_store=store, archive=archive)) as url:
            take(browser, url)
        browser.close()


if __name__ == "__main__":
    main()
