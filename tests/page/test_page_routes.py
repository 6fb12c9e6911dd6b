"""The endpoints of the page over HTTP, without a browser."""

import base64
import io
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from fastapi.testclient import TestClient

from driftscore import Audio, Backbone, Classifier, Embedder, build_bank, compile_head
from driftscore.audio.noise import add_at_snr, synthetic
from driftscore.audio.recordings import read
from driftscore.audio.spectrogram import BANDS, spectrogram
from driftscore.decisions.records import LevelReport, Present, Words, iso
from driftscore.decisions.review import Review, read_answers, read_events
from driftscore.errors import UsageError
from driftscore.events.watchlist import WatchList
from driftscore.live.clips import EventClips
from driftscore.service.app import create_app
from driftscore.service.page import live_view
from driftscore.service.page_opened import OpenedRecording
from driftscore.service.settings import Limits, ServiceSettings
from tests.conftest import PROJECT

from .day_store import DayStore, found

SIREN = PROJECT / "demo" / "sounds" / "siren.flac"
LABELS = ["siren", "rain", "speech"]
STATIC = PROJECT / "src" / "driftscore" / "service" / "static"


@pytest.fixture(scope="module")
def client(mini: Backbone) -> Iterator[TestClient]:
    settings = ServiceSettings(
        backbone=Embedder(mini, text_cache=False), limits=Limits(body_bytes=4_000_000)
    )
    with serving(settings) as found:
        yield found


class serving(TestClient):  # noqa: N801 (a context manager that is used like a function)
    """A client of a service that is ready."""

    def __init__(self, settings: ServiceSettings) -> None:
        super().__init__(create_app(settings), base_url="http://localhost")

    def __enter__(self) -> "serving":
        super().__enter__()
        until = time.monotonic() + 60
        while self.get("/readyz").status_code != 200 and time.monotonic() < until:
            time.sleep(0.05)
        return self


