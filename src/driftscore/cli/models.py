"""Files that are made with a model, and labels from them.

`driftscore embed`, `head`, `score`, `prompts`, `calibrate` and `export`.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial as partial_function
from pathlib import Path
from typing import Any

import click
import numpy as np

from driftscore.audio.recordings import expand
from driftscore.backbones import check_model
from driftscore.backbones.stored import EmbeddingFile, Stored, load_vectors
from driftscore.calibrate import MAX_CLIPS, adapt, add_quiet, make_calibration
from driftscore.cli import options as take
from driftscore.cli.app import app
from driftscore.cli.classify import TITLES, result_rows
from driftscore.cli.output import Tally, counted, output, report_model, save, say, watched
from driftscore.embedder import Embedded, Embedder
from driftscore.engines.archive import (
    ArchiveWriter,
    archive_windows,
    open_embeddings,
)
from driftscore.errors import AudioError, UsageError
from driftscore.formats import Format, OutputRow, write_rows
from driftscore.scoring.calibration import RECIPE, Calibration
from driftscore.scoring.head import HEAD_ENDINGS, Head, join_heads, score_embeddings
from driftscore.storage.files import check_output, is_folder, output_folder


@app.command()
@take.files_argument
@click.option("--out", "-o", required=True,
              help="An npz with one row per recording: a file or a URL; or a folder, which becomes "
              "an archive with one row per window and is added to by the next run.")  # fmt: skip
@click.option("--windows", is_flag=True, help="One row per window in an npz as well.")
@click.option("--window", "window_s", type=take.Number(),
              help="Seconds of a window; 3 for mini, else those of the model.")  # fmt: skip
@click.option("--hop", "hop_s", type=take.Number(),
              help="Seconds from one window to the next; else half a window.")  # fmt: skip
@take.backbone_options
@take.partial_option
@take.cache_option
@take.engine_option
@take.verbose_option
def embed(
    files: tuple[str, ...],
    partial: bool,
    out: str,
    windows: bool,
    window_s: float | None,
    hop_s: float | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Turn recordings into embeddings, to be scored later with any head.

    FILES are recordings, folders, globs or URLs.

    $ driftscore embed recordings/ --out clips.npz
    $ driftscore embed recordings/ --out archive/
    """
    archive = out.endswith(("/", os.sep)) or is_folder(out)
    if archive:
        check_output(Path(out) / "part.parquet")
    else:
        check_output(out, ".npz")
    windows = windows or archive
    if not windows and (window_s is not None or hop_s is not None):
        raise UsageError("--window and --hop are for archives and --windows")
    recordings = take.list_recordings(files, partial)
    embed_all: Callable[[list[str]], Iterator[Embedded]]
    with take.make_embedder(**options) as embedder:
        backbone, tally = embedder.backbone, Tally(continues=archive or embedder.audio_cache)
        if verbose:
            report_model(backbone)
        embed_all, lengths_s = embedder.embed, (0.0, 0.0)
        if windows:
            usual_window_s, usual_hop_s = archive_windows(backbone)
            if hop_s is None:
                hop_s = usual_hop_s if window_s is None else window_s / 2
            lengths_s = (usual_window_s if window_s is None else window_s, hop_s)
            embed_all = partial_function(embedder.windows, window_s=lengths_s[0], hop_s=hop_s)
        if archive:
            with ArchiveWriter(out, backbone, window_s=lengths_s[0], hop_s=lengths_s[1]) as writer:
                missing, count = writer.missing(recordings), 0
                if there := len(recordings) - len(missing):
                    say(f"{counted(there, 'recording')} in {out} already")
                for one in watched(embed_all, missing, tally):
                    if not one.error:
                        writer.add(one)
                        count += len(one.rows)
            added = counted(len(missing) - tally.failed, "recording")
            say(f"{counted(count, 'window')} of {added} in {out}")
            tally.finish(len(recordings))
            return
        embedded = [
            (one.source, one.rows if windows else one.embedding[None], one.spans)
            for one in watched(embed_all, recordings, tally)
            if not one.error
        ]
    if not embedded:
        raise AudioError(f"None of the {len(recordings)} recordings could be embedded")
    file = EmbeddingFile(
        files=tuple(source for source, rows, _ in embedded for _ in rows),
        audio_rows=np.concatenate([rows for _, rows, _ in embedded]),
        name=backbone.name,
        fingerprint=backbone.fingerprint,
        spans=np.concatenate([spans for *_, spans in embedded]) if windows else np.zeros((0, 2)),
    )
    save(file.save, out)
    count = len(file.files)
    say(f"{count} embeddings of {backbone.dim} dimensions ({backbone.name}) in {out}")
    tally.finish(len(recordings))


