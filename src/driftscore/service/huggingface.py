"""`POST /hf`: the shapes in which Hugging Face clients send a recording with candidate labels.

    raw audio bytes, ?candidate_labels=dog%20bark,siren
    {"inputs": "<base64>", "parameters": {"candidate_labels": [...], "top_k": 2}}
    {"inputs": {"image": "<base64>"}, "parameters": {...}}           (the JavaScript client)

The answer is a bare array, best first, whose scores are a softmax over the labels as in
`driftscore.pipeline`; an error is {"error": "..."}.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from driftscore.decisions import label_decision
from driftscore.pipelines import softmax_answer
from driftscore.scoring.head import Result
from driftscore.service.bodies import json_body, parse_json
from driftscore.service.heads import HeadSpec
from driftscore.service.problems import documented
from driftscore.service.scoring import ScoredLabel
from driftscore.service.state import Body, State, queued
from driftscore.service.uploads import SOUND, of_base64
from driftscore.text.prompts import split_labels

_KEYS = ("image", "audio", "inputs")
"""Under which a client may put the recording inside `inputs`."""
routes = APIRouter(tags=["classification"])


class HubParameters(BaseModel):
    """What Hugging Face calls the parameters of the task; others are ignored."""

    candidate_labels: list[str] | str = Field(
        default="", description="A list, or names separated by commas."
    )
    hypothesis_template: str = Field(default="", description="A sentence with {} for the label.")
    top_k: int | None = Field(default=None, ge=1)


class HubRequest(BaseModel):
    """A recording and its labels in JSON."""

    inputs: str | dict[str, str] = Field(description="The recording in base64.")
    parameters: HubParameters = HubParameters()


@routes.post(
    "/hf",
    responses=documented(400, 401, 403, 408, 413, 415, 422, 503),
    openapi_extra=json_body(HubRequest, **{"audio/wav": SOUND}),
)
@queued
def hub(
    state: State,
    body: Body,
    response: Response,
    candidate_labels: Annotated[list[str] | None, Query(description="With raw bytes.")] = None,
    hypothesis_template: Annotated[str, Query()] = "",
    top_k: Annotated[int | None, Query(ge=1)] = None,
) -> list[ScoredLabel]:
    """Label a recording in the way of a Hugging Face inference endpoint."""
    name = state.name_request("/hf", response)
    content, options = body, HubParameters()
    if body.lstrip()[:1] == b"{":  # no sound file begins so
        request = parse_json(HubRequest, body)
        inputs, options = request.inputs, request.parameters
        if isinstance(inputs, dict):
            inputs = next((inputs[key] for key in _KEYS if key in inputs), "")
        content = of_base64(inputs)
    # The query fills what is missing.
    candidates = options.candidate_labels or ",".join(candidate_labels or ())
    labels = split_labels(candidates) if isinstance(candidates, str) else tuple(candidates)
    template = options.hypothesis_template or hypothesis_template
    spec = HeadSpec(labels=labels, prompt=template.replace("{}", "{c}"))
    compiled = state.heads.get(spec)
    [embedded] = state.embedder.embed([state.decode(content)])
    head = compiled.head
    scores = head.scores(embedded.embedding)[0]
    if state.audit is not None:
        decision = label_decision(Result(name, head.labels, scores))
        state.audit.record(decision, compiled.decider, content)
    scale = 1.0 if head.standardised else state.embedder.backbone.logit_scale
    ranked = softmax_answer(head.labels, scale * scores)[: options.top_k or top_k]
    return [ScoredLabel(label=one["label"], score=one["score"]) for one in ranked]
