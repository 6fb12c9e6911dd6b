"""The page: its files, its recordings in memory, rankings in noise, and the live view.

The endpoints are made for the page and may change with it; programs use `/v1/...`. Recordings are
kept in memory for a while (`page_clips`), so that the noise slider sends two numbers and not a
file; one that `driftscore serve FILE` opened is read from disk (`page_opened`). Three rules can be
compared, with the scores by which labels are compared: cosine, DAS, and the default of the model.
An error names the field that it belongs to in the header `X-Field`.
"""

import base64
import io
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import soundfile
from fastapi import APIRouter, Query, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from driftscore.audio.noise import SYNTHETIC
from driftscore.audio.recordings import Audio, Samples
from driftscore.audio.spectrogram import Picture, spectrogram
from driftscore.backbones.vectors import Matrix
from driftscore.decisions.store import DecisionStore
from driftscore.errors import DriftscoreError
from driftscore.events.tracking import Detection
from driftscore.formats import write_rows
from driftscore.service.heads import CompiledHead, HeadSpec
from driftscore.service.page_mixing import (
    SNRS_DB,
    in_noise,
    loudest_start_s,
    part,
    shipped_noise,
    sweep,
)
from driftscore.service.problems import status_of
from driftscore.service.state import Body, ServiceState, State, queued
from driftscore.text.presets import AUTO

Json = dict[str, object]
OWN_NOISE = "clip:"
"""Begins the name of a noise that is a recording of the user."""
_PEAK = 0.9  # of a sound that is played: mixtures at low SNRs would clip

OPENED = "opened"
"""The id of the recording that `driftscore serve FILE` opened."""
MAX_PLAYED_S = 60.0
MAX_PLACES = 100
MAX_EVENTS = 200
MAX_EVENTS_OF_A_DAY = 20_000
LEVEL_STEP_S = 300
"""Seconds of one point in a curve of levels."""
RECENT_S = 30.0
"""Seconds after its end for which the label of an event counts as recent."""
STATIC = Path(str(files("driftscore.service"))) / "static"
TEXTS_PER_LABEL = 209
"""What DAS encodes for each label: its clean prompt and the noisy ones."""
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".ogg": "audio/ogg",
    ".svg": "image/svg+xml",
}
"""By the end of a file's name; not those of the system, which may differ."""

_SIREN_LABELS = "siren, church bell, alarm clock, rain, speech, dog bark"
EXAMPLES: list[Json] = [
    {"name": "street", "seconds": 60, "labels": _SIREN_LABELS.replace(" rain,", "")},
    {"name": "siren", "seconds": 5, "labels": _SIREN_LABELS},
]
"""Sounds that come with the page, the one that it begins with first; demo/make_sounds.py made them.
"""


class Strict(BaseModel):
    """Fields of a request, and no others."""

    model_config = ConfigDict(extra="forbid")


class PageMix(BaseModel):
    """A part of a recording, and the noise that is added to it."""

    start_s: float = Field(0.0, ge=0, allow_inf_nan=False)
    noise: str = Field("white", max_length=64)
    snr_db: float | None = Field(None, allow_inf_nan=False)


class Labels(Strict):
    """The words of a visitor, and examples by label: ids of `/page/examples`."""

    labels: list[str] = []
    examples: dict[str, list[Annotated[str, Field(max_length=64)]]] = {}

    def spec(self, *, rule: str = AUTO, raw: bool = False) -> HeadSpec:
        """Return what the head of these labels is made of."""
        examples = tuple((label, tuple(keys)) for label, keys in self.examples.items() if keys)
        return HeadSpec(labels=tuple(self.labels), examples=examples, rule=rule, raw=raw)


class ArchiveSearch(Labels):
    """What to find in the archive, and how many places of each label."""

    top: int = Field(20, ge=1, le=MAX_PLACES)


class PlayedMix(PageMix):
    """What is played: a part of a recording, by default one window of the model."""

    seconds: float | None = Field(None, gt=0, le=MAX_PLAYED_S, allow_inf_nan=False)


class LabelledMix(Labels, PageMix):
    """Labels, and a part of a recording in noise."""

    right: str = ""
    """For a sweep: the label that counts as right; empty for the one that wins without noise."""


class Verdict(Strict):
    """What a person says of an event; empty for a verdict that is taken back."""

    verdict: Literal["right", "wrong", ""]


class ListedEvent(BaseModel):
    """An event of the page, and what a person said of it."""

    label: str
    start_s: float
    end_s: float
    score: float
    answer: str = ""


class EventExport(Strict):
    """Events of one recording, to be written in a format of `driftscore detect`."""

    file: str = Field(max_length=1000)
    format: Literal["csv", "audacity"]
    events: list[ListedEvent] = Field(max_length=MAX_EVENTS_OF_A_DAY)


