"""Rankings, charts and links in a real browser: what a person does, and what they then see."""

import re

import numpy as np
import pytest

from driftscore import Backbone, Embedder
from driftscore.service.settings import ServiceSettings

from .conftest import Site, Visit, running
from .steps import (
    COMPARE,
    MINUS,
    RANKED,
    SOUNDS,
    WORDS,
    Browser,
    Route,
    expect,
    move_slider,
    ranking,
    settled,
    upload,
)

SCENE = {"siren": (21.0, 26.0)}
"""When it is in the street of the page, in seconds."""
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


def test_a_file_and_words_give_a_spectrogram_and_three_rankings(visit: Visit) -> None:
    page = visit.open(COMPARE)
    expect(page.locator(".event-list li").first).to_be_visible()
    upload(page, SOUNDS / "siren.flac")
    page.fill("#words", "")
    expect(page.locator("#words-problem")).to_contain_text("separated by commas")
    expect(page.locator(".fits li")).to_have_count(0)  # old results go
    page.fill("#words", WORDS)
    expect(page.locator(RANKED)).to_have_count(3)
    settled(page)
    assert page.locator("#words-problem").inner_text() == ""
    for rule in ("cosine", "das", "default"):
        assert ranking(page, rule)[0] == "siren"
        assert sorted(ranking(page, rule)) == sorted(WORDS.split(", "))
    colours = page.evaluate(
        """() => { const c = document.querySelector("canvas");
        const data = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        return new Set(Array.from({length: data.length / 4}, (_, i) => data[4 * i])).size; }"""
    )
    assert colours > 30  # a picture, not one colour
    assert "siren.flac" in (page.locator("canvas").first.get_attribute("aria-label") or "")


def test_the_rankings_are_those_of_the_library(visit: Visit, site: Site) -> None:
    from driftscore import Classifier

    page = visit.open()
    expect(page.locator(".event-list li").first).to_be_visible()
    upload(page, SOUNDS / "speech.flac")
    expect(page.locator(".sound .hint")).to_contain_text("speech.flac")
    settled(page)
    with page.expect_response(re.compile("/rank$")) as answered:
        page.fill("#words", WORDS)
    answer = answered.value.json()
    labels = WORDS.split(", ")
    for rule, raw in (("cosine", True), ("das", True), ("auto", False)):
        classifier = Classifier(labels, rule=rule, standardised=False if raw else None)
        expected = classifier.scores([SOUNDS / "speech.flac"])
        shown = answer["rules"]["default" if rule == "auto" else rule]
        np.testing.assert_allclose(shown, expected[0], atol=2e-5)


def test_the_slider_moves_the_scores_and_the_chart_says_where_each_rule_fails(visit: Visit) -> None:
    page = visit.open(f"example=siren&noise=white&{COMPARE}")
    expect(page.locator(".verdict").last).to_contain_text("recognised")
    clean = page.locator(f"{RANKED} .score").last.inner_text()
    move_slider(page, -20)
    settled(page)
    said = page.locator("#snr").get_attribute("aria-valuetext")
    assert said == f"signal to noise ratio {MINUS}20 decibels"
    assert page.locator(f"{RANKED} .score").last.inner_text() != clean
    borders = [text.inner_text() for text in page.locator(".verdict").all()]
    assert all(re.fullmatch(rf"recognised down to {MINUS}\d+ dB", text) for text in borders), (
        borders
    )
    # At -20 dB every rule is beyond its border: what it ranks first is wrong, and is marked so.
    assert page.locator(".ranking li.wrong").count() == 3
    assert page.locator(".charts .uplot").count() == 3
    page.locator(".charts .u-over").first.click(position={"x": 5, "y": 50})
    expect(page.locator(".snr")).to_contain_text(re.compile("^(18|19|20) dB"))


def test_another_label_can_count_as_right(visit: Visit) -> None:
    page = visit.open(f"example=siren&{COMPARE}")
    expect(page.locator(".verdict").last).to_contain_text("recognised")
    page.locator("[aria-labelledby=rule-default] li button", has_text="rain").click()
    expect(page.locator(".verdict").last).to_have_text("not recognised, even without noise")
    assert "right=rain" in page.url
    expect(page.locator(".why")).to_contain_text("Up: cosine with rain")


