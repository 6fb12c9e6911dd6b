"""`POST /hf`: the shapes in which Hugging Face clients send a recording with candidate labels.

    raw audio bytes, ?candidate_labels=dog%20bark,siren
    {"inputs": "<base64>", "parameters": {"candidate_labels": [...], "top_k": 2}}
    {"inputs": {"image": "<base64>"}, "parameters": {...}}           (the JavaScript client)

The answer is a bare array, best first, whose scores are a softmax over the labels as in
`driftscore.pipeline`; an error is {"error": "..."}.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from driftscore.decisions import label_decision
from driftscore.errors import UsageError
from driftscore.pipelines import softmax_answer
from driftscore.scoring.head import Result
from driftscore.service.bodies import parse_json
from driftscore.service.heads import HeadSpec
from driftscore.service.problems import documented, parse
from driftscore.service.scoring import ScoredLabel
from driftscore.service.state import State
from driftscore.service.uploads import is_sound, of_base64
from driftscore.text.prompts import split_labels

_KEYS = ("image", "audio", "inputs")
"""Under which a client may put the recording inside `inputs`."""
_RECORDING = {"type": "object", "required": ["image"], "properties": {"image": {"type": "string"}}}
_INPUTS = {
    "description": "The recording in base64.",
    "anyOf": [{"type": "string", "contentEncoding": "base64"}, _RECORDING],
}
_PARAMETERS = {
    "type": "object",
    "required": ["candidate_labels"],
    "properties": {
        "candidate_labels": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "hypothesis_template": {"type": "string"},
        "top_k": {"type": "integer", "minimum": 1},
    },
}
_JSON = {
    "type": "object",
    "required": ["inputs", "parameters"],
    "properties": {"inputs": _INPUTS, "parameters": _PARAMETERS},
}
_BODY = {
    "required": True,
    "content": {
        "audio/wav": {"schema": {"type": "string", "format": "binary"}},
        "application/json": {"schema": _JSON},
    },
}

routes = APIRouter(tags=["classification"])


class HubParameters(BaseModel):
    """What Hugging Face calls the parameters of the task; others are ignored."""

    model_config = ConfigDict(extra="ignore")

    candidate_labels: list[str] | str = Field(description="A list, or names separated by commas.")
    hypothesis_template: str = Field(default="", description="A sentence with {} for the label.")
    top_k: int | None = Field(default=None, ge=1)


@routes.post(
    "/hf",
    responses=documented(400, 401, 403, 408, 413, 415, 422, 503),
    openapi_extra={"requestBody": _BODY},
)
async def hub(
    state: State,
    request: Request,
    response: Response,
    candidate_labels: Annotated[list[str] | None, Query(description="With raw bytes.")] = None,
    hypothesis_template: Annotated[str, Query()] = "",
    top_k: Annotated[int | None, Query(ge=1)] = None,
) -> list[ScoredLabel]:
    """Label a recording in the way of a Hugging Face inference endpoint."""
    state.check_admission()
    body = await request.body()
    name = state.name_request("/hf", response)

    def answer() -> list[ScoredLabel]:
        """Read the request in any of its shapes, and classify."""
        content, value = body, None
        options: dict[str, object] = {"hypothesis_template": hypothesis_template, "top_k": top_k}
        if candidate_labels:
            options["candidate_labels"] = ",".join(candidate_labels)
        if not is_sound(body) and body.lstrip()[:1] == b"{":
            value = parse_json(body)
        if isinstance(value, dict):
            inputs, own = value.get("inputs"), value.get("parameters")
            if isinstance(inputs, dict):
                inputs = next((inputs[key] for key in _KEYS if key in inputs), None)
            if not isinstance(inputs, str):
                raise UsageError('"inputs" must be the recording in base64')
            if own is not None and not isinstance(own, dict):
                raise UsageError('"parameters" must be an object')
            content = of_base64(inputs)
            # The query fills what is missing.
            options |= {key: one for key, one in (own or {}).items() if one is not None}
        if "candidate_labels" not in options:
            raise UsageError("No labels given; send candidate_labels in the query or in parameters")
        parameters = parse(HubParameters, options)
        candidates = parameters.candidate_labels
        labels = split_labels(candidates) if isinstance(candidates, str) else tuple(candidates)
        prompt = parameters.hypothesis_template.replace("{}", "{c}")
        compiled = state.heads.get(HeadSpec(labels=labels, prompt=prompt))
        [embedded] = state.embedder.embed([state.decode(content)])
        head = compiled.head
        scores = head.scores(embedded.embedding)[0]
        if state.audit is not None:
            decision = label_decision(Result(name, head.labels, scores))
            state.audit.record(decision, compiled.decider, content)
        scale = 1.0 if head.standardised else state.embedder.backbone.logit_scale
        ranked = softmax_answer(head.labels, scale * scores)[: parameters.top_k]
        return [ScoredLabel(label=one["label"], score=one["score"]) for one in ranked]

    return await state.run(answer)
