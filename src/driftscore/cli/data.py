"""`driftscore data ...`: list, download and check datasets and noises."""

import sys

import click

from driftscore.cli.app import app
from driftscore.cli.output import say
from driftscore.formats import OutputRow, write_rows
from driftscore.lab.corpora import download
from driftscore.lab.corpora.datasets import Dataset
from driftscore.storage.files import output_folder


@app.group()
def data() -> None:
    """Download and check the datasets and noises of the lab.

    $ driftscore data list
    $ driftscore data get esc50
    """


_name = click.argument("name")
_home = click.option("--home", help="The folder of the corpus, if it is not the default.")


@data.command("list")
def list_() -> None:
    """List the datasets and noises, and whether they are complete on this machine.

    $ driftscore data list
    $ driftscore data list | grep noise
    """
    rows: list[OutputRow] = []
    for name in download.corpus_names():
        corpus = download.find_corpus(name)
        kind = "dataset" if isinstance(corpus, Dataset) else "noise"
        here = "no" if corpus.missing() else "yes"
        rows.append({"name": name, "kind": kind, "here": here, "what": corpus.about.title})
    write_rows(rows, "table", sys.stdout)


@data.command()
@_name
@_home
@click.option("--mirror", help="A server with the same paths, which you trust as the official one.")
@click.option("--keep", is_flag=True, help="Keep the archives.")
def get(name: str, home: str | None, mirror: str | None, keep: bool) -> None:
    """Download a corpus from its official source; complete files are not downloaded again.

    NAME is a dataset or noise: see `data list`.

    $ driftscore data get esc50
    $ driftscore data get demand --home /big/demand
    """
    about = download.find_corpus(name).about
    target = None if home is None else output_folder(home)  # also an empty name is refused
    say(f"{about.title}\nlicence: {about.licence}\n{about.citation}")
    folder = download.get(name, target, mirror=mirror, keep=keep)
    say(f"{about.title} is complete in {folder}")


@data.command()
@_name
@_home
def check(name: str, home: str | None) -> None:
    """List everything that the folder of a corpus lacks, one per line.

    NAME is a dataset or noise: see `data list`.

    $ driftscore data check esc50
    $ driftscore data check esc50 --home here/
    """
    corpus = download.find_corpus(name, home)
    lacking = corpus.missing()
    for line in lacking:
        print(line)
    if lacking:
        advice = "put them into the folder, or name another one: driftscore data check {} --home"
        if corpus.about.files:
            advice = "download them: driftscore data get {}"
        say(f"{len(lacking):,} missing; {advice.format(name)}")
        raise click.exceptions.Exit(1)
    say(f"{name} is complete")
