"""`driftscore cache`: where the caches are and how large, and `cache clear`."""

import sys
from typing import Annotated

import typer

from driftscore.caches import Cache, clear_caches, find_caches, list_caches
from driftscore.cli import options as take
from driftscore.cli.reporting import say
from driftscore.formats import DEFAULT_FORMAT, OutputRow, write_rows

app = typer.Typer(
    name="cache",
    help="Show where the caches are and how large; `cache clear` deletes them.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def show(context: typer.Context, format: take.FormatName = DEFAULT_FORMAT) -> None:
    """Show where the caches are and how large they are; `cache clear` deletes them."""
    if context.invoked_subcommand is None:
        rows = [_row(cache, readable=format == "table") for cache in list_caches()]
        write_rows(rows, format, sys.stdout)


@app.command()
def clear(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Caches to delete: see `driftscore cache`; without a name all but data and lab.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete caches; what they held is computed or downloaded again when it is needed."""
    chosen = find_caches(names or ())
    size = _size(sum(cache.size() for cache in chosen))
    question = f"Delete {', '.join(cache.name for cache in chosen)} ({size})?"
    if not yes and not _confirmed(question):
        say("Nothing deleted")
        raise typer.Exit(1)
    say(f"Deleted {_size(clear_caches(names or ()))}")


def _confirmed(question: str) -> bool:
    """Ask on stderr; typer's own question writes to stdout, which is for data."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        answer = sys.stdin.readline() if sys.stdin else ""
    except (OSError, ValueError):  # closed, or not text
        answer = ""
    return answer.strip().lower() in ("y", "yes")


def _row(cache: Cache, *, readable: bool) -> OutputRow:
    return {
        "cache": cache.name,
        "size" if readable else "bytes": _size(cache.size()) if readable else cache.size(),
        "files": len(cache.files()),
        "path": str(cache.path),
        "what": cache.summary,
    }


def _size(count: int) -> str:
    """Return a number of bytes as people read it."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
