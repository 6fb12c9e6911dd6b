"""The pipeline: transformers' interface and answers, with the classifier's scores."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from driftscore import Backbone, Classifier, Embedder, PromptSettings, pipeline
from driftscore.backbones.vectors import Scores
from driftscore.errors import UsageError
from driftscore.pipelines import IGNORED, Answer, ZeroShotPipeline

from .conftest import LABELS, WriteWav, noise_clip

CLIP = noise_clip(3.0)


@pytest.fixture(scope="module")
def classify() -> ZeroShotPipeline:
    return pipeline("zero-shot-audio-classification", model="fake")


def softmax(classifier: Classifier) -> dict[str, float]:
    """Return the answer that a classifier's scores of CLIP amount to."""
    scores: Scores = classifier.scores([CLIP])[0]
    shares = np.exp(classifier.embedder_.backbone.logit_scale * scores)
    return dict(zip(classifier.head_.labels, shares / shares.sum(), strict=True))


def shares(answer: Answer) -> dict[str, float]:
    return {item["label"]: item["score"] for item in answer}


def test_the_answer_has_the_form_of_transformers(classify: ZeroShotPipeline, wav: WriteWav) -> None:
    answer = classify(wav(), candidate_labels=list(LABELS))
    assert [set(item) for item in answer] == [{"score", "label"}] * 3
    assert sum(item["score"] for item in answer) == pytest.approx(1)
    assert [item["score"] for item in answer] == sorted((i["score"] for i in answer), reverse=True)


def test_the_answer_is_the_softmax_of_the_classifiers_scores(
    classify: ZeroShotPipeline, fake: Backbone
) -> None:
    expected = softmax(Classifier(LABELS, backbone=fake))
    answer = classify(CLIP, candidate_labels=list(LABELS))
    assert shares(answer) == pytest.approx(expected)
    assert classify(CLIP, candidate_labels=", ".join(LABELS)) == answer


def test_a_list_gives_a_list_and_an_array_has_the_models_rate(classify: ZeroShotPipeline) -> None:
    one = classify(CLIP.samples, candidate_labels=list(LABELS))
    assert classify([CLIP.samples, CLIP.samples], candidate_labels=list(LABELS)) == [one, one]
    assert classify([CLIP], candidate_labels=list(LABELS)) == [one]
    raw = {"raw": CLIP.samples, "sampling_rate": CLIP.rate}
    assert classify(raw, candidate_labels=list(LABELS)) == one


