"""The live tab in a real browser: sources, events as they come, verdicts, and `review`."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from driftscore import Backbone, Embedder
from driftscore.audio.recordings import read
from driftscore.decisions.records import LevelReport, Present, SourceStatus, Words, iso
from driftscore.events.watchlist import WatchList
from driftscore.live.clips import EventClips
from driftscore.service.settings import ServiceSettings
from tests.conftest import Run

from .conftest import Site, Visit, running
from .day_store import DayStore, found
from .steps import PHONE, SOUNDS, Browser, Page, expect, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

STREAM = "**/v1/events/stream"


def test_verdicts_are_given_with_keys_and_saved(visit: Visit, site: Site) -> None:
    page = visit.open("tab=live")
    rows = page.locator(".events li")
    expect(rows).to_have_count(9)
    page.click("#tab-live")  # no row has the focus
    for key in ("r", "w", "j", "r", "k", "w", "u", "u"):
        page.keyboard.press(key)
    # r on 9, w on 8, over 7, r on 6 and on to 5, back to 6: w; both verdicts on 6 are undone
    until(page, lambda: site.store.verdicts() == {9: "right", 8: "wrong"})
    expect(page.locator(".events li[aria-current=true] .label")).to_have_text("jackhammer")
    expect(page.locator(".events li.right")).to_have_count(1)
    expect(page.locator("#review-title")).to_contain_text("2 of 9 reviewed")
    page.reload()
    expect(page.locator(".events li.wrong")).to_have_count(1)
    page.get_by_role("button", name=re.compile("^right ?: siren")).click()  # the same again: undone
    expect(page.locator(".events li.right")).to_have_count(0)
    page.locator(".events li.wrong").get_by_role("button", name=re.compile("^wrong")).click()
    expect(page.locator(".events li.wrong")).to_have_count(0)
    until(page, lambda: site.store.verdicts() == {})


def test_a_verdict_that_is_not_saved_is_taken_back_with_the_reason(
    visit: Visit, site: Site
) -> None:
    visit.expected = ("/review",)
    page = visit.open("tab=live")
    expect(page.locator(".events li")).to_have_count(9)
    site.store.lost = True
    try:
        page.locator(".events li").first.get_by_role("button", name=re.compile("^wrong")).click()
        expect(page.locator(".events .problem")).to_contain_text("The verdict was not saved")
        expect(page.locator(".events li.wrong")).to_have_count(0)
    finally:
        site.store.lost = False


def test_the_live_tab_shows_sources_levels_and_hours(visit: Visit) -> None:
    page = visit.open()
    page.focus("#tab-try")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".sources li")).to_have_count(3)
    expect(page.locator(".sources")).to_contain_text("unplugged since 05:58")
    yard, street = (page.locator(".sources li", has_text=name) for name in ("yard", "street"))
    expect(yard).to_contain_text(re.compile(r"42 dBA.*L10 44 .*L90 37", re.DOTALL))
    expect(street.locator(".level")).to_contain_text("\N{MINUS SIGN}38 dBFS")
    expect(page.locator(".sources li", has_text="back door")).to_contain_text("no level yet")
    expect(page.locator(".hours tbody tr")).to_have_count(5)
    cell = page.locator(".hours tbody tr", has_text="dog bark").locator("td").nth(8)
    expect(cell).to_have_text("2")
    assert page.url.endswith("#tab=live")


def test_keys_act_on_the_row_that_was_clicked(visit: Visit, site: Site) -> None:
    page = visit.open("tab=live")
    rows = page.locator(".events li")
    expect(rows).to_have_count(9)
    rows.nth(3).locator(".facts").click()
    page.keyboard.press("w")
    until(page, lambda: site.store.verdicts() == {6: "wrong"})
    page.keyboard.press("u")
    until(page, lambda: site.store.verdicts() == {})


def test_events_of_a_word_a_source_and_another_day_are_shown(visit: Visit, site: Site) -> None:
    page = visit.open("tab=live")
    rows = page.locator(".events li")
    expect(rows).to_have_count(9)
    word, source = page.locator(".choice select").all()
    word.select_option("dog bark")
    expect(rows).to_have_count(2)
    word.select_option("")
    source.select_option("street")
    expect(rows).to_have_count(5)
    source.select_option("")
    page.get_by_role("button", name="Yesterday").click()
    expect(page.locator(".empty-list")).to_have_text("No event on this day.")
    page.locator(".choice input").fill(f"{site.store.midnight:%Y-%m-%d}")
    expect(rows).to_have_count(9)


@pytest.mark.parametrize("visit", [PHONE], indirect=True)
def test_on_a_phone_the_hour_is_in_sight_and_no_hint_overflows(visit: Visit) -> None:
    page = visit.open("tab=live")
    expect(page.locator(".hours th.now")).to_be_visible()
    hour = page.locator(".hours th.now").bounding_box()
    box = page.locator(".hours").locator("..").bounding_box()
    assert hour is not None
    assert box is not None
    assert box["x"] <= hour["x"]
    assert hour["x"] + hour["width"] <= box["x"] + box["width"] + 1
    wide = page.evaluate(
        """() => [...document.querySelectorAll("main p, main h2, main label")]
        .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth)
        .map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert not wide


