"""Heads per label set: compiled once, the most recently used ones are kept.

What a head is made of is a `HeadSpec`, a value that says everything. The id of a head is that value
itself, packed: it can be resolved after a restart and after the head was dropped, and the service
has nothing to store. A spec holds names and numbers only. Rules, presets and packs are those that
are installed here, by name; settings that would be opened as a file are refused.
"""

import base64
import json
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from threading import Lock
from typing import Generic, Literal, TypeVar, cast

from driftscore.audit import DecidedBy
from driftscore.classifier import Classifier
from driftscore.detector import Detector
from driftscore.embedder import Embedder
from driftscore.errors import UsageError, unknown
from driftscore.events import Detection
from driftscore.head import Head
from driftscore.prompts import check_labels, pack_names
from driftscore.rules import Needs, Rule, find_rule, rule_names
from driftscore.service.settings import Limits
from driftscore.settings import AUTO, DEFAULT_PRESET, load_preset, preset_names
from driftscore.watchlist import WatchList

Key = TypeVar("Key")
Made = TypeVar("Made")

RuleValue = float | int | bool | str
_WORDS = ("auto", "per-class")
"""Settings in words that rules know; every other one has to be the id of a pack."""
_GIVEN = Needs.NOISE | Needs.POOL | Needs.BACKGROUND
"""Rules that need embeddings of recordings cannot be asked for in a request."""
_MOST_SETTINGS = 16
LONGEST_ID = 16_000
"""Characters of an id: 100 labels of a few words take about 1,000."""
ID_PATTERN = "^[A-Za-z0-9_-]+$"


@dataclass(frozen=True)
class HeadSpec:
    """Everything that a head depends on besides the model."""

    labels: tuple[str, ...]
    rule: str = AUTO
    settings: tuple[tuple[str, RuleValue], ...] = ()
    preset: str = DEFAULT_PRESET
    prompt: str = ""
    """The clean prompt, with {c} in it; empty for that of the preset."""
    raw: bool = False

    def checked(self, limits: Limits) -> "HeadSpec":
        """Return the spec with trimmed labels, or say what is wrong with it."""
        if len(self.labels) > limits.labels:
            raise UsageError(f"At most {limits.labels} labels are allowed, got {len(self.labels)}")
        for text in (*self.labels, self.prompt):
            if len(text) > limits.label_chars:
                raise UsageError(
                    f"A label or prompt may have {limits.label_chars} characters, got {len(text)}: "
                    f"{text[:40]!r}..."
                )
            if not _is_text(text):
                raise UsageError(f"A label or prompt must be text, got {text[:40]!r}")
        if self.rule != AUTO:
            check_rule(self.rule)
        if self.preset not in preset_names():
            raise unknown("preset", self.preset, preset_names())
        _check_settings(dict(self.settings))
        return HeadSpec(
            check_labels(self.labels), self.rule, self.settings, self.preset, self.prompt, self.raw
        )

    @property
    def id(self) -> str:
        """The spec as a text that can be part of a URL."""
        values = {k: v for k, v in asdict(self).items() if v != _DEFAULTS.get(k)}
        packed = zlib.compress(json.dumps(values, ensure_ascii=False, sort_keys=True).encode(), 9)
        return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()

    @staticmethod
    def of_id(text: str) -> "HeadSpec":
        """Return the spec that an id stands for; it is not checked yet."""
        try:
            if len(text) > LONGEST_ID:
                raise ValueError("too long")
            packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            opened = zlib.decompressobj()
            values = json.loads(opened.decompress(packed, 4 * LONGEST_ID).decode())
            if not opened.eof:
                raise ValueError("incomplete")
            return _spec_of(values)
        except (LookupError, RecursionError, TypeError, ValueError, zlib.error) as error:
            raise UnknownHeadError(f"No head has the id {text[:40]!r}") from error


_DEFAULTS: Mapping[str, object] = {
    "rule": AUTO,
    "settings": (),
    "preset": DEFAULT_PRESET,
    "prompt": "",
    "raw": False,
}


PROBE = HeadSpec(("a sound", "another sound"))
"""A head that costs little: it warms the model up, and says which rule "auto" is."""


class UnknownHeadError(UsageError):
    """An id that no head has."""


def _spec_of(values: Mapping[str, object]) -> HeadSpec:
    """Return the spec of unpacked values; another form is an error."""
    unpacked = dict(values)
    labels = cast(list[str], unpacked.pop("labels"))
    pairs = cast(list[tuple[str, RuleValue]], unpacked.pop("settings", []))
    settings = tuple((str(name), value) for name, value in pairs)
    names = {name: unpacked.pop(name, _DEFAULTS[name]) for name in ("rule", "preset", "prompt")}
    raw = unpacked.pop("raw", False)
    texts = [*labels, *names.values()]
    right = isinstance(labels, list) and all(isinstance(text, str) for text in texts)
    if unpacked or not right or not isinstance(raw, bool):
        raise ValueError("not a head")
    return HeadSpec(tuple(labels), settings=settings, raw=raw, **cast(dict[str, str], names))


