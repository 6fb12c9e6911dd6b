"""`driftscore serve`: classification over HTTP, and the page."""

import os
from pathlib import Path
from typing import Any

import click

from driftscore.cli import options as take
from driftscore.cli.app import app
from driftscore.cli.output import say
from driftscore.decisions import DecisionStore
from driftscore.embedder import Embedder
from driftscore.errors import MissingExtraError, UsageError
from driftscore.service.page_archive import OpenedArchive
from driftscore.service.page_opened import OpenedRecording
from driftscore.service.settings import DEFAULT_HOST, DEFAULT_PORT, Limits, ServiceSettings

TOKEN_VARIABLE = "DRIFTSCORE_TOKEN"  # noqa: S105 (the name of a variable)


@app.command()
@click.argument("recording", type=take.FILE, required=False)
@click.option("--events", type=take.FILE,
              help="Events of RECORDING that `driftscore detect` wrote (csv, jsonl), to listen and "
              "answer on the page.")  # fmt: skip
@click.option("--archive", type=take.FILE,
              help="A folder of `driftscore embed --out`, to search on the page.")  # fmt: skip
@click.option("--host", default=DEFAULT_HOST,
              help="The address to listen at; any but loopback needs a token.")  # fmt: skip
@click.option("--port", type=take.WholeNumber(0, 65535), default=DEFAULT_PORT,
              help="The port; 0 for a free one.")  # fmt: skip
@click.option("--token-file", type=take.FILE,
              help=f"A file with the token that clients send (or ${TOKEN_VARIABLE}).")  # fmt: skip
@click.option("--store", type=take.FILE,
              help="Events of `driftscore listen --store`, for the page and clients.")  # fmt: skip
@click.option("--clips", type=take.FILE,
              help="The folder of `driftscore listen --clips`, to play events.")  # fmt: skip
@take.backbone_options
@take.calibration_option
@click.option("--threads", type=take.WholeNumber(0),
              help="Windows embedded at once; as many as cores if not given.")  # fmt: skip
@click.option("--queue", type=take.WholeNumber(0), default=ServiceSettings.queue,
              help="Requests that may wait; one more is answered with 503.")  # fmt: skip
@click.option("--max-seconds", type=take.Number(), default=Limits.seconds,
              help="The longest recording that is accepted.")  # fmt: skip
@click.option("--max-mb", type=take.Number(), default=Limits.body_bytes / 1e6,
              help="The largest body that is accepted, in MB.")  # fmt: skip
@take.audit_options
@take.audit_days_option
@click.option("--audit-mb", type=take.Number(), default=1000,
              help="Delete the oldest decisions while the audit is larger.")  # fmt: skip
def serve(
    recording: Path | None,
    events: Path | None,
    archive: Path | None,
    host: str,
    port: int,
    token_file: Path | None,
    store: Path | None,
    clips: Path | None,
    max_seconds: float,
    max_mb: float,
    **options: Any,
) -> None:
    """Answer requests over HTTP, and show the page.

    Classification, events, embeddings and heads (extra: serve).

    $ driftscore serve night.flac --events events.csv
    $ driftscore serve --host 0.0.0.0 --token-file token.txt --store events.db
    """
    try:
        from driftscore.service import server  # not at the top: its libraries are an extra
    except ImportError as error:
        raise MissingExtraError("The service", "serve") from error

    if clips is not None and store is None:
        raise UsageError("--clips are those of the events in a store: give --store FILE as well")
    if (recording is None) != (events is None):
        raise UsageError(
            "A recording is opened with its events: driftscore serve night.flac --events events.csv"
        )
    token = os.environ.get(TOKEN_VARIABLE) or None
    if token_file is not None:
        try:
            token = token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"The token file {token_file} cannot be read: {error}") from error
    model = {name: options[name] for name in ("backbone", "runtime", "threads")}
    settings = ServiceSettings(
        backbone=Embedder(**model, text_cache=False),
        calibration=options["calibration"],
        limits=Limits(seconds=max_seconds, body_bytes=round(1e6 * max_mb)),
        queue=options["queue"],
        token=token,
        event_store=None if store is None else DecisionStore(store, clips=clips),
        audit=take.open_audit(**options),
        opened=OpenedRecording(recording, events) if recording and events else None,
        archive=None if archive is None else OpenedArchive(archive),
    )
    status = server.serve(settings, host=host, port=port, report=say)
    if status:
        raise click.exceptions.Exit(status)
