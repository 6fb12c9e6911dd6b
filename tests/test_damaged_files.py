"""Files of our own formats that are damaged or hostile: they load, or they are our error."""

import io
import json
import os
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftscore import ClassBank, FormatError, Head, compile_head
from driftscore.backbones.stored import EmbeddingFile, load_vectors
from driftscore.backbones.vectors import unit
from driftscore.errors import DriftscoreError
from driftscore.scoring.calibration import Calibration
from driftscore.storage.tensors import write_tensors

from .mutation import DAMAGE, FUZZ, Damage, damaged, replacements

Load = Callable[[Path], object]
LOADERS: dict[str, Load] = {
    "head.npz": Head.load,
    "head.json": Head.load,
    "head.safetensors": Head.load,
    "bank.safetensors": ClassBank.load,
    "calibration.safetensors": Calibration.load,
    "embeddings.npz": EmbeddingFile.load,
    "small.npz": EmbeddingFile.load,
    "rows.npy": lambda path: load_vectors(path, ("a", "b", "c")),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory, bank: ClassBank) -> dict[str, bytes]:
    """One good file of every format, as bytes."""
    home = tmp_path_factory.mktemp("originals")
    rng = np.random.default_rng(0)
    rows = unit(rng.standard_normal((30, 8)).astype(np.float32))
    head = compile_head(bank, "das")
    for ending in ("npz", "json", "safetensors"):
        head.save(home / f"head.{ending}")
    bank.save(home / "bank.safetensors")
    calibration = Calibration(rows, rows[::-1], settings={"das": {"beta": 0.5}})
    calibration.at_site(rows[:5]).save(home / "calibration.safetensors")
    names = tuple(f"{i}.wav" for i in range(30))
    EmbeddingFile(("a", "b"), rows[:2], names, rows, "m", "f").save(home / "embeddings.npz")
    np.savez_compressed(home / "small.npz", files=np.array(names), audio_embeddings=rows)
    np.save(home / "rows.npy", rows[:3])
    return {path.name: path.read_bytes() for path in home.iterdir()}


def load_or_refuse(load: Load, path: Path) -> None:
    """Load a file; only an error of ours in one sentence is allowed, and soon."""
    began = time.process_time()  # not the time that other processes take
    refused: DriftscoreError | None = None
    try:
        load(path)
    except DriftscoreError as error:
        refused = error
    if refused is not None:
        assert isinstance(refused, FormatError), repr(refused)
        assert path.name in str(refused)
        assert "\n" not in str(refused)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("name", sorted(LOADERS))
