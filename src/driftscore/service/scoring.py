"""`POST /v1/classify`: a recording and labels -> the labels that fit, and when.

The recording is the body itself, or the part `file` of a form. Options are query parameters or
fields of the form; both have the same names. The scores are those of `driftscore classify` for the
same bytes, bit for bit.
"""

import math
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from driftscore.audio import Audio
from driftscore.embedder import Embedded
from driftscore.errors import UsageError
from driftscore.events import Detection, Event
from driftscore.prompts import split_labels
from driftscore.result import Result
from driftscore.service.answers import FormError, documented, validation_message
from driftscore.service.auditing import RequestAudit
from driftscore.service.bodies import read_upload
from driftscore.service.heads import HeadSpec, RuleValue
from driftscore.service.state import ServiceState
from driftscore.settings import AUTO, DEFAULT_PRESET

Finite = Annotated[float, Field(allow_inf_nan=False)]


class ScoringChoices(BaseModel):
    """The labels of a request and how they are scored."""

    model_config = ConfigDict(extra="forbid")

    labels: list[str] = Field(
        default=[], description='The sounds to look for; each may hold several: "dog bark, siren".'
    )
    head: str = Field(default="", description="The id of a head, in place of labels and rule.")
    rule: str = Field(default=AUTO, description="How labels are scored: see /v1/rules.")
    setting: list[str] = Field(default=[], description="A setting of the rule, as in beta=0.3.")
    preset: str = Field(default=DEFAULT_PRESET, description="A paper's settings, by name.")
    prompt: str = Field(default="", description="The clean prompt, with {c} for the label.")
    raw: bool = Field(default=False, description="Raw scores of the rule, not standardised ones.")

    def spec(self) -> HeadSpec:
        """Return what the head is made of."""
        if self.head:
            if self.labels or self.setting or self.prompt or self.raw or self.rule != AUTO:
                raise UsageError("A head has its labels and its rule in it; give only one of both")
            return HeadSpec.of_id(self.head)
        if not self.labels:
            raise UsageError('No labels given; name the sounds: labels="dog bark, siren"')
        labels = split_labels(",".join(self.labels))
        settings = tuple(map(_setting, self.setting))
        return HeadSpec(labels, self.rule, settings, self.preset, self.prompt, self.raw)


class ClassifyChoices(ScoringChoices):
    """The options of a classification."""

    threshold: Finite | None = Field(
        default=None, description="Report every label with at least this score as present."
    )
    multi_label: bool = Field(
        default=False,
        description="Report which labels are present, several or none; without a threshold, those "
        "that score as one in a hundred other sounds does, and above common backgrounds.",
    )
    top_k: int | None = Field(default=None, ge=1, description="Return only the best labels.")
    events: bool = Field(default=False, description="Report when each label is present.")
    false_alarms: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        default=None, description="False events per hour and label that are acceptable."
    )


class ScoredLabel(BaseModel):
    """A label with its score."""

    label: str
    score: float


class EventAnswer(BaseModel):
    """A label that is present from one time to another, in seconds."""

    label: str
    start_s: float
    end_s: float
    score: float = Field(description="The highest score above the background.")
    threshold: float | None = Field(description="What it had to reach.")
    snr_db: float | None = Field(description="Its level above the level before, if known.")


class Classification(BaseModel):
    """The labels of a recording, and what they were scored with."""

    label: str = Field(description="The best label.")
    score: float = Field(description="Its score.")
    margin: float | None = Field(description="How far it is ahead of the second; null for one.")
    scores: list[ScoredLabel] = Field(description="All labels, best first.")
    present: list[str] | None = Field(description="Labels that are present, best first, if asked.")
    events: list[EventAnswer] | None = Field(description="What is present when, if asked for.")
    unit: str = Field(description='"sd" (standard deviations above other sounds) or "raw".')
    rule: str
    backbone: str
    head: str = Field(description="The id of the head, for the next request.")
    seconds: float = Field(description="The length of the recording.")


def router(state: ServiceState) -> APIRouter:
    """Return the route of classification."""
    routes = APIRouter(prefix="/v1", tags=["classification"])

    @routes.post(
        "/classify",
        responses=documented(400, 401, 403, 404, 408, 413, 415, 422, 503),
        openapi_extra={"requestBody": _BODY},
    )
    async def classify(
        request: Request, response: Response, query: Annotated[ClassifyChoices, Query()]
    ) -> Classification:
        """Label a recording: wav, flac, ogg, opus, mp3, aiff, au, caf or w64."""
        state.check_admission()
        upload = await read_upload(request)
        choices = _with_fields(query, upload.fields)
        spec = choices.spec()
        name = state.requests.named("/v1/classify", response)
        audit = state.requests.audit(name, upload.content)
        return await state.run(lambda: _classify(state, upload.content, spec, choices, audit))

    return routes


