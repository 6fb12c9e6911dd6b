"""Models on the hub: a small hub on the loopback, one that never answers, and none at all."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from driftscore import load_backbone
from driftscore.backbones import hub
from driftscore.errors import DownloadError, FormatError, UsageError

from .conftest import Run
from .small_onnx_clap import save_export

constants: Any = pytest.importorskip("huggingface_hub.constants", reason="NO HUGGINGFACE_HUB")
COMMIT = "c" * 40
UNREACHABLE = r"cannot be loaded: it is not on this machine.*hf download some/model.*HF_HUB_OFFLINE"


@pytest.fixture(autouse=True)
def private_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a hub cache of its own, and let the library believe that it is online."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def black_hole(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace the hub by a socket that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        yield


class SmallHub(BaseHTTPRequestHandler):
    """Serves the files of one folder as some/model; names in `silent` are never answered."""

    folder = Path()
    silent: tuple[str, ...] = ()
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, *arguments: object) -> None:
        pass

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(path)
        files = sorted(p for p in self.folder.rglob("*") if p.is_file())
        names = [p.relative_to(self.folder).as_posix() for p in files]
        if path.startswith("/api/models/some/model"):
            about: Any = {"id": "some/model", "sha": COMMIT}
            about["siblings"] = [{"rfilename": name} for name in names]
            if "/tree/" in path:
                about = [{"type": "file", "path": n, "size": p.stat().st_size, "oid": "0" * 40}
                         for n, p in zip(names, files, strict=True)]  # fmt: skip
            self._send(json.dumps(about).encode())
        elif path == "/":
            self._send(b"")
        elif path.startswith("/api/"):
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            name = path.partition("/resolve/")[2].partition("/")[2]
            if name in self.silent:
                time.sleep(30)
                return
            self._send((self.folder / name).read_bytes())

    def _send(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


@pytest.fixture
def small_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[SmallHub]]:
    """Replace the hub by one on the loopback that has a small CLAP export."""
    pytest.importorskip("onnx", reason="ONNX IS NOT INSTALLED")
    served = save_export(tmp_path / "served", variants=("", "_quantized"))
    (served / "code.py").write_text("raise SystemExit")
    (served / "pytorch_model.bin").write_bytes(b"pickle")
    handler = type("Served", (SmallHub,), {"folder": served, "silent": (), "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    yield handler
    server.shutdown()


def names_in(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.usefixtures("black_hole")
def test_a_hub_that_never_answers_is_given_up_within_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("transformers", reason="TRANSFORMERS IS NOT INSTALLED")
    assert hub.DEADLINE_S < 5
    monkeypatch.setattr(hub, "DEADLINE_S", 0.3)
    with pytest.raises(DownloadError, match="hf download laion/clap-htsat-fused"):
        load_backbone("laion/clap-htsat-fused")


@pytest.mark.usefixtures("black_hole")
@pytest.mark.parametrize("spec", ["some/model", "some/model:quantized"])
def test_models_of_every_form_are_given_up(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "DEADLINE_S", 0.3)
    with pytest.raises(DownloadError, match="hf download some/model"):
        load_backbone(spec)


@pytest.mark.usefixtures("black_hole")
def test_the_command_says_what_to_do_when_the_hub_never_answers(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "DEADLINE_S", 0.3)
    status, out, err = run("classify", "x.wav", "--labels", "a, b", "--backbone", "some/model")
    assert (status, out) == (1, "")
    assert "hf download some/model" in err
    assert "give the folder in place of the name" in err


def test_a_name_that_cannot_be_resolved_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://hub.invalid")
    with pytest.raises(DownloadError, match=UNREACHABLE):
        load_backbone("some/model")


def test_offline_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE is set"):
        hub.list_files("some/model")


def test_an_export_is_downloaded_once_without_code_and_pickles(
    small_hub: type[SmallHub],
) -> None:
    model = load_backbone("some/model:quantized")
    folder = hub.local_folder("some/model")
    assert folder is not None
    assert names_in(folder) == {
        "config.json", "preprocessor_config.json", "tokenizer.json",
        "onnx/audio_model_quantized.onnx", "onnx/text_model_quantized.onnx",
    }  # fmt: skip
    local = load_backbone(f"{small_hub.folder}:quantized")
    assert model.fingerprint == local.fingerprint
    np.testing.assert_array_equal(model.embed_text(["rain"]), local.embed_text(["rain"]))
    small_hub.asked.clear()
    assert load_backbone("some/model:quantized").fingerprint == model.fingerprint
    assert small_hub.asked == []  # it is in the cache now


def test_another_variant_of_a_cached_model_is_downloaded_too(small_hub: type[SmallHub]) -> None:
    load_backbone("some/model:quantized")
    assert load_backbone("some/model:fp32").fingerprint != ""
    with pytest.raises(UsageError, match="no variant q4, but fp32, quantized"):
        load_backbone("some/model:q4")


def test_a_model_without_safetensors_and_graphs_is_not_downloaded(
    small_hub: type[SmallHub],
) -> None:
    pytest.importorskip("transformers", reason="TRANSFORMERS IS NOT INSTALLED")
    for graph in (small_hub.folder / "onnx").iterdir():
        graph.unlink()
    with pytest.raises(FormatError, match="no safetensors weights"):
        load_backbone("some/model")
    assert hub.local_folder("some/model") is None


@pytest.mark.usefixtures("small_hub")
def test_a_model_that_the_hub_does_not_have_is_named() -> None:
    with pytest.raises(DownloadError, match="'other/model' cannot be loaded: the hub has none"):
        load_backbone("other/model:quantized")


def test_a_download_that_stalls_is_given_up(
    small_hub: type[SmallHub], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_hub, "silent", ("tokenizer.json",))
    monkeypatch.setattr(hub, "STALLED_S", 0.5)
    started = time.monotonic()
    with pytest.raises(DownloadError, match=r"no answer within 0.5 s.*hf download some/model"):
        load_backbone("some/model:quantized")
    assert time.monotonic() - started < 25  # the hub is silent for 30 s


def test_a_download_that_goes_on_is_not_given_up() -> None:
    total = iter(range(100))

    def slow() -> str:
        time.sleep(0.5)
        return "done"

    assert hub._within(0.1, slow, progress=lambda: next(total)) == "done"
    with pytest.raises(TimeoutError):
        hub._within(0.1, slow, progress=lambda: 7)


@pytest.mark.usefixtures("black_hole")
def test_other_libraries_use_only_their_cache_while_the_hub_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub, "DEADLINE_S", 0.3)
    with hub.offline_if_unreachable():
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE


@pytest.mark.usefixtures("small_hub")
def test_other_libraries_stay_online_while_the_hub_answers() -> None:
    with hub.offline_if_unreachable():
        assert not constants.HF_HUB_OFFLINE


def test_a_sharded_checkpoint_is_complete_only_with_all_its_parts(tmp_path: Path) -> None:
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text("{}")
    assert not hub.is_checkpoint(tmp_path)
    index = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "1.safetensors").touch()
    assert not hub.is_checkpoint(tmp_path)
    (tmp_path / "2.safetensors").touch()
    assert hub.is_checkpoint(tmp_path)


@pytest.mark.parametrize("spec", ["./a/b", "a", "a/b/c", "/a/b", "~/b", "C:/b", "a/b:c", "a\\b/c"])
def test_paths_are_not_hub_ids(spec: str) -> None:
    assert not hub.is_hub_id(spec)
    assert hub.is_hub_id("owner/name-1.5_x")
