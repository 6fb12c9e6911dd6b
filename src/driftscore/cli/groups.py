"""Groups of options: a command takes a dataclass in place of a long list of parameters.

    @flat
    def head(out: HeadOut, scoring: ScoreOptions) -> None: ...

typer sees the fields of `ScoreOptions` as parameters of the command.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, TypeGuard, get_type_hints

from driftscore.backbones import DEFAULT_BACKBONE, DEFAULT_RUNTIME
from driftscore.cli import options as take
from driftscore.embedder import Embedder
from driftscore.engines import DEFAULT_ENGINE
from driftscore.errors import UsageError
from driftscore.events import Detection
from driftscore.prompts import split_labels
from driftscore.settings import AUTO, DEFAULT_PRESET, PromptSettings, load_preset
from driftscore.watchlist import NONE, WatchList

if TYPE_CHECKING:
    from driftscore.audit import AuditLog

Command = Callable[..., None]


def flat(command: Command) -> Command:
    """Return a command whose groups of options are spread over parameters of their own."""
    hints = get_type_hints(command, include_extras=True)
    spread: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if _is_group(hints[name]):
            spread += _parameters(hints[name])
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            spread.append(parameter.replace(annotation=hints[name], kind=kind))

    def run(**given: object) -> None:
        groups = {name: _made(hint, given) for name, hint in hints.items() if _is_group(hint)}
        command(**given, **groups)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in spread}
    return run


def _is_group(hint: object) -> TypeGuard[type]:
    return inspect.isclass(hint) and is_dataclass(hint)


def _parameters(group: type) -> Iterator[inspect.Parameter]:
    """Yield the options of a group, and of the groups in it."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        hint = hints[field.name]
        if _is_group(hint):
            yield from _parameters(hint)
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            yield inspect.Parameter(field.name, kind, default=field.default, annotation=hint)


def _made(group: type, given: dict[str, object]) -> object:
    """Return a group with the values that are given; they are taken out of `given`."""
    hints = get_type_hints(group, include_extras=True)
    return group(
        **{
            field.name: _made(hints[field.name], given)
            if _is_group(hints[field.name])
            else given.pop(field.name)
            for field in fields(group)
        }
    )


@dataclass(frozen=True)
class RuleOptions:
    """The rule and its settings."""

    rule: take.RuleName = AUTO
    beta: take.Beta = None
    settings: take.SettingsOption = None
    noise: take.NoiseOption = None
    pool: take.Pool = None
    calibration: take.CalibrationFile = None
    raw: take.Raw = False

    def values(self) -> dict[str, object]:
        """Return the settings of the rule that are given."""
        return take.rule_settings(self.settings, self.beta, self.noise, self.pool, raw=self.raw)


@dataclass(frozen=True)
class PromptOptions:
    """How prompts are composed."""

    preset: take.PresetName = DEFAULT_PRESET
    prompt: take.Prompt = None
    pack: take.PackOption = None
    templates: take.Templates = None
    reference: take.Reference = None
    direction: take.Direction = None
    skip_same: take.SkipSame = False

    def settings(self) -> PromptSettings:
        """Return the preset's prompt settings with those that are given in place of its own."""
        return load_preset(self.preset).prompts.changed(
            prompt=self.prompt,
            pack=self.pack,
            templates=self.templates,
            reference=self.reference,
            direction=self.direction,
            skip_same=self.skip_same or None,
        )


@dataclass(frozen=True)
class LabelOptions:
    """The labels."""

    labels: take.LabelsOption = None
    labels_file: take.LabelsFile = None

    @property
    def given(self) -> bool:
        """Whether there are any."""
        return bool(self.labels) or self.labels_file is not None

    def names(self) -> tuple[str, ...]:
        """Return the labels."""
        return take.label_names(self.labels, self.labels_file)


@dataclass(frozen=True)
class ScoreOptions:
    """The labels and how they are scored."""

    by: RuleOptions
    prompts: PromptOptions
    words: LabelOptions

    def scoring(self, *, labels: bool = True) -> take.ScoringOptions:
        """Return what is asked for; without `labels` none are needed."""
        names = self.words.names() if labels else None
        return take.ScoringOptions(
            names,
            self.by.rule,
            self.by.values(),
            self.prompts.settings(),
            self.prompts.preset,
            self.by.calibration,
        )


@dataclass(frozen=True)
class ModelOptions:
    """The model."""

    backbone: take.BackboneName = DEFAULT_BACKBONE
    runtime: take.Runtime = DEFAULT_RUNTIME


@dataclass(frozen=True)
class EmbedOptions(ModelOptions):
    """The model, and where it runs."""

    cache: take.KeepAudio = False
    engine: take.EngineName = DEFAULT_ENGINE
    address: take.Address = None
    threads: take.Threads = None

    def embedder(self) -> Embedder:
        """Return the embedder that is asked for."""
        threads = None if self.threads is None else take.whole("--threads", self.threads)
        return Embedder(
            self.backbone,
            runtime=self.runtime,
            engine=self.engine,
            address=self.address,
            audio_cache=self.cache,
            threads=threads,
        )


@dataclass(frozen=True)
class WatchOptions:
    """What events are looked for."""

    watch: take.WatchFile = None
    negatives: take.NotWords = None

    def watch_list(self, labels: tuple[str, ...] | None) -> WatchList | None:
        """Return the watch list: a file, or the labels with negative words; None for a head."""
        words = split_labels(",".join(self.negatives)) if self.negatives else ()
        if self.watch is not None:
            if words:
                raise UsageError("Negative words are part of a watch list; leave out --not")
            return WatchList.load(self.watch)
        if labels is None:
            if words and words != (NONE,):
                raise UsageError("A compiled head knows no other words; leave out --not")
            return None
        return WatchList.of(labels, words)


@dataclass(frozen=True)
class DetectionOptions:
    """How events are found."""

    false_alarms: take.FalseAlarms = None
    window: take.WindowLength = None
    hop: take.HopLength = None
    min_duration: take.MinDuration = None

    def detection(self) -> Detection:
        """Return how events are found."""
        return Detection().changed(
            false_alarms=take.optional_number("--false-alarms", self.false_alarms),
            window_s=take.optional_number("--window", self.window),
            hop_s=take.optional_number("--hop", self.hop),
            min_duration_s=take.optional_number("--min-duration", self.min_duration),
        )


@dataclass(frozen=True)
class AuditOptions:
    """What is recorded of decisions."""

    audit: take.AuditFolder = None
    audit_audio: take.AuditAudio = False

    def log(self, *, once: bool = False) -> "AuditLog | None":
        """Open the audit log that is asked for; with `once` no decision is recorded twice."""
        if self.audit is None:
            if self.audit_audio:
                raise UsageError("--audit-audio keeps audio in an audit: give --audit DIR as well")
            return None
        from driftscore.audit import (
            AuditLog,
            Retention,
        )  # not at the top: most commands never need it

        return AuditLog(
            self.audit, keep_audio=self.audit_audio, once=once, retention=Retention(*self.bounds())
        )

    def bounds(self) -> tuple[float | None, float | None]:
        """Return the days and megabytes of decisions that are kept; None for all."""
        return None, None


@dataclass(frozen=True)
class LastingAuditOptions(AuditOptions):
    """What is recorded of the decisions of a process that runs for months."""

    audit_days: take.AuditDays = None
    audit_mb: take.AuditMegabytes = "1000"

    def bounds(self) -> tuple[float | None, float | None]:
        """Return the days and megabytes of decisions that are kept; None for all."""
        days = take.optional_number("--audit-days", self.audit_days)
        return days, take.number("--audit-mb", self.audit_mb)
