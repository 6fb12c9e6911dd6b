"""`driftscore calibrate`: measure, without labels, how noise moves the embeddings of a model."""

from typing import Annotated

import typer

from driftscore.audio import expand
from driftscore.calibrate import MOST, adapt, add_quiet, make_calibration
from driftscore.calibration import Calibration
from driftscore.cli import options as take
from driftscore.cli.groups import EmbedOptions, flat
from driftscore.cli.reporting import say
from driftscore.embedder import Embedder
from driftscore.errors import UsageError

CalibrationOut = Annotated[
    str, typer.Option("--out", "-o", help="The safetensors file to write, or a URL.")
]
Unlabelled = Annotated[
    list[str] | None,
    typer.Argument(
        help="Unlabelled recordings, folders, globs or URLs: a few hundred.", metavar="RECORDINGS"
    ),
]
Noises = Annotated[
    list[str] | None,
    typer.Option("--noise", help="Noise recordings or folders; else synthetic noises."),
]
Update = Annotated[
    list[str] | None,
    typer.Option(
        "--update",
        help="Unlabelled recordings or folders of a place: adapt the model's own calibration, or "
        "that of --calibration, to it. Takes the place of RECORDINGS.",
    ),
]
Quiet = Annotated[
    list[str] | None,
    typer.Option(
        "--quiet",
        help="Recordings of a place in which none of your sounds occurs: thresholds of events then "
        "follow from it. Takes the place of RECORDINGS.",
    ),
]
PlaceWeight = Annotated[
    str, typer.Option("--weight", help="With --update: weight of the place, 0 to 1.")
]
Most = Annotated[int, typer.Option("--most", help="Clips to use; of more, a random part.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the random choices.")]


@flat
def calibrate(
    model: EmbedOptions,
    out: CalibrationOut,
    recordings: Unlabelled = None,
    noise: Noises = None,
    update: Update = None,
    quiet: Quiet = None,
    calibration: take.CalibrationFile = None,
    weight: PlaceWeight = "0.5",
    most: Most = MOST,
    seed: Seed = 0,
) -> None:
    """Measure how noise moves a model's embeddings, or adapt that to a place; no labels."""
    if sum(map(bool, (recordings, update, quiet))) != 1:
        raise UsageError(
            "Give RECORDINGS to make a calibration, --update FOLDER to adapt one, or --quiet FILE "
            "to set thresholds by a recording in which nothing happens"
        )
    share = take.number("--weight", weight)
    files, noises = expand(recordings or update or quiet or []), expand(noise or [])
    with model.embedder() as embedder:
        if quiet:
            made, problems = add_quiet(_base(calibration, embedder), embedder, files)
        elif update:
            base = _base(calibration, embedder)
            made, problems = adapt(base, embedder, files, weight=share)
        else:
            made, problems = make_calibration(embedder, files, noises, most=most, seed=seed)
    made.save(out)
    _report(made, problems, out, model.backbone)
    if problems:
        raise typer.Exit(1)


def _report(made: Calibration, problems: list[str], out: str, backbone: str) -> None:
    """Report what a calibration is made of, and how it is used."""
    for problem in problems:
        say(f"skipped: {problem}")
    place = f" and {len(made.site)} windows of the place" if len(made.site) else ""
    if len(made.quiet):
        place += f" and {len(made.quiet) * made.quiet_hop_s / 60:.0f} quiet minutes"
    name = made.made_by.get("backbone")
    say(f"Calibration of {name} from {len(made.clean)} clips{place} in {out}")
    if made.default_rule:
        say(f"its rule: {made.default_rule} ({made.made_by.get('default_why')})")
    say(f"use it: driftscore classify ... --backbone {backbone} --calibration {out}")


def _base(calibration: str | None, embedder: Embedder) -> Calibration:
    """Return the calibration to adapt: the one that is given, or the model's own."""
    own = embedder.backbone.calibration_file if calibration is None else calibration
    if own is None:
        raise UsageError(
            f"{embedder.backbone.name} comes without a calibration; make one with "
            "`driftscore calibrate RECORDINGS --out FILE`, and adapt that with --calibration FILE"
        )
    return Calibration.load(own, embedder.backbone)
