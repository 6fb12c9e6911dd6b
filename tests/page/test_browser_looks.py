"""How the page looks and is used: sizes, colours, keyboard, accessibility, no jumps."""

import re

import pytest

from .conftest import Visit
from .steps import (
    COMPARE,
    PHONE,
    RANKED,
    SOUNDS,
    WORDS,
    Page,
    check_with_axe,
    expect,
    move_slider,
    settled,
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


@pytest.mark.parametrize("visit", [{}, {"color_scheme": "dark"}, PHONE], indirect=True)
@pytest.mark.parametrize("where", ["", f"example=siren&snr=-6&{COMPARE}", "tab=live"])
def test_axe_finds_no_violation(visit: Visit, where: str, axe: str) -> None:
    page = visit.open(where)
    if not where:
        expect(page.locator(".event-list li").first).to_be_visible()
    if "siren" in where:
        expect(page.locator(".verdict").last).to_contain_text("recognised")
    if "live" in where:
        expect(page.locator(".events li").first).to_be_visible()
    settled(page)
    check_with_axe(page, axe)


@pytest.mark.parametrize("visit", [PHONE], indirect=True)
@pytest.mark.parametrize("where", ["example=street", "tab=live"])
def test_on_a_phone_nothing_is_wider_than_the_screen(visit: Visit, where: str) -> None:
    page = visit.open(where)
    expect(page.locator(".bar, .events li").first).to_be_visible()
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    small = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input[type=range]")]
        .filter((e) => e.checkVisibility() && !e.closest(".bars"))
        .filter((e) => e.getBoundingClientRect().height < 30)
        .map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert not small


@pytest.mark.parametrize("visit", [{"color_scheme": "dark"}], indirect=True)
def test_in_the_dark_the_page_is_dark(visit: Visit) -> None:
    page = visit.open()
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", colour)[:3])) < 50
    page.emulate_media(color_scheme="light")
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert min(map(int, re.findall(r"\d+", colour)[:3])) > 200


def test_nothing_jumps_while_answers_arrive(visit: Visit) -> None:
    visit.page.add_init_script(
        """window.shift = 0;
        const add = (entry) => { if (!entry.hadRecentInput) window.shift += entry.value; };
        new PerformanceObserver((list) => list.getEntries().forEach(add))
            .observe({type: "layout-shift", buffered: true});"""
    )
    page = visit.open(f"labels={WORDS}&example=siren&{COMPARE}")
    expect(page.locator(".verdict").last).to_contain_text("recognised")
    move_slider(page, -20)
    settled(page)
    assert page.evaluate("window.shift") < 0.05


def test_everything_can_be_reached_with_the_keyboard(visit: Visit) -> None:
    page = visit.open("example=siren")
    expect(page.locator(".fits li").first).to_be_visible()
    reached: list[str] = []
    for _ in range(17):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.innerText")
        )
    assert reached == [
        "tab-try",
        "Choose a file",
        "Record",
        "Play",
        "A street, 60 s",
        "A siren, 5 s",
        "words",
        *(f"{word} +\n: add recordings of it" for word in WORDS.split(", ")),
        "Copy link",
        "noise",
        "snr",
        "Compare rules\nhow plain similarity, DAS and the default rank the words as noise grows",
    ]
    page.keyboard.press("Enter")
    expect(page.locator(RANKED)).to_have_count(3)


class Clicks:
    """Counts what a visitor presses."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.count = 0

    def press(self, name: str | re.Pattern[str]) -> None:
        self.count += 1
        self.page.get_by_role("button", name=name).first.click()


def test_a_visitor_labels_a_file_finds_events_and_answers_one_in_three_clicks_each(
    visit: Visit,
) -> None:
    page = visit.open()
    clicks = Clicks(page)
    # Find events: they are there; play the first one.
    expect(page.locator(".event-list li").first).to_be_visible()
    clicks.press(re.compile("^play ?:"))
    expect(page.locator(".playhead").first).to_be_visible()
    assert clicks.count <= 3
    # Answer one.
    clicks.count = 0
    clicks.press(re.compile("^right ?:"))
    expect(page.locator(".event-list li.right")).to_have_count(1)
    with page.expect_download() as saved:
        clicks.press("Save as csv")
    assert ",right\n" in saved.value.path().read_text()
    assert clicks.count <= 3
    # Label a file of one's own.
    clicks.count = 0
    with page.expect_file_chooser() as chooser:
        clicks.press("Choose a file")
    chooser.value.set_files(SOUNDS / "speech.flac")
    expect(page.locator(".fits .headline")).to_have_text("speech")
    assert clicks.count <= 3
