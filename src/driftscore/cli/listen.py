"""`driftscore listen`: report the events of live sources."""

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from driftscore.audit import AuditLog
from driftscore.backbones import DEFAULT_BACKBONE, DEFAULT_RUNTIME
from driftscore.classifier import Classifier
from driftscore.cli import options as take
from driftscore.cli.reporting import say
from driftscore.engines import DEFAULT_ENGINE
from driftscore.errors import UsageError
from driftscore.events import Detection
from driftscore.files import STDOUT, writing_to
from driftscore.interrupts import Interrupted
from driftscore.live.clips import ClipFolder, ClipSettings
from driftscore.live.decisions import EventAudit
from driftscore.live.listener import Listener, ListenSettings
from driftscore.live.outputs import Output
from driftscore.live.outputs.jsonl import JsonLines
from driftscore.live.outputs.mqtt import Broker, Mqtt
from driftscore.live.outputs.table import LiveTable
from driftscore.live.sources import RawFormat, SourceOptions, find_sources
from driftscore.live.store import SqliteEvents
from driftscore.settings import AUTO, DEFAULT_PRESET, load_preset
from driftscore.watchlist import WatchList

SourcesArgument = Annotated[
    list[str],
    typer.Argument(
        help="mic, mic:NAME, - (standard input), rtsp://... or a file; with a name: yard=mic:usb.",
        metavar="SOURCES",
    ),
]
Watch = Annotated[
    Path | None, typer.Option("--watch", "-w", help="A watch list (TOML), in place of --labels.")
]
FalseAlarms = Annotated[
    str | None, typer.Option("--false-alarms", help="Acceptable false alarms per hour and label.")
]
Hop = Annotated[str | None, typer.Option("--hop", help="Seconds from one window to the next.")]
Speed = Annotated[
    str, typer.Option("--speed", help="Play a file so many times as fast; 0 for the fastest.")
]
RawOption = Annotated[
    str | None,
    typer.Option("--raw", help="Standard input is raw PCM: s16le | s32le | f32le | u8."),
]
Rate = Annotated[str, typer.Option("--rate", help="Sample rate of raw PCM, in Hz.")]
Channels = Annotated[str, typer.Option("--channels", help="Channels of raw PCM.")]
Jsonl = Annotated[
    str | None,
    typer.Option("--jsonl", help="Append lines of JSON to this file; - for stdout."),
]
TableOption = Annotated[
    bool | None,
    typer.Option("--table/--no-table", help="A live table on stderr; by default on a terminal."),
]
Rejected = Annotated[
    bool, typer.Option("--rejected", help="Also write rejected events as lines of JSON.")
]
MqttUrl = Annotated[
    str | None,
    typer.Option("--mqtt", help="mqtt://user@host:1883; the password: DRIFTSCORE_MQTT_PASSWORD."),
]
Site = Annotated[str, typer.Option("--site", help="The name of this machine in MQTT topics.")]
StoreFile = Annotated[Path | None, typer.Option("--store", help="Keep events in this SQLite file.")]
ClipsFolder = Annotated[
    str | None, typer.Option("--clips", help="Write the audio of events into this folder.")
]
PreRoll = Annotated[str, typer.Option("--pre-roll", help="Seconds of a clip before its event.")]
KeepDays = Annotated[str | None, typer.Option("--keep-days", help="Delete clips that are older.")]
DiskShare = Annotated[
    str | None,
    typer.Option("--disk-share", help="Delete the oldest clips while more of the disk is used."),
]
Privacy = Annotated[
    bool, typer.Option("--privacy", help="Never write audio in which speech is present.")
]
SplOffset = Annotated[
    str | None,
    typer.Option("--spl-offset", help="dB that turn dBFS of this microphone into dBA, as in 94."),
]
LevelSeconds = Annotated[
    str, typer.Option("--level-seconds", help="Seconds of one LAeq, L10 and L90.")
]
Audit = Annotated[str | None, typer.Option("--audit", help="Record every decision in this folder.")]
AuditAudio = Annotated[
    bool, typer.Option("--audit-audio", help="Keep the audio of decisions in the audit as well.")
]

_LOOK_S = 0.5  # how often the end of the sources is looked for


def listen(
    sources: SourcesArgument,
    labels: take.LabelsOption = None,
    labels_file: take.LabelsFile = None,
    watch: Watch = None,
    false_alarms: FalseAlarms = None,
    hop: Hop = None,
    speed: Speed = "1",
    raw: RawOption = None,
    rate: Rate = "48000",
    channels: Channels = "1",
    jsonl: Jsonl = None,
    table: TableOption = None,
    rejected: Rejected = False,
    mqtt: MqttUrl = None,
    site: Site = "home",
    store: StoreFile = None,
    clips: ClipsFolder = None,
    pre_roll: PreRoll = "3",
    keep_days: KeepDays = None,
    disk_share: DiskShare = None,
    privacy: Privacy = False,
    spl_offset: SplOffset = None,
    level_seconds: LevelSeconds = "60",
    audit: Audit = None,
    audit_audio: AuditAudio = False,
    backbone: take.BackboneName = DEFAULT_BACKBONE,
    runtime: take.Runtime = DEFAULT_RUNTIME,
    calibration: take.CalibrationFile = None,
) -> None:
    """Report the events of microphones, streams and files, as they happen."""
    watched = watch_list(watch, labels, labels_file)
    model = take.make_embedder(backbone, runtime, False, DEFAULT_ENGINE, None, None)
    classifier = scoring_of(watched, calibration).classifier(model)
    inputs = Inputs(sources, speed, raw, rate, channels)
    keeping = Keeping(clips, pre_roll, keep_days, disk_share, privacy, audit, audit_audio)
    places = Places(jsonl, table, rejected, mqtt, site, store)
    settings = keeping.settings(classifier, false_alarms, hop, spl_offset, level_seconds)
    status = run(classifier, watched, inputs, places, settings)
    raise typer.Exit(status)


