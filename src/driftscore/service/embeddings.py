"""`POST /v1/embeddings`: recordings or texts to embeddings, as Infinity and OpenAI have it."""

import base64
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from driftscore.backbones.vectors import Vector
from driftscore.errors import UsageError
from driftscore.service.bodies import json_body, parse_json
from driftscore.service.problems import documented
from driftscore.service.state import Body, State, queued
from driftscore.service.uploads import NAME, decode_several, of_base64


class EmbeddingsRequest(BaseModel):
    """What is to be embedded."""

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


routes = APIRouter(prefix="/v1", tags=["embeddings"])


@routes.post(
    "/embeddings",
    responses=documented(400, 401, 403, 404, 408, 413, 415, 422, 503),
    openapi_extra=json_body(EmbeddingsRequest),
)
@queued
def embeddings(state: State, body: Body) -> EmbeddingsAnswer:
    """Embed recordings or texts; a recording is the unit mean of its windows.

    Only one recording is decoded at a time.
    """
    spec = parse_json(EmbeddingsRequest, body)
    limits, model = state.limits, state.embedder.backbone
    if spec.model not in ("", "default", model.name):
        raise UsageError(f"This service has the model {model.name!r}, not {spec.model[:80]!r}")
    inputs = [spec.input] if isinstance(spec.input, str) else spec.input
    if not 1 <= len(inputs) <= limits.inputs:
        raise UsageError(f"1 to {limits.inputs} inputs are allowed, got {len(inputs)}")
    rows: list[Vector] = []
    if spec.modality == "text":
        for text in inputs:
            if not text.strip():
                raise UsageError("A text to embed must not be empty")
            if len(text) > limits.label_chars:
                raise UsageError(
                    f"A text may have {limits.label_chars} characters, got {len(text)}"
                )
        rows.extend(model.embed_text(inputs))
    else:
        contents = ((NAME, of_base64(text)) for text in inputs)
        for audio in decode_several(contents, rate=model.rate, limits=limits):
            rows.extend(one.embedding for one in state.embedder.embed([audio]))
    data = [
        OneEmbedding(
            index=index,
            embedding=base64.b64encode(row.astype("<f4").tobytes()).decode()
            if spec.encoding_format == "base64"
            else row.tolist(),
        )
        for index, row in enumerate(rows)
    ]
    return EmbeddingsAnswer(data=data, model=model.name)
