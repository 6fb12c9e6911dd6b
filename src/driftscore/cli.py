"""The command: parse, one library call, print.

stdout is data, stderr is talk and progress; exit 0 done, 1 something failed (said in
words), 2 wrong usage.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

import numpy as np
import typer

from driftscore import __version__, backbones, plugins, rules
from driftscore.audio import expand
from driftscore.backbones import (
    backbone_names,
    check_model,
    embed_recording,
    load_backbone,
)
from driftscore.backbones.stored import Stored
from driftscore.classifier import Classifier, Result
from driftscore.cli_options import (
    Files,
    Format,
    Model,
    Out,
    Scoring,
    Tally,
    Threshold,
    number,
    option,
    say,
    with_scoring,
)
from driftscore.embeddings import EmbeddingFile, load_vectors
from driftscore.errors import AudioError, DriftscoreError, UsageError, unknown
from driftscore.files import replacing
from driftscore.formats import SPAN_FORMATS, Row, check_format, write_rows
from driftscore.head import Head
from driftscore.presets import preset_titles
from driftscore.progress import progress_bar
from driftscore.prompts import load_pack, pack_names
from driftscore.rules import rule_names
from driftscore.timeline import Event, merge

app = typer.Typer(
    name="driftscore",
    help="Zero-shot audio classification that keeps working in noise.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_FEW = 3  # up to this many files no progress bar is drawn


@app.command()
@with_scoring
def classify(
    files: Files,
    scoring: Scoring,
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
    ears = scoring.classifier(head=head, threshold=threshold).fit()
    tally = Tally(quiet=out is None and format not in SPAN_FORMATS)  # the rows say it
    with _output(out) as stream, _watched(recordings) as sources:
        if compare:
            rows = _compared_rows(ears, compare, sources, tally)
        elif timeline or windows:
            rows = _timeline_rows(ears, sources, tally, merged=not windows)
        else:
            results = _told(ears.classify(sources), tally)
            rows = _result_rows(results, ears.threshold, multi=multi, spans=format in SPAN_FORMATS)
        write_rows(rows, format, stream)
    tally.finish(len(recordings))


@app.command()
def embed(
    files: Files,
    out: Annotated[Path, typer.Option("--out", "-o", help="The npz to write.")],
    backbone: Model = "mini",
) -> None:
    """Turn recordings into embeddings, to be scored later with any head."""
    recordings, model, tally = expand(files), load_backbone(backbone), Tally()
    names, rows = [], []
    with _watched(recordings) as sources:
        for source in sources:
            try:
                rows.append(embed_recording(source, model))
                names.append(source)
            except AudioError as error:
                tally.fail(str(error))
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
@with_scoring
def head(
    scoring: Scoring,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Written as safetensors, .npz or .json.")
    ],
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
@with_scoring
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
    results = (
        Result(name, made.labels, row)
        for name, row in zip(content.files, made.scores(content.audio_rows), strict=True)
    )
    with _output(out) as stream:
        write_rows(_result_rows(results, cut, multi=multi, spans=False), format, stream)


@app.command()
@with_scoring
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


def _result_rows(
    results: Iterator[Result], threshold: float | None, *, multi: bool, spans: bool
) -> Iterator[Row]:
    """Yield a row a recording; as spans, a row for each of its labels."""
    for result in results:
        scores = dict(result.ranking)
        if spans:
            chosen = [result.label] if threshold is None else result.above(threshold)
            for label in chosen:
                yield {
                    "file": result.source,
                    "start_s": 0.0,
                    "end_s": result.seconds,
                    "label": label,
                    "score": scores.get(label, 0.0),
                    "error": result.error,
                }
        elif multi or threshold is not None:
            heard = {} if threshold is None else {"labels": result.above(threshold)}
            yield {
                "file": result.source,
                **heard,
                "scores": {label: scores.get(label, "") for label in result.labels},
                "error": result.error,
            }
        else:
            best, second = [*result.ranking, ("", ""), ("", "")][:2]
            yield {
                "file": result.source,
                "label": best[0],
                "score": best[1],
                "margin": "" if result.error else result.margin,
                "runner_up": second[0],
                "error": result.error,
            }


def _timeline_rows(
    ears: Classifier, recordings: Iterable[str], tally: Tally, *, merged: bool
) -> Iterator[Row]:
    """Yield the events of each recording, or its windows one by one."""
    for source in recordings:
        try:
            line = ears.stretches(source)
        except AudioError as error:
            tally.fail(str(error))
            yield _event_row(source, Event("", 0.0, 0.0, 0.0), str(error))
            continue
        # A window by itself is an event that nothing was merged into.
        parts = [line] if merged else [[stretch] for stretch in line]
        for part in parts:
            for event in merge(part, ears.head_.labels, threshold=ears.threshold):
                yield _event_row(source, event)


def _event_row(source: str, event: Event, error: str = "") -> Row:
    return {
        "file": source,
        "start_s": event.start_s,
        "end_s": event.end_s,
        "label": event.label,
        "score": event.score,
        "error": error,
    }


def _compared_rows(
    ears: Classifier, rule: str, recordings: Iterable[str], tally: Tally
) -> Iterator[Row]:
    """Yield the best label of two rules side by side; the audio is embedded once."""
    second = Classifier(**{**ears.get_params(), "rule": rule, "backbone": ears.backbone_}).fit()
    heads = {ears.rule: ears.head_, rule: second.head_}
    for source in recordings:
        row: Row = {"file": source}
        try:
            z = embed_recording(source, ears.backbone_)
            results = {n: Result(source, h.labels, h.scores(z)[0]) for n, h in heads.items()}
            error = ""
        except AudioError as failure:
            results, error = dict.fromkeys(heads, Result(source)), str(failure)
            tally.fail(error)
        for name, result in results.items():
            row |= {name: result.label, f"{name} margin": "" if error else result.margin}
        agree = len({result.label for result in results.values()}) == 1
        yield row | {"same": "" if error else "yes" if agree else "NO", "error": error}


def _told(results: Iterator[Result], tally: Tally) -> Iterator[Result]:
    """Pass results on, and tell of those that failed."""
    for result in results:
        if result.error:
            tally.fail(result.error)
        yield result


@contextmanager
def _watched(recordings: Sequence[str]) -> Iterator[Iterator[str]]:
    """Yield the recordings with a progress bar on stderr for more than a few."""
    with progress_bar("Listening", len(recordings) if len(recordings) > _FEW else 0) as advance:

        def one_by_one() -> Iterator[str]:
            for source in recordings:
                yield source
                advance(1)

        yield one_by_one()


@contextmanager
def _output(path: Path | None) -> Iterator[IO[str]]:
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