def servable_rules() -> list[Rule]:
    """Return the rules that need no recordings besides the one that is classified."""
    rules = [find_rule(name) for name in rule_names()]
    return [rule for rule in rules if not rule.needs & _GIVEN]


def check_rule(name: str) -> Rule:
    """Return a rule by its name; "module:function" is refused: it would import the module."""
    if name not in rule_names():
        raise unknown("rule", name, [AUTO, *(rule.name for rule in servable_rules())])
    rule = find_rule(name)
    if rule.needs & _GIVEN:
        raise UsageError(
            f"The rule {name!r} needs embeddings of further recordings, which a request cannot "
            "give; use the command `driftscore classify`"
        )
    return rule


def _check_settings(settings: Mapping[str, object]) -> None:
    """Refuse settings that are neither numbers nor words that are known."""
    if len(settings) > _MOST_SETTINGS:
        raise UsageError(f"At most {_MOST_SETTINGS} settings are allowed, got {len(settings)}")
    known = (*_WORDS, *pack_names())
    for name, value in settings.items():
        if isinstance(value, str) and not _is_number(value) and value not in known:
            raise unknown(f"value of the setting {name[:40]!r}", value[:40], known)
        if not isinstance(value, (str, int, float)):
            raise UsageError(f"The setting {name[:40]!r} must be a number or a word")


def _is_text(text: str) -> bool:
    """Return whether a text can be encoded; half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class CompiledHead:
    """A head with the rule that made it, and why this rule."""

    id: str
    head: Head
    rule: str
    why: str
    decided_by: DecidedBy

    @property
    def unit(self) -> str:
        """The unit of its scores: "sd", or "raw"."""
        return "sd" if self.head.standardised else "raw"


class _Latest(Generic[Key, Made]):
    """The most recently used values; each is made once, however many threads ask for it."""

    def __init__(self, make: Callable[[Key], Made], size: int) -> None:
        self._make = make
        self._size = size
        self._made: OrderedDict[Key, Future[Made]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._made)

    def get(self, key: Key) -> Made:
        """Return a value; make it if it is not there. One that cannot be made is not kept."""
        with self._lock:
            found = self._made.get(key)
            entry = self._made[key] = found or Future()
            self._made.move_to_end(key)
            while len(self._made) > self._size:
                self._made.popitem(last=False)
        if found is None:
            try:
                entry.set_result(self._make(key))
            except BaseException as error:
                with self._lock:
                    self._made.pop(key, None)
                entry.set_exception(error)
        return entry.result()


class HeadCache:
    """The most recently used heads and detectors of events."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        size: int,
        calibration: str | None = None,
        texts: int = Limits.texts,
    ) -> None:
        self.embedder = embedder
        self.texts = texts
        self.calibration: str | Literal[False] | None = (
            False if calibration == "none" else calibration
        )
        self._heads = _Latest(self._compile, size)
        self._detectors = _Latest(self._detector, size)

    def __len__(self) -> int:
        return len(self._heads)

    def get(self, spec: HeadSpec) -> CompiledHead:
        """Return the head of a checked spec."""
        return self._heads.get(spec)

    def detector(self, spec: HeadSpec, settings: Detection) -> Detector:
        """Return the detector of the events of a checked spec: that of `driftscore classify`."""
        return self._detectors.get((spec, settings))

    def _compile(self, spec: HeadSpec) -> CompiledHead:
        self._check_texts(spec)
        # A threshold, since without one a single label would be refused.
        classifier = self._classifier(spec, spec.rule).set_params(threshold=0.0).fit()
        by = DecidedBy.of(classifier)
        return CompiledHead(spec.id, by.head, classifier.rule_.name, classifier.why_, by)

    def _detector(self, key: tuple[HeadSpec, Detection]) -> Detector:
        spec, settings = key
        watch = WatchList.of(spec.labels)
        self._check_texts(replace(spec, labels=(*watch.texts, *watch.competing)))
        return self._classifier(spec, spec.rule).detector(watch, settings)

    def _check_texts(self, spec: HeadSpec) -> None:
        """Refuse a head that would keep a core busy for long: texts are most of its cost."""
        rule = load_preset(spec.preset).rule if spec.rule == AUTO else spec.rule
        if rule == AUTO and spec != PROBE:
            rule = self.get(PROBE).rule
        count = len(self._classifier(spec, rule).texts())
        if count > self.texts:
            raise UsageError(
                f"{len(spec.labels)} labels with the rule {rule!r} need {count} texts, and "
                f"{self.texts} are allowed; use fewer labels, or a rule without noisy prompts"
            )

    def _classifier(self, spec: HeadSpec, rule: str) -> Classifier:
        settings: dict[str, object] = dict(spec.settings)
        if spec.raw:
            settings["standardised"] = False
        prompts = load_preset(spec.preset).prompts
        return Classifier(
            spec.labels,
            backbone=self.embedder,
            rule=rule,
            settings=settings,
            prompts=prompts.changed(prompt=spec.prompt or None),
            preset=spec.preset,
            calibration=self.calibration,
            progress=False,
        )
