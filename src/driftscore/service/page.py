"""The page: its files, its recordings in memory, rankings in noise, and the live view.

The endpoints are made for the page and may change with it; programs use `/v1/...`. Recordings are
kept in memory for a while (`page_clips`), so that the noise slider sends two numbers and not a
file. Three rules stand side by side, with the scores by which labels are compared: cosine, DAS, and
the default of the model.
"""

import base64
import io
import time
from asyncio import to_thread
from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import soundfile
from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field

from driftscore.audio.noise import SYNTHETIC
from driftscore.audio.recordings import Audio, Samples
from driftscore.audio.spectrogram import spectrogram
from driftscore.backbones.vectors import Matrix
from driftscore.decisions.store import DecisionStore
from driftscore.errors import UsageError
from driftscore.events.tracking import Detection
from driftscore.service.heads import CompiledHead, HeadSpec
from driftscore.service.page_clips import loudest_start_s, part
from driftscore.service.page_mixing import SNRS_DB, in_noise, shipped_noise, sweep
from driftscore.service.state import ServiceState, State
from driftscore.text.prompts import compose

Json = dict[str, object]
OWN_NOISE = "clip:"
"""Begins the name of a noise that is a recording of the user."""
_SHOWN_PROMPTS = 4
_PEAK = 0.9  # of a sound that is played: mixtures at low SNRs would clip

RULES = (("cosine", "Cosine", "plain similarity of sound and words"),
         ("das", "DAS", "adds how noise moves the words"),
         ("default", "Default", "what classify uses for this model"))  # fmt: skip
MAX_EVENTS = 200
RECENT_S = 30.0
"""Seconds after its end for which the label of an event counts as recent."""
LISTENER_COMMANDS = [
    'driftscore listen yard=mic --labels "siren, dog bark" --store events.db',
    "driftscore serve --store events.db",
]
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

EXAMPLES: list[Json] = [
    {
        "name": "siren",
        "title": "A siren, 5 s",
        "url": "/static/sounds/siren.ogg",
        "labels": "siren, church bell, alarm clock, rain, speech, dog bark",
        "noise": "traffic",
    },
    {
        "name": "street",
        "title": "A street, 48 s",
        "url": "/static/sounds/street.ogg",
        "labels": "siren, church bell, alarm clock, speech, rain, traffic",
        "noise": "traffic",
    },
]
"""Sounds that come with the page; demo/make_sounds.py made them."""


class PageMix(BaseModel):
    """A part of a recording, and the noise that is added to it."""

    start_s: float = Field(0.0, ge=0, allow_inf_nan=False)
    noise: str = Field("white", max_length=64)
    snr_db: float | None = Field(None, allow_inf_nan=False)


class LabelledMix(PageMix):
    """Labels, and a part of a recording in noise."""

    model_config = ConfigDict(extra="forbid")

    labels: list[str] = Field(min_length=2)
    right: str = ""
    """For a sweep: the label that counts as right; empty for the one that wins without noise."""


class Verdict(BaseModel):
    """What a person says of an event; empty for a verdict that is taken back."""

    model_config = ConfigDict(extra="forbid")

    verdict: Literal["right", "wrong", ""]


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
        "rules": [
            {
                "name": name,
                "title": title,
                "summary": summary,
            }
            for name, title, summary in RULES
        ],
        "limits": {
            "bytes": limits.body_bytes,
            "seconds": limits.seconds,
            "labels": min(limits.labels, limits.texts // TEXTS_PER_LABEL),
            "label_length": limits.label_chars,
            "minutes": round(state.clips.expiry_s / 60),
        },
        "examples": EXAMPLES,
    }


@routes.post("/page/clips")
async def add(state: State, request: Request) -> Json:
    """Keep a recording, and return its id and pictures of it and of its loudest part."""
    content = await request.body()

    def answer() -> Json:
        audio, window_s = state.decode(content), state.embedder.backbone.seconds
        start_s = loudest_start_s(audio, window_s)
        return {
            "id": state.clips.add(audio),
            "seconds": audio.seconds,
            "start_s": start_s,
            "spectrogram": picture(part(audio, start_s, window_s)),
            "overview": picture(audio) if audio.seconds > window_s else None,
        }

    return await state.run(answer)


@routes.delete("/page/clips/{clip_id}", status_code=204)
async def remove(state: State, clip_id: str) -> None:
    """Forget a recording."""
    state.clips.remove(clip_id)


@routes.post("/page/clips/{clip_id}/rank")
async def rank(state: State, clip_id: str, mix: LabelledMix) -> Json:
    """Return the scores of a part in noise by each rule, and its spectrogram."""

    def answer() -> Json:
        heads = page_heads(state, mix.labels)
        begun = time.perf_counter()  # new words are encoded only once
        audio = mixed_part(state, clip_id, mix)
        row = embed(state, [audio])
        scores = {name: _rounded(one.head.scores(row)[0]) for name, one in heads.items()}
        return {
            "labels": list(heads["default"].head.labels),
            "rules": scores,
            "spectrogram": picture(audio),
            "milliseconds": round(1000 * (time.perf_counter() - begun), 1),
        }

    return await state.run(answer)


