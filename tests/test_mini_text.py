"""The shipped text tower: any English label gets a row of its own, always the same one."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from driftscore.backbones import tagspace

MODEL = Path(tagspace.__file__).resolve().parent.parent / "models" / "mini"
UNKNOWN = 0


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(MODEL / "tokenizer.json"))


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    graph = (MODEL / "text.onnx").read_bytes()
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _embed(session, tokenizer, text: str) -> np.ndarray:
    ids = np.array([tokenizer.encode(text).ids], np.int64)
    return session.run(["embedding"], {"ids": ids})[0][0]


def test_the_text_side_stays_within_its_share_of_the_15_megabytes() -> None:
    assert sum(path.stat().st_size for path in MODEL.glob("t*")) <= 8_500_000


def test_rows_are_unit_and_as_wide_as_the_tag_space(session, tokenizer) -> None:
    for text in ("dog", "the sound of rain", "x" * 500, "word " * 300, "a"):
        row = _embed(session, tokenizer, text)
        assert row.shape == (tagspace.TAGS,)
        assert np.linalg.norm(row) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("label", "tag"),
    [
        ("dog barking", "Bark"),
        ("church bells", "Church bell"),
        ("acoustic guitar", "Acoustic guitar"),
        ("helicopter", "Helicopter"),
        ("a baby crying", "Baby cry, infant cry"),
    ],
)
def test_a_label_points_at_its_tag(session, tokenizer, label: str, tag: str) -> None:
    row = _embed(session, tokenizer, f"the sound of {label}")
    names = tagspace.load_space().names
    assert tag in [names[index] for index in np.argsort(-row)[:3]]


def test_case_and_accents_change_nothing(session, tokenizer) -> None:
    plain = _embed(session, tokenizer, "the sound of cafe")
    assert np.array_equal(plain, _embed(session, tokenizer, "The SOUND of Café"))


@pytest.mark.parametrize("text", ["собака", "犬の鳴き声", "كلب"])
def test_a_text_in_a_script_never_seen_is_all_unknown(tokenizer, text: str) -> None:
    assert set(tokenizer.encode(text).ids) == {UNKNOWN}
    assert tokenizer.id_to_token(UNKNOWN) == "[UNK]"


def test_any_english_word_has_known_pieces(tokenizer) -> None:
    for word in ("theremin", "jackhammer", "zugzwang", "o'clock", "tick-tock", "R2D2", "qwxz"):
        assert UNKNOWN not in tokenizer.encode(word).ids


def test_threads_and_order_change_no_bit(session, tokenizer) -> None:
    texts = [
        f"the sound of {w} mixed with {p}" for w in ("cat", "sea waves") for p in ("hum", "rain")
    ]
    alone = [_embed(session, tokenizer, text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        crowd = list(pool.map(lambda text: _embed(session, tokenizer, text), texts[::-1] * 20))
    for index, row in enumerate(crowd):
        assert np.array_equal(row, alone[::-1][index % len(texts)])
