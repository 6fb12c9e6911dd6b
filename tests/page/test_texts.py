"""The text cache of the service: in memory, bounded, and without effect on numbers."""

import numpy as np

from driftscore import Backbone, build_bank
from driftscore.text.cache import TEXTS, MemoryTextCache


def test_a_bank_from_the_cache_has_the_same_bits(fake: Backbone) -> None:
    cache = MemoryTextCache()
    plain = build_bank(["siren", "rain"], fake)
    for _ in range(2):
        cached = build_bank(["siren", "rain"], fake, cache=cache)
        np.testing.assert_array_equal(plain.drifts, cached.drifts)
        np.testing.assert_array_equal(plain.prototypes, cached.prototypes)
    assert len(cache._rows) >= 2


def test_a_label_that_is_known_is_not_encoded_again(fake: Backbone) -> None:
    cache = MemoryTextCache()
    build_bank(["siren", "rain"], fake, cache=cache)
    before = len(cache._rows)
    build_bank(["siren", "rain", "dog"], fake, cache=cache)
    assert len(cache._rows) == before + 1


def test_it_keeps_the_most_recently_used_rows() -> None:
    cache = MemoryTextCache(max_rows=2)
    row = np.ones(4, np.float32)
    cache.put(TEXTS, "m", {"a": row})
    cache.put(TEXTS, "m", {"b": row})
    assert set(cache.get(TEXTS, "m", ["a"])) == {"a"}
    cache.put(TEXTS, "m", {"c": row})
    assert set(cache.get(TEXTS, "m", ["a", "b", "c"])) == {"a", "c"}
    assert cache.get(TEXTS, "other", ["a"]) == {}
