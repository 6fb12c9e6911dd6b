"""Examples in a real browser: dropped on a word, chosen, removed; and words that are unclear."""

import json
import re
from pathlib import Path

import pytest

from .conftest import Visit
from .steps import PHONE, SOUNDS, Page, check_with_axe, drop, expect, settled

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
CHIP = ".chip:has(strong:text-is('{}'))"
FIRST = ".chip:first-child"


def opened(visit: Visit, words: str) -> Page:
    page = visit.open(f"labels={words}&example=siren")
    expect(page.locator(".fits li")).to_have_count(len(words.split(",")))
    return page


def test_files_dropped_on_a_word_teach_it(visit: Visit) -> None:
    page = opened(visit, "qwertzu, rain, speech")
    assert "not understood" in page.locator(CHIP.format("qwertzu")).inner_text()
    with page.expect_request(re.compile("/rank$")) as asked:
        drop(page, FIRST, SOUNDS / "siren.flac")
    sent = json.loads(asked.value.post_data or "")
    assert sent["labels"] == ["qwertzu", "rain", "speech"]
    assert list(sent["examples"]) == ["qwertzu"]
    expect(page.locator(f"{FIRST} .example")).to_have_text(re.compile("siren.flac"))
    expect(page.locator(".fits li .label").first).to_have_text("qwertzu")
    with page.expect_request(re.compile("/rank$")) as asked:
        page.get_by_label("by its examples alone").check()
    assert json.loads(asked.value.post_data or "")["labels"] == ["rain", "speech"]
    expect(page.locator(".fits .headline")).to_have_text("qwertzu")
    page.get_by_role("button", name=re.compile("remove this example of qwertzu")).click()
    expect(page.locator(".example")).to_have_count(0)


def test_a_word_is_taught_without_a_mouse_and_other_sounds_push_away(visit: Visit) -> None:
    page = opened(visit, "siren, rain")
    with page.expect_file_chooser() as chooser:
        page.focus(f"{FIRST} button")
        page.keyboard.press("Enter")
    chooser.value.set_files([SOUNDS / "church_bell.flac", SOUNDS / "alarm_clock.flac"])
    expect(page.locator(f"{FIRST} .example")).to_have_count(2)
    # On a busy machine the request after the first two examples may still be on its way.
    with page.expect_request(
        lambda request: request.url.endswith("/rank") and '"not"' in (request.post_data or "")
    ) as asked:
        drop(page, ".chip.other", SOUNDS / "rain.flac")
    examples = json.loads(asked.value.post_data or "")["examples"]
    assert {word: len(ids) for word, ids in examples.items()} == {"siren": 2, "not": 1}


def test_what_is_wrong_with_an_example_is_said_at_its_word(visit: Visit, tmp_path: Path) -> None:
    visit.expected = ("/page/examples",)
    page = opened(visit, "siren, rain")
    (tmp_path / "notes.wav").write_text("not a sound")
    drop(page, FIRST, tmp_path / "notes.wav", SOUNDS / "siren.flac")
    message = "notes.wav is not a sound file in a known format"
    expect(page.locator(f"{FIRST} .problem")).to_contain_text(message)
    expect(page.locator(f"{FIRST} .example")).to_have_count(1)  # the other file is taken
    (tmp_path / "large.wav").write_bytes(bytes(3_100_000))
    drop(page, FIRST, tmp_path / "large.wav")
    expect(page.locator(f"{FIRST} .problem")).to_contain_text("the server takes 3.0 MB")


def test_an_example_that_is_unlike_the_others_is_named(visit: Visit) -> None:
    page = opened(visit, "bell, rain")
    names = ("church_bell", "ticking_clock", "alarm_clock", "rain", "thunder")
    drop(page, FIRST, *(SOUNDS / f"{name}.flac" for name in names))
    expect(page.locator(f"{FIRST} .example")).to_have_count(5)
    expect(page.locator(".words > .problem[role=status]")).to_contain_text("is unlike the other")


def test_a_file_dropped_beside_the_cards_does_not_replace_the_page(visit: Visit) -> None:
    page = opened(visit, "siren, rain")
    drop(page, "footer", SOUNDS / "rain.flac")
    expect(page.locator(".sound .hint")).to_contain_text("siren.ogg")


@pytest.mark.parametrize("visit", [{}, {"color_scheme": "dark"}, PHONE], indirect=True)
def test_axe_finds_no_violation_at_taught_and_unclear_words(visit: Visit, axe: str) -> None:
    page = opened(visit, "qwertzu, wxyzu, rain")
    drop(page, FIRST, SOUNDS / "siren.flac")
    expect(page.locator(f"{FIRST} .example")).to_have_count(1)
    expect(page.locator(".chip.unclear")).to_have_count(1)
    settled(page)
    check_with_axe(page, axe)
    width = page.evaluate("innerWidth")
    assert page.evaluate("document.documentElement.scrollWidth") == width
