"""The tagger equals mn04 as published, and nothing in its file is run."""

import contextlib
import io
import os
import pickle
import struct
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray

from driftscore.audio.recordings import Samples
from driftscore.backbones.mn04 import tagger as mn04
from driftscore.backbones.mn04.tagger import Tagger
from driftscore.backbones.mn04.torch_file import read_tensors
from driftscore.backbones.onnx.log_mel import FrontEnd
from driftscore.errors import FormatError, UsageError
from driftscore.storage.files import sha256

from .mutation import DAMAGE, Damage, damaged

SHARED = Path(os.environ.get("DRIFTSCORE_SHARED", Path(__file__).parents[2] / "shared"))
FOLDER = SHARED / "models" / "mn04"
Golden = Mapping[str, NDArray[Any]]


@pytest.fixture(scope="module")
def golden() -> Golden:
    if not (FOLDER / "golden.npz").exists():
        warnings.warn(f"mn04 is NOT checked: {FOLDER} is absent", stacklevel=1)
        pytest.skip(f"needs {FOLDER}; set DRIFTSCORE_SHARED to the folder that holds models/")
    content: Golden = np.load(FOLDER / "golden.npz")
    return content


@pytest.fixture(scope="module")
def clips(golden: Golden) -> list[Samples]:
    soundfile, soxr = pytest.importorskip("soundfile"), pytest.importorskip("soxr")
    found = []
    for name in golden["files"]:
        samples, rate = soundfile.read(
            SHARED / "audio" / str(name), dtype="float32", always_2d=True
        )
        found.append(soxr.resample(samples.mean(axis=1), rate, mn04.RATE, quality="HQ"))
    return found


