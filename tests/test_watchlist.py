"""Watch lists: labels, wordings, negative words and what is asked of each."""

from pathlib import Path

import pytest

from driftscore import FormatError, UsageError, WatchedLabel, WatchList
from driftscore.events.watchlist import BACKGROUND

CITY = """
not = ["speech"]
false_alarms = 0.25

[[label]]
name = "dog bark"
wordings = ["barking dog"]
not = ["fox call"]
min_duration_s = 0.5

[[label]]
name = "siren"
threshold = 4.5
clips = false
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "city.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_says_what_is_asked_of_each_label(tmp_path: Path) -> None:
    found = WatchList.load(write(tmp_path, CITY))
    assert found.names == ("dog bark", "siren")
    assert found.false_alarms == 0.25
    assert found.labels[0] == WatchedLabel(
        "dog bark", ("barking dog",), ("fox call",), min_duration_s=0.5
    )
    assert found.labels[1] == WatchedLabel("siren", threshold=4.5, clips=False)
    assert found.texts == ("barking dog", "siren")  # a name is a wording only where there is none
    assert set(found.competing) == {"speech", "fox call", *BACKGROUND}


def test_the_cool_down_of_a_label_comes_before_that_of_the_list(tmp_path: Path) -> None:
    text = 'cooldown_s = 60\n[[label]]\nname = "a"\n[[label]]\nname = "b"\ncooldown_s = 0'
    found = WatchList.load(write(tmp_path, text))
    assert (found.cooldown("a"), found.cooldown("b"), found.cooldown("gone")) == (60, 0, 60)
    assert WatchList.load(write(tmp_path, found.to_toml())) == found


def test_a_label_is_never_its_own_negative_word() -> None:
    assert "rain" not in WatchList.of(["Rain", "siren"]).competing
    with pytest.raises(UsageError, match="both a label and a negative word"):
        WatchList.of(["rain"], ["Rain"])


def test_the_negative_word_none_switches_the_built_in_words_off() -> None:
    assert WatchList.of(["siren"], ["none"]).competing == ()
    assert WatchList.of(["siren"], ["none", "fox"]).competing == ("fox",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not = []", "label is missing"),
        ("label = []", "a list of length >= 1"),
        ('[[label]]\nname = ""', r"label\[0\].name"),
        ('[[label]]\nname = "a"\nthreshold = "high"', r"label\[0\].threshold must be a number"),
        ('[[label]]\nname = "a"\ntreshold = 3', "did you mean 'threshold'"),
        ('[[label]]\nname = "a"\nthreshold = 3\nfalse_alarms = 1', "choose one"),
        ('[[label]]\nname = "a"\nconfirm = 1.5', r"label\[0\].confirm must be a whole number"),
        ('[[label]]\nname = "a"\nconfirm = 0', r"label\[0\].confirm"),
        ('cooldown_s = -1\n[[label]]\nname = "a"', "cooldown_s must be"),
        ('[[label]]\nname = "a"\n[[label]]\nname = "a"', "a"),
        ("label = 3", "must be a list"),
        ("]", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_one_sentence_that_names_it(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises((FormatError, UsageError), match=message) as caught:
        WatchList.load(write(tmp_path, text))
    assert "city.toml" in str(caught.value)
