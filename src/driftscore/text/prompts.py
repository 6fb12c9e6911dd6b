"""Label -> words -> prompts: everything that a bank is made of, as plain text.

A label is what the user typed and what is reported; its *words* are what the model reads. Phrases
and templates come from packs (`packs.py`).
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from driftscore.errors import UsageError
from driftscore.text.packs import PackEntry, load_pack
from driftscore.text.presets import PromptSettings, check_template, fill

_NEXT = "\x1e"  # between two texts: white space, which the words of a label never contain


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
    phrases: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    """Those of the noisy sentences; empty if there are only clean prompts."""

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
    if isinstance(labels, Mapping):
        raise UsageError(
            "Labels are a list of names, not a mapping; several wordings of one label are a watch "
            "list of events: WatchList.of({'dog bark': ['barking dog']})"
        )
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
    labels = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not labels:
        raise UsageError(f"The labels file {path} names no label; write one per line")
    return check_labels(labels)


def compose(
    labels: Iterable[str], settings: PromptSettings | None = None, *, noisy: bool = True
) -> BankTexts:
    """Return the texts of a bank; without `noisy` only the clean prompts.

    Noisy sentences are ordered phrase by phrase, and within a phrase template by template.
    """
    settings = settings or PromptSettings()
    phrases: tuple[str, ...] = ()
    templates: tuple[PackEntry, ...] = ()
    matched = settings.reference == "matched"
    if noisy:
        phrases = load_pack(settings.pack, kind="phrases").texts
        templates = load_pack(settings.templates, kind="templates").entries
    for template in templates:
        check_template(template.text, needs="cp")
        if matched and not template.matched:
            raise UsageError(
                f"The template {template.text!r} has no `matched` sentence, "
                'which reference="matched" needs'
            )
    entries = []
    for label in check_labels(labels):
        name = words(label)
        prompt = fill(settings.prompt, c=name)
        others = [p for p in phrases if not settings.skip_same or words(p) != name]
        if noisy and not others:
            raise UsageError(
                f"Every phrase of the pack equals the label {name!r}; add other phrases"
            )
        sentences = tuple(fill(t.text, c=name, p=p) for p in others for t in templates)
        references = (prompt,) * len(sentences)
        if matched:
            references = tuple(fill(t.matched or "", c=name) for t in templates) * len(others)
        entries.append(LabelTexts(label, prompt, sentences, references))
    return BankTexts(tuple(entries), settings, phrases, tuple(t.text for t in templates))


def texts_digest(texts: Iterable[str]) -> str:
    """Return the sha256 of some texts in their order."""
    content = _NEXT.join(texts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()
