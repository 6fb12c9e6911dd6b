"""`POST /v1/embeddings`: recordings or texts to embeddings, as Infinity and OpenAI have it."""

import base64
from typing import Literal

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from driftscore.errors import LimitError, UsageError
from driftscore.service.answers import documented
from driftscore.service.bodies import json_body, parse_model
from driftscore.service.recordings import of_base64
from driftscore.service.state import ServiceState
from driftscore.vectors import Matrix, Vector

ANY_MODEL = ("", "default")


class EmbeddingsRequest(BaseModel):
    """What is to be embedded."""

    model_config = ConfigDict(extra="ignore")

    input: str | list[str] = Field(
        description="Texts, or recordings as data:audio/wav;base64,... or as plain base64."
    )
    model: str = Field(default="", description="The name of the served backbone, or nothing.")
    modality: Literal["audio", "text"] = "text"
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="Numbers, or little-endian float32 in base64."
    )


class OneEmbedding(BaseModel):
    """The unit embedding of one input."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Counts that OpenAI clients expect; nothing is counted."""

    prompt_tokens: int = 0
    total_tokens: int = 0


class EmbeddingsAnswer(BaseModel):
    """The embeddings of all inputs, in their order."""

    object: Literal["list"] = "list"
    data: list[OneEmbedding]
    model: str
    usage: Usage = Usage()


def router(state: ServiceState) -> APIRouter:
    """Return the route of embeddings."""
    routes = APIRouter(prefix="/v1", tags=["embeddings"])

    @routes.post(
        "/embeddings",
        responses=documented(400, 401, 403, 404, 408, 413, 415, 422, 503),
        openapi_extra=json_body(EmbeddingsRequest),
    )
    async def embeddings(request: Request) -> EmbeddingsAnswer:
        """Embed recordings or texts; a recording is the unit mean of its windows."""
        state.check_admission()
        body = await request.body()
        return await state.run(lambda: _embeddings(state, parse_model(body, EmbeddingsRequest)))

    return routes


def _embeddings(state: ServiceState, asked: EmbeddingsRequest) -> EmbeddingsAnswer:
    """Embed the inputs; in a thread of the queue."""
    name = state.embedder.backbone.name
    if asked.model not in (*ANY_MODEL, name):
        raise UsageError(f"This service has the model {name!r}, not {asked.model[:80]!r}")
    inputs = [asked.input] if isinstance(asked.input, str) else asked.input
    if not 1 <= len(inputs) <= state.limits.inputs:
        raise UsageError(f"1 to {state.limits.inputs} inputs are allowed, got {len(inputs)}")
    rows = _texts(state, inputs) if asked.modality == "text" else _recordings(state, inputs)
    data = [
        OneEmbedding(index=index, embedding=_encoded(row, asked.encoding_format))
        for index, row in enumerate(rows)
    ]
    return EmbeddingsAnswer(data=data, model=name)


def _texts(state: ServiceState, texts: list[str]) -> Matrix:
    for text in texts:
        if not text.strip():
            raise UsageError("A text to embed must not be empty")
        if len(text) > state.limits.label_chars:
            raise UsageError(
                f"A text may have {state.limits.label_chars} characters, got {len(text)}"
            )
    return state.embedder.backbone.embed_text(texts)


def _recordings(state: ServiceState, inputs: list[str]) -> Matrix:
    """Embed recordings one after another: only one of them is decoded at a time."""
    rows: list[Vector] = []
    seconds = 0.0
    for text in inputs:
        audio = state.decode(of_base64(text))
        seconds += audio.seconds
        if seconds > state.limits.seconds:
            raise LimitError(
                f"The recordings are longer than {state.limits.seconds:g} s together, the most "
                "that is allowed; send fewer at a time"
            )
        [embedded] = state.embedder.embed([audio])
        rows.append(embedded.embedding)
    return np.stack(rows)


def _encoded(row: Vector, form: str) -> list[float] | str:
    if form == "base64":
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    return [float(value) for value in row]
