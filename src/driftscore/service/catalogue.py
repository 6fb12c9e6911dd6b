"""Heads by id, and lists of what there is to choose from: rules and backbones."""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from driftscore import registry
from driftscore.backbones import KIND as BACKBONES
from driftscore.errors import DriftscoreError
from driftscore.service.answers import documented
from driftscore.service.bodies import json_body, parse_model
from driftscore.service.heads import ID_PATTERN, LONGEST_ID, CompiledHead, HeadSpec, servable_rules
from driftscore.service.scoring import Finite
from driftscore.service.state import ServiceState
from driftscore.settings import AUTO, DEFAULT_PRESET


class HeadRequest(BaseModel):
    """What a head is made of."""

    model_config = ConfigDict(extra="forbid")

    labels: list[str] = Field(min_length=1, description="The sounds to look for, in words.")
    rule: str = Field(default=AUTO, description="How labels are scored: see /v1/rules.")
    settings: dict[str, Finite | str] = Field(default={}, description="Settings of the rule.")
    preset: str = Field(default=DEFAULT_PRESET, description="A paper's settings, by name.")
    prompt: str = Field(default="", description="The clean prompt, with {c} for the label.")
    raw: bool = Field(default=False, description="Raw scores of the rule, not standardised ones.")


class HeadSummary(BaseModel):
    """A compiled head without its numbers."""

    id: str
    labels: list[str]
    rule: str
    why: str = Field(description="Why this rule was chosen.")
    unit: str
    dim: int
    backbone: str
    fingerprint: str = Field(description="Of the model; heads of other models cannot be used.")


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
    """A model family that is installed; one of them is served."""

    name: str
    what: str
    served: bool
    dim: int | None = None
    rate: int | None = Field(default=None, description="Sample rate of its input, in Hz.")
    seconds: float | None = Field(default=None, description="Length of its window.")
    fingerprint: str | None = None


def router(state: ServiceState) -> APIRouter:
    """Return the routes of heads, rules and backbones."""
    routes = APIRouter(prefix="/v1", tags=["heads and rules"])

    @routes.post(
        "/heads",
        status_code=201,
        responses=documented(400, 401, 403, 408, 413, 422, 503),
        openapi_extra=json_body(HeadRequest),
    )
    async def add_head(request: Request) -> HeadSummary:
        """Compile the head of a label set; its id stays valid, also after a restart."""
        state.check_admission()
        body = await request.body()
        return await state.run(lambda: _add(state, parse_model(body, HeadRequest)))

    @routes.get("/heads/{id}", responses=documented(400, 401, 403, 404, 422, 503))
    async def get_head(
        id: Annotated[str, Path(max_length=LONGEST_ID, pattern=ID_PATTERN)],
    ) -> HeadAnswer:
        """Return a head with its numbers, in the JSON format of `driftscore head`."""
        spec = HeadSpec.of_id(id)
        return await state.run(lambda: _complete(state, state.head(spec)))

    _add_lists(routes, state)
    return routes


def _add_lists(routes: APIRouter, state: ServiceState) -> None:
    """Add the routes of what there is to choose from."""

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
    async def backbones() -> list[BackboneAnswer]:
        """List the model families that are installed, and describe the one that is served."""
        state.check_ready()
        return _backbones(state)


def _add(state: ServiceState, asked: HeadRequest) -> HeadSummary:
    settings = tuple(sorted(asked.settings.items()))
    spec = HeadSpec(
        tuple(asked.labels), asked.rule, settings, asked.preset, asked.prompt, asked.raw
    )
    return HeadSummary.model_validate(_summary(state, state.head(spec)))


def _summary(state: ServiceState, compiled: CompiledHead) -> dict[str, object]:
    model, head = state.embedder.backbone, compiled.head
    return {
        "id": compiled.id,
        "labels": list(head.labels),
        "rule": compiled.rule,
        "why": compiled.why,
        "unit": compiled.unit,
        "dim": head.dim,
        "backbone": model.name,
        "fingerprint": model.fingerprint,
    }


def _complete(state: ServiceState, compiled: CompiledHead) -> HeadAnswer:
    head = compiled.head
    # By their shortest decimal text, as in a head's JSON file: the same float32 when read again.
    return HeadAnswer.model_validate(
        {
            **_summary(state, compiled),
            "weights": [[float(str(w)) for w in row] for row in head.weights],
            "offsets": [float(str(b)) for b in head.offsets],
            "made_by": dict(head.made_by),
        }
    )


def _backbones(state: ServiceState) -> list[BackboneAnswer]:
    model = state.embedder.backbone
    served = BackboneAnswer(
        name=model.name,
        what="",
        served=True,
        dim=model.dim,
        rate=model.rate,
        seconds=model.seconds,
        fingerprint=model.fingerprint,
    )
    found = {name: _summary_of(name) for name in registry.names(BACKBONES)}
    others = [
        BackboneAnswer(name=name, what=what, served=False)
        for name, what in found.items()
        if name != model.name
    ]
    return [served.model_copy(update={"what": found.get(model.name, "")}), *others]


def _summary_of(name: str) -> str:
    try:
        return registry.summary(registry.find(BACKBONES, name))
    except DriftscoreError as error:
        return str(error)