@app.command()
@click.argument("heads", nargs=-1, metavar="[HEADS]...")
@take.label_options
@take.examples_option
@click.option("--out", "-o", required=True, help="Written as safetensors, .npz or .json.")
@take.rule_options
@take.backbone_options
@click.option("--text-embeddings", type=take.FILE,
              help="The texts of `prompts`, encoded elsewhere: an npz with texts and "
              "text_embeddings, or an npy with one row per text in that order.")  # fmt: skip
def head(heads: tuple[str, ...], out: str, text_embeddings: Path | None, **options: Any) -> None:
    """Compile labels and a rule to a head, or join HEADS of one model.

    A head takes the place of text embeddings: no text encoder is needed where it is used.

    $ driftscore head --labels "siren" --examples "doorbell=bell*.wav" --out head.safetensors
    $ driftscore head birds.safetensors machines.safetensors --out both.safetensors
    """
    check_output(out, *HEAD_ENDINGS)
    if heads:
        if options["labels"] or options["examples"]:
            raise UsageError("Give heads to join, or labels to compile a head of, not both")
        both = join_heads([Head.load(path) for path in heads])
        both.save(out)
        labels = counted(len(both.labels), "label")
        say(f"Head of {labels} x {both.dim} dimensions, joined, in {out}")
        return
    classifier = take.make_classifier(**options)
    if text_embeddings:
        vectors = load_vectors(text_embeddings, tuple(classifier.texts()))
        classifier.backbone = Embedder(Stored(vectors, where=str(text_embeddings)))
    compiled = take.fit(classifier, **options).head_
    save(compiled.save, out)
    used = f"rule {classifier.rule_.name}, scores in {compiled.unit}"
    labels = counted(len(compiled.labels), "label")
    say(f"Head of {labels} x {compiled.dim} dimensions, {used}, in {out}")


@app.command()
@click.argument("clips", type=take.FILE)
@click.option("--column", default="",
              help="The column of Parquet, or the array of an npz, that holds the embeddings, if "
              "there are several.")  # fmt: skip
@take.label_options
@take.output_options
@take.multi_option
@take.threshold_option
@take.head_option
@take.rule_options
@take.backbone_options
def score(
    clips: Path,
    column: str,
    format: Format,
    out: str | None,
    multi: bool,
    threshold: float | None,
    head: Path | None,
    **options: Any,
) -> None:
    """Label stored embeddings.

    CLIPS is an npz of embeddings or an archive (see `embed`), an npy with one row each, or Parquet
    of any tool with a column of lists. No audio is read, and with --head no model is needed.

    $ driftscore score clips.npz --head head.safetensors
    $ driftscore score archive/ --head head.safetensors --format csv --out windows.csv
    """
    stored = open_embeddings(clips, column)
    if head:
        compiled = Head.load(head)
    else:
        compiled = take.make_classifier(label_threshold=threshold, **options).fit().head_
    check_model(compiled.made_by, stored, what="The head")

    def rows() -> Iterator[OutputRow]:
        for block in stored.blocks():
            results = score_embeddings(compiled, block.files.tolist(), block.rows())
            of_block = result_rows(results, compiled, threshold, multi=multi, spans=False)
            for number, row in enumerate(of_block):
                if block.spans is None:
                    yield row
                else:
                    start_s, end_s = block.spans[number].tolist()
                    yield {"file": row["file"], "start_s": start_s, "end_s": end_s, **row}

    with output(out) as stream:
        write_rows(rows(), format, stream, title=TITLES[compiled.unit])


@app.command()
@take.label_options
@take.out_option
@take.rule_options
@take.backbone_options
def prompts(out: str | None, **options: Any) -> None:
    """Write the exact texts that a head is made of.

    One per line, to encode with any model.

    $ driftscore prompts --labels "siren, dog bark"
    $ driftscore prompts --labels sounds.txt --rule das --out texts.txt
    """
    with output(out) as stream:
        texts = take.make_classifier(**options).texts()
        stream.writelines(f"{text}\n" for text in texts)


@app.command()
@click.argument("recordings", nargs=-1, metavar="[RECORDINGS]...")
@click.option("--out", "-o", required=True, help="The safetensors file to write, or a URL.")
@click.option("--noise", multiple=True, help="Noise recordings or folders; else synthetic noises.")
@click.option("--clean", type=take.FILE,
              help="Embeddings of clips, computed elsewhere: an npz as `embed` writes, or an npy "
              "with one row each. Takes the place of RECORDINGS.")  # fmt: skip
@click.option("--noisy", type=take.FILE,
              help="With --clean: those of the same clips in noise, in that order.")  # fmt: skip
@click.option("--update", multiple=True,
              help="Unlabelled recordings or folders of a site: adapt the model's own calibration, "
              "or that of --calibration, to it. Takes the place of RECORDINGS.")  # fmt: skip
@click.option("--quiet", multiple=True,
              help="Recordings of a site in which none of your sounds occurs: thresholds of events "
              "then follow from it. Takes the place of RECORDINGS.")  # fmt: skip
@take.calibration_option
@click.option("--weight", type=take.Number(), default=0.5,
              help="With --update: weight of the site, 0 to 1.")  # fmt: skip