@dataclass(frozen=True)
class Inputs:
    """The options about sources, as they are typed."""

    sources: list[str]
    speed: str
    raw: str | None
    rate: str
    channels: str

    def options(self, notify: Callable[[str], None]) -> SourceOptions:
        """Return what the sources share."""
        raw = None
        if self.raw is not None:
            rate, channels = (
                take.number("--rate", self.rate),
                take.number("--channels", self.channels),
            )
            raw = RawFormat(self.raw, int(rate), int(channels))
        return SourceOptions(take.number("--speed", self.speed), raw, notify)


@dataclass(frozen=True)
class Keeping:
    """The options about what is written, as they are typed."""

    clips: str | None
    pre_roll: str
    keep_days: str | None
    disk_share: str | None
    privacy: bool
    audit: str | None
    audit_audio: bool

    def settings(
        self,
        classifier: Classifier,
        false_alarms: str | None,
        hop: str | None,
        spl_offset: str | None,
        level_seconds: str,
    ) -> ListenSettings:
        """Return the settings of the listener."""
        if self.audit_audio and self.audit is None:
            raise UsageError("--audit-audio keeps audio in an audit: give --audit DIR as well")
        detection = Detection().changed(
            false_alarms=take.optional_number("--false-alarms", false_alarms),
            hop_s=take.optional_number("--hop", hop),
        )
        clip = ClipSettings(
            take.number("--pre-roll", self.pre_roll),
            keep_days=take.optional_number("--keep-days", self.keep_days),
            disk_share=take.optional_number("--disk-share", self.disk_share),
        )
        seconds = take.number("--level-seconds", level_seconds)
        if not 1 <= seconds <= 86_400:
            raise UsageError(f"--level-seconds must be from 1 to 86400, got {seconds:g}")
        log = None if self.audit is None else AuditLog(self.audit, keep_audio=self.audit_audio)
        return ListenSettings(
            detection,
            take.optional_number("--spl-offset", spl_offset),
            seconds,
            clips=None if self.clips is None else ClipFolder(self.clips, clip),
            privacy=self.privacy,
            audit=None if log is None else EventAudit(log, classifier),
        )


@dataclass(frozen=True)
class Places:
    """The options about outputs, as they are typed."""

    jsonl: str | None
    table: bool | None
    rejected: bool
    mqtt: str | None
    site: str
    store: Path | None

    @property
    def draws(self) -> bool:
        """Whether a live table is drawn: on a terminal, unless lines of JSON go there."""
        if self.table is None:
            return sys.stderr.isatty() and self.jsonl != STDOUT and sys.stdout.isatty()
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


class Listening:
    """What outputs and the listener know of each other."""

    def __init__(self, names: frozenset[str], *, table: LiveTable | None, calibrated: bool) -> None:
        self.names = names
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


def run(
    classifier: Classifier,
    watched: WatchList,
    inputs: Inputs,
    places: Places,
    settings: ListenSettings,
) -> int:
    """Listen until all sources have ended or a signal comes; return the exit status."""
    table = LiveTable(Console(stderr=True)) if places.draws else None
    shown = Listening(frozenset(), table=table, calibrated=settings.spl_offset is not None)
    found = find_sources(inputs.sources, inputs.options(shown.notify))
    shown.names = frozenset(found)
    outputs = places.outputs(shown)
    listener = Listener(classifier, watched, found, outputs, settings, notify=shown.notify)
    shown.listener = listener
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
        if settings.audit is not None:
            settings.audit.log.close()
    for name, why in listener.errors.items():
        say(f"error: {name}: {why}")
    return status


def watch_list(path: Path | None, labels: list[str] | None, file: Path | None) -> WatchList:
    """Return the watch list of a file, or of labels."""
    if path is not None:
        if labels or file is not None:
            raise UsageError("Give --watch or --labels, not both")
        return WatchList.load(path)
    return WatchList.of(take.label_names(labels, file))


def scoring_of(watched: WatchList, calibration: str | None) -> take.ScoringOptions:
    """Return how the labels of a watch list are scored: by the defaults."""
    prompts = load_preset(DEFAULT_PRESET).prompts
    return take.ScoringOptions(watched.names, AUTO, {}, prompts, DEFAULT_PRESET, calibration)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(listen)
