"""Label -> words -> prompts: everything that a bank is made of, as plain text.

A label is what the user typed and what is reported; its *words* are what the model reads. In a
template {c} stands for the words of the label, {p} for a noise phrase and {P} for the phrase
capitalised. Phrases and templates come from packs (packs/*.toml): a TOML file with an id, a kind
("phrases" or "templates"), a title, a provenance, and a table for each entry with an id, a text and
a provenance; or `from` another pack with `keep` or `drop`, lists of entry ids.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from driftscore.errors import FormatError, UsageError, unknown
from driftscore.reading import is_file, read_text
from driftscore.schema import choice, filled_text, items, parse_toml, table, text
from driftscore.settings import PromptSettings

PackKind = Literal["phrases", "templates"]
_LONGEST_CHAIN = 8  # packs that are made from each other
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class PackEntry:
    """One phrase or template of a pack."""

    id: str
    text: str
    provenance: str
    matched: str | None = None
    """Templates only: the sentence without its noise part."""


@dataclass(frozen=True)
class Pack:
    """A named list of phrases or of templates."""

    id: str
    kind: PackKind
    title: str
    provenance: str
    entries: tuple[PackEntry, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The phrases or templates themselves, in order."""
        return tuple(entry.text for entry in self.entries)


@dataclass(frozen=True)
class LabelTexts:
    """The texts of one label: its clean prompt, and each noisy sentence with its reference."""

    label: str
    prompt: str
    noisy: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    """The sentence that each noisy one is compared with: the prompt, or a matched one."""

    def digest(self, direction: str) -> str:
        """Return a digest of everything that the statistics of the label depend on."""
        lists = [(self.prompt, direction), self.noisy, self.references]
        content = "\n".join(_NEXT.join(texts) for texts in lists)
        return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True)
class BankTexts:
    """Every text that a bank is made of, and where it came from."""

    labels: tuple[LabelTexts, ...]
    settings: PromptSettings
    phrases: tuple[str, ...]
    templates: tuple[str, ...]
    noisy: bool
    """Whether the noisy sentences were composed."""

    @property
    def names(self) -> tuple[str, ...]:
        """The labels as the user typed them."""
        return tuple(entry.label for entry in self.labels)

    @property
    def texts(self) -> list[str]:
        """Each text once: the clean prompts, the noisy sentences, their references."""
        noisy = (text for entry in self.labels for text in entry.noisy)
        references = (text for entry in self.labels for text in entry.references)
        prompts = (entry.prompt for entry in self.labels)
        return list(dict.fromkeys([*prompts, *noisy, *references]))


def words(label: str) -> str:
    """Return a label as the words that a model reads: `sea_waves`, `Sea-Waves` -> `sea waves`."""
    text = unicodedata.normalize("NFC", label).lower()
    text = re.sub(r"(?<=\w)-(?=\w)", " ", text).replace("_", " ")
    return " ".join(text.split())


def check_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the labels as typed (trimmed), or say what is wrong with them."""
    if isinstance(labels, str):
        raise UsageError(f"Labels are a list of names, not one string; did you mean {[labels]!r}?")
    typed = tuple(labels)
    if not typed:
        raise UsageError("No labels given; name the sounds to look for, e.g. 'dog bark, siren'")
    first: dict[str, str] = {}
    for label in typed:
        if not isinstance(label, str) or not words(label):
            raise UsageError(f"A label must be one or more words, got {label!r}")
        if any("\ud800" <= sign <= "\udfff" for sign in label):
            raise UsageError(f"A label must be valid Unicode, got {label!r}; is it UTF-8?")
        if (key := words(label)) in first:
            raise UsageError(
                f"The labels {first[key]!r} and {label!r} are the same words ({key!r}); keep one"
            )
        first[key] = label
    return tuple(str(label).strip() for label in typed)


def split_labels(text: str) -> tuple[str, ...]:
    """Split "dog bark, siren" at its commas."""
    return check_labels(part.strip() for part in text.split(",") if part.strip())


def read_labels(path: str | Path) -> tuple[str, ...]:
    """Read one label per line; empty lines and lines that begin with # are ignored."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"Cannot read the labels file {path}: {error}") from error
    kept = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not kept:
        raise UsageError(f"The labels file {path} names no label; write one per line")
    return check_labels(kept)


