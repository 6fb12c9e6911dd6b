"""The page in a real browser: what a person does, and what they then see."""

import base64
import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from driftscore import Backbone, Embedder
from driftscore.service.settings import ServiceSettings
from tests.conftest import PROJECT

from .conftest import LARGEST_BODY, Site, Visit, running

playwright = pytest.importorskip(
    "playwright.sync_api", reason="PLAYWRIGHT IS MISSING: pip install playwright"
)
from playwright.sync_api import Browser, Page, Route, expect  # noqa: E402

expect.set_options(timeout=20_000)  # the machine may be busy
SOUNDS = PROJECT / "demo" / "sounds"
MINUS = "\N{MINUS SIGN}"
WORDS = "siren, church bell, alarm clock, rain, speech, dog bark"
RANKED = ".ranking li.right"
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


def ranking(page: Page, rule: str) -> list[str]:
    """Return the labels of a rule in the order that is seen."""
    rows = page.locator(f"[aria-labelledby=rule-{rule}] li").all()
    places = [(row.bounding_box() or {"y": 0})["y"] for row in rows]
    names = [row.locator(".label").inner_text() for row in rows]
    return [name for _, name in sorted(zip(places, names, strict=True))]


def settled(page: Page) -> None:
    """Wait until every answer has come and nothing moves."""
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(300)


def upload(page: Page, path: Path) -> None:
    page.set_input_files("#file", path)


def move_slider(page: Page, snr_db: int) -> None:
    """Move the slider with its keys until it shows an SNR."""
    shown = f"{snr_db} dB".replace("-", MINUS)
    page.focus("#snr")
    page.keyboard.press("Home")
    for _ in range(21 - snr_db):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".snr")).to_contain_text(shown)


def test_a_file_and_words_give_a_spectrogram_and_three_rankings(visit: Visit) -> None:
    page = visit.open()
    expect(page.locator(".spectrogram .empty")).to_contain_text("press an example")
    upload(page, SOUNDS / "siren.flac")
    expect(page.locator("#words-problem")).to_contain_text("separated by commas")
    page.fill("#words", "siren")
    expect(page.locator("#words-problem")).to_contain_text("two sounds or more")
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


def test_high_tones_are_at_the_top_and_late_ones_at_the_right(visit: Visit, tmp_path: Path) -> None:
    time = np.arange(5 * 32_000) / 32_000
    tones = np.where(time < 4, np.sin(2 * np.pi * 200 * time), np.sin(2 * np.pi * 9000 * time))
    soundfile.write(tmp_path / "tones.wav", 0.3 * tones, 32_000)
    page = visit.open()
    upload(page, tmp_path / "tones.wav")
    expect(page.locator("canvas")).to_be_visible()
    rows = page.evaluate(
        """() => { const c = document.querySelector("canvas");
        const data = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        const light = (x, y) => [0, 1, 2].reduce((s, i) => s + data[4 * (y * c.width + x) + i], 0);
        return [0.5, 0.9].map((share) => { const x = Math.floor(share * c.width);
            const column = Array.from({length: c.height}, (_, y) => light(x, y));
            return column.indexOf(Math.max(...column)) / c.height; }); }"""
    )
    assert rows[0] > 0.85  # 200 Hz, near the bottom
    assert rows[1] < 0.25  # 9 kHz, near the top


def test_the_rankings_are_those_of_the_library(visit: Visit, site: Site) -> None:
    from driftscore import Classifier

    page = visit.open()
    with page.expect_response(re.compile("/rank$")) as answered:
        upload(page, SOUNDS / "speech.flac")
        page.fill("#words", WORDS)
    answer = answered.value.json()
    labels = WORDS.split(", ")
    for rule, settings in (
        ("cosine", {"standardised": False}),
        ("das", {"standardised": False}),
        ("auto", {}),
    ):
        expected = Classifier(labels, rule=rule, settings=settings).scores([SOUNDS / "speech.flac"])
        shown = answer["rules"]["default" if rule == "auto" else rule]
        np.testing.assert_allclose(shown, expected[0], atol=2e-5)


def test_the_slider_moves_the_scores_and_the_chart_says_where_each_rule_fails(visit: Visit) -> None:
    page = visit.open("example=siren&noise=rain")
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
    page = visit.open("example=siren")
    expect(page.locator(".verdict").last).to_contain_text("recognised")
    page.locator("[aria-labelledby=rule-default] li button", has_text="rain").click()
    expect(page.locator(".verdict").last).to_have_text("not recognised, even without noise")
    assert "right=rain" in page.url
    expect(page.locator(".why")).to_contain_text("the sound of rain")