def test_the_undamaged_file_loads(name: str, originals: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(originals[name])
    LOADERS[name](tmp_path / name)


@pytest.mark.parametrize("name", sorted(LOADERS))
def test_a_damaged_file_loads_or_is_refused(
    name: str, originals: dict[str, bytes], tmp_path: Path
) -> None:
    @FUZZ
    @given(changes=DAMAGE)
    def check(changes: list[Damage]) -> None:
        (tmp_path / name).write_bytes(damaged(originals[name], changes))
        load_or_refuse(LOADERS[name], tmp_path / name)

    check()


@pytest.mark.parametrize("name", sorted(LOADERS))
def test_a_file_cut_anywhere_is_refused(
    name: str, originals: dict[str, bytes], tmp_path: Path
) -> None:
    data = originals[name]
    for end in np.linspace(0, len(data) - 1, 60).astype(int):
        (tmp_path / name).write_bytes(data[:end])
        with pytest.raises(FormatError, match=name):
            LOADERS[name](tmp_path / name)


@pytest.mark.parametrize("name", [name for name in sorted(LOADERS) if "npz" in name])
def test_damaged_headers_of_arrays_are_refused(
    name: str, originals: dict[str, bytes], tmp_path: Path
) -> None:
    """The members are damaged and zipped again: the checksums of the zip are right."""
    with zipfile.ZipFile(io.BytesIO(originals[name])) as archive:
        members = {one: archive.read(one) for one in archive.namelist()}

    @FUZZ
    @given(changes=DAMAGE, which=st.sampled_from(sorted(members)), start=st.booleans())
    def check(changes: list[Damage], which: str, start: bool) -> None:
        if start:  # most damage would hit the numbers otherwise
            changes = [(kind, at * 128 / len(members[which]), x) for kind, at, x in changes]
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for one, data in members.items():
                archive.writestr(one, damaged(data, changes) if one == which else data)
        load_or_refuse(LOADERS[name], tmp_path / name)

    check()


def npy_with_shape(shape: str, descr: str = "<f4", data: bytes = b"1234") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    ("shape", "descr"),
    [
        ("(1000000000000, 1024)", "<f4"),
        ("(1000000000000000000000000, 0)", "<f4"),
        ("(-1, 4)", "<f4"),
        ("(1000000000000,)", "<U0"),
        ("(1,)", "<U1000000000"),
        ("(1,)", "|O"),
        ("(1,)", "<M8[s]"),
        ("(1,)", "<c16"),
        ("(True,)", "<f4"),
        ("(1.5,)", "<f4"),
    ],
)
def test_absurd_shapes_and_types_are_refused_before_anything_is_allocated(
    shape: str, descr: str, tmp_path: Path
) -> None:
    array = npy_with_shape(shape, descr)
    (tmp_path / "rows.npy").write_bytes(array)
    for name in ("head.npz", "embeddings.npz"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for member in ("labels", "weights", "offsets", "files", "audio_embeddings"):
                archive.writestr(f"{member}.npy", array)
    for name in ("rows.npy", "head.npz", "embeddings.npz"):
        tracemalloc.start()
        try:
            with pytest.raises(FormatError, match=name):
                LOADERS[name](tmp_path / name)
            assert tracemalloc.get_traced_memory()[1] < 5_000_000
        finally:
            tracemalloc.stop()


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "embeddings.npz"
    rows = np.zeros((100_000, 256), np.float32)
    np.savez_compressed(path, files=np.array(["a"] * 100_000), audio_embeddings=rows)
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="would unpack to"):
            EmbeddingFile.load(path)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["head.npz", "embeddings.npz"])
def test_encryption_other_compressions_and_bare_arrays_are_named(
    name: str, originals: dict[str, bytes], tmp_path: Path
) -> None:
    path = tmp_path / name
    with zipfile.ZipFile(io.BytesIO(originals[name])) as archive:
        members = {one: archive.read(one) for one in archive.namelist()}
    for compression in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        with zipfile.ZipFile(path, "w", compression) as archive:
            for one, data in members.items():
                archive.writestr(one, data)
        with pytest.raises(FormatError, match="unsupported compression"):
            LOADERS[name](path)
    encrypted = bytearray(originals[name])
    start = encrypted.find(b"PK\x01\x02")
    while start >= 0:  # set the flag in every entry of the directory
        encrypted[start + 8] |= 1
        start = encrypted.find(b"PK\x01\x02", start + 1)
    path.write_bytes(encrypted)
    with pytest.raises(FormatError, match="encrypted"):
        LOADERS[name](path)
    path.write_bytes(originals["rows.npy"])
    with pytest.raises(FormatError, match="one bare array"):
        LOADERS[name](path)


@pytest.mark.parametrize("name", sorted(LOADERS))
def test_what_is_not_a_regular_file_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(FormatError, match="not a regular file"):
        LOADERS[name](path)
    path.unlink()
    with pytest.raises(FormatError, match="There is no"):
        LOADERS[name](path)
    path.mkdir()
    with pytest.raises(FormatError, match="not a regular file"):
        LOADERS[name](path)


