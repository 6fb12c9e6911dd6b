"""The options of the commands as types, and small functions that turn them into library values.

A command lists the options that it takes; each is written once, here, with its flag and help.
Numbers are parsed here and not by typer, so that a wrong one is a plain sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from driftscore.audio import expand
from driftscore.classifier import Classifier
from driftscore.embedder import Embedder
from driftscore.errors import UsageError
from driftscore.prompts import read_labels, split_labels
from driftscore.schema import finite_number
from driftscore.settings import PromptSettings
from driftscore.thresholds import DEFAULT_FALSE_ALARMS

Files = Annotated[
    list[str], typer.Argument(help="Recordings, folders, globs or URLs.", metavar="FILES")
]
Clips = Annotated[
    Path,
    typer.Argument(help="An npz of clip embeddings (see `embed`), or an npy with one row each."),
]

# What the labels are, and how they are scored.
LabelsOption = Annotated[
    list[str] | None,
    typer.Option("--labels", "-l", help='The labels: "dog bark, siren, rain"; repeatable.'),
]
LabelsFile = Annotated[
    Path | None,
    typer.Option("--labels-file", help="The labels, one per line; # begins a comment."),
]
BackboneName = Annotated[
    str,
    typer.Option(
        "--backbone", "-b", help="A name (see `list backbones`), a CLAP hub id, a folder or an npz."
    ),
]
Runtime = Annotated[
    str, typer.Option("--runtime", help="What a CLAP runs in: auto | torch | onnx | openvino.")
]
RuleName = Annotated[
    str,
    typer.Option(
        "--rule",
        "-r",
        help="How labels are scored: see `list rules`, or package.module:function. auto is the "
        "best one for the model; -v reports which.",
    ),
]
Beta = Annotated[
    str | None,
    typer.Option(
        "--beta",
        help="Weight of the drift bonus of the rule das, like --set beta=; 0.25 if neither the "
        "preset nor you set it.",
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the rule, as in tau=0.3; repeatable."),
]
NoiseOption = Annotated[
    list[str] | None,
    typer.Option("--noise", help="Noise-only recordings, a folder or an npz (zs_audio)."),
]
Pool = Annotated[
    list[str] | None,
    typer.Option("--pool", help="Unlabelled recordings, a folder or an npz (tgap)."),
]
PresetName = Annotated[
    str, typer.Option("--preset", help="A paper's settings: see `list presets`, or a TOML file.")
]
Prompt = Annotated[str | None, typer.Option("--prompt", help="The clean prompt, with {c} in it.")]
PackOption = Annotated[
    str | None, typer.Option("--pack", help="Noise phrases: the id of a pack, or its file.")
]
Templates = Annotated[
    str | None,
    typer.Option("--templates", help="Composition templates: the id of a pack, or its file."),
]
Reference = Annotated[
    str | None, typer.Option("--reference", help="What a drift is measured from: prompt | matched.")
]
Direction = Annotated[
    str | None, typer.Option("--direction", help="How drifts are averaged: mean | svd.")
]
SkipSame = Annotated[
    bool, typer.Option("--skip-same", help="Leave out a phrase that equals the label.")
]
CalibrationFile = Annotated[
    str | None,
    typer.Option("--calibration", help="A calibration of the model (see `calibrate`), or none."),
]
Raw = Annotated[bool, typer.Option("--raw", help="Raw scores of the rule, not standardised ones.")]
HeadFile = Annotated[
    Path | None, typer.Option("--head", help="A compiled head, in place of labels and rule.")
]

# Where recordings are embedded.
KeepAudio = Annotated[
    bool,
    typer.Option(
        "--cache", help="Keep audio embeddings by content: for new labels no audio is read again."
    ),
]
EngineName = Annotated[
    str, typer.Option("--engine", help="Where recordings are embedded: local | ray.")
]
Address = Annotated[
    str | None, typer.Option("--address", help="The address of the cluster, for --engine ray.")
]
Threads = Annotated[
    str | None,
    typer.Option("--threads", help="Windows embedded at once; as many as cores if not given."),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Report what the model runs in, and why.")
]

# What is written.
Compare = Annotated[
    str | None, typer.Option("--compare", help="A second rule, side by side with --rule.")
]
Multi = Annotated[bool, typer.Option("--multi", help="Show the score of every label.")]
Threshold = Annotated[
    str | None,
    typer.Option(
        "--threshold",
        "-t",
        help="Report every label at or above this score; of events, above their background.",
    ),
]
OrNone = Annotated[
    bool,
    typer.Option("--or-none", help="No label for a recording where none fits, not the nearest."),
]
NotWords = Annotated[
    list[str] | None,
    typer.Option(
        "--not",
        help='Words that compete and are not reported: "speech, wind"; repeatable. They are added '
        "to built-in ones; none for no such words.",
    ),
]
FormatName = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        help="table | csv | excel | json | jsonl | audacity | raven | kaleidoscope "
        "(see `list formats`).",
    ),
]

# Events of long recordings.
_EVENTS = "Events"
Timeline = Annotated[
    bool,
    typer.Option(
        "--timeline",
        help="Report events: each label from one time to another.",
        rich_help_panel=_EVENTS,
    ),
]
Windows = Annotated[
    bool,
    typer.Option("--windows", help="One row per window: its best label.", rich_help_panel=_EVENTS),
]
WatchFile = Annotated[
    Path | None,
    typer.Option(
        "--watch",
        help="A watch list (TOML): labels with wordings, negative words and thresholds.",
        rich_help_panel=_EVENTS,
    ),
]
FalseAlarms = Annotated[
    str | None,
    typer.Option(
        "--false-alarms",
        help=f"Acceptable false alarms per hour and label; {DEFAULT_FALSE_ALARMS:g} if not given.",
        rich_help_panel=_EVENTS,
    ),
]
ThresholdsFrom = Annotated[
    str,
    typer.Option(
        "--thresholds-from",
        help="How false alarms are estimated: calibration | quiet (a quiet recording in it) | "
        "recording (this one) | auto.",
        rich_help_panel=_EVENTS,
    ),
]
WindowLength = Annotated[
    str | None,
    typer.Option("--window", help="Seconds of a window.", rich_help_panel=_EVENTS),
]
HopLength = Annotated[
    str | None,
    typer.Option("--hop", help="Seconds from one window to the next.", rich_help_panel=_EVENTS),
]
MinDuration = Annotated[
    str | None,
    typer.Option(
        "--min-duration", help="Leave out events shorter than this.", rich_help_panel=_EVENTS
    ),
]
StartTime = Annotated[
    str | None,
    typer.Option(
        "--start",
        help="When the recording began, as 2026-11-16T22:00; else from its name or metadata.",
        rich_help_panel=_EVENTS,
    ),
]
ClipsFolder = Annotated[
    Path | None,
    typer.Option("--clips", help="Cut each event out into this folder.", rich_help_panel=_EVENTS),
]
ClipMargin = Annotated[
    str,
    typer.Option(
        "--margin", help="With --clips: seconds before and after.", rich_help_panel=_EVENTS
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        help="Draw spectrogram, scores and events (.png, .svg or .html); of several recordings, "
        "labels by hour of day.",
        rich_help_panel=_EVENTS,
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue a run that was interrupted.", rich_help_panel=_EVENTS),
]
# What is recorded of decisions.
_AUDIT = "Audit"
AuditFolder = Annotated[
    str | None,
    typer.Option(
        "--audit",
        metavar="DIR",
        help="Record every decision in this folder, with what it followed from.",
        rich_help_panel=_AUDIT,
    ),
]
AuditAudio = Annotated[
    bool,
    typer.Option(
        "--audit-audio", help="Keep the audio of decisions in the audit.", rich_help_panel=_AUDIT
    ),
]
AuditDays = Annotated[
    str | None,
    typer.Option(
        "--audit-days", help="Delete recorded decisions that are older.", rich_help_panel=_AUDIT
    ),
]
AuditMegabytes = Annotated[
    str,
    typer.Option(
        "--audit-mb",
        help="Delete the oldest decisions while the audit is larger.",
        rich_help_panel=_AUDIT,
    ),
]
Out = Annotated[
    str | None, typer.Option("--out", "-o", help="Write to this file or URL, not stdout.")
]


@dataclass(frozen=True)
class ScoringOptions:
    """The labels of a command and how they are scored."""

    labels: tuple[str, ...] | None
    """None where a compiled head takes the place of labels and rule."""
    rule: str
    settings: Mapping[str, object]
    prompts: PromptSettings
    preset: str
    calibration: str | None = None
    """A file, "none", or None for the one that comes with the model."""

    def classifier(
        self,
        backbone: str | Embedder,
        *,
        threshold: float | None = None,
        head: Path | None = None,
    ) -> Classifier:
        """Return the classifier that scores the labels with a backbone."""
        return Classifier(
            self.labels,
            backbone=backbone,
            rule=self.rule,
            settings=self.settings,
            prompts=self.prompts,
            preset=self.preset,
            threshold=threshold,
            head=head,
            calibration=False if self.calibration == "none" else self.calibration,
        )


def label_names(labels: list[str] | None, labels_file: Path | None) -> tuple[str, ...]:
    """Return the labels that are given by --labels, each separated by commas, or by a file."""
    if labels and labels_file is not None:
        raise UsageError("Give --labels or --labels-file, not both")
    if labels_file is not None:
        return read_labels(labels_file)
    if labels:
        return split_labels(",".join(labels))
    raise UsageError(
        'No labels given; name the sounds: --labels "dog bark, siren" or --labels-file FILE'
    )


def rule_settings(
    pairs: list[str] | None,
    beta: str | None,
    noise: list[str] | None,
    pool: list[str] | None,
    *,
    raw: bool = False,
) -> dict[str, object]:
    """Return the settings of the rule that are given; the others are left to the preset."""
    settings: dict[str, object] = {"standardised": False} if raw else {}
    if beta is not None:
        settings["beta"] = beta if beta in ("auto", "per-class") else number("--beta", beta)
    for name, files in (("noise", noise), ("pool", pool)):
        if files:
            settings[name] = _recordings(files)
    for pair in pairs or []:
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"--set takes name=value, as in tau=0.3, not {pair!r}")
        settings[name.strip()] = value.strip()
    return settings


def number(flag: str, text: str) -> float:
    """Return the number that an option is given."""
    value = finite_number(text)
    if value is None:
        raise UsageError(f"{flag} must be a number, not {text!r}")
    return value


def whole(flag: str, text: str) -> int:
    """Return the whole number that an option is given."""
    if not (text.isdecimal() and len(text) < 10):
        raise UsageError(f"{flag} must be a whole number, not {text!r}")
    return int(text)


def optional_number(flag: str, text: str | None) -> float | None:
    """Return the number that an option is given, or None where it is not given."""
    return None if text is None else number(flag, text)


def _recordings(given: list[str]) -> str | list[str]:
    """Return recordings to embed, or the npz that holds embeddings already."""
    return given[0] if len(given) == 1 and given[0].endswith(".npz") else expand(given)
