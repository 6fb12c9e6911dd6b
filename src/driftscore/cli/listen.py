"""`driftscore listen`: report the events of live sources."""

import signal
import sys
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from driftscore.cli import detect as events
from driftscore.cli import options as take
from driftscore.cli.app import app
from driftscore.cli.output import counted, say
from driftscore.decisions import DecisionStore
from driftscore.errors import UsageError, unknown
from driftscore.events.watchlist import MAX_COOLDOWN_S
from driftscore.live.clips import EventClips
from driftscore.live.listener import Listener, ListenSettings
from driftscore.live.outputs import Output
from driftscore.live.outputs.delivery import Delivery, Transport
from driftscore.live.outputs.jsonl import JsonLines
from driftscore.live.outputs.mqtt import Mqtt
from driftscore.live.outputs.program import Program
from driftscore.live.outputs.table import LiveTable
from driftscore.live.outputs.webhook import Webhook
from driftscore.live.sources import RawFormat, find_sources
from driftscore.storage.files import STDOUT, check_output, writing_to
from driftscore.system.process import Interrupted, bound_heaps

LEARN_S = 3600.0
"""From one learning to the next."""
_CHECK_S = 0.5  # how often the end of the sources is looked for
_SETTINGS = {"pre_roll_s": 3.0, "level_seconds": 60.0, "keep_days": 0.0, "disk_share": 0.0,
             "cooldown_s": -1.0, "audit_mb": 1000.0}  # fmt: skip
"""What --set takes besides the settings of events, with the defaults."""


@app.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCES...")
@events.watch_options
@take.examples_option
@click.option("--jsonl", cls=take.OutputFile, callback=take.text_file, metavar="FILE",
              help="Append lines of JSON to a file; - for stdout.")  # fmt: skip
@click.option("--mqtt", metavar="URL",
              help="mqtt://user@host; the password: DRIFTSCORE_MQTT_PASSWORD.")  # fmt: skip
@click.option("--webhook", multiple=True, metavar="URL",
              help="POST each event as JSON; the secret: DRIFTSCORE_WEBHOOK_SECRET.")  # fmt: skip
@click.option("--exec", "programs", multiple=True, metavar="COMMAND",
              help="Run a program for each event, as JSON on its standard input.")  # fmt: skip
@click.option("--site", default="home", help="The name of this machine in MQTT topics.")
@click.option("--store", type=take.FILE, help="Keep events in this SQLite file, as --audit does.")
@click.option("--table/--no-table", default=None,
              help="A live table on stderr; usual on a terminal.")  # fmt: skip
@click.option("--rejected", is_flag=True, help="Also write rejected events as lines of JSON.")
@click.option("--merge", is_flag=True, help="Report a sound once if several sources have it.")
@events.detection_options
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
              help="A setting that is rarely changed, as in pre_roll_s=5; repeatable.")  # fmt: skip
@click.option("--clips", type=take.FILE, metavar="DIR",
              help="Write the audio of events into this folder.")  # fmt: skip
@click.option("--learn", is_flag=True,
              help="Learn from the verdicts in the store, at most once per hour.")  # fmt: skip
@click.option("--privacy", is_flag=True,
              help="Withhold audio in which speech is found; it finds most, not all.")  # fmt: skip
@click.option("--spl-offset", type=take.Number(),
              help="dB that turn dBFS of this microphone into dBA.")  # fmt: skip
@click.option("--speed", type=take.Number(), default=1,
              help="Play a file so many times as fast; 0 for the fastest.")  # fmt: skip
@click.option("--pcm", metavar="FORMAT[:RATE[:CHANNELS]]",
              help="Standard input is raw: s16le, s32le, f32le or u8; 48000 Hz and 1 channel if "
              "not given.")  # fmt: skip
