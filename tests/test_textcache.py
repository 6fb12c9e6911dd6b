"""The text cache: what was encoded once is not encoded again, and no number depends on it."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from driftscore import (
    Backbone,
    ClassBank,
    Classifier,
    Embedder,
    PromptSettings,
    build_bank,
    compile_head,
    load_backbone,
)
from driftscore.backbones.vectors import Matrix
from driftscore.scoring.rules import NOISY_PROMPTS, find_rule, rule_names
from driftscore.text.cache import TEXTS, TextCache, TextEncoder

from .conftest import LABELS, Counting, Hashed, supplies

FIFTY = [f"sound {number}" for number in range(50)]
PARTS = ("prototypes", "drifts", "radii", "noisy_means")


@pytest.fixture
def quick() -> Counting:
    """Return the quick model, noting the texts that it encodes."""
    return Counting(Hashed())


@pytest.fixture
def cache(tmp_path: Path) -> TextCache:
    return TextCache(tmp_path / "texts.sqlite")


def assert_equal(one: ClassBank, two: ClassBank) -> None:
    assert (one.labels, one.made_by) == (two.labels, two.made_by)
    for name in PARTS:
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), strict=True)


def test_the_second_build_of_fifty_labels_encodes_nothing(
    quick: Counting, cache: TextCache
) -> None:
    first = build_bank(FIFTY, quick, cache=cache)
    assert len(quick.texts) == 50 * 209
    quick.texts.clear()
    second = build_bank(FIFTY, quick, cache=cache)
    assert quick.texts == []
    assert_equal(first, second)
    assert_equal(first, build_bank(FIFTY, quick))  # without a cache


def test_adding_one_label_to_fifty_encodes_one_labels_209_texts(
    quick: Counting, cache: TextCache
) -> None:
    build_bank(FIFTY, quick, cache=cache)
    quick.texts.clear()
    bank = build_bank([*FIFTY, "siren"], quick, cache=cache)
    assert len(quick.texts) == 209
    assert all("siren" in text for text in quick.texts)
    np.testing.assert_array_equal(bank.drifts[50], build_bank(["siren"], quick).drifts[0])


def test_a_label_takes_the_space_of_its_statistics_and_not_of_its_texts(
    quick: Counting, cache: TextCache
) -> None:
    """Three vectors and a radius; 208 noisy texts would be seventy times as many."""
    labels = [f"sound {number}" for number in range(120)]
    build_bank(labels, quick, cache=cache)
    with sqlite3.connect(cache.path) as db:
        [(rows, most)] = db.execute("SELECT count(*), max(length(vector)) FROM classes_2")
        assert db.execute("SELECT count(*) FROM texts_2").fetchone() == (0,)
    assert (rows, most) == (120, 4 * (3 * quick.dim + 1))
    page = 4096  # the keys, and pages that are not full, cost less than one page per label
    assert cache.path.stat().st_size / 120 <= most + page


class Interrupted(Counting):
    """A model that fails when it has encoded so many texts."""

    def __init__(self, inner: Backbone, after: int) -> None:
        super().__init__(inner)
        self.after = after

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        if len(self.texts) >= self.after:
            raise KeyboardInterrupt
        return super().embed_text(texts)


def test_an_interrupted_build_continues_where_it_stopped(quick: Counting, cache: TextCache) -> None:
    model = Interrupted(quick.inner, after=16 * 209)
    with pytest.raises(KeyboardInterrupt):
        build_bank(FIFTY, model, cache=cache)
    again = Counting(quick.inner)
    bank = build_bank(FIFTY, again, cache=cache)
    assert len(again.texts) == (50 - 16) * 209
    assert not any(f"{label} with" in text for label in FIFTY[:16] for text in again.texts)
    assert_equal(bank, build_bank(FIFTY, quick.inner))


@pytest.mark.parametrize("width", [0, 64, 3 * 64 + 2])
def test_a_cached_label_of_the_wrong_width_is_computed_again(
    counting: Counting, cache: TextCache, width: int
) -> None:
    build_bank(LABELS, counting, cache=cache)
    with sqlite3.connect(cache.path) as db:
        db.execute("UPDATE classes_2 SET vector = ?", (np.ones(width, "<f4").tobytes(),))
    counting.texts.clear()
    assert_equal(build_bank(LABELS, counting, cache=cache), build_bank(LABELS, counting.inner))
    assert len(counting.texts) == 3 * 209
    counting.texts.clear()
    build_bank(LABELS, counting, cache=cache)
    assert counting.texts == []  # the right row has taken its place


@pytest.mark.parametrize("width", [0, 32])
def test_a_cached_text_of_the_wrong_width_is_encoded_again(
    counting: Counting, cache: TextCache, width: int
) -> None:
    cache.put(TEXTS, counting.cache_key, {"dog": np.ones(width, np.float32)})
    rows = TextEncoder(counting, cache=cache)(["dog", "cat"])
    np.testing.assert_array_equal(rows, counting.inner.embed_text(["dog", "cat"]))


@pytest.mark.parametrize(
    "settings",
    [
        PromptSettings(direction="svd"),
        PromptSettings(reference="matched"),
        PromptSettings(pack="generic5"),
        PromptSettings(prompt="a recording of {c}"),
    ],
)
def test_other_prompt_settings_have_rows_of_their_own(
    fake: Backbone, cache: TextCache, settings: PromptSettings
) -> None:
    build_bank(LABELS, fake, cache=cache)
    found = build_bank(LABELS, fake, settings=settings, cache=cache)
    assert_equal(found, build_bank(LABELS, fake, settings=settings))


def test_the_cached_labels_do_not_depend_on_the_order_or_the_spelling(
    counting: Counting, cache: TextCache
) -> None:
    build_bank(LABELS, counting, cache=cache)
    counting.texts.clear()
    found = build_bank(["siren", "sea waves", "Dog-Bark"], counting, cache=cache)
    assert counting.texts == []
    np.testing.assert_array_equal(found.drifts, build_bank(LABELS, counting).drifts[::-1])


def test_texts_are_encoded_in_order_of_length(counting: Counting) -> None:
    TextEncoder(counting)(["a longer text", "short", "the longest text of all"])
    assert counting.texts == sorted(counting.texts, key=len)


def test_another_model_has_vectors_of_its_own(fake: Backbone, cache: TextCache) -> None:
    build_bank(LABELS, fake, cache=cache)
    other = load_backbone("fake", seed=1)
    assert_equal(build_bank(LABELS, other, cache=cache), build_bank(LABELS, other))


def test_a_damaged_cache_is_reported_and_not_used(
    fake: Backbone, bank: ClassBank, cache: TextCache
) -> None:
    cache.path.write_bytes(b"not a database" * 100)
    with pytest.warns(UserWarning, match="cannot be used"):
        found = build_bank(LABELS, fake, cache=cache)
    np.testing.assert_array_equal(found.drifts, bank.drifts)


def test_the_cache_is_one_sqlite_file_that_two_users_share(fake: Backbone, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "texts.sqlite"
    one, two = (TextEncoder(fake, cache=TextCache(path)) for _ in range(2))
    one(["a", "b"])
    two(["b", "c"])
    with sqlite3.connect(path) as db:
        assert sorted(row[0] for row in db.execute("SELECT key FROM texts_2")) == ["a", "b", "c"]


def test_a_cache_of_an_earlier_version_is_not_used(counting: Counting, cache: TextCache) -> None:
    """Its rows have no checksum."""
    with sqlite3.connect(cache.path) as db:
        db.execute(
            "CREATE TABLE texts (model TEXT, text TEXT, vector BLOB, PRIMARY KEY (model, text)) "
            "WITHOUT ROWID"
        )
        vector = counting.inner.embed_text(["dog"])[0].tobytes()
        db.execute("INSERT INTO texts VALUES (?, ?, ?)", (counting.cache_key, "dog", vector))
    rows = TextEncoder(counting, cache=cache)(["dog"])
    assert counting.texts == ["dog"]
    np.testing.assert_array_equal(rows, counting.inner.embed_text(["dog"]))
    assert_equal(build_bank(LABELS, counting, cache=cache), build_bank(LABELS, counting.inner))


def test_a_model_that_looks_texts_up_is_not_cached(fake: Backbone, cache: TextCache) -> None:
    class Stored(Counting):
        caches_text = False

    build_bank(LABELS, Stored(fake), cache=cache)
    TextEncoder(Stored(fake), cache=cache)(["dog"])
    assert not cache.path.exists()


def test_an_embedder_keeps_texts_unless_asked_not_to(fake: Backbone, tmp_path: Path) -> None:
    path = tmp_path / "cache" / "texts.sqlite"
    Classifier(LABELS, backbone=Embedder(fake, text_cache=False)).fit()
    assert not path.exists()
    Classifier(LABELS, backbone=fake).fit()
    assert path.exists()


@pytest.mark.parametrize("rule", rule_names())
def test_the_texts_of_a_classifier_are_exactly_those_that_are_encoded(
    rule: str, counting: Counting
) -> None:
    settings, calibration = supplies(rule, counting)
    listed = Classifier(
        LABELS, backbone="a model that does not exist", rule=rule, settings=settings
    ).texts()
    bank = build_bank(LABELS, counting, drifts=bool(find_rule(rule).needs & NOISY_PROMPTS))
    compile_head(bank, rule, backbone=counting, calibration=calibration, **settings)
    assert len(listed) == len(set(listed))
    assert sorted(listed) == sorted(set(counting.texts))


@pytest.mark.parametrize(
    ("rule", "settings", "prompts"),
    [
        ("zs_text", {"background": "street traffic"}, None),
        ("debias", {"phrases": "generic5", "directions": 2}, None),
        ("das", {}, PromptSettings(reference="matched", pack="generic5", skip_same=True)),
        ("cosine", {}, PromptSettings(prompt="{c}")),
    ],
)
def test_the_texts_of_a_classifier_follow_its_settings(
    rule: str, settings: dict[str, object], prompts: PromptSettings | None, counting: Counting
) -> None:
    embedder = Embedder(counting, text_cache=False)
    classifier = Classifier(
        LABELS, backbone=embedder, rule=rule, settings=settings, prompts=prompts
    )
    listed = classifier.texts()
    assert counting.texts == []
    classifier.fit()
    assert sorted(listed) == sorted(set(counting.texts))
