"""`driftscore listen`: report the events of live sources."""

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from driftscore.audit import AuditLog
from driftscore.classifier import Classifier
from driftscore.cli import options as take
from driftscore.cli.groups import (
    DetectionOptions,
    LabelOptions,
    LastingAuditOptions,
    ModelOptions,
    WatchOptions,
    flat,
)
from driftscore.cli.reporting import say
from driftscore.embedder import Embedder
from driftscore.errors import UsageError
from driftscore.events import Detection
from driftscore.files import STDOUT, writing_to
from driftscore.interrupts import Interrupted
from driftscore.live.clips import ClipSettings, EventClips
from driftscore.live.listener import Listener, ListenSettings
from driftscore.live.outputs import Output
from driftscore.live.outputs.jsonl import JsonLines
from driftscore.live.outputs.mqtt import Broker, Mqtt
from driftscore.live.outputs.table import LiveTable
from driftscore.live.sources import RawFormat, SourceOptions, find_sources
from driftscore.live.store import SqliteEvents
from driftscore.watchlist import LONGEST_COOLDOWN_S, WatchList

SourceNames = Annotated[
    list[str],
    typer.Argument(
        help="mic, mic:NAME, - (standard input), rtsp://... or a file; with a name: yard=mic:usb.",
        metavar="SOURCES",
    ),
]
_LOOK_S = 0.5  # how often the end of the sources is looked for


def _option(flag: str, text: str, panel: str) -> object:
    return typer.Option(flag, help=text, rich_help_panel=panel)


@dataclass(frozen=True)
class InputOptions:
    """How sources are read."""

    speed: Annotated[
        str, _option("--speed", "Play a file so many times as fast; 0 for the fastest.", "Sources")
    ] = "1"
    pcm: Annotated[
        str | None,
        _option("--pcm", "Standard input is raw: s16le | s32le | f32le | u8.", "Sources"),
    ] = None
    rate: Annotated[str, _option("--rate", "Sample rate of raw input, in Hz.", "Sources")] = "48000"
    channels: Annotated[str, _option("--channels", "Channels of raw input.", "Sources")] = "1"

    def options(self, notify: Callable[[str], None]) -> SourceOptions:
        """Return what the sources share."""
        raw = None
        if self.pcm is not None:
            rate, channels = (
                int(take.number(flag, text))
                for flag, text in (("--rate", self.rate), ("--channels", self.channels))
            )
            raw = RawFormat(self.pcm, rate, channels)
        return SourceOptions(take.number("--speed", self.speed), raw, notify)


@dataclass(frozen=True)
class SearchOptions:
    """What sources are searched for."""

    words: LabelOptions
    watching: WatchOptions
    finding: DetectionOptions
    calibration: take.CalibrationFile = None
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Report a sound once if several sources have it."),
    ] = False

    def watch_list(self) -> WatchList:
        """Return the watch list of a file, or of labels and negative words."""
        if self.watching.watch is not None and (self.words.given or self.watching.negatives):
            raise UsageError("A watch list has labels and negative words: give --watch only")
        names = self.words.names() if self.watching.watch is None else None
        found = self.watching.watch_list(names)
        assert found is not None  # noqa: S101 (only a compiled head has none)
        return found

    def classifier(self, model: ModelOptions, watch: WatchList) -> Classifier:
        """Return the classifier that scores the labels."""
        embedder = Embedder(model.backbone, runtime=model.runtime)
        return Classifier(
            watch.names,
            backbone=embedder,
            calibration=False if self.calibration == "none" else self.calibration,
        )


@dataclass(frozen=True)
class KeepOptions:
    """What is written besides events."""

    clips: Annotated[
        str | None, _option("--clips", "Write the audio of events into this folder.", "Clips")
    ] = None
    pre_roll: Annotated[
        str, _option("--pre-roll", "Seconds of a clip before its event.", "Clips")
    ] = "3"
    keep_days: Annotated[
        str | None, _option("--keep-days", "Delete clips that are older.", "Clips")
    ] = None
    disk_share: Annotated[
        str | None,
        _option("--disk-share", "Delete the oldest clips while more of the disk is used.", "Clips"),
    ] = None
    privacy: Annotated[
        bool, _option("--privacy", "Never write audio in which speech is present.", "Clips")
    ] = False
    spl_offset: Annotated[
        str | None,
        _option("--spl-offset", "dB that turn dBFS of this microphone into dBA.", "Levels"),
    ] = None
    level_seconds: Annotated[
        str, _option("--level-seconds", "Seconds of one LAeq, L10 and L90.", "Levels")
    ] = "60"

    def settings(self, detection: Detection, audit: AuditLog | None) -> ListenSettings:
        """Return the settings of the listener."""
        clip = ClipSettings(
            take.number("--pre-roll", self.pre_roll),
            keep_days=take.optional_number("--keep-days", self.keep_days),
            disk_share=take.optional_number("--disk-share", self.disk_share),
        )
        seconds = take.number("--level-seconds", self.level_seconds)
        if not 1 <= seconds <= 86_400:
            raise UsageError(f"--level-seconds must be from 1 to 86400, got {seconds:g}")
        return ListenSettings(
            detection,
            take.optional_number("--spl-offset", self.spl_offset),
            seconds,
            clips=None if self.clips is None else EventClips(self.clips, clip),
            privacy=self.privacy,
            audit=audit,
        )


