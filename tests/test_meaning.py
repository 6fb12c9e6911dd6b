"""What a model takes a word for: tags, sounds, confusions, and words that are not understood."""

import warnings

import numpy as np
import pytest

from driftscore import Backbone, Calibration, Classifier, UsageError
from driftscore.backbones.vectors import Matrix
from driftscore.events.watchlist import BACKGROUND
from driftscore.scoring.meaning import (
    MIN_SHARE,
    UnclearWordWarning,
    describe_unclear,
    explain,
    in_one_sentence,
    meanings,
    tag_names,
    unclear_rows,
)

from .conftest import Run

CLEAR = ("dog bark", "siren", "rain", "church bells", "vacuum cleaner")


def prototype(shares: dict[int, float]) -> Matrix:
    """Return the unit embedding of a word with these shares of tags."""
    row = np.zeros((1, 527), np.float32)
    for tag, share in shares.items():
        row[0, tag] = share
    return row / np.linalg.norm(row)


def test_the_tags_of_a_word_are_its_largest_shares_and_add_up_to_one(mini: Backbone) -> None:
    names = tag_names(mini)
    word = meanings(["dog"], prototype({3: 0.1, 74: 0.7, 9: 0.2}), mini)[0]
    assert [name for name, _ in word.tags] == [names[74], names[9], names[3]]
    assert sum(share for _, share in word.tags) == pytest.approx(1)
    assert word.clear


@pytest.mark.parametrize("share", [MIN_SHARE - 0.02, MIN_SHARE + 0.02])
def test_a_word_is_unclear_if_its_three_nearest_tags_have_too_small_a_share(
    mini: Backbone, share: float
) -> None:
    rest = dict.fromkeys(range(100, 200), (1 - share) / 100)
    rows = prototype({1: share / 3, 2: share / 3, 3: share / 3, **rest})
    assert unclear_rows(["dog"], rows, mini) == ([0] if share < MIN_SHARE else [])


def test_common_labels_and_the_built_in_words_are_clear(mini: Backbone) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnclearWordWarning)
        Classifier([*CLEAR, *BACKGROUND[3:]], backbone=mini).fit()


def test_a_word_that_is_not_understood_is_one_sentence_with_two_other_wordings(
    mini: Backbone,
) -> None:
    with pytest.warns(UnclearWordWarning) as warned:
        classifier = Classifier(["blaffende hond", "dog bark"], backbone=mini).fit()
    assert len(warned) == 1
    sentence = in_one_sentence(classifier.unclear_, mini)
    assert str(warned[0].message) == sentence
    assert sentence.startswith("mini: 'blaffende hond' is not understood (nearest: ")
    assert sentence.count("'") == 6, "the word and two wordings"
    assert "dog bark" not in sentence


def test_a_spelling_that_begins_a_tags_name_suggests_that_tag(mini: Backbone) -> None:
    spread = prototype(dict.fromkeys(range(50), 1.0))
    assert "'air conditioning'" in describe_unclear(["airco"], spread, mini)["airco"]


def test_many_unclear_labels_are_counted_not_listed(mini: Backbone) -> None:
    spread = np.repeat(prototype(dict.fromkeys(range(50), 1.0)), 9, axis=0)
    unclear = describe_unclear([f"word {n}" for n in "abcdefghi"], spread, mini)
    assert unclear["word i"] == "'word i' is not understood"
    sentence = in_one_sentence(unclear, mini)
    assert sentence.count("is not understood") == 3
    assert sentence.endswith("; 6 more labels are not understood")


def test_labels_that_the_same_sounds_fit_can_be_confused(
    mini: Backbone, rng: np.random.Generator
) -> None:
    rows = rng.normal(0, 0.01, (40, 527)).astype(np.float32)
    rows[:20, [5, 6]] += 1
    rows[20:, 7] += 1
    clean = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    calibration = Calibration(clean, clean)
    words = np.concatenate([prototype({tag: 1}) for tag in (5, 6, 7)])
    explanation = explain("a", ("a", "b", "c"), words, mini, calibration)
    assert [label for label, _ in explanation.confused] == ["b"]
    names = tag_names(mini)
    assert all(names[5].split(",")[0] in sound for sound, _ in explanation.best)
    assert all(names[7].split(",")[0] in sound for sound, _ in explanation.worst)
    assert explanation.best[0][1] > 0.5 > explanation.worst[-1][1]
    without = explain("a", ("a", "b", "c"), words, mini)
    assert (without.best, without.worst, without.confused) == ((), (), ())


def test_a_model_whose_dimensions_are_no_tags_has_no_unclear_words(fake: Backbone) -> None:
    rows = fake.embed_text(["x"])
    assert unclear_rows(["x"], rows, fake) == []
    with pytest.raises(UsageError, match="use --backbone mini"):
        meanings(["x"], rows, fake)


def test_explain_shows_tags_sounds_and_confusions(run: Run) -> None:
    status, out, err = run("explain", "dog", "--labels", "Dog, puppy, rain", "-f", "csv")
    assert (status, err) == (0, "")
    kinds = [line.split(",")[2] for line in out.splitlines()[1:]]
    assert kinds.count("tag") == kinds.count("fits best") == kinds.count("fits worst") == 3
    assert "dog,True,tag,Dog," in out.replace('"', "")
    assert "confused with,puppy" in out
    assert ",rain," not in out


def test_explain_says_that_it_takes_one_word_and_not_a_list(run: Run) -> None:
    status, out, err = run("explain", "dog, rain")
    assert (status, out) == (2, "")
    assert "One word is explained at a time, and 'dog, rain' is a list" in err
    assert "driftscore explain 'dog'" in err


def test_explain_says_that_a_word_is_not_understood(run: Run) -> None:
    status, out, _ = run("explain", "kettingzaag")
    assert status == 0
    assert out.startswith("'kettingzaag' is not understood (nearest: ")
