"""How the page looks and is used: sizes, colours, keyboard, accessibility, no jumps."""

import re

import pytest

from .conftest import Visit
from .steps import PHONE, RANKED, WORDS, expect, move_slider, settled

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


@pytest.mark.parametrize("visit", [{}, {"color_scheme": "dark"}, PHONE], indirect=True)
@pytest.mark.parametrize("where", ["", "example=street&snr=-6", "tab=live"])
def test_axe_finds_no_serious_violation(visit: Visit, where: str, axe: str) -> None:
    page = visit.open(where)
    if "street" in where:
        expect(page.locator(".bar").first).to_be_visible()
        expect(page.locator(".verdict").last).to_contain_text("recognised")
    if "live" in where:
        expect(page.locator(".events li").first).to_be_visible()
    settled(page)
    page.evaluate(axe)
    found = page.evaluate("axe.run(document)")
    bad = [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
    assert not bad, "\n".join(bad)
    assert len(found["passes"]) > 10


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
    page = visit.open(f"labels={WORDS}")
    page.get_by_role("button", name="A siren, 5 s").click()
    expect(page.locator(".verdict").last).to_contain_text("recognised")
    move_slider(page, -20)
    settled(page)
    assert page.evaluate("window.shift") < 0.05


def test_everything_can_be_reached_with_the_keyboard(visit: Visit) -> None:
    page = visit.open()
    reached: list[str] = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.innerText")
        )
    assert reached == [
        "tab-try",
        "Choose a file",
        "Record",
        "A siren, 5 s",
        "A street, 48 s",
        "words",
        "noise",
        "snr",
    ]
    page.get_by_role("button", name="A siren, 5 s").press("Enter")
    expect(page.locator(RANKED)).to_have_count(3)