@dataclass(frozen=True)
class OutputOptions:
    """Where events go."""

    jsonl: Annotated[
        str | None, _option("--jsonl", "Append lines of JSON to a file; - for stdout.", "Output")
    ] = None
    table: Annotated[
        bool | None,
        _option("--table/--no-table", "A live table on stderr; usual on a terminal.", "Output"),
    ] = None
    cooldown: Annotated[
        str | None,
        _option("--cooldown", "Send at most one message per label in so many seconds.", "Output"),
    ] = None
    rejected: Annotated[
        bool, _option("--rejected", "Also write rejected events as lines of JSON.", "Output")
    ] = False
    mqtt: Annotated[
        str | None,
        _option("--mqtt", "mqtt://user@host; the password: DRIFTSCORE_MQTT_PASSWORD.", "Output"),
    ] = None
    site: Annotated[
        str, _option("--site", "The name of this machine in MQTT topics.", "Output")
    ] = "home"
    store: Annotated[
        Path | None, _option("--store", "Keep events in this SQLite file.", "Output")
    ] = None

    def cooled(self, watch: WatchList) -> WatchList:
        """Return a watch list with the cool-down that is asked for."""
        seconds = take.optional_number("--cooldown", self.cooldown)
        if seconds is None:
            return watch
        if not 0 <= seconds <= LONGEST_COOLDOWN_S:
            raise UsageError(
                f"--cooldown must be from 0 to {LONGEST_COOLDOWN_S} s, got {seconds:g}"
            )
        return replace(watch, cooldown_s=seconds)

    @property
    def draws(self) -> bool:
        """Whether a live table is drawn: on a terminal, unless lines of JSON go there."""
        if self.table is None:
            return sys.stderr.isatty() and sys.stdout.isatty() and self.jsonl != STDOUT
        return self.table

    def outputs(self, listening: "Listening") -> list[Output]:
        """Open the outputs that are asked for; lines of JSON on stdout if nothing else is."""
        found: list[Output] = []
        if listening.table is not None:
            found.append(listening.table)
        if self.jsonl is not None or (listening.table is None and self.mqtt is None):
            found.append(self._lines())
        if self.store is not None:
            found.append(SqliteEvents(self.store))
        if self.mqtt is not None:
            broker = Broker.parse(self.mqtt)
            mqtt = Mqtt(
                broker, self.site, listening.names, calibrated=listening.calibrated,
                change_words=listening.change_words, notify=listening.notify,
            )  # fmt: skip
            found.append(mqtt)
        return found

    def _lines(self) -> JsonLines:
        if self.jsonl is None or self.jsonl == STDOUT:
            return JsonLines(sys.stdout, rejected=self.rejected)
        with writing_to(self.jsonl):
            stream = open(self.jsonl, "a", encoding="utf-8")  # noqa: SIM115 (closed by the output)
        return JsonLines(stream, rejected=self.rejected, owned=True)


@flat
def listen(
    sources: SourceNames,
    search: SearchOptions,
    inputs: InputOptions,
    places: OutputOptions,
    keeping: KeepOptions,
    auditing: LastingAuditOptions,
    model: ModelOptions,
) -> None:
    """Report the events of microphones, streams and files, as they happen."""
    watch = places.cooled(search.watch_list())
    classifier = search.classifier(model, watch)
    settings = replace(
        keeping.settings(search.finding.detection(), auditing.log()), merge=search.merge
    )
    table = LiveTable(Console(stderr=True)) if places.draws else None
    shown = Listening(table, calibrated=settings.spl_offset is not None)
    found = find_sources(sources, inputs.options(shown.notify))
    shown.names = frozenset(found)
    listener = Listener(
        classifier, watch, found, places.outputs(shown), settings, notify=shown.notify
    )
    shown.listener = listener
    status = _run(listener, table)
    if settings.audit is not None:
        settings.audit.close()
    for name, why in listener.errors.items():
        say(f"error: {name}: {why}")
    if status:
        raise typer.Exit(status)


class Listening:
    """What outputs and the listener know of each other."""

    def __init__(self, table: LiveTable | None, *, calibrated: bool) -> None:
        self.names: frozenset[str] = frozenset()
        self.table = table
        self.calibrated = calibrated
        self.listener: Listener | None = None

    def notify(self, text: str) -> None:
        """Show a message: in the table, or on stderr."""
        if self.table is not None:
            self.table.message(text)
        else:
            say(text)

    def change_words(self, source: str, text: str) -> None:
        """Pass on the words that came over MQTT."""
        if self.listener is not None:
            self.listener.change_words(source, text)


def _run(listener: Listener, table: LiveTable | None) -> int:
    """Listen until all sources have ended or a signal comes; return the exit status."""
    try:
        listener.start()
        if table is not None:
            table.begin(listener.views)
        while not listener.wait(_LOOK_S):
            pass
        status = 1 if listener.errors or listener.failure else 0
    except Interrupted as interrupted:
        # SIGTERM is how a service is stopped: that is no failure.
        status = 0 if interrupted.status == 128 + signal.SIGTERM else interrupted.status
    finally:
        listener.stop()
    return status


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(listen)