def test_noise_of_ones_own_is_mixed_in(visit: Visit) -> None:
    page = visit.open("example=siren&snr=0")
    expect(page.locator(RANKED)).to_have_count(3)
    with page.expect_response(re.compile("/rank$")) as answered:
        page.set_input_files("#noise-file", SOUNDS / "street.flac")
    assert json.loads(answered.value.request.post_data or "")["noise"].startswith("clip:")
    expect(page.locator("#noise option:checked")).to_have_text("street.flac")


def test_a_recording_of_the_microphone_is_ranked(visit: Visit) -> None:
    visit.page.add_init_script(
        """const real = window.fetch;
        window.fetch = async (path, options) => {
            if (path.startsWith("/page/clips?")) {
                window.sent = Array.from(new Uint8Array(await options.body.arrayBuffer()));
            }
            return real(path, options);
        };"""
    )
    page = visit.open(f"labels={WORDS}")
    page.get_by_role("button", name="Record").click()
    expect(page.get_by_role("button", name=re.compile("^Stop \\([2-9]"))).to_be_visible()
    expect(page.get_by_role("meter")).to_be_visible()
    page.get_by_role("button", name=re.compile("^Stop")).click()
    page.wait_for_function("window.sent")
    content = bytes(page.evaluate("window.sent"))
    assert content[:4] == b"RIFF"
    [rate] = struct.unpack_from("<I", content, 24)
    samples = np.frombuffer(content[44:], "<i2")
    assert len(samples) / rate > 1.5
    assert np.abs(samples).max() > 100  # the fake microphone beeps
    expect(page.locator(RANKED)).to_have_count(3)
    expect(page.locator(".sound .hint")).to_contain_text("recording ")


def test_the_microphone_is_asked_for_without_clean_up(visit: Visit) -> None:
    visit.page.add_init_script(
        """const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
        navigator.mediaDevices.getUserMedia = (asked) => {
            window.asked = asked;
            return real(asked);
        };"""
    )
    page = visit.open()
    page.get_by_role("button", name="Record").click()
    expect(page.get_by_role("button", name=re.compile("^Stop"))).to_be_visible()
    page.wait_for_function("window.asked")
    off = dict.fromkeys(("echoCancellation", "noiseSuppression", "autoGainControl"), False)
    assert page.evaluate("window.asked") == {"audio": off}


def test_without_a_secure_address_the_page_says_why_it_cannot_record(visit: Visit) -> None:
    visit.page.add_init_script(
        """Object.defineProperty(navigator, "mediaDevices", {value: undefined});
        Object.defineProperty(window, "isSecureContext", {value: false});"""
    )
    page = visit.open()
    expect(page.get_by_role("button", name="Record")).to_be_disabled()
    expect(page.locator(".sound .problem")).to_contain_text("only to https pages and to localhost")


def test_the_events_of_a_long_file_lie_on_its_spectrogram(visit: Visit) -> None:
    page = visit.open("example=street")
    expect(page.locator(".bar").first).to_be_visible()
    settled(page)
    siren = page.locator(".bar", has_text="siren").first
    plot = page.locator(".spectrogram").first.locator(".plot").bounding_box()
    box = siren.bounding_box()
    assert plot is not None
    assert box is not None
    start, end = ((x - plot["x"]) / plot["width"] * 48 for x in (box["x"], box["x"] + box["width"]))
    assert start < 18 < end  # the siren is from 15 to 20 s
    page.locator(".bar", has_text="alarm clock").first.click()
    settled(page)
    assert ranking(page, "default")[0] == "alarm clock"
    expect(page.locator("#picture-title")).to_contain_text("s to 4")
    page.get_by_label("Start of the part").press("Home")
    expect(page.locator("#picture-title")).to_contain_text("0.0 s to 10 s")


def test_a_file_that_is_no_sound_is_explained_beside_the_button(
    visit: Visit, tmp_path: Path
) -> None:
    visit.expected = ("/page/clips",)
    page = visit.open()
    text = tmp_path / "notes.wav"
    text.write_text("not a sound")
    upload(page, text)
    expect(page.locator(".sound .problem")).to_contain_text("not a sound file in a known format")
    cut = tmp_path / "cut.flac"
    cut.write_bytes((SOUNDS / "siren.flac").read_bytes()[:40])
    upload(page, cut)
    expect(page.locator(".sound .problem")).not_to_contain_text("known format")
    expect(page.locator(".sound .problem")).not_to_be_empty()
    upload(page, SOUNDS / "siren.flac")
    expect(page.locator(".sound .problem")).to_be_empty()


