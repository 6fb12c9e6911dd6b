import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone, is_classifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import cross_val_score

from driftscore import Classifier, Head, build_bank, compile_head, load_backbone
from driftscore.backbones import embed_recording
from driftscore.errors import AudioError, MismatchError, UsageError
from driftscore.result import Result

from .conftest import LABELS, noise_clip


@pytest.fixture
def ears(fake):
    return Classifier(LABELS, backbone=fake)


def test_predictions_are_the_best_scores_of_the_head(ears, fake, wav):
    files = [wav(f"{seed}.wav", seconds=1 + seed, seed=seed) for seed in range(5)]
    head = compile_head(build_bank(LABELS, fake), "das", beta=0.25)
    expected = head.scores(np.stack([embed_recording(file, fake) for file in files]))
    np.testing.assert_array_equal(ears.scores(files), expected)
    np.testing.assert_array_equal(ears.decision_function(files), expected)
    assert list(ears.predict(files)) == [LABELS[c] for c in expected.argmax(axis=1)]


@pytest.mark.parametrize("seconds", [0.5, 2.0, 25.0])
def test_a_file_scores_the_same_alone_in_a_batch_in_another_order_and_again(ears, wav, seconds):
    files = [
        wav(f"{seed}.wav", seconds=seconds if seed == 7 else 1.5, seed=seed) for seed in range(32)
    ]
    alone = ears.scores([files[7]])[0]
    np.testing.assert_array_equal(ears.scores(files)[7], alone)
    np.testing.assert_array_equal(ears.scores(files[::-1])[24], alone)
    np.testing.assert_array_equal(ears.scores([files[7]])[0], alone)
    np.testing.assert_array_equal(next(iter(ears.classify([files[7]]))).scores, alone)


def test_a_clips_embedding_is_the_unit_mean_of_its_windows(fake):
    clip = noise_clip(5.0)
    parts = [(0, 2), (1, 3), (2, 4), (3, 5)]
    rows = [fake.embed_audio([(clip.samples[a * 16000 : b * 16000], 16000)])[0] for a, b in parts]
    mean = np.mean(rows, axis=0)
    np.testing.assert_allclose(embed_recording(clip, fake), mean / np.linalg.norm(mean), atol=1e-6)
    np.testing.assert_array_equal(fake.embed_audio([clip])[0], embed_recording(clip, fake))


def test_a_bad_file_is_a_result_with_its_reason_and_the_rest_are_done(ears, wav, tmp_path):
    bad = tmp_path / "bad.wav"
    bad.write_text("no sound")
    results = list(ears.classify([wav("a.wav"), bad, wav("b.wav", seed=3)]))
    assert [bool(result.error) for result in results] == [False, True, False]
    assert str(bad) in results[1].error
    assert results[1].label == ""
    assert results[2].label in LABELS
    with pytest.raises(AudioError, match=r"bad\.wav"):
        ears.predict([bad])


def test_the_margin_is_the_distance_to_the_runner_up(ears, wav):
    result = next(iter(ears.classify([wav()])))
    ordered = sorted(result.scores, reverse=True)
    assert result.margin == pytest.approx(ordered[0] - ordered[1])
    assert [score for _, score in result.ranking] == ordered
    assert result.seconds == pytest.approx(3.0)


@given(st.lists(st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0]), min_size=1, max_size=6))
def test_the_best_two_are_the_first_of_the_ranking_ties_in_the_order_of_the_labels(scores):
    labels = tuple("abcdef"[: len(scores)])
    result = Result("", labels, np.array(scores))
    slow = sorted(zip(labels, scores, strict=True), key=lambda pair: -pair[1])
    assert result.ranking == slow
    assert result.best_two() == slow[:2]
    assert result.label == slow[0][0]
    assert result.margin == (slow[0][1] - slow[1][1] if len(slow) > 1 else np.inf)
    assert result.above(0.0) == [label for label, score in slow if score >= 0]
    assert (Result("").label, Result("").best_two(), Result("").above(0)) == ("", [], [])


def test_with_a_threshold_every_label_at_or_above_it_is_predicted(fake, wav):
    file = wav()
    scores = Classifier(LABELS, backbone=fake).scores([file])[0]
    cut = float(np.median(scores))
    found = Classifier(LABELS, backbone=fake, threshold=cut).predict([file])
    assert set(found[0]) == {LABELS[c] for c in np.flatnonzero(scores >= cut)}