@routes.post("/page/clips/{clip_id}/sweep")
async def swept(state: State, clip_id: str, mix: LabelledMix) -> Json:
    """Return scores at falling SNRs, where each rule fails, and what the labels are made of."""

    def answer() -> Json:
        heads = page_heads(state, mix.labels)
        default = heads["default"]
        if mix.right and mix.right not in default.head.labels:
            raise UsageError(
                f"The label {mix.right!r} that counts as right is not one of the labels"
            )
        audio = part(state.clips.get(clip_id), mix.start_s, state.embedder.backbone.seconds)
        noise = noise_samples(state, mix.noise, len(audio.samples))
        compiled = {name: one.head for name, one in heads.items()}
        result = sweep(audio, noise, compiled, lambda parts: embed(state, parts), right=mix.right)
        [texts] = compose([result.right]).labels
        step = max(1, len(texts.noisy) // _SHOWN_PROMPTS)
        return {
            "labels": list(default.head.labels),
            "snrs_db": [None, *SNRS_DB],
            "rules": {name: list(map(_rounded, rows)) for name, rows in result.scores.items()},
            "right": result.right,
            "down_to_db": dict(result.down_to_db),
            "why": {
                "rule": default.summary.rule,
                "reason": default.summary.why,
                "prompt": texts.prompt,
                "noisy_count": len(texts.noisy),
                "noisy": texts.noisy[step // 2 :: step][:_SHOWN_PROMPTS],
            },
        }

    return await state.run(answer)


@routes.post("/page/clips/{clip_id}/events")
async def events(state: State, clip_id: str, mix: LabelledMix) -> Json:
    """Return the events of a complete recording, in noise if asked, and its spectrogram."""

    def answer() -> Json:
        audio = state.clips.get(clip_id)
        audio = in_noise(audio, noise_samples(state, mix.noise, len(audio.samples)), mix.snr_db)
        detector = state.heads.detector(HeadSpec(labels=tuple(mix.labels)), Detection())
        rows = [
            {"label": e.label, "start_s": e.start_s, "end_s": e.end_s, "score": e.score}
            for e in detector.events(audio)
        ]
        return {"spectrogram": picture(audio), "events": rows}

    return await state.run(answer)


@routes.get("/page/clips/{clip_id}/sound")
async def sound(state: State, clip_id: str, mix: Annotated[PageMix, Query()]) -> Response:
    """Return a part in noise as a wav file, to be played."""

    def answer() -> bytes:
        audio = mixed_part(state, clip_id, mix)
        peak = float(np.abs(audio.samples).max())
        samples = audio.samples * (_PEAK / peak) if peak > _PEAK else audio.samples
        file = io.BytesIO()
        soundfile.write(file, samples, audio.rate, format="WAV", subtype="PCM_16")
        return file.getvalue()

    return Response(await state.run(answer), media_type="audio/wav")


@routes.get("/page/live")
async def live(state: State) -> Json:
    """Return what the live tab shows."""
    return await to_thread(live_view, state.events, datetime.now().astimezone())


@routes.get("/page/live/events/{event_id}/clip")
async def clip(state: State, event_id: int) -> FileResponse:
    """Return the audio of an event."""
    path = None if state.events is None else await to_thread(state.events.clip, event_id)
    if path is None:
        raise HTTPException(404, "There is no clip of this event")
    return FileResponse(path, media_type="audio/flac")


@routes.post("/page/live/events/{event_id}/review")
async def review(state: State, event_id: int, body: Verdict) -> Json:
    """Keep what a person says of an event."""
    if state.events is None:
        raise HTTPException(404, "No listener is connected to this service")
    if not await to_thread(state.events.review, event_id, body.verdict):
        raise HTTPException(404, f"No event has the id {event_id}")
    return {"id": event_id, "verdict": body.verdict}


def page_heads(state: ServiceState, labels: Sequence[str]) -> dict[str, CompiledHead]:
    """Return the heads of the three rules by name; all but the default with their own scores."""
    specs = {
        name: HeadSpec(labels=tuple(labels), rule=name, raw=True) for name in ("cosine", "das")
    }
    specs["default"] = HeadSpec(labels=tuple(labels))
    return {name: state.heads.get(spec) for name, spec in specs.items()}


def embed(state: ServiceState, recordings: Sequence[Audio]) -> Matrix:
    """Return one embedding per recording."""
    return np.stack([one.embedding for one in state.embedder.embed(recordings)])


def mixed_part(state: ServiceState, clip_id: str, mix: PageMix) -> Audio:
    """Return one window of a recording, in noise if asked."""
    audio = part(state.clips.get(clip_id), mix.start_s, state.embedder.backbone.seconds)
    if mix.snr_db is None:
        return audio
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


def picture(audio: Audio) -> Json:
    """Return a spectrogram as the page draws it: its levels as base64, column by column."""
    drawn = spectrogram(audio)
    columns, bands = drawn.levels.shape
    return {
        **vars(drawn),
        "columns": columns,
        "bands": bands,
        "levels": base64.b64encode(drawn.levels.tobytes()).decode(),
    }


def _rounded(scores: Sequence[float]) -> list[float]:
    return [round(float(score), 5) for score in scores]


def live_view(store: DecisionStore | None, now: datetime) -> Json:
    """Return what the live tab shows: sources, the events of today, and when they happened.

    Without a listener these are the commands that start one. Times have the zone of this machine.
    """
    if store is None:
        return {"available": False, "commands": LISTENER_COMMANDS}
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    recent = now - timedelta(seconds=RECENT_S)
    events, hours, sources = store.events(midnight, MAX_EVENTS), store.counts_by_hour(midnight), []
    for source in store.sources():
        own = [event for event in events if event.source == source.name]
        labels: dict[str, float] = {}  # of recent events, the best score of each
        for event in own:
            if event.end >= recent and event.start <= now:  # a clock may have been set back
                labels[event.label] = max(event.score, labels.get(event.label, event.score))
        best_first = sorted(labels.items(), key=lambda item: -item[1])
        last = own[0].summary() if own else None
        sources.append({**vars(source), "recent": best_first, "last": last})
    return {
        "available": True,
        "clips": store.clips is not None,
        "now": now.isoformat(),
        "sources": sources,
        "events": [event.summary() for event in events],
        "count": sum(map(sum, hours.values())),
        "hours": hours,
    }
