"""Heads by id, and what there is: rules, and the model that is served."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from driftscore.service.bodies import json_body, parse_json
from driftscore.service.heads import (
    ID_PATTERN,
    MAX_ID_CHARS,
    HeadSpec,
    HeadSummary,
    servable_rules,
)
from driftscore.service.problems import documented
from driftscore.service.scoring import Finite, HeadChoices
from driftscore.service.state import Body, State, queued
from driftscore.service.uploads import of_base64


class HeadRequest(HeadChoices):
    """What a head is made of."""

    labels: list[str] = Field(default=[], description="The sounds to look for, in words.")
    examples: dict[str, list[str]] = Field(
        default={}, description="Recordings of labels in base64; those of `not` are of no label."
    )
    settings: dict[str, Finite | str] = Field(default={}, description="Settings of the rule.")


class HeadAnswer(HeadSummary):
    """A compiled head: score = weights z + offsets. As a file it can be given to `--head`."""

    weights: list[list[float]]
    offsets: list[float]
    made_by: dict[str, object]


class RuleAnswer(BaseModel):
    """A rule that requests may name."""

    name: str
    what: str
    settings: dict[str, object] = Field(description="Settings with their defaults.")


class BackboneAnswer(BaseModel):
    """The model that is served."""

    name: str
    dim: int
    rate: int = Field(description="Sample rate of its input, in Hz.")
    seconds: float = Field(description="Length of its window.")
    fingerprint: str


routes = APIRouter(prefix="/v1", tags=["heads and rules"])


@routes.post(
    "/heads",
    status_code=201,
    responses=documented(400, 401, 403, 408, 413, 422, 503),
    openapi_extra=json_body(HeadRequest),
)
@queued
def add_head(state: State, body: Body) -> HeadSummary:
    """Compile the head of a label set; its id stays valid, also after a restart."""
    fields = dict(parse_json(HeadRequest, body))
    fields["labels"] = tuple(fields["labels"])
    fields["examples"] = state.heads.learn(
        (label, f"example {number} of {label[:40]!r}", of_base64(text))
        for label, texts in fields["examples"].items()
        for number, text in enumerate(texts, 1)
    )
    fields["settings"] = tuple(sorted(fields["settings"].items()))
    return state.heads.get(HeadSpec(**fields)).summary


@routes.get("/heads/{id}", responses=documented(400, 401, 403, 404, 422, 503))
@queued
def get_head(
    state: State, id: Annotated[str, Path(max_length=MAX_ID_CHARS, pattern=ID_PATTERN)]
) -> HeadAnswer:
    """Return a head with its numbers, in the JSON format of `driftscore head`."""
    compiled = state.heads.get(HeadSpec.of_id(id))
    head = compiled.head
    # By their shortest decimal text, as in a head's file: the same float32 when read again.
    return HeadAnswer(
        **dict(compiled.summary),
        weights=[[float(str(w)) for w in row] for row in head.weights],
        offsets=[float(str(b)) for b in head.offsets],
        made_by=dict(head.made_by),
    )


@routes.get("/rules", responses=documented(401, 403))
async def rules() -> list[RuleAnswer]:
    """List the rules that a request may name."""
    return [
        RuleAnswer(
            name=rule.name,
            what=rule.summary,
            settings={name: one.default for name, one in rule.settings.items()},
        )
        for rule in servable_rules()
    ]


@routes.get("/backbones", responses=documented(401, 403, 503))
async def backbones(state: State) -> list[BackboneAnswer]:
    """Describe the model that is served: there is one per process."""
    state.check_ready()
    return [BackboneAnswer.model_validate(state.embedder.backbone, from_attributes=True)]
