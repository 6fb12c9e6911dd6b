"""The endpoints of the page: its files, its recordings in memory, and the live view.

They are made for the page and may change with it; programs use `/v1/...`. Recordings are kept in
memory for a while (`page_clips`), so that the noise slider sends two numbers and not a file.
"""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field

from driftscore.noise import SYNTHETIC
from driftscore.service.page_answers import RULES, Json, Mix, PageAnswers
from driftscore.service.page_clips import EXPIRY_S, loudest_start_s
from driftscore.service.recordings import decode
from driftscore.service.state import ServiceState

STATIC = Path(str(files("driftscore.service"))) / "static"
_LONGEST_NAME = 200

EXAMPLES: list[Json] = [
    {
        "name": "siren",
        "title": "A siren, 5 s",
        "url": "/static/sounds/siren.ogg",
        "labels": "siren, church bell, alarm clock, rain, speech, dog bark, car engine, birds singing",
        "noise": "rain",
    },
    {
        "name": "street",
        "title": "A street, 48 s",
        "url": "/static/sounds/street.ogg",
        "labels": "siren, church bell, alarm clock, ticking clock, speech, rain, traffic",
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
    def mix(self) -> Mix:
        """The part and its noise."""
        return Mix(self.start_s, self.noise, self.snr_db)
