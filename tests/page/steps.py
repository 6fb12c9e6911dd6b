"""What the tests of the page in a browser share: steps of a person, and what is looked at."""

import base64
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


def check_with_axe(page: Page, axe: str) -> None:
    """Fail with every violation that axe-core finds."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document)")
    bad = [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
    assert not bad, "\n".join(bad)
    assert len(found["passes"]) > 10


def drop(page: Page, target: str, *paths: Path) -> None:
    """Drop files on what a selector finds."""
    files = [[path.name, base64.b64encode(path.read_bytes()).decode()] for path in paths]
    page.evaluate(
        """([target, files]) => {
            const transfer = new DataTransfer();
            for (const [name, content] of files) {
                const bytes = Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0));
                transfer.items.add(new File([bytes], name));
            }
            for (const kind of ["dragover", "drop"]) {
                const options = { dataTransfer: transfer, bubbles: true, cancelable: true };
                document.querySelector(target).dispatchEvent(new DragEvent(kind, options));
            }
        }""",
        [target, files],
    )
