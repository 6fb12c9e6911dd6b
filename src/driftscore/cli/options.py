"""Options that several commands share, their types, and the library values that they stand for.

An option is a decorator with its flags, type and help, written once. A command takes the values
that it uses itself by name and passes the others on:

    @backbone_options
    def embed(files: tuple[str, ...], **options: Any) -> None:
        embedder = make_embedder(**options)

A wrong value is one sentence that names the nearest right one.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from driftscore.audio.decoding import PartialFile
from driftscore.audio.recordings import SUFFIXES, expand
from driftscore.backbones import DEFAULT_BACKBONE, DEFAULT_RUNTIME, backbone_names
from driftscore.backbones.devices import RUNTIMES, split_runtime
from driftscore.classifier import Classifier
from driftscore.cli.output import counted, say
from driftscore.embedder import Embedder
from driftscore.engines import DEFAULT_ENGINE, engine_names
from driftscore.engines import KIND as ENGINE
from driftscore.engines.archive import is_stored
from driftscore.engines.examples import check_words, example_files
from driftscore.errors import UsageError, unknown
from driftscore.formats import DEFAULT_FORMAT, Format, find_format, format_names
from driftscore.scoring.rules import rule_names
from driftscore.storage.checked import finite_number
from driftscore.storage.files import check_output, is_stream, is_url
from driftscore.system import plugins
from driftscore.text.presets import (
    AUTO,
    DEFAULT_PRESET,
    PromptSettings,
    load_preset,
    preset_names,
)
from driftscore.text.prompts import check_labels, read_labels, split_labels

if TYPE_CHECKING:
    from driftscore.decisions import DecisionStore

SHOWN_REASONS = 5
"""Why files were left out: endings that are named."""
YES, NO = ("yes", "true", "1"), ("no", "false", "0")
_REFERENCE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


def flag_of(parameter: click.Parameter | None) -> str:
    """Return what messages call a parameter: its longest flag, or the name of an argument."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return "" if parameter is None else parameter.human_readable_name


class _FilePath(click.Path):
    """A path, which is not empty: `Path("")` is the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if not os.fspath(value):
            raise UsageError(f"{flag_of(param)} needs a path, got an empty one")
        return super().convert(value, param, ctx)


FILE = _FilePath(path_type=Path)


class WholeNumber(click.IntRange):
    """A whole number from one bound to another; click calls a wrong one "not a valid range"."""

    name = "whole number"


class Number(click.ParamType):  # type: ignore[type-arg]
    """A finite number; click's own type accepts nan."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number of a text."""
        return parse_number(flag_of(param), value)


def parse_number(what: str, text: object) -> float:
    """Return the finite number of a text."""
    number = finite_number(str(text))
    if number is None or "_" in str(text):
        raise UsageError(f"{what} must be a number, not {text!r}")
    return number


class OneOf(click.Choice):  # type: ignore[type-arg]
    """One of a few words; a mistyped one is answered with the nearest."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word."""
        if value not in self.choices:
            raise unknown(f"value of {flag_of(param)}", str(value), self.choices)
        return str(value)


class PluginName(click.ParamType):  # type: ignore[type-arg]
    """The name of a plug-in; the help and the shell list those that are installed.

    The library looks the name up. A plug-in of the form "module:attribute" may be a file in the
    current folder, which is searched last and only if such a name is given.
    """

    name = "name"

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        if _REFERENCE.fullmatch(value):
            search_current_folder()
        return str(value)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the names for the help."""
        return f"[{'|'.join(self._names())}]"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with what was typed."""
        return [CompletionItem(name) for name in self._names() if name.startswith(incomplete)]


class RuntimeName(PluginName):
    """A runtime, a device, or both."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        split_runtime(value)
        return str(value)


def search_current_folder() -> None:
    """Let modules be imported from the current folder, after all others."""
    with suppress(OSError):  # the folder is gone
        if (folder := os.getcwd()) not in sys.path:  # noqa: PTH109 (a text, as sys.path has)
            sys.path.append(folder)


Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def together(*decorators: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Return several options as one decorator; the help shows them in this order."""

    def decorate(command: Decorated) -> Decorated:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