def test_texts_are_encoded_once_per_set_of_labels(
    classify: ZeroShotPipeline, fake: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    classify(CLIP, candidate_labels=["a", "b"])
    monkeypatch.setattr(type(fake), "embed_text", lambda *_: pytest.fail("text encoded again"))
    classify(noise_clip(1.0, seed=1), candidate_labels=["a", "b"])


def test_the_hypothesis_template_is_the_prompt(classify: ZeroShotPipeline, fake: Backbone) -> None:
    prompts = PromptSettings(prompt="This is a sound of {c}.")
    expected = softmax(Classifier(LABELS, backbone=fake, prompts=prompts))
    template = "This is a sound of {}."
    found = classify(CLIP, candidate_labels=list(LABELS), hypothesis_template=template)
    assert shares(found) == pytest.approx(expected)
    assert found != classify(CLIP, candidate_labels=list(LABELS))
    with pytest.raises(UsageError, match="placeholder"):
        classify(CLIP, candidate_labels=["a", "b"], hypothesis_template="This is a sound.")


def test_the_template_keeps_the_other_prompt_settings(fake: Backbone) -> None:
    prompts = PromptSettings(pack="generic5", direction="svd")
    made = pipeline(model=fake, prompts=prompts, cache=False)
    found = made(CLIP, list(LABELS), hypothesis_template="A {}.")
    changed = prompts.changed(prompt="A {c}.")
    expected = softmax(Classifier(LABELS, backbone=fake, prompts=changed))
    assert shares(found) == pytest.approx(expected)


def test_top_k_keeps_the_best_labels_with_their_shares(classify: ZeroShotPipeline) -> None:
    every = classify(CLIP, list(LABELS))
    assert classify(CLIP, list(LABELS), top_k=2) == every[:2]
    assert classify([CLIP], list(LABELS), top_k=1) == [every[:1]]
    assert classify(CLIP, list(LABELS), top_k=10) == every
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(UsageError, match="top_k must be a positive integer"):
            classify(CLIP, list(LABELS), top_k=wrong)


def test_arguments_of_a_call_may_be_given_once_when_it_is_made(classify: ZeroShotPipeline) -> None:
    template = "This is a sound of {}."
    made = pipeline(
        model="fake", candidate_labels=list(LABELS), hypothesis_template=template, top_k=2
    )
    expected = classify(CLIP, list(LABELS), hypothesis_template=template)
    assert made(CLIP) == expected[:2]
    assert made(CLIP, top_k=1) == expected[:1]
    assert [item["label"] for item in made(CLIP, ["only", "these"], top_k=9)] != []
    with pytest.raises(UsageError, match="No labels given; pass candidate_labels"):
        classify(CLIP)


@pytest.mark.parametrize("name", IGNORED)
def test_arguments_that_change_no_result_are_accepted_with_a_note(
    classify: ZeroShotPipeline, name: str
) -> None:
    expected = classify(CLIP, list(LABELS))
    with pytest.warns(UserWarning, match=f"^{name} of transformers' pipeline: ignored"):
        made = pipeline(model="fake", **{name: 1})  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert made(CLIP, list(LABELS)) == expected
    with pytest.warns(UserWarning, match="ignored"):
        assert classify(CLIP, list(LABELS), **{name: 1}) == expected


def test_the_note_is_shown_once_per_line_of_code() -> None:
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("default")
        for _ in range(3):
            pipeline(model="fake", dtype="auto", num_workers=8)
    assert [str(note.message).split(" of ")[0] for note in notes] == ["dtype, num_workers"]
    assert notes[0].filename == __file__


def test_rule_settings_and_preset_are_those_of_the_classifier(
    fake: Backbone, tmp_path: Path
) -> None:
    preset = tmp_path / "my.toml"
    preset.write_text('[mine]\n[mine.prompts]\nprompt = "{c}!"\n[mine.rules.das]\nbeta = 0.9\n')
    found = pipeline(model=fake, preset=preset)(CLIP, list(LABELS))
    expected = softmax(Classifier(LABELS, backbone=fake, preset=preset))
    assert shares(found) == pytest.approx(expected)
    assert found != pipeline(model=fake)(CLIP, list(LABELS))
    found = pipeline(model=fake, rule="zs_text", settings={"tau": 0.9})(CLIP, list(LABELS))
    classifier = Classifier(LABELS, backbone=fake, rule="zs_text", settings={"tau": 0.9})
    assert shares(found) == pytest.approx(softmax(classifier))


def test_the_model_may_be_an_embedder(fake: Backbone) -> None:
    made = pipeline(model=Embedder(fake), settings={"beta": 0.9})
    expected = pipeline(model=fake, settings={"beta": 0.9})(CLIP, list(LABELS))
    assert made(CLIP, list(LABELS)) == expected


def test_another_task_or_an_unknown_argument_is_refused(classify: ZeroShotPipeline) -> None:
    with pytest.raises(UsageError, match="No task called"):
        pipeline("text-generation", model="fake")
    with pytest.raises(UsageError, match="did you mean 'prompts'"):
        pipeline(model="fake", promts="x")
    with pytest.raises(UsageError, match="did you mean 'top_k'"):
        classify(CLIP, list(LABELS), topk=2)
    with pytest.raises(UsageError, match="did you mean 'fake'"):
        pipeline(model="fakee")
