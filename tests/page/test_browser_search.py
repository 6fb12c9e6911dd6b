"""The search of an archive in a real browser."""

import re
from collections.abc import Iterator

import pytest

from driftscore import Embedder
from driftscore.service.page_archive import OpenedArchive
from driftscore.service.settings import ServiceSettings

from .conftest import Visit, running, visiting
from .sound_archive import SOUNDS, make_archive
from .steps import PHONE, Browser, check_with_axe, drop, expect, settled

pytest.importorskip("pyarrow", reason="PYARROW IS MISSING: pip install '.[archive]'")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    archive = make_archive(tmp_path_factory.mktemp("recordings"))
    (archive.parent / "sounds" / "rain.flac").unlink()  # one is not there any more
    settings = ServiceSettings(
        backbone=Embedder("mini", text_cache=False), archive=OpenedArchive(archive)
    )
    with running(settings) as url:
        yield url


@pytest.fixture
def visit(browser: Browser, address: str, request: pytest.FixtureRequest) -> Iterator[Visit]:
    with visiting(browser, address, **getattr(request, "param", {})) as found:
        yield found


def test_words_find_places_that_can_be_played(visit: Visit) -> None:
    page = visit.open()  # with an archive the page begins with its search
    page.fill("#find", "siren, church bell")
    page.keyboard.press("Enter")
    for word, file in (("siren", "siren.flac"), ("church bell", "church_bell.flac")):
        section = page.locator(f"[aria-labelledby='found-{word}']")
        expect(section.locator(".label").first).to_have_text(file)
    expect(page.locator(".hint[role=status]")).to_have_text("8 places in 8 windows")
    expect(page.get_by_text("no file")).to_have_count(2)
    with page.expect_response(re.compile("/sound")) as answered:
        page.get_by_role("button", name=re.compile("^play ?: siren, siren.flac")).click()
    assert answered.value.status == 200
    stop = page.get_by_role("button", name=re.compile("^stop ?: siren, siren.flac"))
    stop.click()
    expect(stop).to_have_count(0)


def test_examples_find_what_has_no_word(visit: Visit) -> None:
    page = visit.open()
    page.fill("#find", "gizmo")
    drop(page, ".search .chip", SOUNDS / "speech.flac")
    expect(page.locator(".search .example")).to_have_count(1)
    page.get_by_label("by its examples alone").check()
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator(".places .label").first).to_have_text("speech.flac")


def test_what_is_wrong_stands_at_the_words_and_old_places_go(visit: Visit) -> None:
    visit.expected = ("/page/archive",)
    page = visit.open()
    page.fill("#find", "siren, qwertzu")
    page.keyboard.press("Enter")
    expect(page.locator(".search .chip.unclear")).to_contain_text("'qwertzu' is not understood")
    page.fill("#find", "bell*.wav")
    page.keyboard.press("Enter")
    expect(page.locator("#find-problem")).to_contain_text("is the name of files")
    expect(page.locator(".places li")).to_have_count(0)
    page.fill("#find", "")
    page.keyboard.press("Enter")
    expect(page.locator("#find-problem")).to_contain_text("separated by commas")


def test_the_other_tabs_are_there_and_a_link_opens_them(visit: Visit) -> None:
    page = visit.open("labels=siren, rain&example=siren")
    expect(page.locator(".fits .headline")).to_have_text("siren")
    page.get_by_role("tab", name="Search").click()
    expect(page.locator("#find")).to_be_visible()
    expect(page).to_have_url(re.compile("#tab=search$"))


@pytest.mark.parametrize("visit", [{}, {"color_scheme": "dark"}, PHONE], indirect=True)
def test_axe_finds_no_violation(visit: Visit, axe: str) -> None:
    page = visit.open()
    page.fill("#find", "siren, qwertzu")
    page.keyboard.press("Enter")
    expect(page.locator(".places li").first).to_be_visible()
    settled(page)
    check_with_axe(page, axe)
    assert page.evaluate("document.documentElement.scrollWidth") == page.evaluate("innerWidth")