files_argument = click.argument("files", nargs=-1, required=True, metavar="FILES...")
"""Recordings, folders, globs or URLs."""
partial_option = click.option(
    "--partial",
    is_flag=True,
    help="Use what can be read of a truncated recording, and say how much.",
)
label_options = click.option(
    "--labels", "-l", multiple=True,
    help='The labels: "dog bark, siren, rain", or a .txt file with one per line; repeatable.',
)  # fmt: skip
examples_option = click.option(
    "--examples", multiple=True, metavar="LABEL=FILES",
    help='Recordings of a label, as in "doorbell=bell*.wav", or a folder with a folder per label; '
    "not=FILES for what no label means; repeatable. A label of --examples alone has no words.",
)  # fmt: skip
format_option = click.option(
    "--format", "-f", type=PluginName(format_names), default=DEFAULT_FORMAT,
    callback=lambda _context, _option, name: find_format(name),
    help="How rows are written (see `list formats`).",
)  # fmt: skip


_BINARY = SUFFIXES | {".xls", ".xlsx", ".npz", ".npy", ".parquet", ".safetensors", ".db", ".sqlite"}
"""Endings of recordings, workbooks, embeddings and stores, none of which are rows of text."""


def text_file(_context: click.Context, option: click.Parameter, path: str | None) -> str | None:
    """Refuse the name of a recording or another binary file for rows: all of them are text."""
    ending = "" if path is None else Path(path).suffix.lower()
    if ending in _BINARY:
        raise UsageError(
            f"{flag_of(option)} writes text, and {path} would be a {ending} file; use a name that "
            "ends in .csv or .txt (Excel opens the .csv of --format excel)"
        )
    return path


class OutputFile(click.Option):
    """A file to write, checked before any work; it must have no other part in the command."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Return the path."""
        out, args = super().handle_parse_result(ctx, opts, args)
        # What is not given is a mark of click's here, not None.
        if ctx.resilient_parsing or not isinstance(out, str | Path):
            return out, args
        check_output(out)
        for name, values in opts.items():
            for text in values if isinstance(values, list | tuple) else (values,):
                if name == self.name or not isinstance(text, str) or "\0" in text:
                    continue
                # A label is a word, and the file of that name is another thing.
                is_path = name == "files" or Path(text).suffix
                if is_path and realpath(text) == realpath(out) and not is_stream(out):
                    raise UsageError(
                        f"{flag_of(self)} {out} would replace a file that is given for something "
                        "else as well; name another file"
                    )
        return out, args


