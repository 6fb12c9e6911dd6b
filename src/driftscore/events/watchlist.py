"""A watch list: the labels to look for, and what is asked of each, in a small TOML file.

    not = ["traffic", "speech"]      # words that compete and are not reported
    false_alarms = 0.5               # per hour and label

    [[label]]
    name = "dog bark"
    wordings = ["barking dog"]       # words for it in place of the name; scores are averaged
    examples = ["rex*.wav"]          # recordings of it: see `driftscore.scoring.examples`
    not = ["fox call", "fox.wav"]    # words that compete with it, recordings of what it is not
    false_alarms = 0.2               # or threshold = 4.5
    min_duration_s = 0.5
    confirm = 2                      # while listening: events within a minute to report one
    cooldown_s = 600                 # while listening: at most one message in ten minutes
    clips = false                    # while listening: keep no audio of it

A list of labels on a command line is a watch list in which nothing else is asked for. With
`wordings = []` a label has no words, and its examples alone say what it is. Names of recordings are
relative to the file of the list.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, field, to_builtins
from msgspec.structs import replace

from driftscore.audio.recordings import expand
from driftscore.engines.examples import names_recordings
from driftscore.errors import FormatError, UsageError, unknown
from driftscore.scoring.examples import NOT
from driftscore.storage.checked import FilledText, decode, parse
from driftscore.storage.files import read_text
from driftscore.text.prompts import check_labels, words

NONE = "none"
BACKGROUND = (
    "traffic", "wind", "rain", "crowd noise", "speech", "music", "engine hum", "running water",
    "white noise",
)  # fmt: skip
"""Words for what places sound like; they compete with every label that they do not resemble."""
MAX_COOLDOWN_S = 604_800
_Words = Annotated[tuple[FilledText, ...], Meta(max_length=100)]
_Positive = Annotated[float, Meta(ge=1e-9, le=1e9)]
_Cooldown = Annotated[float, Meta(ge=0, le=MAX_COOLDOWN_S)]


class WatchedLabel(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A label, and what is asked of its events.

    Attributes:
        name: the label as it is reported.
        wordings: words for it, in place of its name; scores of all wordings are averaged. None:
            its name. Empty: it has no words, only examples.
        negatives: words that compete with this label only, and recordings of what it is not.
        threshold: the score above the background that an event must reach.
        false_alarms: false alarms per hour, if there is no threshold.
        min_duration_s: shorter events are rejected.
        confirm: events within a minute that it takes to report one, while listening.
        cooldown_s: notify at most once within so many seconds, while listening; None for what
            the list has.
        clips: whether audio of its events may be kept.
        examples: recordings of it: files, patterns and folders.

    """

    name: FilledText
    wordings: Annotated[tuple[FilledText, ...], Meta(max_length=50)] | None = None
    negatives: _Words = field(name="not", default=())
    threshold: _Positive | None = None
    false_alarms: _Positive | None = None
    min_duration_s: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    confirm: Annotated[int, Meta(ge=1, le=100)] = 1
    cooldown_s: _Cooldown | None = None
    clips: bool = True
    examples: Annotated[tuple[FilledText, ...], Meta(max_length=1000)] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The words whose scores make the score of the label; its name if it has none."""
        return tuple(dict.fromkeys(self.wordings or (self.name.strip(),)))


class WatchList(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The labels to look for, and the words that compete with them.

    Attributes:
        labels: what is reported.
        negatives: words that compete with every label and are not reported, and recordings of what
            no label means.
        background: whether the built-in words (`BACKGROUND`) compete as well.
        false_alarms: per hour and label, for labels that do not say; None for the default.
        cooldown_s: for labels that do not say: notify at most once within so many seconds.

    """

    labels: Annotated[tuple[WatchedLabel, ...], Meta(min_length=1, max_length=1000)] = field(
        name="label"
    )
    negatives: _Words = field(name="not", default=())
    background: bool = True
    false_alarms: _Positive | None = None
    cooldown_s: _Cooldown = 0.0

    def __post_init__(self) -> None:
        names = check_labels([label.name for label in self.labels])
        for label in self.labels:
            check_labels(label.words)
        if self.competing:
            check_labels(self.competing)
        both = sorted(
            {words(name).lower() for name in names} & {words(w).lower() for w in self.negatives}
        )
        if both:
            raise UsageError(f"{both[0]!r} is both a label and a negative word; choose one")

    @property
    def names(self) -> tuple[str, ...]:
        """The labels as they are reported."""
        return tuple(label.name.strip() for label in self.labels)

    @staticmethod
    def of(
        labels: Iterable[str] | Mapping[str, Sequence[str]],
        negatives: Sequence[str] = (),
        examples: Mapping[str, Sequence[str]] | None = None,
    ) -> "WatchList":
        """Return the watch list of some labels, or of a mapping of labels to their wordings.

        The negative word "none" means none at all. `examples` are recordings by label; a label that
        is new has no words. Those of "not" are recordings of what no label means.
        """
        words = tuple(word for word in negatives if word != NONE)
        wordings: Mapping[str, Sequence[str]]
        if isinstance(labels, Mapping):
            wordings = labels
        else:
            names = tuple(labels)
            wordings = {} if examples and not names else dict.fromkeys(check_labels(names), ())
        watched = [WatchedLabel(name, tuple(wordings[name]) or None) for name in wordings]
        files = examples or {}
        watched += [WatchedLabel(name, ()) for name in files if name not in (*wordings, NOT)]
        return WatchList(tuple(watched), words, NONE not in negatives).with_examples(files)

    @staticmethod
    def load(path: str | PathLike[str]) -> "WatchList":
        """Read a watch list from a TOML file."""
        where = f"The watch list {Path(path)}"
        written = read_text(Path(path), "watch list")
        try:
            watch = decode(parse(written, where=where), WatchList, where=where)
        except UsageError as error:
            raise FormatError(f"{where}: {error}") from error
        for label in watch.labels:
            if label.threshold is not None and label.false_alarms is not None:
                raise FormatError(
                    f"{where}: {label.name!r} has both a threshold and a number of false alarms; "
                    "choose one"
                )
            if label.wordings == () and not label.examples:
                raise FormatError(f"{where}: {label.name!r} has neither words nor examples")
        return watch.beside(Path(path).parent)

    def beside(self, folder: Path) -> "WatchList":
        """Return the list with the names of its recordings relative to a folder."""

        def located(texts: tuple[str, ...], *, only: bool = False) -> tuple[str, ...]:
            return tuple(
                str(folder / text) + "/" * text.endswith("/")
                if only or names_recordings(text) else text for text in texts
            )  # fmt: skip

        labels = tuple(
            replace(label, examples=located(label.examples, only=True),
                    negatives=located(label.negatives))
            for label in self.labels
        )  # fmt: skip
        return replace(self, labels=labels, negatives=located(self.negatives))

    def example_files(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Return the recordings of labels and those of what they are not, by label.

        Those of what no label means are under "not".
        """
        own = {label.name: expand(label.examples) for label in self.labels if label.examples}
        lists = [(NOT, self.negatives), *((label.name, label.negatives) for label in self.labels)]
        files = {name: [text for text in texts if names_recordings(text)] for name, texts in lists}
        return own, {name: expand(texts) for name, texts in files.items() if texts}

    def with_examples(self, files: Mapping[str, Sequence[str]]) -> "WatchList":
        """Return the list with further examples of its labels."""
        for name in files:
            if name not in (*self.names, NOT):
                raise unknown("label with examples", name, self.names)
        labels = tuple(
            replace(label, examples=(*label.examples, *files.get(label.name, ())))
            for label in self.labels
        )
        return replace(self, labels=labels, negatives=(*self.negatives, *files.get(NOT, ())))

    def without_words(self, names: Collection[str]) -> "WatchList":
        """Return the list in which labels of these names are known by their examples alone."""
        labels = tuple(
            replace(label, wordings=()) if label.name in names else label for label in self.labels
        )
        return replace(self, labels=labels)

    def to_toml(self) -> str:
        """Return the watch list as the text of a TOML file; defaults are left out."""
        content = to_builtins(self)
        labels = content.pop("label")
        lines = _lines(content)
        for label in labels:
            lines += ["", "[[label]]", *_lines(label)]
        return "\n".join(lines).lstrip("\n") + "\n"

    @property
    def competing(self) -> tuple[str, ...]:
        """All negative words: those of the list, of its labels, and the built-in ones."""
        own = [word for label in self.labels for word in label.negatives]
        built_in = BACKGROUND if self.background else ()
        seen = {words(word).lower() for label in self.labels for word in label.words}
        others: list[str] = []
        for word in (*self.negatives, *own, *built_in):
            if words(word).lower() not in seen and not names_recordings(word):
                seen.add(words(word).lower())
                others.append(word)
        return tuple(others)

    @property
    def texts(self) -> tuple[str, ...]:
        """Every wording of every label that has words, once."""
        with_words = [label for label in self.labels if label.wordings != ()]
        return tuple(dict.fromkeys(word for label in with_words for word in label.words))

    def cooldown(self, name: str) -> float:
        """Return the seconds within which a label is notified of once."""
        own = next((label.cooldown_s for label in self.labels if label.name == name), None)
        return self.cooldown_s if own is None else own


def _lines(table: Mapping[str, object]) -> list[str]:
    """Return a table as lines of TOML; its texts have the escapes of JSON, and one more."""
    return [
        f"{key} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f")
        for key, value in table.items()
    ]
