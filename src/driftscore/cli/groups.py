"""Groups of options: a command takes a dataclass in place of a long list of parameters.

    @flat
    def head(out: HeadOut, scoring: ScoreOptions) -> None: ...

typer sees the fields of `ScoreOptions` as parameters of the command.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import TypeGuard, get_type_hints

from driftscore.backbones import DEFAULT_BACKBONE, DEFAULT_RUNTIME
from driftscore.cli import options as take
from driftscore.embedder import Embedder
from driftscore.engines import DEFAULT_ENGINE
from driftscore.errors import UsageError
from driftscore.settings import AUTO, DEFAULT_PRESET, PromptSettings, load_preset

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
class ScoreOptions:
    """The labels and how they are scored."""

    by: RuleOptions
    prompts: PromptOptions
    labels: take.LabelsOption = None
    labels_file: take.LabelsFile = None

    def scoring(self, *, labels: bool = True) -> take.ScoringOptions:
        """Return what is asked for; without `labels` none are needed."""
        names = take.label_names(self.labels, self.labels_file) if labels else None
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
        threads = self.threads
        if threads is not None and not (threads.isdecimal() and len(threads) < 10):
            raise UsageError(f"--threads must be a whole number, not {threads!r}")
        return Embedder(
            self.backbone,
            runtime=self.runtime,
            engine=self.engine,
            address=self.address,
            audio_cache=self.cache,
            threads=None if threads is None else int(threads),
        )
