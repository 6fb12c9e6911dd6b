"""The options that several commands share, and how a command reports files that failed.

`Scoring` says how labels are scored; a command decorated with `with_scoring` gets its
options and receives them as one object.
"""

import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from driftscore.audio import expand
from driftscore.classifier import Classifier
from driftscore.errors import UsageError
from driftscore.prompts import read_labels, split_labels

Files = Annotated[list[str], typer.Argument(help="Recordings, folders or globs.", metavar="FILES")]
Format = Annotated[
    str, typer.Option("--format", "-f", help="table | csv | jsonl | audacity | raven.")
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file, not stdout.")]
Threshold = Annotated[
    str | None,
    typer.Option("--threshold", "-t", help="Report every label at or above this score."),
]
Model = Annotated[
    str,
    typer.Option(
        "--backbone", "-b", help="A name (see `list backbones`), a CLAP hub id, a folder or an npz."
    ),
]


def option(flag: str, text: str) -> Any:
    """Return the typer option of a flag."""
    return typer.Option(flag, help=text)


@dataclass
class Scoring:
    """What is listened for, with which model, and how it is scored."""

    labels: Annotated[
        str | None, typer.Option("--labels", "-l", help='The sounds: "dog bark, siren, rain".')
    ] = None
    labels_file: Annotated[
        Path | None, option("--labels-file", "The sounds, one a line; # begins a comment.")
    ] = None
    backbone: Model = "mini"
    rule: Annotated[
        str, typer.Option("--rule", "-r", help="How labels are scored: see `list rules`.")
    ] = "das"
    beta: Annotated[str, option("--beta", "Weight of the drift bonus of the rule das.")] = "0.25"
    settings: Annotated[
        list[str] | None,
        option("--set", "A setting of the rule, as in tau=0.3; may be given again."),
    ] = None
    noise: Annotated[
        list[str] | None, option("--noise", "Noise-only recordings, a folder or an npz (zs_audio).")
    ] = None
    pool: Annotated[
        list[str] | None, option("--pool", "Unlabelled recordings, a folder or an npz (tgap).")
    ] = None
    preset: Annotated[str, option("--preset", "A paper's settings: see `list presets`.")] = (
        "das2026"
    )
    prompt: Annotated[str | None, option("--prompt", "The clean prompt, with {c} in it.")] = None
    pack: Annotated[str | None, option("--pack", "Noise phrases: a pack's id or file.")] = None
    templates: Annotated[
        str | None, option("--templates", "Composition templates: a pack's id or file.")
    ] = None
    reference: Annotated[
        str | None, option("--reference", "What a drift is measured from: prompt | matched.")
    ] = None
    direction: Annotated[
        str | None, option("--direction", "How drifts are averaged: mean | svd.")
    ] = None
    skip_same: Annotated[
        bool, option("--skip-same", "Leave out a phrase that equals the class.")
    ] = False

    def classifier(self, *, head: Path | None = None, threshold: str | None = None) -> Classifier:
        """Return the classifier that these options describe."""
        return Classifier(
            None if head else self._names(),
            backbone=self.backbone,
            rule=self.rule,
            beta=number("--beta", self.beta),
            threshold=None if threshold is None else number("--threshold", threshold),
            preset=self.preset,
            prompt=self.prompt,
            pack=self.pack,
            templates=self.templates,
            reference=self.reference,
            direction=self.direction,
            skip_same=self.skip_same or None,
            noise=_clips(self.noise),
            pool=_clips(self.pool),
            settings=_settings(self.settings or []),
            head=head,
        )

    def _names(self) -> tuple[str, ...]:
        if self.labels is not None and self.labels_file is not None:
            raise UsageError("Give --labels or --labels-file, not both")
        if self.labels_file is not None:
            return read_labels(self.labels_file)
        if self.labels is not None:
            return split_labels(self.labels)
        raise UsageError(
            'No labels given; name the sounds: --labels "dog bark, siren" or --labels-file FILE'
        )


def with_scoring(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `Scoring`, handed over as its argument `scoring`."""
    hints = get_type_hints(Scoring, include_extras=True)
    shared = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default,
                          annotation=hints[f.name])
        for f in fields(Scoring)
    ]  # fmt: skip
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "scoring"]

    @wraps(command)
    def run(**values: Any) -> None:
        scoring = Scoring(**{p.name: values.pop(p.name) for p in shared})
        command(scoring=scoring, **values)

    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    run.__signature__ = inspect.Signature([*keyword, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in [*keyword, *shared]}
    return run


def number(flag: str, text: str) -> float:
    """Return an option's number, or say that it is none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{flag} must be a number, not {text!r}")
    return value


def _settings(pairs: list[str]) -> dict[str, Any]:
    """Return `tau=0.3` and the like as settings of the rule."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"--set takes name=value, as in tau=0.3, not {pair!r}")
        settings[name.strip()] = value.strip()
    return settings


def _clips(given: list[str] | None) -> Any:
    """Return recordings to embed, or the npz that holds embeddings already."""
    if not given:
        return None
    return given[0] if len(given) == 1 and given[0].endswith(".npz") else expand(given)


@dataclass
class Tally:
    """The files that failed: said on stderr as they come, counted in the exit status."""

    quiet: bool = False
    failed: list[str] = field(default_factory=list)

    def fail(self, reason: str) -> None:
        """Tell that a file could not be used."""
        self.failed.append(reason)
        if not self.quiet:
            say(f"skipped: {reason}")

    def finish(self, total: int) -> None:
        """End with status 1 if any file failed."""
        if self.failed:
            say(f"{len(self.failed)} of {total} recordings could not be used")
            raise typer.Exit(1)


def say(text: str) -> None:
    """Write a line to stderr."""
    print(text, file=sys.stderr)
