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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from driftscore.errors import FormatError, UsageError
from driftscore.prompts import check_labels, words
from driftscore.reading import read_text
from driftscore.schema import count, filled_text, flag, items, number, parse_toml, table

NONE = "none"
BACKGROUND = (
    "traffic", "wind", "rain", "crowd noise", "speech", "music", "engine hum", "running water",
    "white noise",
)  # fmt: skip
"""Words for what places sound like; they compete with every label that they do not resemble."""
_POSITIVE = number(1e-9, 1e9)
LONGEST_COOLDOWN_S = 604_800
_COOLDOWN = number(0, LONGEST_COOLDOWN_S)


def _confirm(value: object, key: str) -> None:
    """Accept a whole number from 1 to 100."""
    count(value, key)
    number(1, 100)(value, key)


_LABEL = table(
    {"name": filled_text},
    {
        "wordings": items(filled_text, most=50),
        "not": items(filled_text, most=100),
        "threshold": _POSITIVE,
        "false_alarms": _POSITIVE,
        "min_duration_s": number(0, 86_400),
        "confirm": _confirm,
        "cooldown_s": _COOLDOWN,
        "clips": flag,
    },
)
_FILE = table(
    {"label": items(_LABEL, fewest=1, most=1000)},
    {
        "not": items(filled_text, most=100),
        "background": flag,
        "false_alarms": _POSITIVE,
        "cooldown_s": _COOLDOWN,
    },
)


@dataclass(frozen=True)
class WatchedLabel:
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

    name: str
    wordings: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    threshold: float | None = None
    false_alarms: float | None = None
    min_duration_s: float | None = None
    confirm: int = 1
    cooldown_s: float | None = None
    clips: bool = True


@dataclass(frozen=True)
class WatchList:
    """The labels to look for, and the words that compete with them.

    Attributes:
        labels: what is reported.
        negatives: words that compete with every label and are not reported.
        background: whether the built-in words (`BACKGROUND`) compete as well.
        false_alarms: per hour and label, for labels that do not say; None for the default.
        cooldown_s: for labels that do not say: notify at most once within so many seconds.

    """

    labels: tuple[WatchedLabel, ...]
    negatives: tuple[str, ...] = ()
    background: bool = True
    false_alarms: float | None = None
    cooldown_s: float = 0.0
    names: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        names = check_labels([label.name for label in self.labels])
        object.__setattr__(self, "names", names)
        for label in self.labels:
            check_labels(_words(label))
        if self.competing:
            check_labels(self.competing)
        both = sorted(
            {words(name).lower() for name in names} & {words(w).lower() for w in self.negatives}
        )
        if both:
            raise UsageError(f"{both[0]!r} is both a label and a negative word; choose one")

    @staticmethod
    def of(labels: Iterable[str], negatives: Sequence[str] = ()) -> "WatchList":
        """Return the watch list of some labels; the negative word "none" means none at all."""
        words = tuple(word for word in negatives if word != NONE)
        watched = tuple(WatchedLabel(name) for name in labels)
        return WatchList(watched, words, background=NONE not in negatives)

    @staticmethod
    def load(path: str | PathLike[str]) -> "WatchList":
        """Read a watch list from a TOML file."""
        where = f"The watch list {Path(path)}"
        content: dict[str, Any] = parse_toml(
            read_text(Path(path), "watch list"), _FILE, where=where
        )
        try:
            return WatchList(
                tuple(map(_label, content["label"])),
                tuple(content.get("not", ())),
                bool(content.get("background", True)),
                content.get("false_alarms"),
                content.get("cooldown_s", 0.0),
            )
        except UsageError as error:
            raise FormatError(f"{where}: {error}") from error

    def to_toml(self) -> str:
        """Return the watch list as the text of a TOML file; defaults are left out."""
        lines = [f"not = {_written(self.negatives)}"] if self.negatives else []
        lines += [] if self.background else ["background = false"]
        lines += [] if self.false_alarms is None else [f"false_alarms = {self.false_alarms!r}"]
        lines += [f"cooldown_s = {self.cooldown_s!r}"] if self.cooldown_s else []
        for label in self.labels:
            lines += ["", "[[label]]", *_lines(label)]
        return "\n".join(lines).lstrip("\n") + "\n"

    @property
    def competing(self) -> tuple[str, ...]:
        """All negative words: those of the list, of its labels, and the built-in ones."""
        own = [word for label in self.labels for word in label.negatives]
        built_in = BACKGROUND if self.background else ()
        seen = {words(name).lower() for name in self.texts}
        found: list[str] = []
        for word in (*self.negatives, *own, *built_in):
            if words(word).lower() not in seen:
                seen.add(words(word).lower())
                found.append(word)
        return tuple(found)

    @property
    def texts(self) -> tuple[str, ...]:
        """Every wording of every label, once."""
        return tuple(dict.fromkeys(word for label in self.labels for word in _words(label)))

    def cooldown(self, name: str) -> float:
        """Return the seconds within which a label is notified of once."""
        own = next((label.cooldown_s for label in self.labels if label.name == name), None)
        return self.cooldown_s if own is None else own

    def wordings(self, label: WatchedLabel) -> tuple[str, ...]:
        """Return the words whose scores make the score of a label."""
        return _words(label)


def _words(label: WatchedLabel) -> tuple[str, ...]:
    return tuple(dict.fromkeys((label.name, *label.wordings)))


def _label(content: dict[str, Any]) -> WatchedLabel:
    if "threshold" in content and "false_alarms" in content:
        raise UsageError(
            f"{content['name']!r} has both a threshold and a number of false alarms; choose one"
        )
    given = dict(content)
    return WatchedLabel(
        given.pop("name"),
        tuple(given.pop("wordings", ())),
        tuple(given.pop("not", ())),
        **given,
    )


def _lines(label: WatchedLabel) -> list[str]:
    """Return the lines of a label in a TOML file."""
    default = WatchedLabel(label.name)
    values = {
        "name": label.name,
        "wordings": label.wordings,
        "not": label.negatives,
        "threshold": label.threshold,
        "false_alarms": label.false_alarms,
        "min_duration_s": label.min_duration_s,
        "confirm": None if label.confirm == default.confirm else label.confirm,
        "cooldown_s": label.cooldown_s,
        "clips": None if label.clips == default.clips else label.clips,
    }
    return [
        f"{key} = {_written(value)}" for key, value in values.items() if value not in (None, ())
    ]


def _written(value: str | bool | float | Sequence[str] | None) -> str:
    """Return a value as TOML has it; its texts have the escapes of JSON, and one more."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