def test_the_events_of_a_long_file_lie_on_its_spectrogram(visit: Visit) -> None:
    page = visit.open()
    expect(page.locator(".bar").first).to_be_visible()
    settled(page)
    first = page.locator(".event-list .label").first.inner_text()
    expect(page.locator(".fits .headline")).to_contain_text(first)  # opened at its first event
    siren = page.locator(".bar", has_text="siren").first
    plot = page.locator(".spectrogram").first.locator(".plot").bounding_box()
    box = siren.bounding_box()
    assert plot is not None
    assert box is not None
    start, end = ((x - plot["x"]) / plot["width"] * 60 for x in (box["x"], box["x"] + box["width"]))
    begun, ended = SCENE["siren"]
    assert start < (begun + ended) / 2 < end
    siren.click()
    expect(page.locator(".fits .headline")).to_contain_text("siren")
    page.get_by_label("Start of the part").press("Home")
    expect(page.locator("#picture-title")).to_contain_text("0.0 s to 10 s")


def test_short_events_have_their_full_names(visit: Visit) -> None:
    page = visit.open()
    expect(page.locator(".bar").first).to_be_visible()
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 900})
        settled(page)
        cut = page.evaluate(
            """() => [...document.querySelectorAll(".bar span")].filter((text) => {
            const box = text.getBoundingClientRect();
            const plot = text.closest(".plot").getBoundingClientRect();
            return text.scrollWidth > Math.ceil(box.width) || box.left < plot.left
                || box.right > plot.right + 1; }).map((text) => text.innerText)"""
        )
        assert not cut
        assert page.locator(".bar span").count() >= 3


def test_nothing_fits_is_said(visit: Visit) -> None:
    page = visit.open("example=siren&labels=a cow mooing")
    expect(page.locator(".fits .headline")).to_have_text("None of these")
    page.fill("#words", "siren")
    expect(page.locator(".fits .headline")).to_have_text("siren")  # one word is enough


def test_a_busy_server_is_asked_again(visit: Visit) -> None:
    visit.expected = ("503",)
    refused = []

    def refuse_once(route: Route) -> None:
        path = route.request.url.rpartition("/")[2]
        if path in refused:
            route.continue_()
        else:
            refused.append(path)
            route.fulfill(
                status=503, headers={"Retry-After": "1"}, json={"error": "The service is busy"}
            )

    visit.page.route(re.compile("/page/about$|/rank$|/sweep$"), refuse_once)
    page = visit.open(f"example=siren&{COMPARE}")
    expect(page.locator(".verdict").last).to_contain_text("recognised")
    assert sorted(refused) == ["about", "rank", "sweep"]
    expect(page.locator(".problem", has_text="busy")).to_have_count(0)


def test_the_token_of_a_server_is_asked_for_and_kept(browser: Browser, mini: Backbone) -> None:
    token = "t" * 32
    settings = ServiceSettings(backbone=Embedder(mini, text_cache=False), token=token)
    with running(settings) as url:
        page = browser.new_page()
        page.goto(url)
        page.fill("#token", token)
        page.keyboard.press("Enter")
        expect(page.locator(".sound")).to_be_visible()
        page.reload()
        expect(page.locator(".sound")).to_be_visible()
        other = browser.new_context().new_page()
        other.goto(f"{url}/#token={token}&labels=siren, rain")
        expect(other.locator(".sound")).to_be_visible()
        assert token not in other.url
        assert other.input_value("#words") == "siren, rain"
        page.close()
        other.close()


def test_a_link_shows_the_same_thing_again(visit: Visit) -> None:
    page = visit.open(f"example=siren&{COMPARE}")
    expect(page.locator(RANKED)).to_have_count(3)
    page.fill("#words", "siren, wind, a dog barking")
    page.select_option("#noise", "pink")
    move_slider(page, 3)
    expect(page.locator("[aria-labelledby=rule-default] li")).to_have_count(3)
    settled(page)
    link, shown = page.url, ranking(page, "default")
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator(RANKED)).to_have_count(3)
    settled(page)
    assert page.input_value("#words") == "siren, wind, a dog barking"
    assert page.input_value("#noise") == "pink"
    expect(page.locator(".snr")).to_contain_text("3 dB")
    assert ranking(page, "default") == shown


def test_a_server_that_is_gone_is_named(visit: Visit) -> None:
    visit.expected = ("ERR_FAILED", "net::")
    page = visit.open("example=siren")
    expect(page.locator(".fits .headline")).to_have_text("siren")
    settled(page)
    page.route("**/page/**", lambda route: route.abort())
    move_slider(page, 0)
    problem = page.locator(".problem", has_text="The server does not answer")
    expect(problem).to_be_visible()
    page.unroute_all()
    move_slider(page, -1)
    expect(problem).to_have_count(0)