def fill(template: str, *, c: str = "", p: str = "") -> str:
    """Put the words of a label and a noise phrase into a template."""
    values = {"c": c, "p": p, "P": p[:1].upper() + p[1:]}
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


def check_template(template: str, *, needs: str, may: str = "") -> str:
    """Return a template if it has every placeholder in `needs` and none outside both sets."""
    found = set(_PLACEHOLDER.findall(template))
    if missing := [name for name in needs if name not in found and name.upper() not in found]:
        raise UsageError(
            f"The template {template!r} lacks its placeholder {{{missing[0]}}}; "
            "write it as in 'the sound of {c}'"
        )
    allowed = set(needs) | set(may) | {name.upper() for name in "p" if name in needs + may}
    if strange := sorted(found - allowed):
        raise UsageError(f"The template {template!r} has an unknown placeholder {{{strange[0]}}}")
    return template


def compose(
    labels: Iterable[str], settings: PromptSettings | None = None, *, noisy: bool = True
) -> BankTexts:
    """Return the texts of a bank; without `noisy` only the clean prompts."""
    settings = settings or PromptSettings()
    names = check_labels(labels)
    check_template(settings.prompt, needs="c")
    phrases = load_pack(settings.pack, kind="phrases").texts
    templates = load_pack(settings.templates, kind="templates").entries
    for template in templates:
        check_template(template.text, needs="cp")
        if settings.reference == "matched" and not template.matched:
            raise UsageError(
                f"The template {template.text!r} has no `matched` sentence, "
                'which reference="matched" needs'
            )
    entries = [
        _noisy_texts(name, phrases, templates, settings)
        if noisy
        else LabelTexts(name, fill(settings.prompt, c=words(name)))
        for name in names
    ]
    sentences = tuple(template.text for template in templates)
    return BankTexts(tuple(entries), settings, phrases, sentences, noisy)


def _noisy_texts(
    label: str, phrases: Sequence[str], templates: Sequence[PackEntry], settings: PromptSettings
) -> LabelTexts:
    """Return the texts of a label, phrase by phrase and within a phrase template by template."""
    name = words(label)
    kept = [p for p in phrases if not (settings.skip_same and words(p) == name)]
    if not kept:
        raise UsageError(f"Every phrase of the pack equals the label {name!r}; add other phrases")
    prompt = fill(settings.prompt, c=name)
    noisy = _filled(tuple(kept), tuple(t.text for t in templates), name)
    if settings.reference == "matched":
        matched = tuple(fill(t.matched or "", c=name) for t in templates)
        return LabelTexts(label, prompt, noisy, matched * len(kept))
    return LabelTexts(label, prompt, noisy, (prompt,) * len(noisy))


