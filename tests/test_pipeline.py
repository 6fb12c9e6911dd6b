import numpy as np
import pytest

from driftscore import Classifier, pipeline
from driftscore.errors import UsageError

from .conftest import LABELS, noise_clip


@pytest.fixture(scope="module")
def ask():
    return pipeline("zero-shot-audio-classification", model="fake")


def test_the_answer_is_shaped_like_transformers(ask, wav):
    answer = ask(wav(), candidate_labels=list(LABELS))
    assert [set(item) for item in answer] == [{"score", "label"}] * 3
    assert sum(item["score"] for item in answer) == pytest.approx(1)
    assert [item["score"] for item in answer] == sorted((i["score"] for i in answer), reverse=True)


def test_the_order_is_the_classifiers(ask, fake, wav):
    answer = ask(wav(), candidate_labels=list(LABELS))
    scores = Classifier(LABELS, backbone=fake).scores([wav()])[0]
    assert [item["label"] for item in answer] == [LABELS[c] for c in np.argsort(-scores)]


def test_a_list_gives_a_list_and_an_array_is_at_the_models_rate(ask):
    clip = noise_clip(3.0)
    one = ask(clip.samples, candidate_labels=list(LABELS))
    assert ask([clip.samples, clip], candidate_labels=list(LABELS)) == [one, one]


def test_text_is_encoded_once_for_a_label_set(ask, fake, monkeypatch):
    ask(noise_clip(1.0), candidate_labels=["a", "b"])
    monkeypatch.setattr(type(fake), "embed_text", lambda *_: pytest.fail("text encoded again"))
    ask(noise_clip(1.0, seed=1), candidate_labels=["a", "b"])


def test_the_hypothesis_template_is_the_prompt(ask, fake):
    clip = noise_clip(2.0)
    found = ask(clip, candidate_labels=["a", "b"], hypothesis_template="This is a sound of {}.")
    ears = Classifier(["a", "b"], backbone=fake, prompt="This is a sound of {c}.")
    assert found[0]["label"] == ears.predict([clip])[0]
    with pytest.raises(UsageError, match="placeholder"):
        ask(clip, candidate_labels=["a", "b"], hypothesis_template="This is a sound.")


def test_another_task_or_setting_is_refused():
    with pytest.raises(UsageError, match="No task called"):
        pipeline("text-generation", model="fake")
    with pytest.raises(UsageError, match="did you mean 'prompt'"):
        pipeline(model="fake", promt="x")
