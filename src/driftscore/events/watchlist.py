"""A watch list: the labels to look for, and what is asked of each, in a small TOML file.

    not = ["traffic", "speech"]      # words that compete and are not reported
    false_alarms = 0.5               # per hour and label

    [[label]]
    name = "dog bark"
    wordings = ["barking dog"]       # other words for it; their scores are averaged
    not = ["fox call"]
    false_alarms = 0.2               # or threshold = 4.5
    min_duration_s = 0.5
    confirm = 2                      # while listening: events within a minute to report one
    cooldown_s = 600                 # while listening: at most one message in ten minutes
    clips = false                    # while listening: keep no audio of it

A list of labels on a command line is a watch list in which nothing else is asked for.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, field, to_builtins

from driftscore.errors import FormatError, UsageError
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
        wordings: other words for it; scores of all wordings are averaged.
        negatives: words that compete with this label only.
        threshold: the score above the background that an event must reach.
        false_alarms: false alarms per hour, if there is no threshold.
        min_duration_s: shorter events are rejected.
        confirm: events within a minute that it takes to report one, while listening.
        cooldown_s: notify at most once within so many seconds, while listening; None for what
            the list has.
        clips: whether audio of its events may be kept.

    """

    name: FilledText
    wordings: Annotated[tuple[FilledText, ...], Meta(max_length=50)] = ()
    negatives: _Words = field(name="not", default=())
    threshold: _Positive | None = None
    false_alarms: _Positive | None = None
    min_duration_s: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    confirm: Annotated[int, Meta(ge=1, le=100)] = 1
    cooldown_s: _Cooldown | None = None
    clips: bool = True

    @property
    def words(self) -> tuple[str, ...]:
        """The words whose scores make the score of the label."""
        return tuple(dict.fromkeys((self.name, *self.wordings)))


class WatchList(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The labels to look for, and the words that compete with them.

    Attributes:
        labels: what is reported.
        negatives: words that compete with every label and are not reported.
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
        labels: Iterable[str] | Mapping[str, Sequence[str]], negatives: Sequence[str] = ()
    ) -> "WatchList":
        """Return the watch list of some labels, or of a mapping of labels to other wordings.

        The negative word "none" means none at all.
        """
        words = tuple(word for word in negatives if word != NONE)
        wordings = (
            labels if isinstance(labels, Mapping) else dict.fromkeys(check_labels(labels), ())
        )
        watched = tuple(WatchedLabel(name, tuple(wordings[name])) for name in wordings)
        return WatchList(watched, words, background=NONE not in negatives)

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
        return watch

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
        seen = {words(name).lower() for name in self.texts}
        others: list[str] = []
        for word in (*self.negatives, *own, *built_in):
            if words(word).lower() not in seen:
                seen.add(words(word).lower())
                others.append(word)
        return tuple(others)

    @property
    def texts(self) -> tuple[str, ...]:
        """Every wording of every label, once."""
        return tuple(dict.fromkeys(word for label in self.labels for word in label.words))

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