@pytest.fixture(scope="module")
def tagger(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Tagger:
    pytest.importorskip("onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTSCORE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return mn04.load_tagger(FOLDER)


def test_log_mel_equals_the_golden_one(golden: Golden, clips: list[Samples]) -> None:
    np.testing.assert_allclose(mn04.FRONT_END(clips[0]), golden["log_mel_first"], atol=1e-4)


def test_logits_and_embeddings_equal_the_golden_ones(
    golden: Golden, clips: list[Samples], tagger: Tagger
) -> None:
    for samples, logits, embedding in zip(
        clips, golden["logits"], golden["embedding"], strict=True
    ):
        ours = tagger.logits_and_embedding(samples)
        np.testing.assert_allclose(ours[0], logits, atol=1e-3)
        np.testing.assert_allclose(ours[1], embedding, atol=1e-3)


def test_a_clip_gives_the_same_logits_every_time(clips: list[Samples], tagger: Tagger) -> None:
    first = tagger.logits(clips[0])
    tagger.logits(clips[1][:40_000])
    assert np.array_equal(first, tagger.logits(clips[0]))


def test_a_damaged_conversion_in_the_cache_is_made_again(
    clips: list[Samples], tagger: Tagger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTSCORE_CACHE", str(tmp_path))
    mn04.load_tagger(FOLDER)
    (converted,) = tmp_path.glob("*.onnx")
    converted.write_bytes(converted.read_bytes()[:-1000])
    again = mn04.load_tagger(FOLDER).logits(clips[0])
    assert np.array_equal(again, tagger.logits(clips[0]))
    (checksum,) = tmp_path.glob("*.sha256")
    checksum.write_bytes(b"\xff\xfe garbage")
    again = mn04.load_tagger(FOLDER).logits(clips[0])
    assert np.array_equal(again, tagger.logits(clips[0]))


@pytest.mark.parametrize("length", [0, 1, 100, 513, 514, 1_000, 32_000])
def test_a_clip_of_any_length_has_a_finite_log_mel(length: int) -> None:
    samples = np.random.default_rng(0).normal(size=length).astype(np.float32)
    mel = mn04.FRONT_END(samples)
    assert mel.shape[0] == 128
    assert mel.shape[1] >= 1
    assert np.isfinite(mel).all()


def test_log_mel_equals_a_slow_and_obvious_one() -> None:
    front_end = FrontEnd(rate=8_000, n_fft=64, window=48, hop=16, mels=6, top_hz=3_500.0)
    x = np.random.default_rng(1).normal(size=300)
    y = np.pad(x[1:] - 0.97 * x[:-1], 32, mode="reflect")
    window = np.zeros(64)
    window[8:56] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(48) / 47)

    def mel(hertz: float) -> float:
        return float(1127 * np.log(1 + hertz / 700))

    edges = np.linspace(mel(0), mel(3_500.0), 8)
    expected = np.zeros((6, 1 + (len(y) - 64) // 16))
    for t in range(expected.shape[1]):
        frame = y[16 * t : 16 * t + 64] * window
        for m in range(6):
            total = 0.0
            for k in range(32):
                power = abs(np.sum(frame * np.exp(-2j * np.pi * k * np.arange(64) / 64))) ** 2
                f = mel(k * 8_000 / 64)
                up = (f - edges[m]) / (edges[m + 1] - edges[m])
                down = (edges[m + 2] - f) / (edges[m + 2] - edges[m + 1])
                total += power * max(0.0, min(up, down))
            expected[m, t] = (np.log(total + 1e-5) + 4.5) / 5
    np.testing.assert_allclose(front_end(x.astype(np.float32)), expected, atol=1e-4)


def _torch_file(path: Path, state: object) -> Path:
    contents = io.BytesIO()
    pickle.Pickler(contents, protocol=2).dump(state)
    return _torch_zip(path, contents.getvalue())


def _torch_zip(path: Path, description: bytes, numbers: bytes = bytes(64)) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", description)
        archive.writestr("archive/data/0", numbers)
    return path


def _read_anyway(path: Path) -> object:
    """Read a file as if its checksum were the published one."""
    return read_tensors(path, sha256=sha256(path))


def test_a_file_that_would_run_something_is_refused_and_not_run(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "ran"),))

    path = _torch_file(tmp_path / "hostile.pt", {"weight": Hostile()})
    with pytest.raises(FormatError, match=r"not the published file.*Nothing in it was read"):
        read_tensors(path, sha256=mn04.SHA256)
    with pytest.raises(FormatError, match=r"not part of a tensor.*nothing in it was run"):
        _read_anyway(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("contents", [b"", b"not a zip", b"PK\x03\x04 cut off"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "damaged.pt").write_bytes(contents)
    with pytest.raises(FormatError, match=r"damaged.pt"):
        _read_anyway(tmp_path / "damaged.pt")


def test_a_file_without_tensors_is_refused(tmp_path: Path) -> None:
    for state in ({"weight": "words"}, {}, "words", 1, (1, 2)):
        path = _torch_file(tmp_path / "odd.pt", state)
        if state != {}:
            with pytest.raises(FormatError, match=r"not a dictionary of tensors|opcode"):
                _read_anyway(path)


def _tensor(shape: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> bytes:
    """Return a pickle of one tensor, written opcode by opcode."""

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    def row(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(number, values)) + b"t"

    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu")
    storage += number(16) + b"tQ"
    hooks = b"ccollections\nOrderedDict\n)R"
    arguments = b"(" + storage + number(offset) + row(shape) + row(stride) + b"\x89" + hooks + b"t"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R"
    return b"\x80\x02}(" + text("weight") + tensor + b"u."


def test_the_reader_accepts_a_tensor_of_this_form(tmp_path: Path) -> None:
    numbers = np.arange(16, dtype="<f4")
    path = _torch_zip(tmp_path / "good.pt", _tensor((4, 3), (4, 1)), numbers.tobytes())
    found = read_tensors(path, sha256=sha256(path))
    np.testing.assert_array_equal(found["weight"], numbers.reshape(4, 4)[:, :3])


@pytest.mark.parametrize(
    ("shape", "stride", "offset"),
    [
        ((1_000_000, 1_000_000), (0, 0), 0),
        ((2**31 - 1,), (0,), 0),
        ((17,), (1,), 0),
        ((4,), (1,), 13),
        ((-4,), (1,), 0),
        ((4,), (-1,), 3),
        ((4,), (1,), -1),
        ((4, 4), (1,), 0),
    ],
)
def test_a_tensor_outside_its_storage_is_refused_without_allocating(
    tmp_path: Path, shape: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> None:
    path = _torch_zip(tmp_path / "crafted.pt", _tensor(shape, stride, offset))
    with pytest.raises(FormatError, match=r"crafted.pt"):
        _read_anyway(path)


@pytest.mark.parametrize(
    "inside",
    [
        b"ccollections\nOrderedDict\n}X\x01\x00\x00\x00aK\x01sb",  # BUILD sets attributes
        b"ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb",
        b"cbuiltins\neval\nX\x01\x00\x00\x001\x85R",
        b"\x8c\x02os\x8c\x06system\x93",
        b"(i__main__\nx\n",
        b"\x8a\xff" + b"\x7f" * 255,
        b"B\xff\xff\xff\x7f",
        b"X\xff\xff\xff\x7f",
        b"r\xff\xff\xff\xff",
    ],
)
def test_other_opcodes_are_refused(tmp_path: Path, inside: bytes) -> None:
    path = _torch_zip(tmp_path / "crafted.pt", b"\x80\x02" + inside + b".")
    with pytest.raises(FormatError, match=r"crafted.pt"):
        _read_anyway(path)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=DAMAGE)
def test_a_mutated_description_is_read_or_refused(
    changes: list[Damage], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "mutated.pt"
    _torch_zip(path, damaged(_tensor((4, 3), (4, 1)), changes))
    with contextlib.suppress(FormatError):
        _read_anyway(path)


def test_weights_with_another_checksum_are_refused(tmp_path: Path) -> None:
    (tmp_path / mn04.FILE_NAME).write_bytes(b"x" * 1000)
    with pytest.raises(FormatError, match=r"not mn04 as published.*save it as"):
        mn04.find_weights(tmp_path)


def test_a_path_without_weights_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTSCORE_MN04", str(tmp_path / "nothing.pt"))
    with pytest.raises(UsageError, match=r"save it as"):
        mn04.find_weights()