out_option = click.option(
    "--out", "-o", cls=OutputFile, callback=text_file, help="Write to this file or URL, not stdout."
)
output_options = together(format_option, out_option)
calibration_option = click.option(
    "--calibration", metavar="FILE", help="A calibration of the model (see `calibrate`), or none."
)
rule_options = together(
    click.option(
        "--rule", "-r", type=PluginName(rule_names), metavar="NAME", default=AUTO,
        help="How labels are scored: see `list rules`, or package.module:function. auto is the "
        "best one for the model; -v reports which.",
    ),
    click.option(
        "--set", "settings", multiple=True, metavar="NAME=VALUE",
        help="A setting of the rule or of the prompts, as in tau=0.3, noise=FOLDER or "
        "prompt='{c}'; standardised=no for the rule's own scores everywhere, =yes for standard "
        "deviations; repeatable.",
    ),
    click.option(
        "--preset", type=PluginName(preset_names), default=DEFAULT_PRESET,
        help="Settings of rule and prompts by name (see `list presets`), or a TOML file.",
    ),
    calibration_option,
)  # fmt: skip
head_option = click.option(
    "--head", type=FILE, help="A compiled head, in place of labels and rule."
)
threshold_option = click.option(
    "--threshold", "-t", type=Number(), help="Report every label at or above this score."
)
multi_option = click.option("--multi", is_flag=True, help="Show the score of every label.")
negatives_option = click.option(
    "--not", "negatives", multiple=True, metavar="WORDS",
    callback=lambda _context, _option, texts: split_labels(",".join(texts)) if texts else (),
    help='Words that compete and are not reported: "speech, wind"; repeatable. They are added to '
    "built-in ones; none for no such words.",
)  # fmt: skip
backbone_options = together(
    click.option(
        "--backbone", "-b", type=PluginName(backbone_names), metavar="NAME",
        default=DEFAULT_BACKBONE,
        help="A name (see `list backbones`), a CLAP hub id, a folder or an npz.",
    ),
    click.option("--runtime", type=RuntimeName(lambda: (*RUNTIMES, "cpu", "cuda", "mps")),
                 metavar="NAME", default=DEFAULT_RUNTIME,
                 help="What a model runs in, and where: auto, torch, onnx, cpu, cuda, cuda:1, mps, "
                 "or both as in torch:cuda:1; with /bf16 or /fp16 in half precision. auto uses a "
                 "GPU if torch sees one."),
)  # fmt: skip
cache_option = click.option(
    "--cache", is_flag=True,
    help="Keep audio embeddings by content: for new labels no audio is read again.",
)  # fmt: skip
engine_option = click.option(
    "--engine", type=PluginName(engine_names), metavar="NAME", default=DEFAULT_ENGINE,
    help="Where recordings are embedded: local, local:N (N windows at once; else as many as "
    "cores), ray, ray:HOST:PORT (see `list engines`).",
)  # fmt: skip
verbose_option = click.option(
    "--verbose", "-v", is_flag=True, help="Report what the model runs in, and why."
)
audit_options = together(
    click.option(
        "--audit", metavar="FILE",
        help="Record every decision in this SQLite file, with what it followed from.",
    ),
    click.option("--audit-audio", is_flag=True, help="Keep the audio of decisions in the audit."),
)  # fmt: skip
audit_days_option = click.option(
    "--audit-days", type=Number(), help="Delete recorded decisions that are older."
)


def list_recordings(files: Iterable[str], partial: bool, format: Format | None = None) -> list[str]:
    """Return the recordings of the argument FILES; report how many files are left out and why."""
    left_out: Counter[str] = Counter()
    recordings = expand(files, left_out)
    if left_out:
        counts = sorted(left_out.items(), key=lambda item: (-item[1], item[0]))
        if len(counts) > SHOWN_REASONS:
            counts[SHOWN_REASONS:] = [("others", sum(n for _, n in counts[SHOWN_REASONS:]))]
        reasons = [f"{reason} ({n:,})" for reason, n in counts]
        say(f"{counted(left_out.total(), 'file')} left out: {', '.join(reasons)}")
    if format is not None and format.one_recording and len(recordings) > 1:
        raise UsageError(
            f"--format {format.name} takes one recording, and there are {len(recordings):,}; give "
            "them one by one, or use --format raven, csv or jsonl"
        )
    return [PartialFile(name) for name in recordings] if partial else recordings


def label_names(
    *, labels: tuple[str, ...], examples: tuple[str, ...] = (), **_: object
) -> tuple[str, ...]:
    """Return the labels of --labels: separated by commas, or the lines of a .txt file."""
    if not labels and examples:
        return ()
    files = [text for text in labels if text.endswith(".txt")]
    listed = [label for file in files for label in read_labels(file)]
    if words := [text for text in labels if text not in files]:
        listed += split_labels(",".join(words))
    if not listed:
        raise UsageError(
            'No labels given; name the sounds: --labels "dog bark, siren", or a file with one per '
            "line: --labels sounds.txt"
        )
    check_words(listed)
    return check_labels(listed)


def fit(classifier: Classifier, *, examples: tuple[str, ...] = (), **_: object) -> Classifier:
    """Fit a classifier to its examples, if there are any."""
    pairs = [(file, label) for label, own in example_files(examples).items() for file in own]
    if not pairs:
        return classifier.fit()
    if classifier.head is not None:
        raise UsageError("A compiled head learns nothing; give --labels and --examples instead")
    files, names = zip(*pairs, strict=True)
    return classifier.fit(files, names)


