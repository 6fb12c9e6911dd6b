"""`POST /hf`: the shapes in which Hugging Face clients send a recording with candidate labels.

    raw audio bytes, ?candidate_labels=dog%20bark,siren
    {"inputs": "<base64>", "parameters": {"candidate_labels": [...], "top_k": 2}}
    {"inputs": {"image": "<base64>"}, "parameters": {...}}           (the JavaScript client)

The answer is a bare array, best first, whose scores are a softmax over the labels as in
`driftscore.pipeline`; an error is {"error": "..."}.
"""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from driftscore.errors import UsageError
from driftscore.pipelines import softmax_answer
from driftscore.prompts import split_labels
from driftscore.result import Result
from driftscore.service.answers import FormError, documented, validation_message
from driftscore.service.bodies import parse_json
from driftscore.service.heads import HeadSpec
from driftscore.service.recordings import is_sound, of_base64
from driftscore.service.scoring import ScoredLabel
from driftscore.service.state import ServiceState

_KEYS = ("image", "audio", "inputs")
"""Under which a client may put the recording inside `inputs`."""


class HubParameters(BaseModel):
    """What Hugging Face calls the parameters of the task; others are ignored."""

    model_config = ConfigDict(extra="ignore")

    candidate_labels: list[str] | str = Field(description="A list, or names separated by commas.")
    hypothesis_template: str = Field(default="", description="A sentence with {} for the label.")
    top_k: int | None = Field(default=None, ge=1)

    def spec(self) -> HeadSpec:
        """Return what the head is made of."""
        given = self.candidate_labels
        labels = split_labels(given) if isinstance(given, str) else tuple(given)
        template = self.hypothesis_template.replace("{}", "{c}")
        return HeadSpec(labels, prompt=template)


def router(state: ServiceState) -> APIRouter:
    """Return the route for Hugging Face clients."""
    routes = APIRouter(tags=["classification"])

    @routes.post(
        "/hf",
        responses=documented(400, 401, 403, 408, 413, 415, 422, 503),
        openapi_extra={"requestBody": _BODY},
    )
    async def hub(
        request: Request,
        response: Response,
        candidate_labels: Annotated[list[str] | None, Query(description="With raw bytes.")] = None,
        hypothesis_template: Annotated[str, Query()] = "",
        top_k: Annotated[int | None, Query(ge=1)] = None,
    ) -> list[ScoredLabel]:
        """Label a recording in the way of a Hugging Face inference endpoint."""
        state.check_admission()
        body = await request.body()
        query: dict[str, object] = {"hypothesis_template": hypothesis_template, "top_k": top_k}
        if candidate_labels:
            query["candidate_labels"] = ",".join(candidate_labels)
        name = state.requests.named("/hf", response)
        return await state.run(lambda: _answer(state, body, query, name))

    return routes


def _answer(
    state: ServiceState, body: bytes, query: Mapping[str, object], name: str
) -> list[ScoredLabel]:
    """Read the request in any of its shapes and classify; in a thread of the queue."""
    given: Mapping[str, object] = query
    if not is_sound(body) and body.lstrip()[:1] == b"{":
        body, given = _of_json(parse_json(body), query)
    if "candidate_labels" not in given:
        raise UsageError("No labels given; send candidate_labels in the query or in parameters")
    try:
        parameters = HubParameters.model_validate(given)
    except ValidationError as error:
        raise FormError(
            "; ".join(map(validation_message, map(dict, error.errors()[:3])))
        ) from error
    compiled = state.head(parameters.spec())
    [embedded] = state.embedder.embed([state.decode(body)])
    scale = 1.0 if compiled.head.standardised else state.embedder.backbone.logit_scale
    scores = compiled.head.scores(embedded.embedding)[0]
    if (audit := state.requests.audit(name, body)) is not None:
        audit.label(Result(name, compiled.head.labels, scores), compiled.decided_by)
    logits = scale * scores
    ranked = softmax_answer(compiled.head.labels, logits)[: parameters.top_k]
    return [ScoredLabel(label=one["label"], score=one["score"]) for one in ranked]


def _of_json(value: object, query: Mapping[str, object]) -> tuple[bytes, Mapping[str, object]]:
    """Return the recording and the parameters of a JSON body; the query fills what is missing."""
    if not isinstance(value, dict):
        raise UsageError('The JSON must be an object: {"inputs": ..., "parameters": ...}')
    inputs, parameters = value.get("inputs"), value.get("parameters")
    if isinstance(inputs, dict):
        inputs = next((inputs[key] for key in _KEYS if key in inputs), None)
    if not isinstance(inputs, str):
        raise UsageError('"inputs" must be the recording in base64')
    if parameters is not None and not isinstance(parameters, dict):
        raise UsageError('"parameters" must be an object')
    own = {name: one for name, one in (parameters or {}).items() if one is not None}
    return of_base64(inputs), {**query, **own}


_PARAMETERS = {
    "type": "object",
    "required": ["candidate_labels"],
    "properties": {
        "candidate_labels": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "hypothesis_template": {"type": "string"},
        "top_k": {"type": "integer", "minimum": 1},
    },
}
_BODY = {
    "required": True,
    "content": {
        "audio/wav": {"schema": {"type": "string", "format": "binary"}},
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["inputs", "parameters"],
                "properties": {
                    "inputs": {
                        "description": "The recording in base64.",
                        "anyOf": [
                            {"type": "string", "contentEncoding": "base64"},
                            {
                                "type": "object",
                                "required": ["image"],
                                "properties": {"image": {"type": "string"}},
                            },
                        ],
                    },
                    "parameters": _PARAMETERS,
                },
            }
        },
    },
}