def add(client: TestClient, content: bytes) -> str:
    answer = client.post("/page/clips", content=content)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def wav(samples: np.ndarray, rate: int = 32_000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", subtype="FLOAT")
    return file.getvalue()


def test_a_rank_is_that_of_the_heads_and_its_picture_that_of_the_mixture(
    client: TestClient, mini: Backbone
) -> None:
    clip = add(client, SIREN.read_bytes())
    body = {"labels": LABELS, "noise": "pink", "snr_db": 3}
    answer = client.post(f"/page/clips/{clip}/rank", json=body).json()
    clean = read(SIREN, rate=mini.rate)
    noise = synthetic("pink", 10 * mini.rate, mini.rate, np.random.default_rng(13))
    mixed = Audio(add_at_snr(clean.samples, noise[: len(clean.samples)], 3), mini.rate)
    row = mini.embed_audio([mixed])[0]
    bank = build_bank(LABELS, mini)
    for rule in ("cosine", "das"):
        expected = compile_head(bank, rule).scores(row)[0]
        np.testing.assert_allclose(answer["rules"][rule], expected, atol=2e-5)
    expected = Classifier(LABELS, backbone=mini).fit().head_.scores(row)[0]
    np.testing.assert_allclose(answer["rules"]["default"], expected, atol=2e-5)
    picture = answer["spectrogram"]
    levels = np.frombuffer(base64.b64decode(picture["levels"]), np.uint8).reshape(-1, BANDS)
    assert levels.shape == (picture["columns"], picture["bands"])
    np.testing.assert_array_equal(levels, spectrogram(mixed).levels)


def test_what_is_played_is_the_mixture_without_clipping(client: TestClient, mini: Backbone) -> None:
    clip = add(client, SIREN.read_bytes())
    sound = client.get(f"/page/clips/{clip}/sound", params={"noise": "pink", "snr_db": -15})
    samples, rate = soundfile.read(io.BytesIO(sound.content), dtype="float32")
    clean = read(SIREN, rate=mini.rate)
    noise = synthetic("pink", 10 * mini.rate, mini.rate, np.random.default_rng(13))
    mixed = add_at_snr(clean.samples, noise[: len(clean.samples)], -15)
    assert rate == mini.rate
    assert np.abs(mixed).max() > 1
    np.testing.assert_allclose(samples, 0.9 * mixed / np.abs(mixed).max(), atol=1e-4)


def test_a_clip_of_a_long_recording_starts_where_it_is_loudest(client: TestClient) -> None:
    samples = 0.001 * np.random.default_rng(0).standard_normal(25 * 32_000)
    samples[14 * 32_000 : 18 * 32_000] *= 300
    answer = client.post("/page/clips", content=wav(samples)).json()
    assert answer["seconds"] == pytest.approx(25)
    assert 8.0 <= answer["start_s"] <= 14.0


def test_a_sweep_names_the_right_label_and_the_borders(client: TestClient) -> None:
    clip = add(client, SIREN.read_bytes())
    answer = client.post(f"/page/clips/{clip}/sweep", json={"labels": LABELS, "noise": "white"})
    found = answer.json()
    assert found["right"] == "siren"
    assert found["snrs_db"][0] is None
    assert set(found["down_to_db"]) == {"cosine", "das", "default"}
    rank = client.post(
        f"/page/clips/{clip}/rank", json={"labels": LABELS, "noise": "white", "snr_db": 4}
    ).json()
    at = found["snrs_db"].index(4.0)
    for rule, scores in rank["rules"].items():
        assert found["rules"][rule][at] == scores
    assert found["why"]["rule"] == "anchor"


def test_the_events_are_those_of_the_library(client: TestClient, mini: Backbone) -> None:
    street = STATIC / "sounds" / "street.ogg"
    clip = add(client, street.read_bytes())
    labels = ["siren", "church bell", "speech", "alarm clock"]
    found = client.post(f"/page/clips/{clip}/events", json={"labels": labels}).json()["events"]
    expected = list(Classifier(labels, backbone=mini).events(street))
    assert [event["label"] for event in found] == [event.label for event in expected]
    for event, other in zip(found, expected, strict=True):
        assert (event["start_s"], event["end_s"]) == (other.start_s, other.end_s)
        assert event["score"] == pytest.approx(other.score)
    truth = {"siren": (21, 26), "alarm clock": (36, 41), "speech": (50, 55)}
    for label, (start_s, end_s) in truth.items():
        [event] = [event for event in found if event["label"] == label]
        assert event["start_s"] == pytest.approx(start_s, abs=1)
        assert event["end_s"] == pytest.approx(end_s, abs=1)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("rank", {"labels": []}, 400, "No labels given"),
        ("rank", {"labels": LABELS, "snr_db": 99}, 400, "between -20 and 20 dB"),
        ("rank", {"labels": LABELS, "snr_db": 0, "noise": "trafic"}, 400, "did you mean 'traffic'"),
        ("rank", {"labels": ["Siren", "siren"]}, 400, "same words"),
        ("rank", {"labels": LABELS, "path": "/etc/passwd"}, 422, "path"),
        ("rank", {"labels": LABELS, "noise": "clip:none", "snr_db": 0}, 404, "give it again"),
        ("events", {"labels": LABELS * 50}, 400, "At most 100 labels"),
    ],
)
def test_a_wrong_question_is_answered_in_words(
    client: TestClient, path: str, body: dict[str, object], status: int, message: str
) -> None:
    clip = add(client, SIREN.read_bytes())
    answer = client.post(f"/page/clips/{clip}/{path}", json=body)
    assert answer.status_code == status
    assert message in answer.json()["error"]


def test_a_recording_that_is_gone_is_404_with_what_to_do(client: TestClient) -> None:
    answer = client.post("/page/clips/gone/rank", json={"labels": LABELS})
    assert answer.status_code == 404
    assert "give it again" in answer.json()["error"]


def test_silence_is_explained(client: TestClient) -> None:
    answer = client.post("/page/clips", content=wav(np.zeros(32_000)))
    assert answer.status_code == 422
    assert "silent" in answer.json()["error"]
    samples = np.zeros(25 * 32_000)
    samples[-32_000:] = 0.1
    clip = add(client, wav(samples))
    for body in ({"labels": LABELS}, {"labels": LABELS, "snr_db": 0}):
        answer = client.post(f"/page/clips/{clip}/rank", json=body)
        assert answer.status_code == 422
        assert "silent" in answer.json()["error"]


@pytest.mark.parametrize(
    "path", ["../page.py", "..%2fpage.py", "vendor/../../page.py", "nothing.js", "", "vendor"]
)
def test_only_files_of_the_page_are_served(client: TestClient, path: str) -> None:
    assert client.get(f"/static/{path}").status_code == 404


@pytest.mark.parametrize("path", sorted(p for p in STATIC.rglob("*") if p.is_file()), ids=str)
def test_every_file_of_the_page_is_served_with_its_type(client: TestClient, path: Path) -> None:
    answer = client.get(f"/static/{path.relative_to(STATIC).as_posix()}")
    assert answer.content == path.read_bytes()
    expected = {".js": "javascript", ".css": "css", ".svg": "svg", ".ogg": "ogg", ".html": "html"}
    assert expected.get(path.suffix, "text/plain") in answer.headers["content-type"]


