"""`POST /v1/classify`: a recording and labels -> the labels that fit, and when.

The recording is the body itself, or the part `file` of a form. Options are query parameters or
fields of the form; both have the same names. The scores are those of `driftscore classify` for the
same bytes, bit for bit. With an audit every decision is recorded before the answer; one that cannot
be recorded is not given out.
"""

import math
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from driftscore.decisions import Decider, audited_events, judged_decision, label_decision
from driftscore.errors import UsageError
from driftscore.events.tracking import Detection
from driftscore.scoring.head import Result
from driftscore.service.bodies import read_upload
from driftscore.service.heads import HeadSpec
from driftscore.service.problems import documented, parse
from driftscore.service.state import State
from driftscore.service.uploads import SOUND
from driftscore.text.presets import AUTO, DEFAULT_PRESET
from driftscore.text.prompts import split_labels

Finite = Annotated[float, Field(allow_inf_nan=False)]


class HeadChoices(BaseModel):
    """How labels are scored."""

    model_config = ConfigDict(extra="forbid")

    rule: str = Field(default=AUTO, description="How labels are scored: see /v1/rules.")
    preset: str = Field(default=DEFAULT_PRESET, description="A paper's settings, by name.")
    prompt: str = Field(default="", description="The clean prompt, with {c} for the label.")
    raw: bool = Field(default=False, description="Raw scores of the rule, also with a threshold.")


class ClassifyChoices(HeadChoices):
    """The labels of a request, how they are scored, and what is reported."""

    labels: list[str] = Field(
        default=[], description='The sounds to look for; each may hold several: "dog bark, siren".'
    )
    head: str = Field(default="", description="The id of a head, in place of labels and rule.")
    setting: list[str] = Field(default=[], description="A setting of the rule, as in beta=0.3.")
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

    def with_fields(self, fields: Mapping[str, list[str]]) -> "ClassifyChoices":
        """Return the options with those of a form; an option that is given twice is refused."""
        if not fields:
            return self
        options = self.model_dump(exclude_unset=True)
        for name, values in fields.items():
            if name in options:
                raise UsageError(f"The option {name[:40]!r} is given in the query and in the form")
            listed = name in ("labels", "setting")
            if len(values) > 1 and not listed:
                raise UsageError(f"The option {name[:40]!r} is given {len(values)} times")
            options[name] = values if listed else values[0]
        return parse(ClassifyChoices.model_validate, options)

    def spec(self, examples: tuple[tuple[str, tuple[str, ...]], ...]) -> HeadSpec:
        """Return what the head is made of."""
        if self.head:
            own = (self.labels, examples, self.setting, self.prompt, self.raw, self.rule != AUTO)
            if any(own):
                raise UsageError("A head has its labels and its rule in it; give only one of both")
            return HeadSpec.of_id(self.head)
        if not self.labels and not examples:
            raise UsageError('No labels given; name the sounds: labels="dog bark, siren"')
        settings = []
        for pair in self.setting:
            name, sign, value = pair.partition("=")
            if not sign or not name.strip():
                raise UsageError(
                    f"A setting is given as name=value, as in beta=0.3, not {pair[:40]!r}"
                )
            settings.append((name.strip(), value.strip()))
        same = self.model_dump(include={"rule", "preset", "prompt", "raw"})
        labels = split_labels(",".join(self.labels)) if self.labels else ()
        return HeadSpec(labels=labels, examples=examples, settings=tuple(settings), **same)


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
    unit: str = Field(
        description='"cosine", "sd" (standard deviations above other sounds) or "raw".'
    )
    rule: str
    backbone: str
    head: str = Field(description="The id of the head, for the next request.")
    seconds: float = Field(description="The length of the recording.")
    unclear: str = Field(
        description="Labels that the model does not understand, what it takes them for and better "
        "wordings; empty if there are none."
    )
    unlike: list[str] = Field(description="Examples that do not resemble the others, in words.")


_FORM = {
    "type": "object",
    "required": ["file"],
    "properties": {"file": SOUND["schema"], "labels": {"type": "string"}},
    "additionalProperties": {"type": "string"},
    "description": "The recording, any of the query's options as fields, and examples of labels "
    "as files that are called `examples:LABEL`; those of `examples:not` are of no label.",
}
_BODY = {
    "required": True,
    "content": {
        **dict.fromkeys(("audio/wav", "audio/flac", "application/octet-stream"), SOUND),
        "multipart/form-data": {"schema": _FORM},
    },
}

routes = APIRouter(prefix="/v1", tags=["classification"])


@routes.post(
    "/classify",
    responses=documented(400, 401, 403, 404, 408, 413, 415, 422, 503),
    openapi_extra={"requestBody": _BODY},
)
async def classify(
    state: State, request: Request, response: Response, query: Annotated[ClassifyChoices, Query()]
) -> Classification:
    """Label a recording in any format that `driftscore classify` reads, by words and examples."""
    state.check_admission()
    content, fields, examples = await read_upload(request, max_examples=state.limits.inputs)
    choices = query.with_fields(fields)
    name = state.name_request("/v1/classify", response)

    def answer() -> Classification:
        """Decode, embed, score, and record what is decided."""
        one_by_one = choices.threshold is not None
        spec = choices.spec(state.heads.learn(examples))
        compiled = state.heads.get(spec.model_copy(update={"one_by_one": one_by_one}))
        audio = state.decode(content)
        [embedded] = state.embedder.embed([audio])
        result = Result(name, compiled.head.labels, compiled.head.scores(embedded.embedding)[0])
        threshold, audit = choices.threshold, state.audit
        present, events, detector, reference = None, None, None, None
        if threshold is not None:
            present = result.above(threshold)
        elif choices.multi_label:
            detector = state.heads.detector(spec, Detection())
            judged = detector.label_or_none(name, embedded.embedding)
            fits = dict(zip(judged.labels, judged.fits or (), strict=True))
            present = [label for label, _ in judged.ranking if fits[label]]
        if audit is not None:
            reference = audit.refer(content)
            decision, decider = label_decision(result, threshold), compiled.decider
            if detector is not None:
                decision = judged_decision(detector, name, embedded.embedding, every=True)
                decider = Decider.of(detector)
            audit.record(decision, decider, reference)
        if choices.events:
            settings = Detection().changed(threshold=threshold, false_alarms=choices.false_alarms)
            detector = state.heads.detector(spec, settings)
            all_events = (
                detector.events(audio)
                if audit is None
                else audited_events(audit, detector, audio, source=name, reference=reference)
            )
            events = [
                EventAnswer.model_validate(event, from_attributes=True)
                for event in all_events
                if not event.rejected
            ]
        ranking, summary = result.ranking, compiled.summary
        return Classification(
            label=result.label,
            score=ranking[0][1],
            margin=result.margin if math.isfinite(result.margin) else None,
            scores=[ScoredLabel(label=label, score=s) for label, s in ranking[: choices.top_k]],
            present=present,
            events=events,
            unit=summary.unit,
            rule=summary.rule,
            backbone=summary.backbone,
            head=spec.id,
            seconds=audio.seconds,
            unclear=summary.unclear,
            unlike=summary.unlike,
        )

    return await state.run(answer)
