"""Packs: named lists of noise phrases or of sentence templates, in TOML files (packs/*.toml).

A file has an id, a kind ("phrases" or "templates"), a title, a provenance, and a table for each
entry with an id, a text and a provenance; or `from` another pack with `keep` or `drop`, lists of
entry ids. In a template {c} stands for the words of the label, {p} for a noise phrase and {P} for
the phrase capitalised.
"""

from collections import Counter
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from driftscore.errors import FormatError, UsageError, unknown
from driftscore.storage.checked import FilledText, Text, decode, parse
from driftscore.storage.files import is_file, read_text
from driftscore.text.presets import check_template

PackKind = Literal["phrases", "templates"]
_MAX_CHAIN = 8  # packs that are made from each other
_MAX_ENTRIES = 10_000


class PackEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One phrase or template of a pack."""

    id: FilledText
    text: FilledText
    provenance: Text = ""
    matched: FilledText | None = None
    """Templates only: the sentence without its noise part."""


class Pack(Struct, frozen=True):
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


class _PackFile(Struct, forbid_unknown_fields=True):
    """A pack as it is written in a file."""

    id: FilledText
    kind: PackKind
    title: Text = ""
    provenance: Text = ""
    base: FilledText | None = msgspec.field(name="from", default=None)
    keep: list[Text] | None = None
    drop: list[Text] = []
    phrase: Annotated[list[PackEntry], Meta(max_length=_MAX_ENTRIES)] = []
    template: Annotated[list[PackEntry], Meta(max_length=_MAX_ENTRIES)] = []


def pack_names() -> tuple[str, ...]:
    """Return the ids of the packs that come with driftscore."""
    home = files("driftscore.text") / "packs"
    return tuple(sorted(f.name.removesuffix(".toml") for f in home.iterdir() if f.is_file()))


def load_pack(
    name_or_path: str | Path, *, kind: PackKind | None = None, through: tuple[str, ...] = ()
) -> Pack:
    """Load a pack by its id, or a user's own by its path; `kind` says which kind is required.

    `through` are the files of packs that are made from it, which it must not be made from itself.
    """
    name = str(name_or_path)
    if name in pack_names():
        pack = _shipped_pack(name)
    elif name.endswith(".toml") or is_file(name):
        pack = _parse(read_text(Path(name), "pack"), name, through)
    else:
        raise unknown("pack", name, pack_names())
    if kind is not None and pack.kind != kind:
        raise UsageError(f"The pack {name} holds {pack.kind}; {kind} are needed here")
    return pack


@lru_cache(maxsize=32)
def _shipped_pack(name: str) -> Pack:
    written = (files("driftscore.text") / "packs" / f"{name}.toml").read_text(encoding="utf-8")
    return _parse(written, name)


def _parse(written: str, name: str, through: tuple[str, ...] = ()) -> Pack:
    where = f"The pack {name}"
    content = decode(parse(written, where=where), _PackFile, where=where)
    if content.base is None:
        written_entries = content.phrase if content.kind == "phrases" else content.template
        entries = [msgspec.structs.replace(e, text=e.text.strip()) for e in written_entries]
    else:
        chain = (*through, name)
        if content.base in chain or len(chain) > _MAX_CHAIN:
            raise FormatError(
                f"{where}: from must be another pack, got {content.base!r}, which leads back "
                f"to it or through more than {_MAX_CHAIN} packs"
            )
        base = load_pack(content.base, kind=content.kind, through=chain)
        ids = {entry.id for entry in base.entries}
        keep = ids if content.keep is None else set(content.keep)
        if strange := sorted((keep | set(content.drop)) - ids):
            raise FormatError(f"{where} names {strange[0]!r}, which {base.id} does not have")
        entries = [e for e in base.entries if e.id in keep - set(content.drop)]
    if not entries:
        raise FormatError(f"{where} is empty; add a [[{content.kind.removesuffix('s')}]] table")
    [(entry_id, count)] = Counter(entry.id for entry in entries).most_common(1)
    if count > 1:
        raise FormatError(f"{where} has the id {entry_id!r} twice")
    for entry in entries if content.kind == "templates" else ():
        try:
            check_template(entry.text, needs="", may="cp")
            if entry.matched is not None:
                check_template(entry.matched, needs="c")
        except UsageError as error:
            raise FormatError(f"{where}, template {entry.id!r}: {error}") from None
    title = content.title or content.id
    return Pack(content.id, content.kind, title, content.provenance, tuple(entries))