@pytest.fixture
def own(browser: Browser, mini: Backbone, tmp_path: Path) -> Iterator[tuple[Page, DayStore]]:
    """Return the live tab of a service with a store that a test may change."""
    store = DayStore(tmp_path / "events.db")
    store.clips = tmp_path / "clips"
    settings = ServiceSettings(backbone=Embedder(mini, text_cache=False), event_store=store)
    with running(settings) as url:
        page = browser.new_page()
        page.set_default_timeout(60_000)
        page.goto(f"{url}/#tab=live")
        expect(page.locator(".events li")).to_have_count(9)
        yield page, store
        page.close()


def test_what_happens_appears_at_once_through_the_stream(own: tuple[Page, DayStore]) -> None:
    page, store = own
    expect(page.locator(".link")).to_have_text("Connected: changes appear here as they happen.")
    page.wait_for_timeout(1000)  # what is asked for after connecting has been answered
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    now = datetime.now().astimezone()
    yard = page.locator(".sources li", has_text="yard")
    store.send(Present("yard", {"dog bark"}))
    expect(yard.locator(".tag.present")).to_contain_text("dog bark")
    later = iso(now + timedelta(minutes=1))
    store.send(LevelReport("yard", 61.0, 66.0, 52.0, "dBA", 60.0, later))
    expect(yard.locator(".level")).to_contain_text("61 dBA")
    assert asked == []  # all of it was sent, nothing was asked for
    store.send(Present("yard", set()))
    store.send(found(50, "yard", "dog bark", 9.25, now, 0.0, 12.0))
    expect(page.locator(".events li")).to_have_count(10)
    tag = yard.locator(".tag", has_text="dog bark")  # others of the day store may be recent
    expect(tag).to_contain_text(f"dog bark score 9.3 at {now:%H:%M:%S}")
    assert len(asked) <= 2


def test_a_stream_that_breaks_is_told_in_words_and_taken_up_again(
    own: tuple[Page, DayStore],
) -> None:
    page, store = own
    page.route(STREAM, lambda route: route.abort())
    page.reload()
    link = page.locator(".link")
    expect(link).to_contain_text("The server does not answer")
    expect(link).to_contain_text("asking every 4 s meanwhile")
    store.send(found(50, "yard", "wind", 5.0, datetime.now().astimezone(), 2.0, 3.0))
    expect(page.locator(".events li")).to_have_count(10)
    page.unroute(STREAM)
    expect(link).to_contain_text("Connected")


def test_a_listener_that_is_gone_without_a_word_is_noticed(own: tuple[Page, DayStore]) -> None:
    page, store = own
    ended = datetime.now().astimezone() - timedelta(minutes=5)
    store.send(Words("attic", WatchList.of(["wind"])))
    store.send(SourceStatus("attic", True, iso(ended - timedelta(hours=1))))
    store.send(LevelReport("attic", 41.0, 44.0, 37.0, "dBA", 60.0, iso(ended)))
    attic = page.locator(".sources li", has_text="attic")
    expect(attic.locator(".problem")).to_contain_text(
        f"no report since {ended:%H:%M}: has the listener stopped?"
    )


def test_the_clip_of_an_event_is_played_with_a_key(
    own: tuple[Page, DayStore], tmp_path: Path
) -> None:
    page, store = own
    now = datetime.now().astimezone()
    sound = read(SOUNDS / "siren.flac")
    event = found(50, "yard", "wind", 5.0, now, 2.0, 3.0)
    clip = EventClips(str(tmp_path / "clips")).write(sound, event)
    store.send(replace(found(50, "yard", "wind", 5.0, now, 2.0, 3.0), clip=clip))
    store.send(replace(found(51, "yard", "wind", 5.0, now, 2.0, 3.0), clip=f"{clip}.gone"))
    play = page.get_by_role("button", name=re.compile("^play ?: wind"))
    expect(play).to_have_count(2)  # other events have no clip
    page.locator(".events li", has=play).last.focus()
    page.keyboard.press("p")
    stop = page.get_by_role("button", name=re.compile("^stop ?: wind"))
    expect(stop).to_have_count(1)
    page.keyboard.press("p")
    expect(stop).to_have_count(0)
    page.locator(".events li", has=play).first.focus()
    page.keyboard.press("p")
    expect(page.locator(".events .problem")).to_contain_text("There is no clip of this event")


def test_verdicts_of_the_page_are_the_answers_of_review(
    own: tuple[Page, DayStore], tmp_path: Path, run: Run
) -> None:
    page, store = own
    now = datetime.now().astimezone()
    for number in range(12):  # bad ones score lower
        start = now + timedelta(seconds=number)
        store.send(found(50 + number, "yard", "wind", 4.0 + number / 10, start, 2.0, 3.0))
    expect(page.locator(".events li")).to_have_count(21)
    page.locator(".events li", has_text="wind").first.focus()
    for number in range(12):
        page.keyboard.press("r" if number < 10 else "w")
    until(page, lambda: len(store.verdicts()) == 12)
    watch = tmp_path / "watch.toml"
    status, _, said = run(
        "review", tmp_path / "events.db", "--precision", "1", "--watch-out", watch
    )
    assert status == 0
    assert "12 of 21 events are reviewed (10 right, 2 wrong, 0 unsure)" in said
    assert "wind: threshold 4.15 (raised), precision 100%" in said
    assert "driftscore listen --watch" in said
    assert "threshold = 4.15" in watch.read_text()
