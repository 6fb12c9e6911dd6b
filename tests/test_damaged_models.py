"""The files of models that are damaged or do not fit together: one FormatError, in one sentence."""

import hashlib
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from driftscore.backbones.clap.exported import KIND, Probe, read_export
from driftscore.backbones.mini import HOME, load
from driftscore.backbones.mn04 import minilm
from driftscore.backbones.onnx.sessions import OnnxSession, open_session, open_tokenizer
from driftscore.errors import FormatError

from .mutation import DAMAGE, FUZZ, VALUES, Damage, damaged, replacements

MANIFEST = {
    "kind": KIND,
    "model": {"name": "m", "fingerprint": "f", "dim": 8, "logit_scale": 20.0,
              "mel": {"flavour": "htk", "rate": 48_000, "length": 480_000}},
    "precision": "fp32",
    "source": "",
    "sha256": {"audio.onnx": "00"},
    "agreement": {"audio": 1e-6},
    "made_with": {"torch": "2"},
}  # fmt: skip


def refused(read: Callable[[], object]) -> None:
    """Read a file; only a FormatError in one line is allowed."""
    try:
        read()
    except FormatError as error:
        assert "\n" not in str(error), error  # noqa: PT017 (reading may also succeed)


def test_the_undamaged_manifest_is_read(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    assert read_export(tmp_path).manifest.model.mel.rate == 48_000


def test_a_manifest_with_any_wrong_value_is_refused(tmp_path: Path) -> None:
    for content in replacements(MANIFEST):
        (tmp_path / "manifest.json").write_text(json.dumps(content))
        refused(lambda: read_export(tmp_path))
    for value in VALUES:
        (tmp_path / "manifest.json").write_text(json.dumps({**MANIFEST, "model": value}))
        with pytest.raises(FormatError, match=r"manifest\.json"):
            read_export(tmp_path)


def test_a_damaged_manifest_is_read_or_refused(tmp_path: Path) -> None:
    data = json.dumps(MANIFEST).encode()

    @FUZZ
    @given(changes=DAMAGE)
    def check(changes: list[Damage]) -> None:
        (tmp_path / "manifest.json").write_bytes(damaged(data, changes))
        refused(lambda: read_export(tmp_path))

    check()


def test_a_damaged_probe_is_read_or_refused(tmp_path: Path) -> None:
    rows = np.ones((2, 8), np.float32)
    Probe(np.ones((2, 4, 4), np.float32), rows, np.ones((2, 5), np.int64), rows).save(tmp_path)
    data = (tmp_path / "probe.npz").read_bytes()
    assert Probe.load(tmp_path).ids.shape == (2, 5)

    @FUZZ
    @given(changes=DAMAGE)
    def check(changes: list[Damage]) -> None:
        (tmp_path / "probe.npz").write_bytes(damaged(data, changes))
        refused(lambda: Probe.load(tmp_path))

    check()


@pytest.mark.parametrize("wrong", ["missing", "lengths", "types", "shapes"])
def test_a_probe_of_other_arrays_is_refused(tmp_path: Path, wrong: str) -> None:
    rows = np.ones((2, 8), np.float32)
    arrays = {"log_mel": np.ones((2, 4, 4), np.float32), "audio": rows, "text": rows,
              "ids": np.ones((2, 5), np.int64)}  # fmt: skip
    if wrong == "missing":
        del arrays["ids"]
    else:
        arrays["ids"] = {
            "lengths": np.ones((3, 5), np.int64), "types": rows, "shapes": np.ones(2, np.int64),
        }[wrong]  # fmt: skip
    np.savez(tmp_path / "probe.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match=r"probe\.npz"):
        Probe.load(tmp_path)


def test_what_is_no_graph_or_does_not_fit_its_input_is_refused() -> None:
    for graph in (b"", b"not a graph", (HOME / "pool.onnx").read_bytes()[:-200]):
        with pytest.raises(FormatError, match="cannot be loaded"):
            open_session(graph)
    pool = OnnxSession(partial(open_session, (HOME / "pool.onnx").read_bytes()))
    for output, shape in (("embedding", (1, 3, 3)), ("embedding", (3,)), ("other", (1, 384, 9))):
        with pytest.raises(FormatError, match="cannot be run"):
            pool.run(output, {"features": np.ones(shape, np.float32)})


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"model": 3}', "\0", "x" * 100])
def test_a_damaged_tokenizer_is_refused(content: str) -> None:
    with pytest.raises(FormatError, match=r"tokenizer\.json .* damaged"):
        open_tokenizer(content, longest=8)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"{}", b"[" * 100])
def test_damaged_files_of_the_sentence_encoder_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(minilm, "_folder", lambda: tmp_path)
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError):
        minilm.SentenceEncoder().encode(["dog"])


def test_a_build_of_mini_with_a_damaged_file_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "mini"
    shutil.copytree(HOME, home)
    load(home).prepare()
    for name in ("manifest.toml", "pool.onnx", "tokenizer.json"):
        good = (home / name).read_bytes()
        for bad in (b"", good[: len(good) // 2], b"\xff" + good, b"[sha256]\nx = 3\n"):
            (home / name).write_bytes(bad)
            with pytest.raises(FormatError, match="mini"):
                load(home).prepare()
        (home / name).write_bytes(good)


def test_the_sums_of_a_build_must_be_texts_by_name(tmp_path: Path) -> None:
    home = tmp_path / "mini"
    home.mkdir()
    (home / "x").write_bytes(b"x")
    digest = hashlib.sha256(b"x").hexdigest()
    for sums in (
        "sha256 = 3", 'sha256 = "x"', f'[sha256]\nx = "{digest}"', "[sha256]\nx = 3",
        '[sha256]\nx = "no digest"',
    ):  # fmt: skip
        (home / "manifest.toml").write_text(sums)
        with pytest.raises(FormatError, match="mini"):
            load(home)
