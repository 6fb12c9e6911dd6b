"""`driftscore calibrate`: measure, without labels, how noise moves the embeddings of a model."""

from typing import Annotated

import typer

from driftscore.audio import expand
from driftscore.backbones import DEFAULT_BACKBONE, DEFAULT_RUNTIME
from driftscore.calibrate import MOST, adapt, make_calibration
from driftscore.calibration import Calibration
from driftscore.cli import options as take
from driftscore.cli.reporting import say
from driftscore.embedder import Embedder
from driftscore.engines import DEFAULT_ENGINE
from driftscore.errors import UsageError

CalibrationOut = Annotated[
    str, typer.Option("--out", "-o", help="The safetensors file to write, or a URL.")
]
Noises = Annotated[
    list[str] | None,
    typer.Option("--noise", help="Noise recordings or folders; else synthetic noises."),
]
Update = Annotated[
    str | None,
    typer.Option(
        "--update",
        help="Adapt this calibration, or the model's own (`own`), to the place of the recordings.",
    ),
]
PlaceWeight = Annotated[
    str, typer.Option("--weight", help="With --update: weight of the place, 0 to 1.")
]
Most = Annotated[int, typer.Option("--most", help="Clips to use; of more, a random part.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the random choices.")]


def calibrate(
    files: take.Files,
    out: CalibrationOut,
    noise: Noises = None,
    update: Update = None,
    weight: PlaceWeight = "0.5",
    most: Most = MOST,
    seed: Seed = 0,
    backbone: take.BackboneName = DEFAULT_BACKBONE,
    runtime: take.Runtime = DEFAULT_RUNTIME,
    cache: take.KeepAudio = False,
    engine: take.EngineName = DEFAULT_ENGINE,
    address: take.Address = None,
    threads: take.Threads = None,
) -> None:
    """Measure how noise moves a model's embeddings, from unlabelled recordings."""
    recordings = expand(files)
    with take.make_embedder(backbone, runtime, cache, engine, address, threads) as embedder:
        if update is not None:
            share = take.number("--weight", weight)
            made, problems = adapt(_base(update, embedder), embedder, recordings, weight=share)
        else:
            noises = expand(noise or [])
            made, problems = make_calibration(embedder, recordings, noises, most=most, seed=seed)
    for problem in problems:
        say(f"skipped: {problem}")
    made.save(out)
    say(f"Calibration of {made.made_by.get('backbone')} from {len(made.clean)} clips in {out}")
    if made.default_rule:
        say(f"its rule: {made.default_rule} ({made.made_by.get('default_why')})")
    say(f"use it: driftscore classify ... --backbone {backbone} --calibration {out}")
    if problems:
        raise typer.Exit(1)


def _base(update: str, embedder: Embedder) -> Calibration:
    """Return the calibration to adapt."""
    if update != "own":
        return Calibration.load(update, embedder.backbone)
    own = embedder.backbone.calibration_file
    if own is None:
        raise UsageError(
            f"{embedder.backbone.name} comes without a calibration; make one with "
            "`driftscore calibrate RECORDINGS --out FILE`, and adapt that"
        )
    return Calibration.load(own, embedder.backbone)
