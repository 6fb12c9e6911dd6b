"""Sounds in a real browser: files, recordings, noise, and what is wrong with them."""

import base64
import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from .conftest import LARGEST_BODY, Visit
from .steps import SOUNDS, WORDS, expect, until, upload

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


def test_high_tones_are_at_the_top_and_late_ones_at_the_right(visit: Visit, tmp_path: Path) -> None:
    time = np.arange(5 * 32_000) / 32_000
    tones = np.where(time < 4, np.sin(2 * np.pi * 200 * time), np.sin(2 * np.pi * 9000 * time))
    soundfile.write(tmp_path / "tones.wav", 0.3 * tones, 32_000)
    page = visit.open()
    expect(page.locator(".event-list li").first).to_be_visible()
    upload(page, tmp_path / "tones.wav")
    expect(page.locator("canvas")).to_have_count(1)
    expect(page.locator("canvas")).to_have_attribute("aria-label", re.compile("tones.wav"))
    page.wait_for_timeout(300)
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


def test_noise_of_ones_own_is_mixed_in(visit: Visit) -> None:
    page = visit.open("example=siren&snr=0")
    expect(page.locator(".fits li").first).to_be_visible()
    with page.expect_response(re.compile("/rank$")) as answered:
        page.set_input_files("#noise-file", SOUNDS / "rain.flac")
    assert json.loads(answered.value.request.post_data or "")["noise"].startswith("clip:")
    expect(page.locator("#noise option:checked")).to_have_text("rain.flac")
    expect(page.locator("#picture-title .added")).to_have_text("with rain.flac noise at 0 dB")
    upload(page, SOUNDS / "speech.flac")  # a new recording is as it is
    expect(page.locator(".sound .hint")).to_contain_text("speech.flac")
    expect(page.locator(".snr")).to_contain_text("no noise")
    expect(page.locator(".added")).to_have_count(0)


def test_a_recording_of_the_microphone_is_ranked(visit: Visit) -> None:
    visit.page.add_init_script(
        """const real = window.fetch;
        window.fetch = async (path, options) => {
            if (path === "/page/clips") {
                window.sent = Array.from(new Uint8Array(await options.body.arrayBuffer()));
            }
            return real(path, options);
        };"""
    )
    page = visit.open(f"labels={WORDS}")
    page.get_by_role("button", name="Record", exact=True).click()
    expect(page.get_by_role("button", name=re.compile("^Stop \\([2-9]"))).to_be_visible()
    expect(page.get_by_role("meter")).to_be_visible()
    page.get_by_role("button", name=re.compile("^Stop")).click()
    until(page, lambda: page.evaluate("(window.sent || [])[0]") == ord("R"))  # not the street
    content = bytes(page.evaluate("window.sent"))
    assert content[:4] == b"RIFF"
    [rate] = struct.unpack_from("<I", content, 24)
    samples = np.frombuffer(content[44:], "<i2")
    assert len(samples) / rate > 1.5
    assert np.abs(samples).max() > 100  # the fake microphone beeps
    expect(page.locator(".sound .hint")).to_contain_text("recording ")
    expect(page.locator(".fits li")).to_have_count(6)


def test_the_microphone_is_asked_for_without_clean_up(visit: Visit) -> None:
    visit.page.add_init_script(
        """const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
        navigator.mediaDevices.getUserMedia = (asked) => {
            window.asked = asked;
            return real(asked);
        };"""
    )
    page = visit.open()
    page.get_by_role("button", name="Record", exact=True).click()
    expect(page.get_by_role("button", name=re.compile("^Stop"))).to_be_visible()
    until(page, lambda: page.evaluate("!!window.asked"))
    off = dict.fromkeys(("echoCancellation", "noiseSuppression", "autoGainControl"), False)
    assert page.evaluate("window.asked") == {"audio": off}


def test_without_a_secure_address_the_page_says_why_it_cannot_record(visit: Visit) -> None:
    visit.page.add_init_script(
        """Object.defineProperty(navigator, "mediaDevices", {value: undefined});
        Object.defineProperty(window, "isSecureContext", {value: false});"""
    )
    page = visit.open()
    expect(page.get_by_role("button", name="Record", exact=True)).to_be_disabled()
    expect(page.locator(".sound .problem")).to_contain_text("only to https pages and to localhost")


def test_a_file_that_is_no_sound_is_explained_beside_the_button(
    visit: Visit, tmp_path: Path
) -> None:
    visit.expected = ("/page/clips",)
    page = visit.open()
    text = tmp_path / "notes.wav"
    text.write_text("not a sound")
    expect(page.locator(".event-list li").first).to_be_visible()
    upload(page, text)
    expect(page.locator(".sound .problem")).to_contain_text("not a sound file in a known format")
    expect(page.locator(".event-list li, .fits li")).to_have_count(0)  # old results go
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
    expect(page.locator(".event-list li").first).to_be_visible()
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
    expect(page.locator(".event-list li").first).to_be_visible()
    path = tmp_path / "hours.flac"
    soundfile.write(path, np.zeros(200 * 8000, np.int16), 8000)
    upload(page, path)
    expect(page.locator(".sound .problem")).to_contain_text(re.compile("120|2 minutes"))


def test_a_file_that_is_dropped_is_shown_at_once_without_words(visit: Visit) -> None:
    page = visit.open()
    expect(page.locator(".event-list li").first).to_be_visible()
    page.fill("#words", "")
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


def test_the_sound_in_noise_can_be_played(visit: Visit) -> None:
    page = visit.open("example=siren&snr=-5")
    expect(page.locator(".fits li").first).to_be_visible()
    with page.expect_response(re.compile("/sound\\?")) as answered:
        page.get_by_role("button", name="Play", exact=True).click()
    assert "snr_db=-5" in answered.value.url
    expect(page.locator(".playhead")).to_be_visible()
    page.get_by_role("button", name="Stop playing").click()
    expect(page.locator(".playhead")).to_have_count(0)
