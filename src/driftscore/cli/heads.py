"""`driftscore head`, `score` and `prompts`: heads, stored embeddings and the texts of labels."""

from pathlib import Path
from typing import Annotated

import typer

from driftscore.backbones import check_model
from driftscore.backbones.stored import Stored
from driftscore.cli import options as take
from driftscore.cli.groups import ModelOptions, ScoreOptions, flat
from driftscore.cli.reporting import output, say
from driftscore.cli.rows import result_rows, score_title, unit_of
from driftscore.embedder import Embedder
from driftscore.embeddings import EmbeddingFile, load_vectors
from driftscore.errors import UsageError
from driftscore.formats import DEFAULT_FORMAT, find_format, write_rows
from driftscore.head import Head
from driftscore.scoring import score_rows

_ANY = 0.0  # a threshold, so that a head of one label is not refused: it is used with a threshold

HeadOut = Annotated[str, typer.Option("--out", "-o", help="Written as safetensors, .npz or .json.")]
TextEmbeddings = Annotated[
    Path | None,
    typer.Option(
        "--text-embeddings",
        help="The texts of `prompts`, encoded elsewhere: an npz with texts and text_embeddings, "
        "or an npy with one row per text in that order.",
    ),
]

OtherwiseLabels = Annotated[
    Path | None, typer.Option("--head", help="A compiled head; else give --labels.")
]


@flat
def head(
    scores: ScoreOptions,
    model: ModelOptions,
    out: HeadOut,
    text_embeddings: TextEmbeddings = None,
) -> None:
    """Compile labels and a rule to a head, which takes the place of text embeddings."""
    scoring = scores.scoring()
    if text_embeddings:
        texts = tuple(scoring.classifier(model.backbone).texts())
        stored = Stored(load_vectors(text_embeddings, texts), where=str(text_embeddings))
        embedder = Embedder(stored)
    else:
        embedder = Embedder(model.backbone, runtime=model.runtime)
    classifier = scoring.classifier(embedder, threshold=_ANY).fit()
    made = classifier.head_
    made.save(out)
    used = f"rule {classifier.rule_.name}{', standardised' if made.standardised else ''}"
    say(f"Head of {len(made.labels)} labels x {made.dim} dimensions, {used}, in {out}")


@flat
def score(
    clips: take.Clips,
    scores: ScoreOptions,
    model: ModelOptions,
    head: OtherwiseLabels = None,
    multi: take.Multi = False,
    threshold: take.Threshold = None,
    format: take.FormatName = DEFAULT_FORMAT,
    out: take.Out = None,
) -> None:
    """Label stored embeddings: no audio is read, and with --head no model is needed."""
    find_format(format)
    content = _clip_embeddings(clips)
    if head:
        made = Head.load(head)
    else:
        embedder = Embedder(model.backbone, runtime=model.runtime)
        made = scores.scoring().classifier(embedder, threshold=_ANY).fit().head_
    check_model(made.made_by, content, what="The head")
    cut = take.optional_number("--threshold", threshold)
    blocks = score_rows(made, content.files, content.audio_rows)
    rows = result_rows(blocks, cut, unit_of(made), multi=multi, spans=False)
    with output(out) as stream:
        write_rows(rows, format, stream, title=score_title(made))


@flat
def prompts(
    scores: ScoreOptions,
    model: ModelOptions,
    out: take.Out = None,
) -> None:
    """Write the exact texts that a head is made of, one per line, to encode with any model."""
    with output(out) as stream:
        texts = scores.scoring().classifier(model.backbone).texts()
        stream.writelines(f"{text}\n" for text in texts)


def _clip_embeddings(path: Path) -> EmbeddingFile:
    content = EmbeddingFile.load(path)
    if not content.files:
        raise UsageError(f"{path} holds no clip embeddings (files with audio_embeddings)")
    return content