def test_a_file_that_is_too_large_is_refused_before_it_is_sent(
    visit: Visit, tmp_path: Path
) -> None:
    page = visit.open()
    path = tmp_path / "long.wav"
    soundfile.write(path, np.zeros(LARGEST_BODY // 2 + 1000, np.int16), 32_000)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    upload(page, path)
    expect(page.locator(".sound .problem")).to_contain_text("the server takes 3.0 MB")
    assert not [url for url in sent if "/page/clips" in url]


def test_a_recording_that_is_too_long_is_explained(visit: Visit, tmp_path: Path) -> None:
    visit.expected = ("/page/clips",)
    page = visit.open()
    path = tmp_path / "hours.flac"
    soundfile.write(path, np.zeros(200 * 8000, np.int16), 8000)
    upload(page, path)
    expect(page.locator(".sound .problem")).to_contain_text(re.compile("120|2 minutes"))


def test_a_file_that_is_dropped_is_shown_at_once_without_words(visit: Visit) -> None:
    page = visit.open()
    content = base64.b64encode((SOUNDS / "rain.flac").read_bytes()).decode()
    drop = page.evaluate_handle(
        """(content) => {
            const bytes = Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0));
            const carried = new DataTransfer();
            carried.items.add(new File([bytes], "rain.flac", {type: "audio/flac"}));
            return carried;
        }""",
        content,
    )
    page.dispatch_event(".sound", "drop", {"dataTransfer": drop})
    expect(page.locator(".sound .hint")).to_contain_text("rain.flac")
    expect(page.locator("canvas")).to_be_visible()
    expect(page.locator("#words-problem")).to_contain_text("separated by commas")


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
    page = visit.open("example=siren")
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
    page = visit.open("example=siren")
    expect(page.locator(RANKED)).to_have_count(3)
    page.fill("#words", "siren, wind, a dog barking")
    page.select_option("#noise", "pink")
    move_slider(page, 3)
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


def test_the_sound_in_noise_can_be_played(visit: Visit) -> None:
    page = visit.open("example=siren&snr=-5")
    expect(page.locator(RANKED)).to_have_count(3)
    with page.expect_response(re.compile("/sound\\?")) as answered:
        page.get_by_role("button", name="Play").click()
    assert "snr_db=-5" in answered.value.url
    expect(page.locator(".playhead")).to_be_visible()
    page.get_by_role("button", name="Stop playing").click()
    expect(page.locator(".playhead")).to_have_count(0)


def test_verdicts_are_given_with_keys_and_saved(visit: Visit, site: Site) -> None:
    page = visit.open("tab=live")
    rows = page.locator(".events li")
    expect(rows).to_have_count(9)
    rows.first.focus()
    for key in ("r", "w", "j", "r", "k", "w", "k", "u"):
        page.keyboard.press(key)
    # r on 9, w on 8, over 7, r on 6 and on to 5, back to 6: w, on to 5, back to 6: u
    page.wait_for_load_state("networkidle")
    expect(page.locator(".events li.right")).to_have_count(1)
    assert site.store.verdicts() == {9: "right", 8: "wrong"}
    expect(page.locator("#review-title")).to_contain_text("2 of 9 reviewed")
    page.reload()
    expect(page.locator(".events li.wrong")).to_have_count(1)
    page.get_by_role("button", name=re.compile("^right ?: siren")).click()  # the same again: undone
    expect(page.locator(".events li.right")).to_have_count(0)
    page.locator(".events li.wrong").get_by_role("button", name=re.compile("^wrong")).click()
    expect(page.locator(".events li.wrong")).to_have_count(0)
    page.wait_for_load_state("networkidle")
    assert site.store.verdicts() == {}


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


def test_the_live_tab_shows_sources_and_hours(visit: Visit) -> None:
    page = visit.open()
    page.focus("#tab-try")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".sources li")).to_have_count(3)
    expect(page.locator(".sources")).to_contain_text("unplugged since 05:58")
    expect(page.locator(".hours tbody tr")).to_have_count(5)
    cell = page.locator(".hours tbody tr", has_text="dog bark").locator("td").nth(8)
    expect(cell).to_have_text("2")
    assert page.url.endswith("#tab=live")


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


def test_a_server_that_is_gone_is_named(visit: Visit) -> None:
    visit.expected = ("ERR_FAILED", "net::")
    page = visit.open("example=siren")
    expect(page.locator(RANKED)).to_have_count(3)
    settled(page)
    page.route("**/page/**", lambda route: route.abort())
    move_slider(page, 0)
    problem = page.locator(".problem", has_text="The server does not answer")
    expect(problem).to_be_visible()
    page.unroute_all()
    move_slider(page, -1)
    expect(problem).to_have_count(0)
