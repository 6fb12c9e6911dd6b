"""Downloads, against a server that the test starts and that misbehaves on request."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from driftscore.errors import DownloadError, FormatError, UsageError, WriteError
from driftscore.lab.corpora import download
from driftscore.lab.corpora.about import About, Remote, zenodo
from driftscore.lab.corpora.datasets import esc50, fsd50k, sonyc_ust, urbansound8k
from driftscore.storage import downloads

from .archives import FSD50K, md5, split, tarred, tree, zipped
from .server import Server


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PAUSE_S", 0.0)


ESC50 = {
    "ESC-50-x/meta/esc50.csv": b"filename,fold,target,category\n1-1-A-0.wav,1,0,dog\n",
    "ESC-50-x/audio/1-1-A-0.wav": np.random.default_rng(0).bytes(300_000),
}
ESC50_PATH = esc50.ABOUT.files[0].url.removeprefix("https://github.com")


@pytest.fixture
def small_esc50(server: Server, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """ESC-50 with one clip, on the server, at its official path."""
    content = zipped(ESC50)
    server.files[ESC50_PATH] = content
    remote = Remote("ESC-50.zip", esc50.ABOUT.files[0].url, md5(content))
    monkeypatch.setattr(esc50, "ABOUT", About("ESC-50", "", "x", "x", (remote,)))
    return content


def test_a_corpus_is_downloaded_verified_and_unpacked(
    server: Server, small_esc50: bytes, tmp_path: Path
) -> None:
    home = download.get("esc50", tmp_path / "esc50", mirror=server.url)
    assert tree(home) == sorted([*ESC50, "downloads.json"])
    assert (home / "ESC-50-x/audio/1-1-A-0.wav").read_bytes() == ESC50["ESC-50-x/audio/1-1-A-0.wav"]
    assert [clip.labels for clip in esc50.clips(home)] == [("dog",)]
    assert json.loads((home / "downloads.json").read_text()) == {"ESC-50.zip": md5(small_esc50)}


def test_complete_files_are_not_downloaded_again(
    server: Server, small_esc50: bytes, tmp_path: Path
) -> None:
    download.get("esc50", tmp_path, mirror=server.url)
    download.get("esc50", tmp_path, mirror=server.url)
    assert len(server.seen) == 1


def test_archives_are_kept_on_request(server: Server, small_esc50: bytes, tmp_path: Path) -> None:
    download.get("esc50", tmp_path, mirror=server.url, keep=True)
    assert (tmp_path / ".downloads" / "ESC-50.zip").read_bytes() == small_esc50


def test_a_broken_connection_is_resumed(server: Server, small_esc50: bytes, tmp_path: Path) -> None:
    server.breaks[ESC50_PATH] = [100_000, 70_000]
    download.get("esc50", tmp_path, mirror=server.url)
    starts = [wanted for _, wanted in server.seen]
    assert starts[0] is None
    positions = [int(re.sub(r"\D", "", wanted or "")) for wanted in starts[1:]]
    # The last bytes before a break may be lost with it, but never more than was sent.
    assert len(positions) == 2
    assert 0 < positions[0] <= 100_000
    assert positions[0] < positions[1] <= 170_000
    assert esc50.missing(tmp_path) == []


def test_a_download_is_resumed_by_the_next_run(
    server: Server, small_esc50: bytes, tmp_path: Path
) -> None:
    server.breaks[ESC50_PATH] = [60_000] + [1000] * 4
    with pytest.raises(DownloadError, match=r"5 attempts failed.*again to resume"):
        download.get("esc50", tmp_path, mirror=server.url)
    part = tmp_path / ".downloads" / "ESC-50.zip.part"
    have = part.stat().st_size
    assert small_esc50.startswith(part.read_bytes())
    assert esc50.missing(tmp_path) == ["meta/esc50.csv", "audio"]
    server.seen.clear()
    download.get("esc50", tmp_path, mirror=server.url)
    assert server.seen == [(ESC50_PATH, f"bytes={have}-")]
    assert not part.exists()


def test_a_server_without_ranges_sends_all_of_it_again(
    server: Server, small_esc50: bytes, tmp_path: Path
) -> None:
    server.ranges = False
    server.breaks[ESC50_PATH] = [100_000]
    download.get("esc50", tmp_path, mirror=server.url)
    assert esc50.missing(tmp_path) == []


def test_a_part_that_is_already_complete_is_only_verified(
    server: Server, small_esc50: bytes, tmp_path: Path
) -> None:
    (tmp_path / ".downloads").mkdir()
    (tmp_path / ".downloads" / "ESC-50.zip.part").write_bytes(small_esc50)
    download.get("esc50", tmp_path, mirror=server.url)
    assert esc50.missing(tmp_path) == []


def test_a_part_of_another_edition_is_deleted_and_downloaded_again(
    server: Server, small_esc50: bytes, tmp_path: Path
) -> None:
    (tmp_path / ".downloads").mkdir()
    (tmp_path / ".downloads" / "ESC-50.zip.part").write_bytes(b"old" * 1000)
    download.get("esc50", tmp_path, mirror=server.url)
    assert [wanted for _, wanted in server.seen] == ["bytes=3000-", None]
    assert esc50.missing(tmp_path) == []


def test_a_wrong_checksum_is_refused_and_leaves_nothing(
    server: Server, small_esc50: bytes, tmp_path: Path
) -> None:
    server.files[ESC50_PATH] = small_esc50[:-1] + b"!"
    with pytest.raises(DownloadError, match=f"driftscore states {md5(small_esc50)}.*deleted"):
        download.get("esc50", tmp_path, mirror=server.url)
    assert tree(tmp_path) == []


@pytest.mark.parametrize(("code", "tries"), [(404, 1), (403, 1), (503, downloads.TRIES)])
def test_an_answer_that_is_an_error_is_said_and_only_a_busy_server_asked_again(
    server: Server, small_esc50: bytes, tmp_path: Path, code: int, tries: int
) -> None:
    server.files[ESC50_PATH] = code
    with pytest.raises(DownloadError, match=f"Cannot download {server.url}.*{code}"):
        download.get("esc50", tmp_path, mirror=server.url)
    assert len(server.seen) == tries


def test_everything_that_an_archive_lacks_is_reported(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = zipped({"ESC-50-x/meta/esc50.csv": ESC50["ESC-50-x/meta/esc50.csv"]})
    server.files[ESC50_PATH] = content
    remote = Remote("ESC-50.zip", esc50.ABOUT.files[0].url, md5(content))
    monkeypatch.setattr(esc50, "ABOUT", About("ESC-50", "", "x", "x", (remote,)))
    with pytest.raises(UsageError, match=r"incomplete; missing:\n  audio"):
        download.get("esc50", tmp_path, mirror=server.url)


def test_sums_that_were_not_published_come_from_the_record_and_are_kept(
    server: Server, tmp_path: Path
) -> None:
    files = {
        "annotations.csv": b"split,audio_filename,annotator_id,1_engine_presence\n"
        b"test,a.wav,0,1\ntest,b.wav,0,0\n",
        "audio-0.tar.gz": tarred({"audio-0/a.wav": b"A"}),
        "audio-1.tar.gz": tarred({"audio-1/b.wav": b"B"}),
        "dcase-ust-taxonomy.yaml": b"coarse: {}\n",
        "README.md": b"not wanted",
    }
    listing = [{"key": k, "checksum": f"md5:{md5(v)}"} for k, v in files.items()]
    server.files["/api/records/3966543"] = json.dumps({"files": listing}).encode()
    for name, content in files.items():
        server.files[f"/records/3966543/files/{name}"] = content
    download.get("sonyc_ust", tmp_path, mirror=server.url)
    assert [clip.labels for clip in sonyc_ust.clips(tmp_path)] == [("engine",), ()]
    done = json.loads((tmp_path / "downloads.json").read_text())
    assert done == {name: md5(files[name]) for name in files if name != "README.md"}


def test_the_checksum_of_the_record_is_used(server: Server, tmp_path: Path) -> None:
    listing = [
        {"key": "annotations.csv", "checksum": "md5:" + "0" * 32},
        {"key": "dcase-ust-taxonomy.yaml", "checksum": "md5:" + "0" * 32},
        {"key": "audio-0.tar.gz", "checksum": "md5:" + "0" * 32},
    ]
    server.files["/api/records/3966543"] = json.dumps({"files": listing}).encode()
    server.files["/records/3966543/files/annotations.csv"] = b"x"
    with pytest.raises(DownloadError, match="record 3966543 states 0000"):
        download.get("sonyc_ust", tmp_path, mirror=server.url)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"no json", "JSON is malformed"),
        (b"", "Input data was truncated"),
        (b"\xff\xfe", "as expected"),
        (b"[" * 100_000, "as expected"),
        (b"7", "Expected `object`, got `int`"),
        (b"{}", "missing required field `files`"),
        (b'{"files": null}', r"Expected `array`, got `null` - at `\$\.files`"),
        (b'{"files": [1]}', r"Expected `object`, got `int` - at `\$\.files\[0\]`"),
        (
            b'{"files": [{"key": 5, "checksum": ""}]}',
            r"Expected `str`.*\$\.files\[0\]\.key",
        ),
        (b'{"files": [{"key": "a"}]}', "missing required field `checksum`"),
        (b'{"files": [{"key": "a/../../b", "checksum": ""}]}', "is not the name of a file"),
        (b'{"files": [{"key": "a", "checksum": "md5:../x"}]}', "is not an md5"),
        (b'{"files": []}', "has no file annotations.csv, but nothing"),
    ],
)
def test_a_record_of_another_form_is_reported(
    server: Server, tmp_path: Path, body: bytes, said: str
) -> None:
    server.files["/api/records/3966543"] = body
    with pytest.raises(DownloadError, match=said) as found:
        download.get("sonyc_ust", tmp_path, mirror=server.url)
    assert "\n" not in str(found.value)
    assert tree(tmp_path) == []


def test_fsd50k_comes_as_a_split_zip_with_its_truth(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = split(FSD50K, 150_000)
    table = b'fname,labels,mids\n1,"Bark,Dog",x\n2,Dog,x\n3,Dog,x\n'
    truth = zipped(
        {
            "FSD50K.ground_truth/eval.csv": table,
            "FSD50K.ground_truth/vocabulary.csv": b"0,Bark,x\n1,Dog,x\n",
        }
    )
    served = {
        "FSD50K.eval_audio.z01": first,
        "FSD50K.eval_audio.zip": last,
        "FSD50K.ground_truth.zip": truth,
    }
    for name, content in served.items():
        server.files[f"/records/4060432/files/{name}"] = content
    files = zenodo(4060432, *((name, md5(content)) for name, content in served.items()))
    monkeypatch.setattr(fsd50k, "ABOUT", About("FSD50K", "", "x", "x", files))
    download.get("fsd50k", tmp_path, mirror=server.url)
    assert [clip.labels for clip in fsd50k.clips(tmp_path)] == [("Bark", "Dog"), ("Dog",), ("Dog",)]
    assert not (tmp_path / ".downloads").exists()


def test_tar_corpora_unpack_to_their_layout(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta = b"slice_file_name,fold,classID,class\n1-3-0-0.wav,5,3,dog_bark\n"
    content = tarred(
        {
            "UrbanSound8K/metadata/UrbanSound8K.csv": meta,
            "UrbanSound8K/audio/fold5/1-3-0-0.wav": b"w",
        }
    )
    server.files["/records/1203745/files/UrbanSound8K.tar.gz"] = content
    files = zenodo(1203745, ("UrbanSound8K.tar.gz", md5(content)))
    monkeypatch.setattr(urbansound8k, "ABOUT", About("UrbanSound8K", "", "x", "x", files))
    home = download.get("urbansound8k", tmp_path, mirror=server.url)
    assert [clip.fold for clip in urbansound8k.clips(home)] == ["5"]


def test_a_full_disk_ends_the_download_with_a_message(
    server: Server, small_esc50: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(downloads, "open", full, raising=False)
    with pytest.raises(WriteError, match=r"Cannot write .*\.part: No space left on device"):
        download.get("esc50", tmp_path, mirror=server.url)
    assert len(server.seen) == 1


def test_the_progress_bar_counts_all_bytes_and_begins_where_the_last_run_ended(
    server: Server, small_esc50: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[tuple[str, int, list[int]]] = []

    @contextmanager
    def counted(what: str, total: int) -> Iterator[Callable[[int], None]]:
        steps: list[int] = []
        bars.append((what, total, steps))
        yield steps.append

    monkeypatch.setattr(downloads, "progress_bar", counted)
    server.breaks[ESC50_PATH] = [100_000]
    download.get("esc50", tmp_path, mirror=server.url)
    (what, total, first), (_, _, second) = bars
    assert "ESC-50.zip" in what
    assert total == len(small_esc50) == sum(second)
    assert second[0] == sum(first) > 0


def test_a_corpus_without_files_has_nothing_to_download(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to download"):
        download.get("folder", tmp_path)
    with pytest.raises(UsageError, match="No dataset or noise called 'esc5'; did you mean 'esc50'"):
        download.get("esc5", tmp_path)


def test_only_https_is_trusted_without_a_mirror(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    remote = Remote("ESC-50.zip", "http://example.org/ESC-50.zip", "0" * 32)
    monkeypatch.setattr(esc50, "ABOUT", About("ESC-50", "", "x", "x", (remote,)))
    with pytest.raises(UsageError, match="not an https address"):
        download.get("esc50", tmp_path)
    with pytest.raises(UsageError, match="A mirror must be an http or https address"):
        download.get("esc50", tmp_path, mirror="file:///etc")


def test_an_archive_that_is_refused_is_deleted_and_leaves_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = zipped({**ESC50, "../evil.wav": b"x"})
    server.files[ESC50_PATH] = content
    remote = Remote("ESC-50.zip", esc50.ABOUT.files[0].url, md5(content))
    monkeypatch.setattr(esc50, "ABOUT", About("ESC-50", "", "x", "x", (remote,)))
    with pytest.raises(FormatError, match="not safe to unpack"):
        download.get("esc50", tmp_path / "home", mirror=server.url, keep=True)
    assert tree(tmp_path) == []


def test_a_move_that_fails_half_way_is_repaired_by_the_next_run(
    server: Server, small_esc50: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[Path] = []
    original = Path.replace

    def failing(self: Path, target: Path) -> Path:
        if ".unpacking" in str(self):
            moved.append(self)
            if len(moved) == 2:
                raise OSError(28, "No space left on device")
        return original(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(WriteError, match=r"Cannot unpack ESC-50.zip: No space left on device"):
        download.get("esc50", tmp_path, mirror=server.url)
    assert "downloads.json" not in tree(tmp_path)
    download.get("esc50", tmp_path, mirror=server.url)
    assert tree(tmp_path) == sorted([*ESC50, "downloads.json"])


@pytest.mark.parametrize("damage", ["", "{", "[]", "7", '{"ESC-50.zip": 3}', '{"ESC-50.zip": {}}'])
def test_a_damaged_record_of_downloads_counts_as_none(
    damage: str, server: Server, small_esc50: bytes, tmp_path: Path
) -> None:
    (tmp_path / "downloads.json").write_text(damage)
    download.get("esc50", tmp_path, mirror=server.url)
    assert json.loads((tmp_path / "downloads.json").read_text())["ESC-50.zip"]


def test_what_was_deleted_since_is_downloaded_again(
    server: Server, small_esc50: bytes, tmp_path: Path
) -> None:
    download.get("esc50", tmp_path, mirror=server.url)
    (tmp_path / "ESC-50-x/audio/1-1-A-0.wav").unlink()
    download.get("esc50", tmp_path, mirror=server.url)
    assert esc50.missing(tmp_path) == []


def test_every_published_sum_is_pinned_and_of_the_form_of_an_md5() -> None:
    """A pinned file is verified by our own sum: no record is asked for it."""
    asked = {"sonyc_ust", "tut2016", "demand", "musan"}  # their sums are not published elsewhere
    for name in download.corpus_names():
        for remote in download.find_corpus(name).about.files:
            pinned = re.fullmatch("[0-9a-f]{32}", remote.md5) is not None
            assert pinned or (name in asked and not remote.md5), remote


@pytest.mark.parametrize("mirror", ["http://", "https:///x", "http://[::1", "http://x:port", "x"])
def test_a_mirror_is_an_address_with_a_host(mirror: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="A mirror must be an http or https address"):
        download.get("esc50", tmp_path, mirror=mirror)
