"""`driftscore data ...`: list, download and check datasets and noises."""

import sys
from typing import Annotated

import typer

from driftscore.cli.reporting import say
from driftscore.errors import UsageError
from driftscore.files import output_folder
from driftscore.formats import OutputRow, write_rows
from driftscore.lab.corpora import download
from driftscore.lab.corpora.datasets import dataset_names

app = typer.Typer(
    name="data",
    help="Download and check datasets and noises.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Home = Annotated[
    str | None, typer.Option("--home", help="The folder of the corpus, if it is not the default.")
]
Name = Annotated[str, typer.Argument(help="A dataset or noise: see `data list`.")]


@app.command("list")
def list_() -> None:
    """List the datasets and noises, and whether they are complete on this machine."""
    rows: list[OutputRow] = []
    for name in download.corpus_names():
        about = download.find_corpus(name).about
        kind = "dataset" if name in dataset_names() else "noise"
        rows.append({"name": name, "kind": kind, "here": _here(name), "what": about.title})
    write_rows(rows, "table", sys.stdout)


@app.command()
def get(
    name: Name,
    home: Home = None,
    mirror: Annotated[
        str | None,
        typer.Option(
            "--mirror", help="A server with the same paths, which you trust as the official one."
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the archives.")] = False,
) -> None:
    """Download a corpus from its official source; complete files are not downloaded again."""
    about = download.find_corpus(name).about
    target = None if home is None else output_folder(home)  # also an empty name is refused
    say(f"{about.title}\nlicence: {about.licence}\n{about.citation}")
    folder = download.get(name, target, mirror=mirror, keep=keep)
    say(f"{about.title} is complete in {folder}")


@app.command()
def check(name: Name, home: Home = None) -> None:
    """List everything that the folder of a corpus lacks, one per line."""
    lacking = download.check(name, home)
    for line in lacking:
        print(line)
    if lacking:
        say(f"{len(lacking):,} missing; {_advice(name)}")
        raise typer.Exit(1)
    say(f"{name} is complete")


def _advice(name: str) -> str:
    """Return what to do about a corpus that is incomplete."""
    corpus = download.find_corpus(name)
    if corpus.about.files:
        return f"download them: driftscore data get {name}"
    return f"put them into the folder, or name another one: driftscore data check {name} --home"


def _here(name: str) -> str:
    try:
        return "no" if download.check(name) else "yes"
    except UsageError:  # the shared recordings are not on this machine
        return "no"
