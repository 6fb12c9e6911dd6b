"""Labels, packs and the texts that they are composed to."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftscore import FormatError, PromptSettings, UsageError
from driftscore.text.packs import load_pack, pack_names
from driftscore.text.presets import check_template, fill
from driftscore.text.prompts import check_labels, compose, read_labels, split_labels, words


@pytest.mark.parametrize(
    "label", ["sea_waves", "Sea Waves", "sea-waves", "  SEA  waves ", "sea_Waves"]
)
def test_spellings_of_a_label_give_the_same_words(label: str) -> None:
    assert words(label) == "sea waves"


@given(st.text(min_size=1))
def test_words_of_words_are_the_same_words(label: str) -> None:
    assert words(words(label)) == words(label)


def test_the_label_comes_back_as_it_was_typed() -> None:
    assert check_labels(["Sea_Waves", " dog "]) == ("Sea_Waves", "dog")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "No labels given"),
        (["dog", "  "], "one or more words"),
        (["sea_waves", "dog", "Sea-Waves"], "'sea_waves' and 'Sea-Waves' are the same words"),
        ("dog, cat", "not one string"),
        ([3], "one or more words"),
    ],
)
def test_bad_labels_are_refused_in_words(labels: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_labels(labels)


def test_labels_are_split_at_commas_and_read_from_lines(tmp_path: Path) -> None:
    assert split_labels("dog bark, siren ,rain,") == ("dog bark", "siren", "rain")
    path = tmp_path / "city.txt"
    path.write_text("\ufeff# city\ndog bark\n\n  siren  \n", encoding="utf-8")
    assert read_labels(path) == ("dog bark", "siren")
    path.write_text("# nothing\n")
    with pytest.raises(UsageError, match="names no label"):
        read_labels(path)
    with pytest.raises(UsageError, match="Cannot read"):
        read_labels(tmp_path / "absent.txt")


def test_the_packs_have_what_the_method_says() -> None:
    sizes = {name: len(load_pack(name).entries) for name in pack_names()}
    assert sizes == {
        "das52": 52, "das52-notau": 47, "generic5": 5, "das4": 4, "clean8": 8, "background3": 3,
    }  # fmt: skip
    das52 = load_pack("das52")
    groups = [entry.id.split("-")[0] for entry in das52.entries]
    assert {g: groups.count(g) for g in groups} == {
        "synthetic": 15, "demand": 18, "musan": 14, "generic": 5,
    }  # fmt: skip
    assert len(set(das52.texts)) == 52
    assert all(entry.provenance for name in pack_names() for entry in load_pack(name).entries)
    dropped = set(das52.texts) - set(load_pack("das52-notau").texts)
    assert dropped == {
        "park noise", "station noise", "public square noise", "street traffic noise", "metro noise",
    }  # fmt: skip
    assert load_pack("das4").texts == (
        "{c} with {p}",
        "{c} with {p} in the background",
        "the sound of {c} mixed with {p}",
        "a recording of {c} with {p}",
    )


def test_a_reconstructed_pack_says_so() -> None:
    for name in ("das52", "das4"):
        assert "reconstruct" in load_pack(name).title


def test_a_users_own_pack_is_a_file_path(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('id = "site"\nkind = "phrases"\n[[phrase]]\nid = "a"\ntext = "lift doors"\n')
    assert load_pack(path).texts == ("lift doors",)
    path.write_text('id = "few"\nkind = "phrases"\nfrom = "das52"\nkeep = ["musan-09"]\n')
    assert load_pack(path).texts == ("rain",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id = 'x'\nkind = 'phrases'\n", "is empty"),
        ("id = 'x'\nkind = 'words'\n", "kind must be 'phrases' or 'templates', got a text 'words'"),
        ("kind = 'phrases'\n[[phrase]]\nid='a'\ntext='b'\n", ": id is missing"),
        ("id = 'x'\nkind = 'phrases'\n[[phrase]]\nid='a'\n", r"phrase\[0\].text is missing"),
        (
            "id = 'x'\nkind = 'phrases'\n[[phrase]]\nid='a'\ntext=' '\n",
            "text that is not empty",
        ),
        ("id = 'x'\nkind='phrases'\nfrom='das52'\ndrop=['nope']\n", "'nope', which das52"),
        ("id = 'x'\nkind = 'phrases'\n" + "[[phrase]]\nid='a'\ntext='b'\n" * 2, "'a' twice"),
        ("not toml", "not valid TOML"),
    ],
)
def test_a_bad_pack_is_refused_in_words(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(FormatError, match=message):
        load_pack(path)


def test_an_unknown_pack_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'das52'"):
        load_pack("das53")
    with pytest.raises(UsageError, match="holds templates; phrases are needed"):
        load_pack("das4", kind="phrases")


def test_templates_are_filled_and_checked() -> None:
    assert fill("{c} with {p}: {P}", c="dog", p="rain") == "dog with rain: Rain"
    check_template("a {c}", needs="c")
    with pytest.raises(UsageError, match=r"lacks its placeholder \{c\}"):
        check_template("the sound", needs="c")
    with pytest.raises(UsageError, match=r"unknown placeholder \{x\}"):
        check_template("{c} {x}", needs="c")


@pytest.fixture
def rain_and_wind(tmp_path: Path) -> str:
    """Return a pack of two phrases, one of which is also a label."""
    path = tmp_path / "weather.toml"
    path.write_text(
        'id = "weather"\nkind = "phrases"\n'
        '[[phrase]]\nid = "a"\ntext = "rain"\n[[phrase]]\nid = "b"\ntext = "wind"\n'
    )
    return str(path)


def test_a_phrase_that_equals_the_label_is_skipped_when_asked(
    rain_and_wind: str, tmp_path: Path
) -> None:
    settings = PromptSettings(pack=rain_and_wind)
    [every] = compose(["Rain"], settings).labels
    [fewer] = compose(["Rain"], settings.changed(skip_same=True)).labels
    assert len(every.noisy) == len(every.references) == 8
    assert fewer.noisy[0] == "rain with wind"
    assert len(fewer.noisy) == len(fewer.references) == 4
    only = tmp_path / "only.toml"
    only.write_text('id = "only"\nkind = "phrases"\n[[phrase]]\nid = "a"\ntext = "Rain"\n')
    with pytest.raises(UsageError, match="Every phrase"):
        compose(["rain"], PromptSettings(pack=str(only), skip_same=True))


def test_texts_are_composed_phrase_by_phrase_and_template_by_template(rain_and_wind: str) -> None:
    texts = compose(["Sea_Waves", "dog"], PromptSettings(pack=rain_and_wind))
    waves, dog = texts.labels
    assert (waves.label, dog.label) == ("Sea_Waves", "dog")
    assert waves.prompt == "the sound of sea waves"
    assert waves.noisy == tuple(
        template.format(c="sea waves", p=phrase)
        for phrase in ("rain", "wind")
        for template in load_pack("das4").texts
    )
    assert waves.references == (waves.prompt,) * 8
    assert texts.texts == [waves.prompt, dog.prompt, *waves.noisy, *dog.noisy]
    assert (texts.phrases, texts.templates) == (("rain", "wind"), load_pack("das4").texts)


def test_matched_references_are_the_templates_without_their_noise(rain_and_wind: str) -> None:
    settings = PromptSettings(pack=rain_and_wind, reference="matched")
    [dog] = compose(["dog"], settings).labels
    assert dog.references == ("dog", "dog", "the sound of dog", "a recording of dog") * 2


def test_without_noisy_texts_only_the_clean_prompts_are_composed() -> None:
    texts = compose(["dog", "rain"], noisy=False)
    assert texts.texts == ["the sound of dog", "the sound of rain"]
    assert not texts.phrases  # no pack is opened


def test_composing_texts_loads_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a pure function: the same arguments give equal values."""
    monkeypatch.setattr(
        "driftscore.system.plugins.find", lambda *_: pytest.fail("a plug-in was loaded")
    )
    assert compose(["dog"], PromptSettings()) == compose(["dog"])


def test_a_label_is_known_by_its_texts_and_the_direction_alone() -> None:
    one, two = (compose(labels).labels[0] for labels in (["sea waves"], ["Sea_Waves", "dog"]))
    assert one.digest("mean") == two.digest("mean")
    other = compose(["sea waves"], PromptSettings(reference="matched")).labels[0]
    digests = {one.digest("mean"), one.digest("svd"), other.digest("mean")}
    assert len(digests) == 3
