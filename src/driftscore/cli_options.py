"""The options that several commands share, and how a command reports files that failed.

`Scoring` says how labels are scored, `Hearing` where and how recordings are heard; a command
decorated with `with_options` gets the options of such a group and receives it as one object.
"""

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from driftscore.audio import expand
from driftscore.backbones import Backbone, load_backbone, runtime_option
from driftscore.classifier import Classifier
from driftscore.engines import Heard, find_engine, loading, thread_count
from driftscore.errors import UsageError
from driftscore.prompts import read_labels, split_labels

Files = Annotated[
    list[str], typer.Argument(help="Recordings, folders, globs or URLs.", metavar="FILES")
]
Format = Annotated[
    str, typer.Option("--format", "-f", help="table | csv | jsonl | audacity | raven.")
]
Out = Annotated[
    str | None, typer.Option("--out", "-o", help="Write to this file or URL, not stdout.")
]
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

Runtime = Annotated[
    str, typer.Option("--runtime", help="What a CLAP runs in: auto | torch | onnx | openvino.")
]


def option(flag: str, text: str) -> Any:
    """Return the typer option of a flag."""
    return typer.Option(flag, help=text)


@dataclass
class Hearing:
    """Where recordings are heard, and whether what was heard is kept."""

    cache: Annotated[
        bool,
        option(
            "--cache",
            "Keep audio embeddings by content, so that new labels cost no listening.",
        ),
    ] = False
    engine: Annotated[str, option("--engine", "Where to listen: local | ray.")] = "local"
    address: Annotated[
        str | None, option("--address", "The cluster, for an engine of many machines.")
    ] = None
    threads: Annotated[
        str | None, option("--threads", "Windows worked on at once; the cores if not given.")
    ] = None
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say what the model runs in, and why.")
    ] = False

    @property
    def thread_count(self) -> int | None:
        """The number of threads asked for."""
        if self.threads is None or self.threads.isdecimal():
            return None if self.threads is None else int(self.threads)
        raise UsageError(f"--threads must be a whole number, not {self.threads!r}")

    def explain(self, model: Backbone) -> None:
        """Say what a model runs in, if asked."""
        if self.verbose:
            own = f"{model.name} has one runtime: onnxruntime, one thread a window"
            say(f"runtime: {getattr(model, 'explanation', own)}")

    def ears(
        self, spec: str, runtime: str
    ) -> tuple[Backbone, Callable[[Iterable[str]], Iterator[Heard]]]:
        """Return a model and the function that hears recordings with it, for no labels yet."""
        engine, threads = find_engine(self.engine), thread_count(self.thread_count)
        options = runtime_option(runtime)
        model = load_backbone(spec, **options)
        self.explain(model)
        hear = partial(
            engine.hear,
            backbone=model,
            spec=loading(spec, **options),
            cache=self.cache,
            address=self.address,
            threads=threads,
        )
        return model, hear


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
    runtime: Runtime = "auto"
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

    def classifier(
        self,
        hearing: Hearing = Hearing(),  # noqa: B008 (never changed)
        *,
        head: Path | None = None,
        threshold: str | None = None,
    ) -> Classifier:
        """Return the classifier that these options describe."""
        return Classifier(
            None if head else self._names(),
            backbone=self.backbone,
            runtime=self.runtime,
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
            audio_cache=hearing.cache,
            engine=hearing.engine,
            address=hearing.address,
            threads=hearing.thread_count,
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


def with_options(**groups: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of groups, each handed over as the argument of its name."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        spread = {name: _parameters(group) for name, group in groups.items()}
        own = [p for p in inspect.signature(command).parameters.values() if p.name not in groups]

        @wraps(command)
        def run(**values: Any) -> None:
            for name, group in groups.items():
                values[name] = group(**{p.name: values.pop(p.name) for p in spread[name]})
            command(**values)

        shown = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        shown += [p for parameters in spread.values() for p in parameters]
        run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in shown}
        return run

    return decorate


def _parameters(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default,
                          annotation=hints[f.name])
        for f in fields(group)
    ]  # fmt: skip


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
