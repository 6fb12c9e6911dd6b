"""The search of an archive over HTTP: the places of `find`, and only recordings that were found."""

import io
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from fastapi.testclient import TestClient

from driftscore import Backbone, Classifier, Embedder
from driftscore.engines.archive import open_embeddings
from driftscore.errors import DriftscoreError, MismatchError
from driftscore.events.search import expected_precision, search
from driftscore.service.page_archive import OpenedArchive
from driftscore.service.page_opened import read_part
from driftscore.service.settings import ServiceSettings

from .sound_archive import SOUNDS, make_archive
from .test_page_routes import serving

pytest.importorskip("pyarrow", reason="PYARROW IS MISSING: pip install '.[archive]'")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_archive(tmp_path_factory.mktemp("recordings"))


@pytest.fixture(scope="module")
def client(archive: Path, mini: Backbone) -> Iterator[TestClient]:
    settings = ServiceSettings(
        backbone=Embedder(mini, text_cache=False), archive=OpenedArchive(archive)
    )
    with serving(settings) as found:
        yield found


def test_places_are_those_of_the_library_and_the_right_recordings_come_first(
    client: TestClient, archive: Path, mini: Backbone
) -> None:
    words = ["siren", "church bell"]
    answer = client.post("/page/archive", json={"labels": words, "top": 3}).json()
    detector = Classifier(words, backbone=mini).detector()
    places = search(detector.head, open_embeddings(archive), top=3, labels=2)
    fields = ("file", "label", "start_s", "end_s", "score")
    expected = [(p.source, p.label, p.start_s, p.end_s, p.score) for p in places]
    assert [tuple(one[field] for field in fields) for one in answer["places"]] == expected
    best = {one["label"]: Path(one["file"]).stem for one in reversed(answer["places"])}
    assert best == {"siren": "siren", "church bell": "church_bell"}
    assert answer["windows"] == open_embeddings(archive).count
    assert answer["unit"] == "sd"


def test_the_expected_precision_falls_from_sure_places_to_what_chance_gives(
    client: TestClient,
) -> None:
    answer = client.post("/page/archive", json={"labels": ["siren"], "top": 4}).json()
    shares = [one["precision"] for one in answer["places"]]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.9
    assert shares[-1] < 0.5


def test_nothing_is_right_where_scores_are_those_of_other_sounds(
    rng: np.random.Generator,
) -> None:
    """Windows of a label that is not there score as the calibration's sounds do."""
    count = 20_000
    others = rng.standard_normal(2000)
    scores = np.sort(rng.standard_normal(count))[::-1]
    shares = expected_precision(scores[:2000].tolist(), others, count)
    assert max(shares[50:]) < 0.5
    sure = expected_precision([12.0] * 30, others, count)
    assert min(sure) > 0.99
    assert shares == sorted(shares, reverse=True)


def test_examples_find_what_has_no_word(client: TestClient) -> None:
    content = (SOUNDS / "church_bell.flac").read_bytes()
    key = client.post("/page/examples", params={"name": "a.flac"}, content=content).json()["id"]
    answer = client.post("/page/archive", json={"examples": {"mine": [key]}, "top": 1}).json()
    assert [Path(one["file"]).stem for one in answer["places"]] == ["church_bell"]


def test_a_place_is_played_from_its_file_and_nothing_else_is(
    client: TestClient, archive: Path
) -> None:
    [found] = client.post("/page/archive", json={"labels": ["siren"], "top": 1}).json()["places"]
    assert found["playable"]
    query = {"start_s": 1.0, "seconds": 2.0}
    answer = client.get(f"/page/archive/{found['id']}/sound", params=query)
    samples, rate = soundfile.read(io.BytesIO(answer.content), dtype="float32")
    expected = read_part(Path(found["file"]), 1.0, 2.0, rate).samples
    gain = min(1.0, 0.9 / float(np.abs(expected).max()))
    np.testing.assert_allclose(samples, gain * expected, atol=1e-4)
    for key in ("0" * 16, "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd"):
        assert client.get(f"/page/archive/{key}/sound", params=query).status_code == 404
    Path(found["file"]).rename(archive / "away.flac")
    try:
        again = client.post("/page/archive", json={"labels": ["siren"], "top": 1}).json()
        assert not again["places"][0]["playable"]
        gone = client.get(f"/page/archive/{found['id']}/sound", params=query)
        assert "not on this server" in gone.json()["error"]
    finally:
        (archive / "away.flac").rename(found["file"])


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="FFMPEG IS MISSING")
def test_a_part_of_a_file_that_only_ffmpeg_reads_is_that_of_the_file(tmp_path: Path) -> None:
    path, source = tmp_path / "a.mka", SOUNDS / "siren.flac"
    command = ["ffmpeg", "-v", "error", "-i", str(source), "-c:a", "pcm_f32le", str(path)]
    subprocess.run(command, check=True)
    expected, found = (read_part(one, 1.25, 2.0, 32_000).samples for one in (source, path))
    assert len(found) == 64_000
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"labels": []}, 400),
        ({"labels": ["siren"], "top": 0}, 422),
        ({"labels": ["siren"], "top": 10**9}, 422),
        ({"labels": ["siren"], "file": "/etc/passwd"}, 422),
        ({"labels": ["x" * 999]}, 400),
        ({"labels": ["/etc/"]}, 400),
        ({"examples": {"mine": ["0" * 32]}}, 404),
        ({"examples": {"mine": "0" * 32}}, 422),
    ],
)
def test_a_wrong_search_is_refused(
    client: TestClient, body: dict[str, object], status: int
) -> None:
    answer = client.post("/page/archive", json=body)
    assert answer.status_code == status, answer.text


def test_without_an_archive_there_is_nothing_to_search(mini: Backbone) -> None:
    with serving(ServiceSettings(backbone=Embedder(mini, text_cache=False))) as other:
        assert other.get("/page/about").json()["archive"] == ""
        assert other.post("/page/archive", json={"labels": ["siren"]}).status_code == 404
        assert other.get("/page/archive/0/sound").status_code == 404


def test_what_is_wrong_with_an_archive_is_said_at_the_start(
    archive: Path, tmp_path: Path, fake: Backbone
) -> None:
    with pytest.raises(DriftscoreError):
        OpenedArchive(tmp_path / "none")
    with pytest.raises(MismatchError, match="archive"):
        OpenedArchive(archive).check(fake)
