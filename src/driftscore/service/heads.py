"""Heads per label set: compiled once, the most recently used ones are kept.

What a head is made of is a `HeadSpec`, a value that says everything. The id of a head is that value
itself, packed: it can be resolved after a restart and after the head was dropped, and the service
has nothing to store. A spec holds names and numbers only. Rules, presets and packs are those that
are installed here, by name; settings that would be opened as a file are refused.

Examples are uploaded, and only their embeddings are kept, in memory. A spec names them by keys that
nobody can guess or compute, so the examples of one client change no other client's labels. An id
with examples is valid for as long as the service has them.
"""

import base64
import hashlib
import secrets
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from driftscore.classifier import Classifier
from driftscore.decisions import Decider
from driftscore.detector import Detector
from driftscore.embedder import Embedder
from driftscore.engines.examples import embed_examples, names_recordings
from driftscore.errors import AudioError, UsageError, unknown
from driftscore.events.tracking import Detection
from driftscore.scoring.examples import NOT, Example, Examples
from driftscore.scoring.head import Head
from driftscore.scoring.meaning import in_one_sentence
from driftscore.scoring.rules import Needs, Rule, find_rule, rule_names
from driftscore.service import uploads
from driftscore.service.memory import MemoryStore
from driftscore.service.settings import Limits, ServiceSettings
from driftscore.text.packs import pack_names
from driftscore.text.presets import AUTO, DEFAULT_PRESET, load_preset, preset_names
from driftscore.text.prompts import check_labels

Key = TypeVar("Key")
Value = TypeVar("Value")

RuleValue = float | int | bool | str
_WORDS = ("refined", "aligned", "by_label", "text")
"""Settings in words that rules know; every other one has to be the id of a pack."""
_RECORDINGS = Needs.NOISE | Needs.POOL | Needs.BACKGROUND
"""Rules that need embeddings of recordings cannot be asked for in a request."""
_MAX_SETTINGS = 16
MAX_ID_CHARS = 16_000
"""Characters of an id: 100 labels of a few words take about 1,000."""
ID_PATTERN = "^[A-Za-z0-9_-]+$"


class HeadSpec(BaseModel):
    """Everything that a head depends on besides the model."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    labels: tuple[str, ...]
    """The labels with words."""
    examples: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Keys of examples by label; one that is not in `labels` is known by its examples alone."""
    rule: str = AUTO
    settings: tuple[tuple[str, RuleValue], ...] = ()
    preset: str = DEFAULT_PRESET
    prompt: str = ""
    """The clean prompt, with {c} in it; empty for that of the preset."""
    raw: bool = False
    one_by_one: bool = False
    """Whether each label is judged by itself, in standard deviations if the model allows it."""

    def checked(self, limits: Limits) -> "HeadSpec":
        """Return the spec with trimmed labels, or say what is wrong with it."""
        listed = (*self.labels, NOT)
        names = (*self.labels, *(name for name, _ in self.examples if name not in listed))
        if len(names) > limits.labels:
            raise UsageError(f"At most {limits.labels} labels are allowed, got {len(names)}")
        if (count := sum(len(keys) for _, keys in self.examples)) > limits.inputs:
            raise UsageError(f"At most {limits.inputs} examples are allowed, got {count}")
        for text in (*names, self.prompt):
            if names_recordings(text):  # whether there is such a file is nobody's business
                raise UsageError(
                    f"{text[:40]!r} is the name of files; labels are words, and the files are sent "
                    "as examples"
                )
            if len(text) > limits.label_chars:
                raise UsageError(
                    f"A label or prompt may have {limits.label_chars} characters, got {len(text)}: "
                    f"{text[:40]!r}..."
                )
        if self.rule not in (AUTO, *rule_names()):  # module:function would import the module
            raise unknown("rule", self.rule, [AUTO, *(rule.name for rule in servable_rules())])
        if self.rule != AUTO and find_rule(self.rule).needs & _RECORDINGS:
            raise UsageError(
                f"The rule {self.rule!r} needs embeddings of further recordings, which a request "
                "cannot give; use the command `driftscore classify`"
            )
        if self.preset not in preset_names():
            raise unknown("preset", self.preset, preset_names())
        if len(self.settings) > _MAX_SETTINGS:
            raise UsageError(
                f"At most {_MAX_SETTINGS} settings are allowed, got {len(self.settings)}"
            )
        words = (*_WORDS, *pack_names())
        for name, value in self.settings:
            if isinstance(value, str) and value not in words:
                try:
                    float(value)
                except ValueError:
                    about = f"value of the setting {name[:40]!r}"
                    raise unknown(about, value[:40], words) from None
        return self.model_copy(update={"labels": check_labels(names)[: len(self.labels)]})

    @property
    def id(self) -> str:
        """The spec as a text that can be part of a URL."""
        packed = zlib.compress(self.model_dump_json(exclude_defaults=True).encode(), 9)
        return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()

    @staticmethod
    def of_id(text: str) -> "HeadSpec":
        """Return the spec that an id stands for; it is not checked yet."""
        try:
            if len(text) > MAX_ID_CHARS:
                raise ValueError("too long")
            packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            opened = zlib.decompressobj()
            values = opened.decompress(packed, 4 * MAX_ID_CHARS)
            if not opened.eof:
                raise ValueError("incomplete")
            return HeadSpec.model_validate_json(values)
        except (RecursionError, ValueError, zlib.error) as error:
            raise HTTPException(404, f"No head has the id {text[:40]!r}") from error


PROBE = HeadSpec(labels=("siren", "rain"))
"""A head that costs little: it warms the model up, and says which rule "auto" is."""


def servable_rules() -> list[Rule]:
    """Return the rules that need no recordings besides the one that is classified."""
    rules = [find_rule(name) for name in rule_names()]
    return [rule for rule in rules if not rule.needs & _RECORDINGS]


