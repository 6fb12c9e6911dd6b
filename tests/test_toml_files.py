"""Packs, presets and grids with wrong values: the error names the key and what was expected."""

import json
import math
import os
import time
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftscore import FormatError
from driftscore.errors import DriftscoreError
from driftscore.lab.runs.grid import load_grid, shipped_grids
from driftscore.lab.runs.validation import check_values
from driftscore.text.packs import load_pack, pack_names
from driftscore.text.presets import PromptSettings, load_preset
from driftscore.text.prompts import compose

from .mutation import DAMAGE, FUZZ, Damage, damaged, replacements

VALUES: tuple[object, ...] = (
    True, 0, -1, 1.5, math.nan, math.inf, 10**400, "", " ", "words", "{c}", "{p}", "{x}", "{",
    "~nobody/x", "a" * 5000, [], [1], ["a", 2], [[]], {}, {"a": 1}, {"a": {"b": []}},
)  # fmt: skip

Use = Callable[[Path], object]


def use_pack(path: Path) -> object:
    pack = load_pack(path)
    if pack.kind == "phrases":
        return compose(["dog"], PromptSettings(pack=str(path)))
    return compose(["dog"], PromptSettings(templates=str(path), reference="matched"))


def toml(value: object) -> str:
    """Return a value as TOML; tables are written inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf"
    return json.dumps(value)


def document(content: object) -> str:
    if not isinstance(content, dict):
        return toml(content)
    return "\n".join(f"{json.dumps(key)} = {toml(value)}" for key, value in content.items())


def texts_of(kind: str) -> list[str]:
    """Return the files of a kind that come with driftscore."""
    if kind == "pack":
        home = files("driftscore.text") / "packs"
        return [(home / f"{name}.toml").read_text(encoding="utf-8") for name in pack_names()]
    if kind == "preset":
        text = (files("driftscore.text") / "presets.toml").read_text(encoding="utf-8")
        content = tomllib.loads(text)
        return [document({name: content[name]}) for name in content]
    home = files("driftscore.lab.runs") / "grids"
    return [(home / f"{name}.toml").read_text(encoding="utf-8") for name in shipped_grids()]


USES: dict[str, Use] = {
    "pack": use_pack,
    "preset": load_preset,
    # Values are checked, corpora are not looked for: that would take minutes.
    "grid": lambda path: [check_values(block) for block in load_grid(path).blocks],
}


def use_or_refuse(kind: str, path: Path) -> None:
    began = time.process_time()
    refused: DriftscoreError | None = None
    try:
        USES[kind](path)
    except DriftscoreError as error:
        refused = error
    if refused is not None:
        assert "\n" not in str(refused)
    assert time.process_time() - began < 10


@pytest.mark.parametrize("kind", sorted(USES))
def test_any_other_value_is_refused_or_has_a_meaning(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    for text in texts_of(kind)[-4:]:
        path.write_text(text, encoding="utf-8")
        if kind == "preset":
            USES[kind](path)
        for other in replacements(tomllib.loads(text), VALUES):
            path.write_text(document(other), encoding="utf-8")
            use_or_refuse(kind, path)


@pytest.mark.parametrize("kind", sorted(USES))
def test_a_damaged_file_is_refused_or_has_a_meaning(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"

    @FUZZ
    @given(changes=DAMAGE, text=st.sampled_from(texts_of(kind)))
    def fuzz(changes: list[Damage], text: str) -> None:
        path.write_bytes(damaged(text.encode(), changes))
        use_or_refuse(kind, path)

    fuzz()


@pytest.mark.parametrize("kind", sorted(USES))
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 100_000, "nested too deeply"),
        (".".join("a" * 400_000) + " = 1", "more than 32 parts"),
        ("[" + ".".join(['"a"'] * 200_000) + "]", "more than 32 parts"),
        ("# much\n" * 1_000_000, "this is another file"),
        ("a = " + "1" * 10_000, "not valid TOML"),
        ("a = 2026-13-45", "not valid TOML"),
        ("\0", "not valid TOML"),
    ],
)
def test_huge_and_deep_files_are_refused_soon(
    kind: str, text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(FormatError, match=message):
        USES[kind](path)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("kind", sorted(USES))
def test_what_is_no_text_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"title = '\xff'")
    with pytest.raises(FormatError, match="must be a UTF-8 text"):
        USES[kind](path)
    path.unlink()
    with pytest.raises(FormatError, match="There is no"):
        USES[kind](path)
    os.mkfifo(path)
    with pytest.raises(FormatError, match="not a regular file"):
        USES[kind](path)
    for name in ("a\0b.toml", f"{'x' * 5000}.toml"):
        with pytest.raises(FormatError, match=r"cannot be read|There is no"):
            USES[kind](Path(name))


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("pack", 'id = 3\nkind = "phrases"', "id must be a text, got a number 3"),
        ("pack", 'id = "x"\nkind = "phrases"\nphrase = 5', "phrase must be a list, got a number"),
        ("pack", 'id = "x"\nkind = "phrases"\nfrom = "das52"\ndrop = "a"', "drop must be a list"),
        ("pack", 'id = "x"\nkind = "phrases"\nfrom = 1', "from must be a text, got a number 1"),
        (
            "pack",
            'id = "x"\nkind = "templates"\n[[template]]\nid = "a"\ntext = "{c}"\nmatched = "{p}"',
            r"template 'a': The template '\{p\}' lacks its placeholder \{c\}",
        ),
        (
            "pack",
            'id = "x"\nkind = "templates"\n[[template]]\nid = "a"\ntext = "{c}"\nmatchd = "{c}"',
            r"template\[0\]: No key called 'matchd'; did you mean 'matched'",
        ),
        ("preset", "mine = 3", "mine must be a table, got a number 3"),
        ("preset", '[mine]\nrules = "x"', "mine.rules must be a table, got a text 'x'"),
        ("preset", "[mine.prompts]\nprompt = []", "mine.prompts: prompt must be a text"),
        ("preset", "[mine]\nstandardised = 1", "mine.standardised must be true or false"),
        ("grid", "block = 3", "block must be a list, got a number 3"),
        ("grid", "homes = 'x'", "homes must be a table, got a text 'x'"),
        ("grid", "snrs = [[1]]", "snrs must be a text, a number, or a list"),
        ("grid", "homes.a = '~nobody-here/x'", "homes must be folders"),
        ("grid", "[[block]]\nseeds = 2026-01-01", "seeds must be a text, a number"),
    ],
)
def test_the_key_and_what_was_expected_are_named(
    kind: str, text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(FormatError, match=message):
        USES[kind](path)


def test_a_pack_from_itself_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, base in (("a", "a"), ("b", "c"), ("c", "b"), ("d", "./d"), ("e", "das52")):
        base = base if base == "das52" else f"{base}.toml"
        Path(f"{name}.toml").write_text(f'id = "{name}"\nkind = "phrases"\nfrom = "{base}"\n')
    for name in ("a.toml", "b.toml", "d.toml", str(tmp_path / "a.toml")):
        with pytest.raises(FormatError, match="from must be another pack"):
            load_pack(name)
    assert load_pack("e.toml").texts == load_pack("das52").texts