@take.calibration_option
@take.backbone_options
@take.audit_options
@take.audit_days_option
def listen(
    sources: tuple[str, ...],
    jsonl: str | None,
    mqtt: str | None,
    webhook: tuple[str, ...],
    programs: tuple[str, ...],
    site: str,
    store: Path | None,
    table: bool | None,
    rejected: bool,
    merge: bool,
    settings: tuple[str, ...],
    clips: Path | None,
    learn: bool,
    privacy: bool,
    spl_offset: float | None,
    speed: float,
    pcm: str | None,
    **options: Any,
) -> None:
    """Report the events of microphones, streams and files, live.

    SOURCES are mic, mic:NAME, - (standard input), rtsp://... or a file; with a name: yard=mic:usb.
    --set takes min_duration_s, gap_s, leave, hold_s and thresholds_from of events, cooldown_s (at
    most one message per label in this time), pre_roll_s (seconds of a clip before its event),
    level_seconds (of one LAeq, L10 and L90), keep_days (delete older clips), disk_share (delete the
    oldest clips while more of the disk is used) and audit_mb.

    $ driftscore listen mic --labels "glass breaking, dog bark"
    $ driftscore listen yard=rtsp://camera/stream --watch watch.toml --mqtt mqtt://broker
    """
    bound_heaps()
    values = take.named_values(settings)
    detection = events.make_detection(values, **options)
    numbers = {name: take.take_number(values, name, default) for name, default in _SETTINGS.items()}
    if values:
        raise unknown("setting of listening", next(iter(values)), _SETTINGS)
    level_s = numbers["level_seconds"]
    if not 1 <= level_s <= 86_400:
        raise UsageError(f"level_seconds must be from 1 to 86400, got {level_s:g}")
    words = events.make_watch_list(**options)
    if (cooldown_s := numbers["cooldown_s"]) != _SETTINGS["cooldown_s"]:
        if not 0 <= cooldown_s <= MAX_COOLDOWN_S:
            raise UsageError(f"cooldown_s must be from 0 to {MAX_COOLDOWN_S:g}, got {cooldown_s:g}")
        words = structs.replace(words, cooldown_s=cooldown_s)
    classifier = take.make_classifier(names=words.names, **options)
    decisions = take.open_audit(audit_mb=numbers["audit_mb"], **options)
    if decisions is not None and store not in (None, decisions.path):
        raise UsageError("--store and --audit are one file: give one of them, or the same twice")
    folder = None
    if clips is not None:
        check_output(clips / "clip.flac")
        keep_days = numbers["keep_days"] or None
        folder = EventClips(str(clips), numbers["pre_roll_s"], keep_days, numbers["disk_share"])
    if learn and (clips is None or (store is None and decisions is None)):
        raise UsageError("--learn reads verdicts and clips: give --store FILE and --clips DIR too")
    work = ListenSettings(
        detection, spl_offset, level_s, clips=folder, privacy=privacy, audit=decisions, merge=merge,
        learn_s=LEARN_S if learn else None,
    )  # fmt: skip
    raw = None
    if pcm is not None:
        form, *texts = pcm.split(":")
        if len(texts) > 2:
            raise UsageError(f"--pcm is FORMAT:RATE:CHANNELS, as in s16le:48000:1, not {pcm!r}")
        raw = RawFormat(form, *(int(take.parse_number("--pcm", text)) for text in texts))
    if table is None:  # on a terminal, unless lines of JSON go there
        table = sys.stderr.isatty() and sys.stdout.isatty() and jsonl != STDOUT
    live_table = None
    if table:
        from rich.console import Console

        live_table = LiveTable(Console(stderr=True))
    notify = say if live_table is None else live_table.message
    opened = find_sources(sources, speed=speed, raw=raw, notify=notify)
    events_store = decisions
    if events_store is None and store is not None:
        events_store = DecisionStore(store)
    if events_store is not None and clips is not None:
        events_store.clips = clips
    transports: list[Transport] = [*map(Webhook, webhook), *map(Program, programs)]
    if mqtt is not None:
        transports.append(
            Mqtt(mqtt, site, frozenset(opened), calibrated=spl_offset is not None,
                 change_words=lambda source, text: listener.change_words(source, text),
                 answer=lambda event_id, verdict: listener.answer(event_id, verdict))
        )  # fmt: skip
    # They are closed in this order: deliveries need the store, and all of them may say something.
    outputs: list[Output] = [
        Delivery(one, store=events_store, sources=frozenset(opened), notify=notify)
        for one in transports
    ]
    if events_store is not None:
        outputs.append(events_store)
    if jsonl not in (None, STDOUT):
        with writing_to(jsonl):
            outputs.append(JsonLines(jsonl, rejected=rejected))
    elif jsonl == STDOUT or (live_table is None and not transports):
        outputs.append(JsonLines(rejected=rejected))
    if live_table is not None:
        outputs.append(live_table)
    listener = Listener(classifier, words, opened, outputs, work, notify=notify)
    try:
        listener.start()
        if live_table is not None:
            live_table.begin(listener.views)
        while not listener.wait(_CHECK_S):
            pass
        status = 1 if listener.errors or listener.failure else 0
    except Interrupted as interrupted:
        # SIGTERM is how a service is stopped: that is no failure.
        status = 0 if interrupted.status == 128 + signal.SIGTERM else interrupted.status
        notify("stopped; the last events are reported")
    finally:
        listener.stop()
    for name, why in listener.errors.items():
        say(f"error: {name}: {why}")
    if undelivered := listener.outputs.undelivered:
        say(f"error: {counted(undelivered, 'event')} could not be delivered")
        status = status or 1
    if status:
        raise click.exceptions.Exit(status)