@pytest.mark.parametrize("name", ["head", "bank", "calibration"])
def test_any_other_value_in_the_description_is_refused_or_has_no_effect(
    name: str, originals: dict[str, bytes], tmp_path: Path
) -> None:
    data = originals[f"{name}.safetensors"]
    path = tmp_path / f"{name}.safetensors"
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    about = json.loads(header["__metadata__"]["driftscore"])
    for other in replacements(about):
        text = json.dumps(other)
        header["__metadata__"] = {"driftscore": text}
        written = json.dumps(header).encode()
        path.write_bytes(len(written).to_bytes(8, "little") + written + data[8 + size :])
        load_or_refuse(LOADERS[path.name], path)
    for metadata in (None, {}, {"driftscore": "not JSON"}, {"driftscore": "[" * 100_000}):
        header["__metadata__"] = metadata
        written = json.dumps(header).encode()
        path.write_bytes(len(written).to_bytes(8, "little") + written + data[8 + size :])
        with pytest.raises(FormatError):
            LOADERS[path.name](path)


@pytest.mark.parametrize("name", ["head", "bank", "calibration"])
@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F8_E5M2", "F4", "I64", "BOOL", "C64", "X"])
def test_other_types_of_tensors_are_refused(
    name: str, dtype: str, originals: dict[str, bytes], tmp_path: Path
) -> None:
    data = originals[f"{name}.safetensors"]
    path = tmp_path / f"{name}.safetensors"
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    bytes_of = {"BF16": 2, "I64": 8, "C64": 8}.get(dtype, 1)
    for part in header.values():
        if "dtype" in part:
            begin, end = part["data_offsets"]
            part.update(dtype=dtype, shape=[(end - begin) // bytes_of])
    written = json.dumps(header).encode()
    path.write_bytes(len(written).to_bytes(8, "little") + written + data[8 + size :])
    with pytest.raises(FormatError, match=path.name):
        LOADERS[path.name](path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(value: float, tmp_path: Path) -> None:
    weights, offsets = np.full((1, 4), value, np.float32), np.zeros(1, np.float32)
    path = tmp_path / "head.safetensors"
    about = {"labels": ["a"], "made_by": {}}
    write_tensors(path, {"weights": weights, "offsets": offsets}, kind="head", about=about)
    with pytest.raises(FormatError, match="'weights' has NaN or infinite"):
        Head.load(path)
    np.savez(tmp_path / "head.npz", labels=["a"], weights=weights, offsets=offsets)
    with pytest.raises(FormatError, match=r"head.npz.*NaN or infinite"):
        Head.load(tmp_path / "head.npz")
    np.savez(tmp_path / "e.npz", files=["a"], audio_embeddings=weights.astype(np.float64))
    with pytest.raises(FormatError, match=r"e.npz.*NaN or infinite"):
        EmbeddingFile.load(tmp_path / "e.npz")


def test_any_other_value_in_a_head_in_json_is_refused_or_has_no_effect(
    originals: dict[str, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "head.json"
    for other in replacements(json.loads(originals["head.json"])):
        path.write_text(json.dumps(other))
        load_or_refuse(Head.load, path)
    for text in ("[" * 200_000, '{"labels": ' * 50_000, "1" * 10_000, "\ufeff{}", "NaN"):
        path.write_text(text)
        with pytest.raises(FormatError, match=r"head\.json"):
            Head.load(path)


def test_labels_that_are_numbers_are_refused_by_their_key(tmp_path: Path) -> None:
    tensors = {"weights": np.ones((2, 4), np.float32), "offsets": np.zeros(2, np.float32)}
    path = tmp_path / "head.safetensors"
    write_tensors(path, tensors, kind="head", about={"labels": ["a", 2], "made_by": {}})
    with pytest.raises(FormatError, match=r"labels\[1\] must be a text, got a number 2"):
        Head.load(path)
    np.savez(tmp_path / "head.npz", labels=[1, 2], weights=np.ones((2, 4)), offsets=np.zeros(2))
    with pytest.raises(FormatError, match="labels must be a list of texts"):
        Head.load(tmp_path / "head.npz")
