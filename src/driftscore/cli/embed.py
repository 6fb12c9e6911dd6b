"""`driftscore embed` and `export`: recordings to embeddings, a CLAP checkpoint to ONNX."""

from itertools import chain
from typing import Annotated

import numpy as np
import typer

from driftscore.audio import expand
from driftscore.cli import options as take
from driftscore.cli.groups import EmbedOptions, flat
from driftscore.cli.reporting import Tally, report_runtime, say, watched
from driftscore.embeddings import EmbeddingFile
from driftscore.errors import AudioError
from driftscore.files import output_folder


@flat
def embed(
    files: take.Files,
    out: Annotated[str, typer.Option("--out", "-o", help="The npz to write: a file or a URL.")],
    model: EmbedOptions,
    verbose: take.Verbose = False,
) -> None:
    """Turn recordings into embeddings, to be scored later with any head."""
    recordings, tally = expand(files), Tally()
    with model.embedder() as embedder:
        used = embedder.backbone
        if verbose:
            report_runtime(used)
        outcomes = chain.from_iterable(watched(embedder.blocks, recordings, tally))
        found = [(one.source, one.embedding) for one in outcomes if not one.error]
    if not found:
        raise AudioError(f"None of the {len(recordings)} recordings could be embedded")
    EmbeddingFile(
        files=tuple(source for source, _ in found),
        audio_rows=np.stack([row for _, row in found]),
        name=used.name,
        fingerprint=used.fingerprint,
    ).save(out)
    say(f"{len(found)} embeddings of {used.dim} dimensions ({used.name}) in {out}")
    tally.finish(len(recordings))


def export(
    model: Annotated[str, typer.Argument(help="A CLAP: a hub id or a folder.")],
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", help="A folder to carry elsewhere; else the cache."),
    ] = None,
    int8: Annotated[
        bool,
        typer.Option("--int8", help="Round the weights to int8: faster, and not the same model."),
    ] = False,
    clips: Annotated[
        list[str] | None,
        typer.Option("--clips", help="Recordings to compare with torch on, besides ours."),
    ] = None,
) -> None:
    """Turn a CLAP checkpoint into ONNX, checked against torch: it then runs without torch."""
    from driftscore.backbones.clap.export import export as write  # torch is needed only here

    home = None if out is None else output_folder(out)
    say(f"Exporting {model} and comparing it with torch (half a minute to a minute)")
    made = write(model, home, int8=int8, clips=expand(clips or []))
    found = made.agreement
    say(f"{made.precision} export of {model} in {made.home}")
    say(
        f"largest difference from torch: {max(found['audio'], found['text']):.1e}; least cosine "
        f"with torch: sounds {found['audio_cosine']:.6f}, texts {found['text_cosine']:.6f}"
    )
    use = f"--backbone {made.home}" if out or int8 else f"--backbone {model}"
    say(f"used by: driftscore classify ... {use}")