def named_values(pairs: Iterable[str]) -> dict[str, list[str]]:
    """Return the values of each name of --set, in the order given."""
    values: dict[str, list[str]] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"--set takes name=value, as in tau=0.3, not {pair!r}")
        values.setdefault(name.strip(), []).append(value.strip())
    return values


def take_number(values: dict[str, list[str]], name: str, default: float) -> float:
    """Take a number out of the values of --set."""
    texts = values.pop(name, None)
    return default if texts is None else parse_number(f"--set {name}", texts[-1])


def make_classifier(
    embedder: Embedder | None = None,
    names: Iterable[str] | None = None,
    *,
    label_threshold: float | None = None,
    rule: str = AUTO,
    settings: tuple[str, ...] | dict[str, list[str]] = (),
    preset: str = DEFAULT_PRESET,
    calibration: str | None = None,
    head: Path | None = None,
    **options: Any,
) -> Classifier:
    """Return the classifier of labels; settings that are not given are left to the preset."""
    if names is None and head is None:
        names = label_names(**options)
    values = named_values(settings) if isinstance(settings, tuple) else settings
    of_prompts: dict[str, object] = {
        field.name: values.pop(field.name)[-1]
        for field in fields(PromptSettings)
        if field.name in values
    }
    if "skip_same" in of_prompts:
        of_prompts["skip_same"] = of_prompts["skip_same"] in YES
    standardised = None
    if (texts := values.pop("standardised", None)) is not None:
        if texts[-1] not in (*YES, *NO):
            raise UsageError(f"--set standardised takes yes or no, not {texts[-1]!r}")
        standardised = texts[-1] in YES
    of_rule: dict[str, object] = {name: texts[-1] for name, texts in values.items()}
    for name in {"noise", "pool"} & values.keys():
        texts = values[name]  # recordings to embed, or stored embeddings of them
        if len(texts) > 1 or not is_stored(texts[0]):
            of_rule[name] = expand(texts)
    return Classifier(
        names,
        backbone=embedder or make_embedder(**options),
        rule=rule,
        settings=of_rule,
        prompts=load_preset(preset).prompts.changed(**of_prompts),
        preset=preset,
        standardised=standardised,
        threshold=label_threshold,
        head=head,
        calibration=None if calibration == "none" else calibration or AUTO,
    )


def make_embedder(
    *,
    backbone: str,
    runtime: str,
    cache: bool = False,
    engine: str = DEFAULT_ENGINE,
    **_: object,
) -> Embedder:
    """Return the embedder that is asked for."""
    name, _sign, rest = engine.partition(":")
    address, threads = None, None
    if rest and plugins.has(ENGINE, name):
        engine = name
        if name != DEFAULT_ENGINE:
            address = rest
        elif rest.isdecimal() and len(rest) < 10:
            threads = int(rest)
        else:
            raise UsageError(f"--engine local:N needs a whole number, not {rest!r}")
    return Embedder(
        backbone, runtime=runtime, engine=engine, address=address, audio_cache=cache,
        threads=threads,
    )  # fmt: skip


def open_audit(
    *,
    audit: str | None,
    audit_audio: bool,
    audit_days: float | None = None,
    audit_mb: float | None = None,
    once: bool = False,
    recordings: Iterable[str] = (),
    **_: object,
) -> "DecisionStore | None":
    """Open the store that is asked for; with `once` no decision is recorded twice."""
    if audit_audio and (remote := next(filter(is_url, recordings), None)):
        raise UsageError(
            f"--audit-audio copies files of this machine, and {remote} is not one; leave it out, "
            "or download the recording first"
        )
    if audit is None:
        if audit_audio:
            raise UsageError("--audit-audio keeps audio in an audit: give --audit FILE as well")
        return None
    from driftscore.decisions import DecisionStore  # here: most commands never need it

    return DecisionStore(
        audit, keep_audio=audit_audio, once=once, days=audit_days, megabytes=audit_mb
    )