def _filled(phrases: tuple[str, ...], templates: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return every template with every phrase and the words of a label."""
    return tuple(_sentences(phrases, templates).replace(_NAME, name).split(_NEXT))


_NAME = "\0"  # stands for the words of the label


def texts_digest(texts: Iterable[str]) -> str:
    """Return the sha256 of some texts in their order."""
    content = _NEXT.join(texts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()


_NEXT = "\x1e"  # between two texts: white space, which the words of a label never contain


@lru_cache(maxsize=32)
def _sentences(phrases: tuple[str, ...], templates: tuple[str, ...]) -> str:
    """Return the sentences of any label, joined: filling in templates takes time."""
    return _NEXT.join(fill(t, c=_NAME, p=phrase) for phrase in phrases for t in templates)


def pack_names() -> tuple[str, ...]:
    """Return the ids of the packs that come with driftscore."""
    home = files("driftscore") / "packs"
    return tuple(sorted(f.name.removesuffix(".toml") for f in home.iterdir() if f.is_file()))


def load_pack(name_or_path: str | Path, *, kind: PackKind | None = None) -> Pack:
    """Load a pack by its id, or a user's own by its path; `kind` says which kind is required."""
    return _load(str(name_or_path), kind, ())


def _load(given: str, kind: PackKind | None, through: tuple[str, ...]) -> Pack:
    """Load a pack; `through` are the files of the packs that are made from it."""
    if given in pack_names():
        pack = _shipped_pack(given)
    elif given.endswith(".toml") or is_file(given):
        pack = _parse(read_text(Path(given), "pack"), where=given, through=through)
    else:
        raise unknown("pack", given, pack_names())
    if kind is not None and pack.kind != kind:
        raise UsageError(f"The pack {given} holds {pack.kind}; {kind} are needed here")
    return pack


@lru_cache(maxsize=32)
def _shipped_pack(name: str) -> Pack:
    written = (files("driftscore") / "packs" / f"{name}.toml").read_text(encoding="utf-8")
    return _parse(written, where=name)


_ENTRIES = items(
    table({"id": filled_text, "text": filled_text}, {"provenance": text, "matched": filled_text}),
    most=10_000,
)
_PACK = table(
    {"id": filled_text, "kind": choice("phrases", "templates")},
    {
        "title": text,
        "provenance": text,
        "from": filled_text,
        "keep": items(text, most=10_000),
        "drop": items(text, most=10_000),
        "phrase": _ENTRIES,
        "template": _ENTRIES,
    },
)


def _parse(written: str, *, where: str, through: tuple[str, ...] = ()) -> Pack:
    data: dict[str, Any] = parse_toml(written, _PACK, where=f"The pack {where}")
    kind: PackKind = data["kind"]
    entries = _derived(data, where, through) if "from" in data else _entries(data, kind)
    title, provenance = data.get("title", data["id"]), data.get("provenance", "")
    if not entries:
        raise FormatError(f"The pack {where} is empty; add a [[{kind.removesuffix('s')}]] table")
    _check_entries(entries, kind, where)
    return Pack(data["id"], kind, title, provenance, entries)


def _entries(data: dict[str, Any], kind: str) -> tuple[PackEntry, ...]:
    return tuple(
        PackEntry(e["id"], e["text"].strip(), e.get("provenance", ""), e.get("matched"))
        for e in data.get(kind.removesuffix("s"), [])
    )


def _derived(data: dict[str, Any], where: str, through: tuple[str, ...]) -> tuple[PackEntry, ...]:
    """Return the entries of a pack made from another one by `keep` or `drop`."""
    chain = (*through, where)
    if data["from"] in chain or len(chain) > _LONGEST_CHAIN:
        raise FormatError(
            f"The pack {where}: from must be another pack, got {data['from']!r}, which leads back "
            f"to it or through more than {_LONGEST_CHAIN} packs"
        )
    base = _load(data["from"], data["kind"], chain)
    known = {e.id for e in base.entries}
    keep, drop = data.get("keep", list(known)), data.get("drop", [])
    for entry_id in [*keep, *drop]:
        if entry_id not in known:
            raise FormatError(f"The pack {where} names {entry_id!r}, which {base.id} does not have")
    chosen = set(keep) - set(drop)
    return tuple(e for e in base.entries if e.id in chosen)


def _check_entries(entries: Sequence[PackEntry], kind: PackKind, where: str) -> None:
    """Refuse ids that occur twice, and templates with other placeholders than theirs."""
    ids: set[str] = set()
    for entry in entries:
        if entry.id in ids:
            raise FormatError(f"The pack {where} has the id {entry.id!r} twice")
        ids.add(entry.id)
        if kind == "phrases":
            continue
        try:
            check_template(entry.text, needs="", may="cp")
            if entry.matched is not None:
                check_template(entry.matched, needs="c")
        except UsageError as error:
            raise FormatError(f"The pack {where}, template {entry.id!r}: {error}") from None