def test_beta_and_rule_are_used(fake, wav):
    file = wav()
    cosine = Classifier(LABELS, backbone=fake, rule="cosine").scores([file])
    np.testing.assert_array_equal(Classifier(LABELS, backbone=fake, beta=0).scores([file]), cosine)
    assert not np.array_equal(Classifier(LABELS, backbone=fake, beta=0.5).scores([file]), cosine)


def test_rules_that_need_noise_take_recordings_or_their_embeddings(fake, wav):
    noise = [wav("n1.wav", seed=5), wav("n2.wav", seed=6)]
    rows = np.stack([embed_recording(file, fake) for file in noise])
    by_file = Classifier(LABELS, backbone=fake, rule="zs_audio", noise=noise).fit().head_
    by_row = Classifier(LABELS, backbone=fake, rule="zs_audio", noise=rows).fit().head_
    np.testing.assert_array_equal(by_file.offsets, by_row.offsets)


def test_it_is_a_scikit_learn_estimator(ears, wav):
    files = [wav(f"{seed}.wav", seconds=1.0, seed=seed) for seed in range(8)]
    truth = ears.predict(files)
    assert is_classifier(ears)
    twin = clone(ears)
    assert twin is not ears
    assert twin.get_params() == ears.get_params()
    assert not hasattr(twin, "head_")
    assert ears.score(files, truth) == accuracy_score(truth, ears.predict(files)) == 1.0
    assert cross_val_score(twin, files, truth, cv=2).tolist() == [1.0, 1.0]


def test_changing_a_parameter_compiles_the_head_anew(ears, wav):
    before = ears.scores([wav()])
    after = ears.set_params(beta=1.0).scores([wav()])
    assert not np.array_equal(before, after)
    with pytest.raises(UsageError, match="did you mean 'beta'"):
        ears.set_params(betta=1)


def test_a_compiled_head_takes_the_place_of_the_labels(ears, fake, wav, tmp_path):
    ears.fit().head_.save(tmp_path / "head.safetensors")
    other = Classifier(backbone=fake, head=tmp_path / "head.safetensors")
    np.testing.assert_array_equal(other.scores([wav()]), ears.scores([wav()]))
    with pytest.raises(MismatchError, match="The head was made with fake"):
        Classifier(backbone=load_backbone("fake", seed=3), head=ears.head_).fit()
    assert isinstance(other.head_, Head)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "No labels given"),
        ({"labels": ["dog"]}, "leaves nothing to choose between"),
        ({"labels": "dog, cat"}, "not one string"),
        ({"labels": LABELS, "rule": "dass"}, "did you mean 'das'"),
        ({"labels": LABELS, "beta": "x"}, "must be a number"),
        ({"labels": LABELS, "threshold": "x"}, "must be a number"),
        ({"labels": LABELS, "backbone": "fakee"}, "did you mean 'fake'"),
    ],
)
def test_bad_arguments_are_refused_in_words(arguments, message):
    with pytest.raises(UsageError, match=message):
        Classifier(**{"backbone": "fake", **arguments}).fit()


def test_one_label_with_a_threshold_is_a_question_of_yes_or_no(fake, wav):
    ears = Classifier(["dog"], backbone=fake, threshold=-1)
    assert ears.predict([wav()]) == [["dog"]]


def test_one_path_instead_of_a_list_is_noticed(ears, wav):
    with pytest.raises(UsageError, match="A list of recordings is wanted"):
        ears.predict(wav())


def test_the_texts_are_listed_without_a_model():
    ears = Classifier(LABELS, backbone="a model that does not exist")
    texts = ears.texts()
    assert len(texts) == 3 * 209
    assert "the sound of sea waves" in texts
    assert "siren with mains hum in the background" in texts
    assert (
        len(ears.set_params(rule="zs_text").texts()) == 3 + 3
    )  # no rule pays for drifts it does not read


def test_a_loaded_model_is_kept_while_other_parameters_change(wav, monkeypatch):
    loads = []
    monkeypatch.setattr(
        "driftscore.classifier.load_backbone",
        lambda spec: loads.append(spec) or load_backbone(spec),
    )
    ears = Classifier(LABELS, backbone="fake").fit()
    ears.set_params(beta=0.5).fit()
    ears.set_params(labels=["a", "b"]).fit()
    assert loads == ["fake"]
    ears.set_params(backbone="fake").fit()
    assert loads == ["fake", "fake"]
