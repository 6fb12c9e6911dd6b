"""What the tests of the page in a browser share: steps of a person, and what is looked at."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import PROJECT

playwright = pytest.importorskip(
    "playwright.sync_api", reason="PLAYWRIGHT IS MISSING: pip install playwright"
)
from playwright.sync_api import Browser, Page, Route, expect  # noqa: E402

__all__ = ["Browser", "Page", "Route", "expect"]
expect.set_options(timeout=60_000)  # the machine may be busy
SOUNDS = PROJECT / "demo" / "sounds"
MINUS = "\N{MINUS SIGN}"
WORDS = "siren, church bell, alarm clock, rain, speech, dog bark"
RANKED = ".ranking li.right"
COMPARE = "compare=rules"
"""What a link carries to open the comparison of rules."""
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


def ranking(page: Page, rule: str) -> list[str]:
    """Return the labels of a rule in the order that is seen."""
    rows = page.locator(f"[aria-labelledby=rule-{rule}] li").all()
    places = [(row.bounding_box() or {"y": 0})["y"] for row in rows]
    names = [row.locator(".label").inner_text() for row in rows]
    return [name for _, name in sorted(zip(places, names, strict=True))]


def settled(page: Page) -> None:
    """Wait until every answer has come and nothing moves; the live tab is never without traffic."""
    if "tab=live" not in page.url:
        page.wait_for_load_state("networkidle")
    page.wait_for_timeout(300)


def until(page: Page, true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something is true outside of the browser."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        page.wait_for_timeout(50)


def upload(page: Page, path: Path) -> None:
    """Choose a file."""
    page.set_input_files("#file", path)


def move_slider(page: Page, snr_db: int) -> None:
    """Move the slider with its keys until it shows an SNR."""
    shown = f"{snr_db} dB".replace("-", MINUS)
    page.focus("#snr")
    page.keyboard.press("Home")
    for _ in range(21 - snr_db):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".snr")).to_contain_text(shown)
