"""`driftscore find`: search an archive of embeddings for words."""

from pathlib import Path
from typing import Any

import click

from driftscore.audio.clock import start_of
from driftscore.cli import options as take
from driftscore.cli.app import app
from driftscore.cli.classify import TITLES
from driftscore.cli.detect import EventRow, make_watch_list
from driftscore.cli.output import counted, output, report_model, say, span_row
from driftscore.engines.archive import open_embeddings
from driftscore.errors import DriftscoreError, UsageError
from driftscore.events.clips import ClipFolder
from driftscore.events.search import Place, expected_precisions, search
from driftscore.events.tracking import Event
from driftscore.formats import Format, write_rows
from driftscore.storage.files import check_output
from driftscore.text.prompts import split_labels

COLUMNS = ("file", "start_s", "end_s", "time", "label", "score", "precision", "unit", "error")


@app.command()
@click.argument("words", nargs=-1, metavar="[WORDS]...")
@click.option("--in", "archive", required=True, metavar="FOLDER",
              help="An archive (see `embed`), or embeddings of another tool.")  # fmt: skip
@click.option("--top", type=int, default=50, help="Places per label.")
@click.option("--column", default="", help="The column of embeddings, if there are several.")
@click.option("--watch", type=take.FILE, help="A watch list (TOML) in place of WORDS.")
@take.examples_option
@take.output_options
@click.option("--clips", type=take.FILE, help="Cut each place out into this folder.")
@take.rule_options
@take.head_option
@take.backbone_options
@take.verbose_option
def find(
    words: tuple[str, ...],
    archive: str,
    top: int,
    column: str,
    format: Format,
    out: str | None,
    clips: Path | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Find the best places of an archive for words, without reading audio.

    WORDS are labels, each in quotes or all separated by commas. Scores are those by which
    `detect` judges windows, and overlapping windows are one place. `precision` is the share
    of the places up to this one that is expected to be right, estimated without labels.

    $ driftscore find "glass breaking, siren" --in archive/ --top 20 --format html --out places.html
    $ driftscore find --examples "doorbell=bell*.wav" --in archive/
    """
    if clips is not None:
        check_output(clips / "event.flac")
    if not (words or any(options[name] for name in ("head", "watch", "examples"))):
        raise UsageError('No words given; say what to find: driftscore find "glass breaking" ...')
    stored = open_embeddings(archive, column)
    watch = None
    if options["head"] is None or options["watch"] is not None:
        labels = split_labels(",".join(words)) if words else ()
        watch = make_watch_list(negatives=(), labels=labels, **options)
    embedder = take.make_embedder(**options)
    names = None if watch is None else watch.names
    classifier = take.make_classifier(embedder, names, **options)
    detector = classifier.detector(watch)
    if verbose:
        report_model(embedder.backbone, classifier)
    stored.check(embedder.backbone, what=archive)
    places = search(detector.head, stored, top=top, labels=len(detector.watch.names))
    unit = detector.head.unit
    precisions = expected_precisions(places, detector.head, detector.calibration, stored)
    rows = (
        place_row(place) | {"precision": precision, "unit": unit}
        for place, precision in zip(places, precisions, strict=True)
    )
    with output(out) as stream:
        write_rows(rows, format, stream, title=TITLES[unit], columns=COLUMNS)
    say(f"{counted(len(places), 'place')} in {counted(stored.count, 'window')} of {archive}")
    if clips is not None and cut_clips(clips, places):
        raise click.exceptions.Exit(1)


def place_row(place: Place) -> EventRow:
    """Return the row of a place; it has no threshold, and its level is not measured."""
    start = start_of(place.source)
    time = "" if start is None else start.text_at(place.start_s)
    row = span_row(place.source, place.label, place.start_s, place.end_s, place.score, time=time)
    return {key: value for key, value in row.items() if key in COLUMNS}


def cut_clips(folder: Path, places: list[Place]) -> int:
    """Write the clips of all places; return how many recordings could not be read."""
    by_source: dict[str, list[Event]] = {}
    for place in places:
        event = Event(place.label, place.start_s, place.end_s, place.score)
        by_source.setdefault(place.source, []).append(event)
    written, failures, target = 0, 0, ClipFolder(folder)
    for source, events in by_source.items():
        try:
            written += sum(path is not None for path in target.cut(source, events))
        except DriftscoreError as error:
            say(f"skipped: {error}")
            failures += 1
    say(f"{written} clips in {folder}")
    return failures
