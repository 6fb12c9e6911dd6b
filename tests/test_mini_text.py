"""The text tower of mini: any English label gets a row of its own, always the same one."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from driftscore.backbones.mini import HOME
from driftscore.backbones.mn04 import tagspace
from driftscore.backbones.vectors import Vector

UNKNOWN = 0


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(HOME / "tokenizer.json"))


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    graph = (HOME / "text.onnx").read_bytes()
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _embed(session: onnxruntime.InferenceSession, tokenizer: Tokenizer, text: str) -> Vector:
    ids = np.array([tokenizer.encode(text).ids], np.int64)
    row: Vector = session.run(["embedding"], {"ids": ids})[0][0]
    return row


def test_the_text_files_take_at_most_their_part_of_the_15_megabytes() -> None:
    assert sum(path.stat().st_size for path in HOME.glob("t*")) <= 8_500_000


def test_rows_are_unit_and_as_wide_as_the_tag_space(
    session: onnxruntime.InferenceSession, tokenizer: Tokenizer
) -> None:
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
        ("moped", "Motorcycle"),
        ("airco", "Air conditioning"),
        ("leaf blower", "Light engine (high frequency)"),
        ("washing machine", "Mechanisms"),
        ("generator", "Medium engine (mid frequency)"),
        ("handsaw", "Sawing"),
        ("fridge", "Hum"),
        ("water drops", "Drip"),
    ],
)
def test_a_label_points_at_its_tag(
    session: onnxruntime.InferenceSession, tokenizer: Tokenizer, label: str, tag: str
) -> None:
    row = _embed(session, tokenizer, f"the sound of {label}")
    names = tagspace.load_space().names
    assert tag in [names[index] for index in np.argsort(-row)[:3]]


def test_case_and_accents_change_nothing(
    session: onnxruntime.InferenceSession, tokenizer: Tokenizer
) -> None:
    plain = _embed(session, tokenizer, "the sound of cafe")
    assert np.array_equal(plain, _embed(session, tokenizer, "The SOUND of Café"))


@pytest.mark.parametrize("text", ["собака", "犬の鳴き声", "كلب"])
def test_a_text_in_a_script_without_training_data_is_all_unknown(
    tokenizer: Tokenizer, text: str
) -> None:
    assert set(tokenizer.encode(text).ids) == {UNKNOWN}
    assert tokenizer.id_to_token(UNKNOWN) == "[UNK]"


def test_any_english_word_has_known_pieces(tokenizer: Tokenizer) -> None:
    for word in ("theremin", "jackhammer", "zugzwang", "o'clock", "tick-tock", "R2D2", "qwxz"):
        assert UNKNOWN not in tokenizer.encode(word).ids


def test_threads_and_order_change_no_bit(
    session: onnxruntime.InferenceSession, tokenizer: Tokenizer
) -> None:
    texts = [
        f"the sound of {w} mixed with {p}" for w in ("cat", "sea waves") for p in ("hum", "rain")
    ]
    alone = [_embed(session, tokenizer, text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda text: _embed(session, tokenizer, text), texts[::-1] * 20))
    for index, row in enumerate(rows):
        assert np.array_equal(row, alone[::-1][index % len(texts)])


def test_the_graph_is_the_network_that_was_trained(
    session: onnxruntime.InferenceSession, tokenizer: Tokenizer
) -> None:
    torch = pytest.importorskip("torch")
    from training.export_text import read_exported
    from training.text_net import Tower
    from training.text_vocabulary import unpack

    weights, tables = read_exported(HOME / "text.onnx")
    tower = Tower(unpack(tables["packed"], tables["scale"])).eval()
    tower.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    for text in ("the sound of a kettle", "dog", "lorry reversing with wind in the background"):
        ids = tokenizer.encode(text).ids
        with torch.no_grad():
            mask = torch.ones(1, len(ids), dtype=torch.bool)
            expected = tower(torch.tensor([ids]), mask)[0].numpy()
        row = session.run(["sentence"], {"ids": np.array([ids], np.int64)})[0][0]
        assert np.allclose(row, expected, atol=1e-4)


def test_packing_the_table_by_groups_keeps_the_rows_apart() -> None:
    pytest.importorskip("torch")
    from training.text_vocabulary import GROUP, quantise, unpack

    rng = np.random.default_rng(0)
    table = rng.normal(size=(6000, 2 * GROUP)).astype(np.float32)
    codes, books = quantise(table, rng)
    assert codes.shape == (6000, 2)
    assert books.shape == (2, 256, GROUP)
    assert np.square(unpack(codes, books) - table).mean() < 0.1 * np.square(table).mean()