@click.option("--most", type=int, default=MAX_CLIPS, help="Clips to use; of more, a random part.")
@click.option("--seed", type=int, default=0, help="Seed of the random choices.")
@take.backbone_options
@take.cache_option
@take.engine_option
def calibrate(
    recordings: tuple[str, ...],
    out: str,
    noise: tuple[str, ...],
    clean: Path | None,
    noisy: Path | None,
    update: tuple[str, ...],
    quiet: tuple[str, ...],
    calibration: str | None,
    weight: float,
    most: int,
    seed: int,
    **options: Any,
) -> None:
    """Measure how noise moves a model's embeddings.

    RECORDINGS are a few hundred unlabelled recordings, folders, globs or URLs; no labels are
    needed. --update and --quiet adapt a calibration to a site.

    $ driftscore calibrate recordings/ --out mine.safetensors
    $ driftscore calibrate --clean clean.npz --noisy noisy.npz --out mine.safetensors
    """
    if sum(map(bool, (recordings, clean, update, quiet))) != 1 or (clean is None) != (
        noisy is None
    ):
        raise UsageError(
            "Give RECORDINGS to make a calibration, --clean FILE with --noisy FILE to make one of "
            "stored embeddings, --update FOLDER to adapt one, or --quiet FILE to set thresholds by "
            "a recording in which nothing happens"
        )
    check_output(out, ".safetensors")
    if clean is not None and noisy is not None:
        first, second = open_embeddings(clean), open_embeddings(noisy)
        first.check(second, what=str(clean))
        maker = first if first.fingerprint else second
        Calibration.from_embeddings(first.read(), second.read(), model=maker).save(out)
        say(f"Calibration from {clean} and {noisy} in {out}; the rule is anchor: {RECIPE}")
        say(f"use it: driftscore head ... --text-embeddings FILE --calibration {out}")
        return
    files, noises = expand(recordings or update or quiet), expand(noise)
    with take.make_embedder(**options) as embedder:
        if recordings:
            result, problems = make_calibration(embedder, files, noises, most=most, seed=seed)
        else:
            own = embedder.backbone.calibration_file if calibration is None else calibration
            if own is None:
                raise UsageError(
                    f"{embedder.backbone.name} comes without a calibration; make one with "
                    "`driftscore calibrate RECORDINGS --out FILE`, and adapt that with "
                    "--calibration FILE"
                )
            base = Calibration.load(own, embedder.backbone)
            if quiet:
                result, problems = add_quiet(base, embedder, files)
            else:
                result, problems = adapt(base, embedder, files, weight=weight)
    save(result.save, out)
    for problem in problems:
        say(f"skipped: {problem}")
    site = f" and {len(result.site)} windows of the site" if len(result.site) else ""
    if len(result.quiet):
        site += f" and {len(result.quiet) * result.quiet_hop_s / 60:.0f} quiet minutes"
    name = result.made_by.get("backbone")
    say(f"Calibration of {name} from {len(result.clean)} clips{site} in {out}")
    if result.default_rule:
        say(f"its rule: {result.default_rule} ({result.made_by.get('default_why')})")
    say(f"use it: driftscore classify ... --backbone {options['backbone']} --calibration {out}")
    if problems:
        raise click.exceptions.Exit(1)


@app.command()
@click.argument("model")
@click.option("--out", "-o", help="A folder to carry elsewhere; else the cache.")
@click.option("--int8", is_flag=True,
              help="Round the weights to int8: faster, and not the same model.")  # fmt: skip
@click.option("--clips", multiple=True,
              help="Recordings to compare with torch on, besides ours; repeatable.")  # fmt: skip
def export(model: str, out: str | None, int8: bool, clips: tuple[str, ...]) -> None:
    """Turn a CLAP checkpoint into ONNX, which runs without torch.

    MODEL is a CLAP: a hub id or a folder. The result is checked against torch.

    $ driftscore export laion/clap-htsat-unfused
    $ driftscore export laion/clap-htsat-unfused --int8 --out clap-int8
    """
    from driftscore.backbones.clap.export import export as write  # torch is needed only here

    home = None if out is None else output_folder(out)
    if home is not None:
        check_output(home / "model.onnx")
    say(f"Exporting {model} and comparing it with torch (half a minute to a minute)")
    exported = write(model, home, int8=int8, clips=expand(clips))
    agreement = exported.manifest.agreement
    say(f"{exported.manifest.precision} export of {model} in {exported.home}")
    largest = max(agreement["audio"], agreement["text"])
    say(
        f"largest difference from torch: {largest:.1e}; least cosine with torch: sounds "
        f"{agreement['audio_cosine']:.6f}, texts {agreement['text_cosine']:.6f}"
    )
    use = f"--backbone {exported.home}" if out or int8 else f"--backbone {model}"
    say(f"used by: driftscore classify ... {use}")