class HeadSummary(BaseModel):
    """A compiled head without its numbers."""

    id: str
    labels: list[str]
    rule: str
    why: str = Field(description="Why this rule was chosen.")
    unit: str
    dim: int
    backbone: str
    fingerprint: str = Field(description="Of the model; heads of other models cannot be used.")
    unclear: str = Field(description="Labels that the model does not understand, in a sentence.")
    unlike: list[str] = Field(description="Examples that do not resemble the others, in words.")


@dataclass(frozen=True, eq=False)
class CompiledHead:
    """A head, what is said of it, and what decides by it in an audit."""

    head: Head
    summary: HeadSummary
    decider: Decider
    unclear: Mapping[str, str]
    """A sentence for each label that the model does not understand."""


class HeadCache:
    """The most recently used heads and detectors; each is made once, however many threads ask."""

    def __init__(self, embedder: Embedder, settings: ServiceSettings) -> None:
        self.embedder = embedder
        self.settings = settings
        self.examples = MemoryStore[Example](
            "example", max_count=4096, max_bytes=64_000_000, expiry_s=24 * 3600.0
        )
        self._secret = secrets.token_bytes(32)
        self._heads: OrderedDict[HeadSpec, Future[CompiledHead]] = OrderedDict()
        self._detectors: OrderedDict[tuple[HeadSpec, Detection], Future[Detector]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._heads)

    def learn(
        self, files: Iterable[tuple[str, str, bytes]]
    ) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Embed examples (label, name, content), and return what a spec says of them."""
        keys: dict[str, list[str]] = {}
        new: dict[str, tuple[str, bytes]] = {}
        for label, name, content in files:
            secret = hashlib.blake2b(content, key=self._secret, digest_size=16)
            secret.update(name.encode("utf-8", "replace"))  # it is shown to whoever sent it
            key = secret.hexdigest()
            keys.setdefault(label.strip(), []).append(key)
            if key not in self.examples:
                new[key] = name, content
        recordings = uploads.decode_several(new.values(), rate=None, limits=self.settings.limits)
        for (key, (name, content)), audio in zip(new.items(), recordings, strict=True):
            try:
                [example] = embed_examples(self.embedder.embed, [audio])
            except AudioError as error:
                raise AudioError(str(error).replace("<audio>", name)) from error
            example = replace(example, name=name, sha256=hashlib.sha256(content).hexdigest())
            self.examples.add(example, example.embedding.nbytes, key)
        return tuple((label, tuple(dict.fromkeys(of_label))) for label, of_label in keys.items())

    def get(self, spec: HeadSpec) -> CompiledHead:
        """Return the head of a spec that is within the limits, or of `PROBE`."""
        spec = spec if spec is PROBE else spec.checked(self.settings.limits)

        def compile() -> CompiledHead:
            classifier = self._classifier(spec)
            head, model = classifier.head_, self.embedder.backbone
            summary = HeadSummary(
                id=spec.id,
                labels=list(head.labels),
                rule=classifier.rule_.name,
                why=classifier.why_,
                unit=head.unit,
                dim=head.dim,
                backbone=model.name,
                fingerprint=model.fingerprint,
                unclear=in_one_sentence(classifier.unclear_, model),
                unlike=classifier.examples_.unlike(classifier.calibration_),
            )
            return CompiledHead(head, summary, Decider.of(classifier), classifier.unclear_)

        return self._once(self._heads, spec, compile)

    def detector(self, spec: HeadSpec, settings: Detection) -> Detector:
        """Return the detector of the events of a spec: that of `driftscore detect`."""
        spec = spec.checked(self.settings.limits)

        def make() -> Detector:
            return self._classifier(spec).detector(settings=settings)

        return self._once(self._detectors, (spec, settings), make)

    def _once(
        self, entries: OrderedDict[Key, Future[Value]], key: Key, make: Callable[[], Value]
    ) -> Value:
        """Return the value of a key; make it if it is new. One that cannot be made is not kept."""
        with self._lock:
            is_new = key not in entries
            entry = entries.setdefault(key, Future())
            entries.move_to_end(key)
            while len(entries) > self.settings.heads:
                entries.popitem(last=False)
        if is_new:
            try:
                entry.set_result(make())
            except BaseException as error:
                with self._lock:
                    entries.pop(key, None)
                entry.set_exception(error)
        return entry.result()

    def _classifier(self, spec: HeadSpec) -> Classifier:
        """Return a fitted classifier; one that would take a core for long with texts is refused."""
        preset, calibration = load_preset(spec.preset), self.settings.calibration
        rule = preset.rule if spec.rule == AUTO else spec.rule
        if rule == AUTO and spec != PROBE:
            rule = self.get(PROBE).summary.rule
        classifier = Classifier(
            spec.labels,
            backbone=self.embedder,
            rule=rule,
            settings=dict(spec.settings),
            prompts=preset.prompts.changed(prompt=spec.prompt or None),
            preset=spec.preset,
            standardised=False if spec.raw else None,
            threshold=0.0 if spec.one_by_one else None,
            calibration=None if calibration == "none" else calibration or AUTO,
            progress=False,
        )
        most = self.settings.limits.texts
        if spec.labels and (count := len(classifier.texts())) > most:
            raise UsageError(
                f"{len(spec.labels)} labels with the rule {rule!r} need {count} texts, and {most} "
                "are allowed; use fewer labels, or a rule without noisy prompts"
            )
        stored = self.examples
        examples = {label: [stored.get(key) for key in keys] for label, keys in spec.examples}
        negative = {NOT: examples.pop(NOT)} if NOT in examples else {}
        return classifier.set_params(rule=spec.rule).fit(Examples(examples, negative))