def test_the_page_names_no_other_place() -> None:
    """It works offline: no file of ours asks for anything outside."""
    ours = [p for p in STATIC.iterdir() if p.suffix in (".js", ".css", ".html")]
    for path in ours:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, path.name
        assert 'style="' not in text, f"{path.name}: the content policy forbids it"


def test_many_listeners_of_the_slider_get_the_same_answer(client: TestClient) -> None:
    clip = add(client, SIREN.read_bytes())
    body = {"labels": LABELS, "noise": "white", "snr_db": -4}
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda _: client.post(f"/page/clips/{clip}/rank", json=body).json(), range(24))
        )
    assert len({str(answer["rules"]) for answer in answers}) == 1


def test_without_a_listener_the_live_view_says_so(client: TestClient) -> None:
    assert client.get("/page/live").json() == {"available": False}
    assert client.post("/page/live/events/1/review", json={"verdict": "right"}).status_code == 404


def test_the_live_view_is_that_of_the_store_and_a_verdict_reaches_it(
    mini: Backbone, tmp_path: Path
) -> None:
    store = DayStore(tmp_path / "events.db")
    settings = ServiceSettings(backbone=Embedder(mini, text_cache=False), event_store=store)
    with serving(settings) as client:
        view = client.get("/page/live").json()
        assert [event["id"] for event in view["events"]] == [9, 8, 7, 6, 5, 4, 3, 2, 1]
        assert view["hours"]["dog bark"][8] == 2
        assert sum(view["hours"]["dog bark"]) == 2
        assert view["count"] == 9
        sources = {source["name"]: source for source in view["sources"]}
        assert [source["online"] for source in sources.values()] == [False, True, True]
        assert sources["yard"]["level"]["laeq"] == 41.6
        assert sources["street"]["level"]["unit"] == "dBFS"
        address = "/page/live/events/3/review"
        assert client.post(address, json={"verdict": "wrong"}).status_code == 200
        assert store.verdicts() == {3: "wrong"}
        missing = "/page/live/events/99/review"
        assert client.post(missing, json={"verdict": "wrong"}).status_code == 404
        assert client.post(address, json={"verdict": "so"}).status_code == 422


def test_only_clips_of_a_listener_are_played(mini: Backbone, tmp_path: Path) -> None:
    store, home = DayStore(tmp_path / "events.db"), tmp_path / "clips"
    folder = EventClips(str(home))
    now = datetime.now().astimezone()
    inside = folder.write(read(SIREN), found(20, "yard", "siren", 5.0, now, 2.0, 3.0))
    (tmp_path / "secret.flac").write_bytes(b"secret")
    (home / "link.flac").symlink_to(tmp_path / "secret.flac")
    escapes = (
        "../secret.flac",
        "/etc/passwd",
        "link.flac",
        inside.replace("20.flac", "99.flac"),
        "",
    )
    for number, clip in enumerate((inside, *escapes), start=20):
        record = found(number, "yard", "siren", 5.0, now, 2.0, 3.0)
        store.send(replace(record, clip=clip))
    settings = ServiceSettings(backbone=Embedder(mini, text_cache=False), event_store=store)
    store.clips = home
    with serving(settings) as client:
        assert client.get("/page/live").json()["clips"] is True
        answer = client.get("/page/live/events/20/clip")
        assert answer.headers["content-type"] == "audio/flac"
        assert answer.content == (home / inside).read_bytes()
        for number in (*range(21, 21 + len(escapes)), 1, 999):
            assert client.get(f"/page/live/events/{number}/clip").status_code == 404
        store.clips = None
        assert client.get("/page/live").json()["clips"] is False
        assert client.get("/page/live/events/20/clip").status_code == 404


def test_labels_of_the_last_seconds_are_recent_and_open_ones_present(tmp_path: Path) -> None:
    store = DayStore(tmp_path / "events.db")
    noon = store.midnight + timedelta(hours=12)
    for number, (label, score, ago_s) in enumerate(
        [("siren", 4.0, 20), ("siren", 5.0, 10), ("horn", 6.0, 29), ("drill", 9.0, 31)], 20
    ):
        start = noon - timedelta(seconds=ago_s)
        store.send(found(number, "street", label, score, start, 0.0, 0.0))
    store.send(Present("yard", {"wind", "dog bark"}))
    view = live_view(store, noon)
    sources = {source["name"]: source for source in view["sources"]}  # type: ignore[attr-defined]
    recent = [(one["label"], one["score"]) for one in sources["street"]["recent"]]
    assert recent == [("horn", 6.0), ("siren", 5.0)]
    assert sources["street"]["recent"][0]["time"] == (noon - timedelta(seconds=29)).isoformat()
    assert sources["street"]["present"] == ()
    assert sources["yard"]["recent"] == []
    assert sources["yard"]["present"] == ("dog bark", "wind")
    assert sources["yard"]["last"]["label"] == "dog bark"
    assert sources["back door"]["last"] is None


