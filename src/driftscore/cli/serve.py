"""`driftscore serve`: classification over HTTP, and the page."""

import os
from pathlib import Path
from typing import Annotated

import typer

from driftscore.cli import options as take
from driftscore.cli.groups import LastingAuditOptions, ModelOptions, flat
from driftscore.cli.reporting import say
from driftscore.errors import MissingExtraError, UsageError
from driftscore.live.store import SqliteEvents
from driftscore.service.settings import DEFAULT_HOST, DEFAULT_PORT, Limits, ServiceSettings

TOKEN_VARIABLE = "DRIFTSCORE_TOKEN"  # noqa: S105 (the name of a variable)
_PORTS = range(65536)

Host = Annotated[
    str,
    typer.Option("--host", help="The address to listen at; any but loopback needs a token."),
]
Port = Annotated[str, typer.Option("--port", help="The port; 0 for a free one.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", help=f"A file with the token that clients send (or ${TOKEN_VARIABLE})."
    ),
]
Queue = Annotated[
    str, typer.Option("--queue", help="Requests that may wait; one more is answered with 503.")
]
MaxSeconds = Annotated[
    str, typer.Option("--max-seconds", help="The longest recording that is accepted.")
]
MaxMegabytes = Annotated[
    str, typer.Option("--max-mb", help="The largest body that is accepted, in MB.")
]

EventDatabase = Annotated[
    Path | None,
    typer.Option(
        "--store", help="Events of `driftscore listen --store`, for the page and clients."
    ),
]

ServedClips = Annotated[
    Path | None,
    typer.Option("--clips", help="The folder of `driftscore listen --clips`, to play events."),
]


@flat
def serve(
    auditing: LastingAuditOptions,
    model: ModelOptions,
    host: Host = DEFAULT_HOST,
    port: Port = str(DEFAULT_PORT),
    token_file: TokenFile = None,
    store: EventDatabase = None,
    clips: ServedClips = None,
    calibration: take.CalibrationFile = None,
    threads: take.Threads = None,
    queue: Queue = str(ServiceSettings.queue),
    max_seconds: MaxSeconds = f"{Limits.seconds:g}",
    max_mb: MaxMegabytes = f"{Limits.body_bytes / 1e6:g}",
) -> None:
    """Answer requests over HTTP: classification, embeddings, heads (extra: serve)."""
    try:
        from driftscore.service import server  # not at the top: its libraries are an extra
    except ImportError as error:
        raise MissingExtraError("The service", "serve") from error

    if clips is not None and store is None:
        raise UsageError("--clips are those of the events in a store: give --store FILE as well")
    settings = ServiceSettings(
        backbone=model.backbone,
        runtime=model.runtime,
        calibration=calibration,
        threads=None if threads is None else take.whole("--threads", threads),
        limits=Limits(
            seconds=take.number("--max-seconds", max_seconds),
            body_bytes=round(1e6 * take.number("--max-mb", max_mb)),
        ),
        queue=take.whole("--queue", queue),
        token=read_token(token_file),
        event_store=None if store is None else SqliteEvents(store, clips),
        audit=auditing.log(),
    )
    number = take.whole("--port", port)
    if number not in _PORTS:
        raise UsageError(f"--port must be from 0 to 65535, not {number}")
    status = server.serve(settings, host=host, port=number, report=say)
    if status:
        raise typer.Exit(status)


def read_token(file: Path | None) -> str | None:
    """Return the token of a file or of the environment, None without either."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The token file {file} cannot be read: {error}") from error
    return text.strip()
