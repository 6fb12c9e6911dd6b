"""The command: parse, one library call, print.

stdout is data, stderr is talk and progress; exit 0 done, 1 something failed (said in
words), 2 wrong usage.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, TypeVar

import numpy as np
import typer

from driftscore import __version__, backbones, plugins, rules
from driftscore.audio import expand
from driftscore.backbones import backbone_names, check_model
from driftscore.backbones.stored import Stored
from driftscore.classifier import score_rows
from driftscore.cli_options import (
    Files,
    Format,
    Hearing,
    Model,
    Out,
    Runtime,
    Scoring,
    Tally,
    Threshold,
    number,
    option,
    say,
    with_options,
)
from driftscore.cli_rows import compared_rows, result_rows, timeline_rows
from driftscore.embeddings import EmbeddingFile, load_vectors
from driftscore.engines import Heard
from driftscore.errors import AudioError, DriftscoreError, UsageError, unknown
from driftscore.files import replacing
from driftscore.formats import SPAN_FORMATS, Row, check_format, write_rows
from driftscore.head import Head
from driftscore.presets import preset_titles
from driftscore.progress import progress_bar
from driftscore.prompts import load_pack, pack_names
from driftscore.result import Result
from driftscore.rules import rule_names

app = typer.Typer(
    name="driftscore",
    help="Zero-shot audio classification that keeps working in noise.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_FEW = 3  # up to this many files no progress bar is drawn


@app.command()
@with_options(scoring=Scoring, hearing=Hearing)
def classify(
    files: Files,
    scoring: Scoring,
    hearing: Hearing,
    head: Annotated[
        Path | None, option("--head", "A compiled head, in place of labels and rule.")
    ] = None,
    compare: Annotated[
        str | None, option("--compare", "A second rule, side by side with --rule.")
    ] = None,
    multi: Annotated[bool, option("--multi", "Show every label's score.")] = False,
    threshold: Threshold = None,
    timeline: Annotated[bool, option("--timeline", "What is heard from when to when.")] = False,
    windows: Annotated[
        bool, option("--windows", "Like --timeline, with one row a window, not merged.")
    ] = False,
    format: Format = "table",
    out: Out = None,
) -> None:
    """Label recordings with your own words."""
    check_format(format)
    if compare and (timeline or windows or multi or threshold or head):
        raise UsageError(
            "--compare sets two rules' best labels side by side; leave out --timeline, --windows, "
            "--multi, --threshold and --head"
        )
    recordings = expand(files)
    ears = scoring.classifier(hearing, head=head, threshold=threshold).fit()
    hearing.explain(ears.backbone_)
    tally = Tally(quiet=out is None and format not in SPAN_FORMATS)  # the rows say it
    with _output(out) as stream:
        if compare:
            rows = compared_rows(ears, compare, _watched(ears.hear, recordings, tally))
        elif timeline or windows:
            heard = _watched(ears.hear, recordings, tally)
            rows = timeline_rows(ears, heard, merged=not windows)
        else:
            results = _watched(ears.classify, recordings, tally)
            rows = result_rows(results, ears.threshold, multi=multi, spans=format in SPAN_FORMATS)
        write_rows(rows, format, stream)
    tally.finish(len(recordings))


@app.command()
@with_options(hearing=Hearing)
def embed(
    files: Files,
    hearing: Hearing,
    out: Annotated[str, typer.Option("--out", "-o", help="The npz to write: a file or a URL.")],
    backbone: Model = "mini",
    runtime: Runtime = "auto",
) -> None:
    """Turn recordings into embeddings, to be scored later with any head."""
    recordings, tally = expand(files), Tally()
    model, hear = hearing.ears(backbone, runtime)
    names, rows = [], []
    for heard in _watched(hear, recordings, tally):
        if not heard.error:
            rows.append(heard.embedding)
            names.append(heard.source)
    if not rows:
        raise AudioError(f"None of the {len(recordings)} recordings could be embedded")
    EmbeddingFile(
        files=tuple(names),
        audio_rows=np.stack(rows),
        name=model.name,
        fingerprint=model.fingerprint,
    ).save(out)
    say(f"{len(rows)} embeddings of {model.dim} dimensions ({model.name}) in {out}")
    tally.finish(len(recordings))


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="A CLAP: a hub id or a folder.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A folder to carry elsewhere; else the cache."),
    ] = None,
    int8: Annotated[
        bool, option("--int8", "Round the weights to int8: faster, and not the same model.")
    ] = False,
    clips: Annotated[
        list[str] | None, option("--clips", "Recordings to compare with torch on, besides ours.")
    ] = None,
) -> None:
    """Turn a CLAP checkpoint into ONNX, checked against torch: it then runs without torch."""
    from driftscore.backbones._clap_writer import export as write  # torch is needed only here

    say(f"Exporting {model} and comparing it with torch (half a minute, or one)")
    made = write(model, out, int8=int8, clips=expand(clips or []))
    found = made.agreement
    say(f"{made.precision} export of {model} in {made.home}")
    say(
        f"largest difference from torch: {max(found['audio'], found['text']):.1e}; least cosine "
        f"with torch: sounds {found['audio_cosine']:.6f}, texts {found['text_cosine']:.6f}"
    )
    use = f"--backbone {made.home}" if out or int8 else f"--backbone {model}"
    say(f"used by: driftscore classify ... {use}")


@app.command()
@with_options(scoring=Scoring)
def head(
    scoring: Scoring,
    out: Annotated[str, typer.Option("--out", "-o", help="Written as safetensors, .npz or .json.")],
    text_embeddings: Annotated[
        Path | None,
        option(
            "--text-embeddings",
            "The texts of `prompts`, encoded elsewhere: an npz with texts and text_embeddings, "
            "or an npy with one row a text in that order.",
        ),
    ] = None,
) -> None:
    """Compile labels and a rule to a head: what takes the place of text embeddings."""
    ears = scoring.classifier(threshold="0")  # a head of one label is of use with a threshold
    if text_embeddings:
        vectors = load_vectors(text_embeddings, tuple(ears.texts()))
        ears.set_params(backbone=Stored(vectors, where=str(text_embeddings)))
    made = ears.fit().head_
    made.save(out)
    say(f"Head of {len(made.labels)} labels x {made.dim} dimensions, rule {scoring.rule}, in {out}")


@app.command()
@with_options(scoring=Scoring)
def score(
    clips: Annotated[Path, typer.Argument(help="An npz of clip embeddings (see `embed`).")],
    scoring: Scoring,
    head: Annotated[Path | None, option("--head", "A compiled head; else give --labels.")] = None,
    multi: Annotated[bool, option("--multi", "Show every label's score.")] = False,
    threshold: Threshold = None,
    format: Format = "table",
    out: Out = None,
) -> None:
    """Label stored embeddings: no audio is read, and with --head no model is needed."""
    check_format(format)
    content = EmbeddingFile.load(clips)
    if not content.files:
        raise UsageError(f"{clips} holds no clip embeddings (files with audio_embeddings)")
    made = Head.load(head) if head else scoring.classifier(threshold="0").fit().head_
    check_model(made.made_by, content, what="The head")
    cut = None if threshold is None else number("--threshold", threshold)
    results = score_rows(made, content.files, content.audio_rows)
    with _output(out) as stream:
        write_rows(result_rows(results, cut, multi=multi, spans=False), format, stream)


@app.command()
@with_options(scoring=Scoring)
def prompts(scoring: Scoring, out: Out = None) -> None:
    """Write the exact texts that a head is made of, one a line, to encode with any model."""
    with _output(out) as stream:
        stream.writelines(f"{text}\n" for text in scoring.classifier(threshold="0").texts())


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="rules | backbones | packs | presets")],
    format: Format = "table",
) -> None:
    """Show what there is to choose from."""
    listings: dict[str, Callable[[], list[Row]]] = {
        "rules": lambda: _summaries(rules.__name__, rule_names(), "compile"),
        "backbones": lambda: _summaries(backbones.__name__, backbone_names(), "load"),
        "packs": _pack_rows,
        "presets": lambda: [{"preset": n, "what": t} for n, t in preset_titles().items()],
    }
    if what not in listings:
        raise unknown("list", what, listings)
    write_rows(listings[what](), format, sys.stdout)


_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_PASS_ON)
def lab(context: typer.Context) -> None:
    """Measure rules in noise over a grid: run, status, report, export (extra: lab)."""
    from driftscore.lab import commands  # not at the top: most commands never need the lab

    commands.call(commands.lab, context.args, "driftscore lab")


@app.command(context_settings=_PASS_ON)
def data(context: typer.Context) -> None:
    """Fetch and check the datasets and noise corpora that the lab uses."""
    from driftscore.lab import commands

    commands.call(commands.data, context.args, "driftscore data")


def _pack_rows() -> list[Row]:
    packs = [load_pack(name) for name in pack_names()]
    return [{"pack": p.id, "holds": f"{len(p.entries)} {p.kind}", "what": p.title} for p in packs]


def _summaries(package: str, names: tuple[str, ...], entry: str) -> list[Row]:
    kind = {"compile": "rule", "load": "backbone"}[entry]
    found = {name: plugins.find(package, name, entry=entry, kind=kind) for name in names}
    return [{kind: name, "what": plugins.summary(module)} for name, module in found.items()]


Told = TypeVar("Told", Heard, Result)


def _watched(
    listen: Callable[[list[str]], Iterator[Told]], recordings: list[str], tally: Tally
) -> Iterator[Told]:
    """Yield what is heard of each recording; tell of those that failed, and how far it is."""
    with progress_bar("Listening", len(recordings) if len(recordings) > _FEW else 0) as advance:
        for told in listen(recordings):
            if told.error:
                tally.fail(told.error)
            yield told
            advance(1)


@contextmanager
def _output(path: str | None) -> Iterator[IO[str]]:
    """Yield stdout, or a file that is moved into place when it is whole."""
    if path is None:
        yield sys.stdout
        return
    with replacing(path) as partial, open(partial, "w", encoding="utf-8") as stream:
        yield stream


def _version(show: bool) -> None:
    if show:
        print(f"driftscore {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Zero-shot audio classification that keeps working in noise."""


def main() -> None:
    """Run the command; deliberate errors are a sentence, never a traceback."""
    warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
    try:
        app()
    except DriftscoreError as error:
        say(f"error: {error}")
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of stdout has gone, as `head` does: nothing to say
        sys.exit(1)
    except KeyboardInterrupt:
        say("stopped")
        sys.exit(130)


if __name__ == "__main__":
    main()
