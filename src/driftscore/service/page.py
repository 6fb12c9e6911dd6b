"""The endpoints of the page: its files, its recordings in memory, and the live view.

They are made for the page and may change with it; programs use `/v1/...`. Recordings are kept in
memory for a while (`page_clips`), so that the noise slider sends two numbers and not a file.
"""

from asyncio import to_thread
from collections.abc import Callable
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Annotated, TypeVar

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field

from driftscore.live.store import SqliteEvents
from driftscore.noise import SYNTHETIC
from driftscore.service.heads import PROBE
from driftscore.service.page_answers import RULES, Json, NoisyPart, PageAnswers
from driftscore.service.page_clips import EXPIRY_S, ClipGoneError
from driftscore.service.page_live import Verdict, live_view
from driftscore.service.state import ServiceState

Shown = TypeVar("Shown")
STATIC = Path(str(files("driftscore.service"))) / "static"
_LONGEST_NAME = 200
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


class AskedMix(BaseModel):
    """Labels, and a part of a recording in noise."""

    model_config = ConfigDict(extra="forbid")

    labels: list[str] = Field(min_length=2)
    start_s: float = Field(0.0, ge=0, allow_inf_nan=False)
    noise: str = Field("white", max_length=64)
    snr_db: float | None = Field(None, allow_inf_nan=False)
    right: str = ""
    """For a sweep: the label that counts as right; empty for the one that wins without noise."""

    @property
    def mix(self) -> NoisyPart:
        """The part and its noise."""
        return NoisyPart(self.start_s, self.noise, self.snr_db)


class AskedVerdict(BaseModel):
    """What a person says of an event."""

    model_config = ConfigDict(extra="forbid")

    verdict: Verdict


def router(state: ServiceState) -> APIRouter:
    """Return the routes of the page."""
    routes = APIRouter(include_in_schema=False)
    answers = PageAnswers(state)
    _add_files(routes, state, answers)
    _add_clips(routes, state, answers)
    _add_live(routes, state)
    return routes


def _add_files(routes: APIRouter, state: ServiceState, answers: PageAnswers) -> None:
    @routes.get("/")
    async def index() -> FileResponse:
        return _file("index.html")

    @routes.get("/static/{path:path}")
    async def static(path: str) -> FileResponse:
        return _file(path)

    @routes.get("/page/about")
    async def about() -> Json:
        return await state.run(lambda: _about(state, answers))


def _add_clips(routes: APIRouter, state: ServiceState, answers: PageAnswers) -> None:
    async def run(function: Callable[[], Shown]) -> Shown:
        try:
            return await state.run(function)
        except ClipGoneError as error:
            raise HTTPException(404, str(error)) from error

    @routes.post("/page/clips")
    async def add(request: Request, name: Annotated[str, Query(max_length=_LONGEST_NAME)]) -> Json:
        content = await request.body()
        return await run(lambda: answers.add(state.decode(content), name))

    @routes.delete("/page/clips/{clip_id}", status_code=204)
    async def remove(clip_id: str) -> None:
        answers.clips.remove(clip_id)

    @routes.post("/page/clips/{clip_id}/rank")
    async def rank(clip_id: str, asked: AskedMix) -> Json:
        return await run(lambda: answers.rank(clip_id, asked.labels, asked.mix))

    @routes.post("/page/clips/{clip_id}/sweep")
    async def sweep(clip_id: str, asked: AskedMix) -> Json:
        return await run(lambda: answers.sweep(clip_id, asked.labels, asked.mix, asked.right))

    @routes.post("/page/clips/{clip_id}/events")
    async def events(clip_id: str, asked: AskedMix) -> Json:
        return await run(lambda: answers.events(clip_id, asked.labels, asked.mix))

    @routes.get("/page/clips/{clip_id}/sound")
    async def sound(
        clip_id: str,
        start_s: Annotated[float, Query(ge=0, allow_inf_nan=False)] = 0.0,
        noise: Annotated[str, Query(max_length=64)] = "white",
        snr_db: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    ) -> Response:
        mix = NoisyPart(start_s, noise, snr_db)
        return Response(await run(lambda: answers.sound(clip_id, mix)), media_type="audio/wav")


def _add_live(routes: APIRouter, state: ServiceState) -> None:
    @routes.get("/page/live")
    async def live() -> Json:
        return await to_thread(live_view, state.events, datetime.now().astimezone())

    @routes.get("/page/live/events/{event_id}/clip")
    async def clip(event_id: int) -> FileResponse:
        store = state.events
        path = await to_thread(store.clip, event_id) if isinstance(store, SqliteEvents) else None
        if path is None:
            raise HTTPException(404, "There is no clip of this event")
        return FileResponse(path, media_type="audio/flac")

    @routes.post("/page/live/events/{event_id}/review")
    async def review(event_id: int, asked: AskedVerdict) -> Json:
        store = state.events
        if not isinstance(store, SqliteEvents):
            raise HTTPException(404, "No listener is connected to this service")
        if not await to_thread(store.review, event_id, asked.verdict):
            raise HTTPException(404, f"No event has the id {event_id}")
        return {"id": event_id, "verdict": asked.verdict}


def _about(state: ServiceState, answers: PageAnswers) -> Json:
    """Return what the page has to know before it asks for anything."""
    limits = state.limits
    has_calibration = state.head(PROBE).head.standardised
    return {
        "model": state.embedder.backbone.name,
        "window_s": answers.window_s,
        "noises": list(SYNTHETIC),
        "rules": [
            {
                "name": name,
                "title": title,
                "summary": summary,
                "standardised": name == "default" and has_calibration,
            }
            for name, title, summary in RULES
        ],
        "limits": {
            "bytes": limits.body_bytes,
            "seconds": limits.seconds,
            "labels": min(limits.labels, limits.texts // TEXTS_PER_LABEL),
            "label_length": limits.label_chars,
            "minutes": round(EXPIRY_S / 60),
        },
        "examples": EXAMPLES,
    }


def _file(path: str) -> FileResponse:
    """Return a file of the page; nothing outside its folder."""
    found = (STATIC / path).resolve()
    if not found.is_relative_to(STATIC.resolve()) or not found.is_file():
        raise HTTPException(404, "The page has no such file")
    kind = _TYPES.get(found.suffix, "text/plain; charset=utf-8")
    # Asked for again each time, and answered with 304: a new version is seen at once.
    return FileResponse(found, media_type=kind, headers={"Cache-Control": "no-cache"})
