"""`driftscore head`, `score` and `prompts`: heads, stored embeddings and the texts of labels."""

from pathlib import Path
from typing import Annotated

import typer

from driftscore.backbones import DEFAULT_BACKBONE, DEFAULT_RUNTIME, check_model
from driftscore.backbones.stored import Stored
from driftscore.classifier import score_rows
from driftscore.cli import options as take
from driftscore.cli.reporting import output, say
from driftscore.cli.rows import result_rows, score_title, unit_of
from driftscore.embedder import Embedder
from driftscore.embeddings import EmbeddingFile, load_vectors
from driftscore.errors import UsageError
from driftscore.formats import DEFAULT_FORMAT, find_format, write_rows
from driftscore.head import Head
from driftscore.settings import AUTO, DEFAULT_PRESET

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


def head(
    out: HeadOut,
    text_embeddings: TextEmbeddings = None,
    labels: take.LabelsOption = None,
    labels_file: take.LabelsFile = None,
    backbone: take.BackboneName = DEFAULT_BACKBONE,
    runtime: take.Runtime = DEFAULT_RUNTIME,
    rule: take.RuleName = AUTO,
    beta: take.Beta = None,
    settings: take.SettingsOption = None,
    noise: take.NoiseOption = None,
    pool: take.Pool = None,
    preset: take.PresetName = DEFAULT_PRESET,
    prompt: take.Prompt = None,
    pack: take.PackOption = None,
    templates: take.Templates = None,
    reference: take.Reference = None,
    direction: take.Direction = None,
    skip_same: take.SkipSame = False,
    calibration: take.CalibrationFile = None,
    raw: take.Raw = False,
) -> None:
    """Compile labels and a rule to a head, which takes the place of text embeddings."""
    names = take.label_names(labels, labels_file)
    prompts = take.prompt_settings(preset, prompt, pack, templates, reference, direction, skip_same)
    values = take.rule_settings(settings, beta, noise, pool, raw=raw)
    scoring = take.ScoringOptions(names, rule, values, prompts, preset, calibration)
    if text_embeddings:
        texts = tuple(scoring.classifier(backbone).texts())
        model = Stored(load_vectors(text_embeddings, texts), where=str(text_embeddings))
        embedder = Embedder(model)
    else:
        embedder = Embedder(backbone, runtime=runtime)
    classifier = scoring.classifier(embedder, threshold=_ANY).fit()
    made = classifier.head_
    made.save(out)
    used = f"rule {classifier.rule_.name}{', standardised' if made.standardised else ''}"
    say(f"Head of {len(made.labels)} labels x {made.dim} dimensions, {used}, in {out}")


def score(
    clips: take.Clips,
    head: OtherwiseLabels = None,
    multi: take.Multi = False,
    threshold: take.Threshold = None,
    format: take.FormatName = DEFAULT_FORMAT,
    out: take.Out = None,
    labels: take.LabelsOption = None,
    labels_file: take.LabelsFile = None,
    backbone: take.BackboneName = DEFAULT_BACKBONE,
    runtime: take.Runtime = DEFAULT_RUNTIME,
    rule: take.RuleName = AUTO,
    beta: take.Beta = None,
    settings: take.SettingsOption = None,
    noise: take.NoiseOption = None,
    pool: take.Pool = None,
    preset: take.PresetName = DEFAULT_PRESET,
    prompt: take.Prompt = None,
    pack: take.PackOption = None,
    templates: take.Templates = None,
    reference: take.Reference = None,
    direction: take.Direction = None,
    skip_same: take.SkipSame = False,
    calibration: take.CalibrationFile = None,
    raw: take.Raw = False,
) -> None:
    """Label stored embeddings: no audio is read, and with --head no model is needed."""
    find_format(format)
    content = _clip_embeddings(clips)
    if head:
        made = Head.load(head)
    else:
        names = take.label_names(labels, labels_file)
        texts = take.prompt_settings(
            preset, prompt, pack, templates, reference, direction, skip_same
        )
        values = take.rule_settings(settings, beta, noise, pool, raw=raw)
        scoring = take.ScoringOptions(names, rule, values, texts, preset, calibration)
        made = scoring.classifier(Embedder(backbone, runtime=runtime), threshold=_ANY).fit().head_
    check_model(made.made_by, content, what="The head")
    cut = take.optional_number("--threshold", threshold)
    results = score_rows(made, content.files, content.audio_rows)
    rows = result_rows(results, cut, unit_of(made), multi=multi, spans=False)
    with output(out) as stream:
        write_rows(rows, format, stream, title=score_title(made))


def prompts(
    labels: take.LabelsOption = None,
    labels_file: take.LabelsFile = None,
    backbone: take.BackboneName = DEFAULT_BACKBONE,
    runtime: take.Runtime = DEFAULT_RUNTIME,
    rule: take.RuleName = AUTO,
    beta: take.Beta = None,
    settings: take.SettingsOption = None,
    noise: take.NoiseOption = None,
    pool: take.Pool = None,
    preset: take.PresetName = DEFAULT_PRESET,
    prompt: take.Prompt = None,
    pack: take.PackOption = None,
    templates: take.Templates = None,
    reference: take.Reference = None,
    direction: take.Direction = None,
    skip_same: take.SkipSame = False,
    calibration: take.CalibrationFile = None,
    raw: take.Raw = False,
    out: take.Out = None,
) -> None:
    """Write the exact texts that a head is made of, one per line, to encode with any model."""
    names = take.label_names(labels, labels_file)
    texts = take.prompt_settings(preset, prompt, pack, templates, reference, direction, skip_same)
    values = take.rule_settings(settings, beta, noise, pool, raw=raw)
    scoring = take.ScoringOptions(names, rule, values, texts, preset, calibration)
    with output(out) as stream:
        stream.writelines(f"{text}\n" for text in scoring.classifier(backbone).texts())


def _clip_embeddings(path: Path) -> EmbeddingFile:
    content = EmbeddingFile.load(path)
    if not content.files:
        raise UsageError(f"{path} holds no clip embeddings (files with audio_embeddings)")
    return content
