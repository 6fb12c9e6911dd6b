"""`driftscore explain`: what the model takes a word for."""

from typing import Any

import click

from driftscore.cli import options as take
from driftscore.cli.app import app
from driftscore.cli.output import output
from driftscore.errors import UsageError
from driftscore.formats import Format, OutputRow, write_rows


@app.command()
@click.argument("word")
@take.label_options
@take.output_options
@take.calibration_option
@take.backbone_options
def explain(word: str, format: Format, out: str | None, **options: Any) -> None:
    """Show what the model takes a word for.

    Its nearest tags with their shares, the sounds of the calibration that fit it best and worst
    (each as its own tags, with the cosine), and the labels that it can be confused with (with the
    correlation of their scores).

    $ driftscore explain airco
    $ driftscore explain moped --labels "scooter, lawn mower, cow"
    """
    if "," in word:
        first = word.split(",")[0].strip() or "dog"
        raise UsageError(
            f"One word is explained at a time, and {word!r} is a list; give one of them, as in "
            f"`driftscore explain {first!r}`"
        )
    names = take.label_names(**options) if options["labels"] else ()
    with output(out) as stream:
        explanation = take.make_classifier(names=names, **options).explain(word)
        meaning = explanation.meaning
        parts = {
            "tag": meaning.tags,
            "fits best": explanation.best,
            "fits worst": explanation.worst,
            "confused with": explanation.confused,
        }
        rows: list[OutputRow] = [
            {
                "word": meaning.word,
                "clear": meaning.clear,
                "what": what,
                "sound": sound,
                "value": value,
            }
            for what, pairs in parts.items()
            for sound, value in pairs
        ]
        write_rows(rows, format, stream, title=str(meaning))