def _with_fields(query: ClassifyChoices, fields: Mapping[str, list[str]]) -> ClassifyChoices:
    """Return the options of the query and of the form; a field that is given twice is refused."""
    if not fields:
        return query
    given = query.model_dump(exclude_unset=True)
    for name, values in fields.items():
        if name in given:
            raise UsageError(f"The option {name[:40]!r} is given in the query and in the form")
        listed = name in ("labels", "setting")
        if len(values) > 1 and not listed:
            raise UsageError(f"The option {name[:40]!r} is given {len(values)} times")
        given[name] = values if listed else values[0]
    try:
        return ClassifyChoices.model_validate(given)
    except ValidationError as error:
        raise FormError(
            "; ".join(map(validation_message, map(dict, error.errors()[:3])))
        ) from error


def _setting(pair: str) -> tuple[str, RuleValue]:
    name, sign, value = pair.partition("=")
    if not sign or not name.strip():
        raise UsageError(f"A setting is given as name=value, as in beta=0.3, not {pair[:40]!r}")
    return name.strip(), value.strip()


def _classify(
    state: ServiceState,
    content: bytes,
    spec: HeadSpec,
    choices: ClassifyChoices,
    audit: RequestAudit | None = None,
) -> Classification:
    """Decode, embed and score a recording; in a thread of the queue."""
    compiled = state.head(spec)
    audio = state.decode(content)
    [embedded] = state.embedder.embed([audio])
    embedded.check()
    head = compiled.head
    result = Result("", head.labels, head.scores(embedded.embedding)[0])
    ranking = result.ranking
    if audit is not None and (choices.threshold is not None or not choices.multi_label):
        audit.label(result, compiled.decided_by, choices.threshold)
    return Classification(
        label=result.label,
        score=ranking[0][1],
        margin=result.margin if math.isfinite(result.margin) else None,
        scores=[ScoredLabel(label=label, score=s) for label, s in ranking[: choices.top_k]],
        present=_present(state, spec, choices, result, embedded, audit),
        events=_events(state, spec, choices, audio, audit) if choices.events else None,
        unit=compiled.unit,
        rule=compiled.rule,
        backbone=state.embedder.backbone.name,
        head=compiled.id,
        seconds=audio.seconds,
    )


def _present(
    state: ServiceState,
    spec: HeadSpec,
    choices: ClassifyChoices,
    result: Result,
    embedded: Embedded,
    audit: RequestAudit | None,
) -> list[str] | None:
    """Return the labels that are present, if that was asked: above a threshold, or at all."""
    if choices.threshold is not None:
        return result.above(choices.threshold)
    if not choices.multi_label:
        return None
    detector = state.detector(spec, Detection())
    judged = detector.judge("", embedded.embedding)
    if audit is not None:
        audit.fitting(detector, embedded.embedding)
    fits = dict(zip(judged.labels, judged.fits or (), strict=True))
    return [label for label, _ in judged.ranking if fits[label]]


def _events(
    state: ServiceState,
    spec: HeadSpec,
    choices: ClassifyChoices,
    audio: Audio,
    audit: RequestAudit | None,
) -> list[EventAnswer]:
    """Return the events of a recording: those of `driftscore classify --timeline`."""
    settings = Detection().changed(threshold=choices.threshold, false_alarms=choices.false_alarms)
    detector = state.detector(spec, settings)
    events = detector.events(audio) if audit is None else audit.events(detector, audio)
    return [found(event) for event in events if not event.rejected]


def found(event: Event) -> EventAnswer:
    """Return an event as it is answered."""
    return EventAnswer(
        label=event.label,
        start_s=event.start_s,
        end_s=event.end_s,
        score=event.score,
        threshold=event.threshold,
        snr_db=event.snr_db,
    )


_SOUND = {"schema": {"type": "string", "format": "binary"}}
_BODY = {
    "required": True,
    "content": {
        "audio/wav": _SOUND,
        "audio/flac": _SOUND,
        "application/octet-stream": _SOUND,
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file"],
                "properties": {
                    "file": {"type": "string", "format": "binary"},
                    "labels": {"type": "string", "description": "As in the query."},
                },
                "description": "The recording, and any of the query's options as fields.",
            }
        },
    },
}