def test_one_word_is_enough_and_none_may_fit(client: TestClient) -> None:
    clip = add(client, SIREN.read_bytes())
    siren = client.post(f"/page/clips/{clip}/rank", json={"labels": ["siren"]}).json()
    assert (siren["labels"], siren["fits"]) == (["siren"], [True])
    other = client.post(f"/page/clips/{clip}/rank", json={"labels": ["a cow mooing"]}).json()
    assert other["fits"] == [False]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"labels": ["Siren", "siren"]}, "labels"),
        ({"labels": LABELS, "noise": "clip:none", "snr_db": 0}, "noise"),
        ({"labels": LABELS}, "sound"),
    ],
)
def test_an_error_names_the_field_that_it_belongs_to(
    client: TestClient, body: dict[str, object], field: str
) -> None:
    clip = "gone" if field == "sound" else add(client, SIREN.read_bytes())
    answer = client.post(f"/page/clips/{clip}/rank", json=body)
    assert answer.status_code >= 400
    assert answer.headers["X-Field"] == field


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="FFMPEG IS MISSING: apt install ffmpeg")
@pytest.mark.parametrize("ending", ["m4a", "webm", "wma"])
def test_what_ffmpeg_reads_is_taken_by_the_page_and_by_classify(
    client: TestClient, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"siren.{ending}"
    command = ["ffmpeg", "-v", "error", "-i", str(SIREN), str(path)]
    if subprocess.run(command, check=False).returncode:
        pytest.skip(f"THIS FFMPEG WRITES NO {ending}")
    assert client.post("/page/clips", content=path.read_bytes()).json()["seconds"] > 4.5
    answer = client.post("/v1/classify?labels=siren,rain", content=path.read_bytes())
    assert answer.json()["label"] == "siren"
    expected = Classifier(["siren", "rain"]).scores([path])[0]
    assert answer.json()["score"] == pytest.approx(float(expected.max()), abs=1e-5)


def test_more_than_a_window_is_played_if_asked(client: TestClient) -> None:
    clip = add(client, wav(0.1 * np.random.default_rng(0).standard_normal(25 * 32_000)))
    for query, seconds in (({}, 10), ({"seconds": 20, "start_s": 1}, 20), ({"seconds": 2.5}, 2.5)):
        sound = client.get(f"/page/clips/{clip}/sound", params=query)
        samples, rate = soundfile.read(io.BytesIO(sound.content))
        assert len(samples) / rate == pytest.approx(seconds)


def test_exported_events_are_read_by_review_with_their_answers(
    client: TestClient, tmp_path: Path
) -> None:
    rows = [
        {"label": "siren", "start_s": 1.5, "end_s": 4.0, "score": 5.25, "answer": "right"},
        {"label": "rain", "start_s": 6.0, "end_s": 9.0, "score": 3.5, "answer": ""},
    ]
    body = {"file": "night.flac", "format": "csv", "events": rows}
    path = tmp_path / "events.csv"
    path.write_text(client.post("/page/export", json=body).text)
    events = read_events(path)
    assert [(event.label, event.start_s, event.score) for event in events] == [
        ("siren", 1.5, 5.25),
        ("rain", 6.0, 3.5),
    ]
    assert read_answers(path, events) == {0: "right"}
    track = client.post("/page/export", json={**body, "format": "audacity"}).text
    assert track.splitlines()[0] == "1.500000\t4.000000\tsiren (5.25)"


@pytest.fixture
def night(tmp_path: Path) -> Path:
    """Return a recording of 40 s with a siren, beside its events."""
    siren, rate = soundfile.read(SIREN)
    samples = 0.001 * np.random.default_rng(0).standard_normal(40 * rate)
    samples[20 * rate : 20 * rate + len(siren)] += siren
    soundfile.write(tmp_path / "night.flac", samples, rate)
    (tmp_path / "events.csv").write_text(
        "file,start_s,end_s,label,score\nelsewhere/night.flac,30,31,rain,3.5\n"
        "elsewhere/night.flac,20,25,siren,7.25\nother.flac,1,2,siren,4\n"
    )
    return tmp_path / "night.flac"


def test_a_recording_is_opened_with_its_events_and_answers_reach_review(
    mini: Backbone, night: Path
) -> None:
    events = night.with_name("events.csv")
    opened = OpenedRecording(night, events)
    with serving(ServiceSettings(Embedder(mini, text_cache=False), opened=opened)) as client:
        assert client.get("/page/about").json()["opened"] == "night.flac"
        view = client.get("/page/opened").json()
        assert view["seconds"] == 40
        assert view["labels"] == ["rain", "siren"]
        assert [(one["id"], one["label"]) for one in view["events"]] == [(1, "siren"), (0, "rain")]
        body = {"labels": ["siren", "rain"], "start_s": 18}
        rank = client.post("/page/clips/opened/rank", json=body).json()
        expected = read(night).samples[18 * 32_000 : 28 * 32_000]
        scores = Classifier(["siren", "rain"], backbone=mini).scores([(expected, 32_000)])[0]
        np.testing.assert_allclose(rank["rules"]["default"], scores, atol=1e-4)
        review = "/page/opened/events/{}/review".format
        assert client.post(review(1), json={"verdict": "right"}).status_code == 200
        assert client.post(review(2), json={"verdict": "right"}).status_code == 404  # another file
    assert [event.verdict for event in Review(events).events] == ["", "right", ""]


def test_the_overview_of_a_night_shows_when_something_happened(night: Path) -> None:
    opened = OpenedRecording(night, night.with_name("events.csv"))
    whole = opened.overview()
    siren, rate = soundfile.read(SIREN)
    with soundfile.SoundFile(night, "w", rate, 1, format="FLAC") as file:  # ten minutes
        quiet = 0.001 * np.random.default_rng(0).standard_normal(300 * rate)
        file.write(quiet)
        file.write(siren)
        file.write(quiet)
    sampled = OpenedRecording(night, night.with_name("events.csv")).overview()
    for picture, share in ((whole, 22.5 / 40), (sampled, 302.5 / 605)):
        loudest = int(picture.levels.astype(int).sum(axis=1).argmax())
        assert loudest / len(picture.levels) == pytest.approx(share, abs=0.07)
    assert sampled.seconds == pytest.approx(605)


def test_events_of_another_recording_are_refused_in_words(night: Path) -> None:
    other = night.rename(night.with_name("day.flac"))
    with pytest.raises(UsageError, match=r"no events of day.flac; it has those of elsewhere/night"):
        OpenedRecording(other, night.with_name("events.csv"))


def test_the_live_view_of_another_day_and_of_some_events(tmp_path: Path) -> None:
    store = DayStore(tmp_path / "events.db")
    day = store.midnight - timedelta(hours=5)
    for number, (source, label) in enumerate([("yard", "owl"), ("street", "owl"), ("yard", "cat")]):
        store.send(found(50 + number, source, label, 4.0, day, 2.0, 3.0))
    for minute, level in ((0, 40.0), (1, 60.0), (9, 50.0)):
        end = iso(store.midnight + timedelta(hours=2, minutes=minute))
        store.send(LevelReport("attic", level, level, level, "dBA", 60.0, end))
    store.send(Words("attic", WatchList.of(["wind"])))
    view = partial(live_view, store, store.midnight + timedelta(hours=12))
    assert view()["count"] == 9
    yesterday = view(day=day.date())
    assert yesterday["count"] == 3
    assert yesterday["words"] == ["cat", "owl"]
    assert yesterday["hours"]["owl"][19] == 2  # type: ignore[index]
    assert view(day=day.date(), label="owl")["count"] == 2
    chosen: Any = view(day=day.date(), label="owl", source="yard")["events"]
    assert [(one["label"], one["source"]) for one in chosen] == [("owl", "yard")]
    [attic] = [one for one in view()["sources"] if one["name"] == "attic"]  # type: ignore[attr-defined]
    assert attic["levels"] == [[2.042, 57.0], [2.125, 50.0]]  # 40 and 60 dB: the mean power


def test_with_a_token_the_page_loads_and_its_data_needs_the_token(mini: Backbone) -> None:
    settings = ServiceSettings(backbone=Embedder(mini, text_cache=False), token="t" * 32)
    with serving(settings) as client:
        assert client.get("/").status_code == 200
        assert client.get("/static/app.js").status_code == 200
        assert client.get("/page/about").status_code == 401
        answer = client.get("/page/about", headers={"Authorization": f"Bearer {'t' * 32}"})
        assert answer.json()["model"] == "mini"


def test_nothing_is_written_to_disk(client: TestClient, tmp_path: Path) -> None:
    clip = add(client, SIREN.read_bytes())
    client.post(f"/page/clips/{clip}/sweep", json={"labels": ["a drum", "a whale"]})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