routes = APIRouter(include_in_schema=False)


@routes.get("/")
async def index() -> FileResponse:
    """Return the page."""
    return await static("index.html")


@routes.get("/static/{path:path}")
async def static(path: str) -> FileResponse:
    """Return a file of the page; nothing outside its folder."""
    file = (STATIC / path).resolve()
    if not file.is_relative_to(STATIC.resolve()) or not file.is_file():
        raise HTTPException(404, "The page has no such file")
    kind = _TYPES.get(file.suffix, "text/plain; charset=utf-8")
    # Asked for again each time, and answered with 304: a new version is seen at once.
    return FileResponse(file, media_type=kind, headers={"Cache-Control": "no-cache"})


@routes.get("/page/about")
async def about(state: State) -> Json:
    """Return what the page has to know before it asks for anything."""
    limits, backbone = state.limits, state.embedder.backbone
    return {
        "model": backbone.name,
        "window_s": float(backbone.seconds),
        "noises": list(SYNTHETIC),
        "limits": {**vars(limits), "labels": min(limits.labels, limits.texts // TEXTS_PER_LABEL)},
        "minutes": round(state.clips.expiry_s / 60),
        "examples": EXAMPLES,
        "opened": "" if state.opened is None else state.opened.path.name,
        "archive": "" if state.archive is None else state.archive.folder.name,
    }


@routes.post("/page/clips")
@queued
def add(state: State, content: Body) -> Json:
    """Keep a recording, and return its id and pictures of it and of its loudest part."""
    with at_field("sound"):
        audio = state.decode(content)
    window_s = state.embedder.backbone.seconds
    start_s = loudest_start_s(audio, window_s)
    return {
        "id": state.clips.add(audio, audio.samples.nbytes),
        "seconds": audio.seconds,
        "start_s": start_s,
        "spectrogram": drawn(spectrogram(part(audio, start_s, window_s))),
        "overview": drawn(spectrogram(audio)) if audio.seconds > window_s else None,
    }


@routes.post("/page/examples")
@queued
def add_example(
    state: State, content: Body, name: Annotated[str, Query(max_length=200)] = "an example"
) -> Json:
    """Embed a recording as an example of any label, and return its id."""
    [(_, [key])] = state.heads.learn([("", name, content)])
    return {"id": key}


@routes.post("/page/clips/{clip_id}/rank")
@queued
def rank(state: State, clip_id: str, mix: LabelledMix) -> Json:
    """Return the scores of a part in noise by each rule, and its spectrogram."""
    with at_field("labels"):
        heads = page_heads(state, mix)
        detector = state.heads.detector(mix.spec(), Detection())
    begun = time.perf_counter()  # new words are encoded only once
    audio = mixed(state, part_of(state, clip_id, mix.start_s), mix)
    row = embed(state, [audio])
    scores = {name: _rounded(one.head.scores(row)[0]) for name, one in heads.items()}
    can_reject = detector.rules.prior is not None
    return {
        "labels": list(heads["default"].head.labels),
        "rules": scores,
        "fits": detector.label_or_none("", row[0]).fits if can_reject else None,
        "unclear": dict(heads["default"].unclear),
        "unlike": heads["default"].summary.unlike,
        "spectrogram": drawn(spectrogram(audio)),
        "milliseconds": round(1000 * (time.perf_counter() - begun), 1),
    }


@routes.post("/page/clips/{clip_id}/sweep")
@queued
def swept(state: State, clip_id: str, mix: LabelledMix) -> Json:
    """Return scores at falling SNRs, and where each rule fails."""
    with at_field("labels"):
        heads = page_heads(state, mix)
    default = heads["default"]
    right = mix.right if mix.right in default.head.labels else ""
    audio = part_of(state, clip_id, mix.start_s)
    with at_field("noise"):
        noise = noise_samples(state, mix.noise, len(audio.samples))
    compiled = {name: one.head for name, one in heads.items()}
    result = sweep(audio, noise, compiled, lambda parts: embed(state, parts), right=right)
    return {
        "labels": list(default.head.labels),
        "snrs_db": [None, *SNRS_DB],
        "rules": {name: list(map(_rounded, rows)) for name, rows in result.scores.items()},
        "right": result.right,
        "down_to_db": dict(result.down_to_db),
        "why": {"rule": default.summary.rule, "reason": default.summary.why},
    }


@routes.post("/page/clips/{clip_id}/events")
@queued
def events(state: State, clip_id: str, mix: LabelledMix) -> Json:
    """Return the events of a complete recording, in noise if asked, and its spectrogram."""
    with at_field("sound"):
        audio = state.clips.get(clip_id)
    audio = mixed(state, audio, mix)
    with at_field("labels"):
        detector = state.heads.detector(mix.spec(), Detection())
    rows = [
        {"label": e.label, "start_s": e.start_s, "end_s": e.end_s, "score": e.score}
        for e in detector.events(audio)
    ]
    return {"spectrogram": drawn(spectrogram(audio)), "events": rows}


@routes.get("/page/clips/{clip_id}/sound")
@queued
def sound(state: State, clip_id: str, mix: Annotated[PlayedMix, Query()]) -> Response:
    """Return a part in noise as a wav file, to be played."""
    return wav(mixed(state, part_of(state, clip_id, mix.start_s, mix.seconds), mix))


@routes.post("/page/archive")
@queued
def find(state: State, body: ArchiveSearch) -> Json:
    """Return the best places of the archive for each label."""
    if (archive := state.archive) is None:
        raise HTTPException(404, "The service was started without an archive")
    with at_field("labels"):
        head = state.heads.get(body.spec())
        detector = state.heads.detector(body.spec(), Detection())
    said = {"unclear": dict(head.unclear), "unlike": head.summary.unlike}
    return {**archive.search(detector, body.top), **said}


@routes.get("/page/archive/{key}/sound")
@queued
def place(state: State, key: str, part: Annotated[PlayedMix, Query()]) -> Response:
    """Return a part of a recording that was found, as a wav file."""
    backbone, audio = state.embedder.backbone, None
    if state.archive is not None:
        seconds = part.seconds or backbone.seconds
        audio = state.archive.part(key, part.start_s, seconds, backbone.rate)
    if audio is None:
        raise HTTPException(404, "The recording of this place is not on this server")
    return wav(audio)


@routes.post("/page/export")
async def export(body: EventExport) -> Response:
    """Return events in a format of `driftscore detect`; `review --answers` reads the csv."""
    out = io.StringIO()
    write_rows([{"file": body.file, **vars(event)} for event in body.events], body.format, out)
    return Response(out.getvalue(), media_type="text/plain; charset=utf-8")


@routes.get("/page/opened")
@queued
def opened(state: State) -> Json:
    """Return the recording that the service was started with, and its events."""
    if (recording := state.opened) is None:
        raise HTTPException(404, "The service was started without a recording")
    return {
        "id": OPENED,
        "name": recording.path.name,
        "seconds": recording.seconds,
        "overview": drawn(recording.overview()),
        "labels": recording.labels,
        "events": recording.events(),
    }


@routes.post("/page/opened/events/{number}/review")
def review_opened(state: State, number: int, body: Verdict) -> Json:
    """Keep what a person says of an event of the recording that was opened."""
    if state.opened is None or not state.opened.answer(number, body.verdict):
        raise HTTPException(404, f"No event has the number {number}")
    return {"id": number, "verdict": body.verdict}


@routes.get("/page/live")
def live(state: State, day: date | None = None, label: str = "", source: str = "") -> Json:
    """Return what the live tab shows of a day, by default today."""
    now = datetime.now().astimezone()
    return live_view(state.events, now, day=day, label=label, source=source)


@routes.get("/page/live/events/{event_id}/clip")
def clip(state: State, event_id: int) -> FileResponse:
    """Return the audio of an event."""
    if state.events is None or (path := state.events.clip(event_id)) is None:
        raise HTTPException(404, "There is no clip of this event")
    return FileResponse(path, media_type="audio/flac")


@routes.post("/page/live/events/{event_id}/review")
def review(state: State, event_id: int, body: Verdict) -> Json:
    """Keep what a person says of an event."""
    if state.events is None or not state.events.review(event_id, body.verdict):
        raise HTTPException(404, f"No event has the id {event_id}")
    return {"id": event_id, "verdict": body.verdict}


def wav(audio: Audio) -> Response:
    """Return samples as a wav file, to be played."""
    peak = float(np.abs(audio.samples).max())
    samples = audio.samples * (_PEAK / peak) if peak > _PEAK else audio.samples
    file = io.BytesIO()
    soundfile.write(file, samples, audio.rate, format="WAV", subtype="PCM_16")
    return Response(file.getvalue(), media_type="audio/wav")


def page_heads(state: ServiceState, labels: Labels) -> dict[str, CompiledHead]:
    """Return the heads of the three rules by name; all but the default with their own scores."""
    specs = {name: labels.spec(rule=name, raw=True) for name in ("cosine", "das")}
    specs["default"] = labels.spec()
    return {name: state.heads.get(spec) for name, spec in specs.items()}


def embed(state: ServiceState, recordings: Sequence[Audio]) -> Matrix:
    """Return one embedding per recording."""
    return np.stack([one.embedding for one in state.embedder.embed(recordings)])


@contextmanager
def at_field(field: str) -> Iterator[None]:
    """Name the field of the page in errors of the block."""
    try:
        yield
    except HTTPException as error:
        headers = {**(error.headers or {}), "X-Field": field}
        raise HTTPException(error.status_code, error.detail, headers) from error
    except DriftscoreError as error:
        raise HTTPException(status_of(error), str(error), {"X-Field": field}) from error


def part_of(
    state: ServiceState, clip_id: str, start_s: float, seconds: float | None = None
) -> Audio:
    """Return a part of a recording, by default one window of the model."""
    backbone = state.embedder.backbone
    with at_field("sound"):
        if clip_id == OPENED and state.opened is not None:
            return state.opened.part(start_s, seconds or backbone.seconds, backbone.rate)
        return part(state.clips.get(clip_id), start_s, seconds or backbone.seconds)


def mixed(state: ServiceState, audio: Audio, mix: PageMix) -> Audio:
    """Return samples in noise, if asked."""
    if mix.snr_db is None:
        return audio
    with at_field("noise"):
        return in_noise(audio, noise_samples(state, mix.noise, len(audio.samples)), mix.snr_db)


def noise_samples(state: ServiceState, name: str, length: int) -> Samples:
    """Return a noise by its name, or a recording of the user, to be repeated if it is shorter."""
    if name.startswith(OWN_NOISE):
        return state.clips.get(name.removeprefix(OWN_NOISE)).samples
    backbone = state.embedder.backbone
    samples = shipped_noise(name, round(backbone.seconds * backbone.rate), backbone.rate)
    if length <= len(samples):
        return samples
    # Forwards and backwards in turn: without a jump where it is repeated.
    return np.concatenate([samples, samples[::-1]])


def drawn(picture: Picture) -> Json:
    """Return a spectrogram as the page draws it: its levels as base64, column by column."""
    columns, bands = picture.levels.shape
    levels = base64.b64encode(picture.levels.tobytes()).decode()
    return {**vars(picture), "columns": columns, "bands": bands, "levels": levels}


def _rounded(scores: Sequence[float]) -> list[float]:
    return [round(float(score), 5) for score in scores]


def live_view(
    store: DecisionStore | None,
    now: datetime,
    *,
    day: date | None = None,
    label: str = "",
    source: str = "",
) -> Json:
    """Return what the live tab shows: sources, the events of a day, and when they happened.

    Times have the zone of this machine.
    """
    if store is None:
        return {"available": False}
    now = now.astimezone()
    day = day or now.date()
    midnight = datetime.combine(day, datetime.min.time()).astimezone()
    end = datetime.combine(day + timedelta(days=1), datetime.min.time()).astimezone()
    recent = now - timedelta(seconds=RECENT_S)
    events = store.events(midnight, MAX_EVENTS_OF_A_DAY, until=end)
    levels, sources = store.levels(midnight, end), []
    for one in store.sources():
        own = [event for event in events if event.source == one.name]
        best: dict[str, Json] = {}  # of recent events, the one with the best score of each label
        for event in sorted(own, key=lambda event: event.score):
            if event.end >= recent and event.start <= now:  # a clock may have been set back
                time = event.start.isoformat()
                best[event.label] = {"label": event.label, "score": event.score, "time": time}
        best_first = list(best.values())[::-1]
        last = own[0].summary() if own else None
        curve = level_curve(levels.get(one.name, []), midnight)
        sources.append({**vars(one), "recent": best_first, "last": last, "levels": curve})
    chosen = [e for e in events if label in ("", e.label) and source in ("", e.source)]
    return {
        "available": True,
        "clips": store.clips is not None,
        "now": now.isoformat(),
        "day": day.isoformat(),
        "today": now.date().isoformat(),
        "sources": sources,
        "words": sorted({event.label for event in events}),
        "names": sorted({event.source for event in events}),
        "events": [event.summary() for event in chosen[:MAX_EVENTS]],
        "count": len(chosen),
        "hours": store.counts_by_hour(midnight, end),
    }


def level_curve(levels: Sequence[tuple[str, float]], midnight: datetime) -> list[list[float]]:
    """Return hours since midnight and the level of the mean power, one pair per five minutes."""
    powers: dict[int, list[float]] = {}
    for end, laeq in levels:
        step = int((datetime.fromisoformat(end) - midnight).total_seconds() // LEVEL_STEP_S)
        powers.setdefault(step, []).append(10 ** (laeq / 10))
    return [
        [round((step + 0.5) * LEVEL_STEP_S / 3600, 3), round(10 * np.log10(np.mean(values)), 1)]
        for step, values in sorted(powers.items())
    ]
