"""Classifier: predictions, settings, and its manners as a scikit-learn estimator."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import driftscore
from driftscore import (
    Audio,
    AudioError,
    Backbone,
    ClassBank,
    Classifier,
    Head,
    MismatchError,
    PromptSettings,
    Result,
    UsageError,
    build_bank,
    compile_head,
    load_backbone,
)
from driftscore.scoring.head import results_of

from .conftest import LABELS, WriteWav, embed_recording, noise_clip


@pytest.fixture
def classifier(fake: Backbone) -> Classifier:
    return Classifier(LABELS, backbone=fake)


def test_predictions_are_the_best_scores_of_the_head(
    classifier: Classifier, fake: Backbone, wav: WriteWav
) -> None:
    files = [wav(f"{seed}.wav", seconds=1 + seed, seed=seed) for seed in range(5)]
    head = compile_head(build_bank(LABELS, fake), "das", beta=0.25)
    expected = head.scores(np.stack([embed_recording(file, fake) for file in files]))
    np.testing.assert_array_equal(classifier.scores(files), expected)
    np.testing.assert_array_equal(classifier.decision_function(files), expected)
    assert list(classifier.predict(files)) == [LABELS[c] for c in expected.argmax(axis=1)]


@pytest.mark.parametrize("seconds", [0.5, 2.0, 25.0])
def test_a_file_scores_the_same_alone_in_a_batch_in_another_order_and_again(
    classifier: Classifier, wav: WriteWav, seconds: float
) -> None:
    files = [
        wav(f"{seed}.wav", seconds=seconds if seed == 7 else 1.5, seed=seed) for seed in range(32)
    ]
    alone = classifier.scores([files[7]])[0]
    np.testing.assert_array_equal(classifier.scores(files)[7], alone)
    np.testing.assert_array_equal(classifier.scores(files[::-1])[24], alone)
    np.testing.assert_array_equal(classifier.scores([files[7]])[0], alone)
    [result] = classifier.classify([files[7]])
    assert result.scores is not None
    np.testing.assert_array_equal(result.scores, alone)


def test_the_embedding_of_a_clip_is_the_unit_mean_of_its_windows(fake: Backbone) -> None:
    clip = noise_clip(5.0)
    parts = [(0, 2), (1, 3), (2, 4), (3, 5)]
    windows = [Audio(clip.samples[a * 16_000 : b * 16_000], 16_000) for a, b in parts]
    mean = np.mean([fake.embed_audio([window])[0] for window in windows], axis=0)
    np.testing.assert_allclose(embed_recording(clip, fake), mean / np.linalg.norm(mean), atol=1e-6)
    np.testing.assert_array_equal(fake.embed_audio([clip])[0], embed_recording(clip, fake))


def test_a_bad_file_is_a_result_with_its_reason_and_the_rest_are_done(
    classifier: Classifier, wav: WriteWav, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_text("no sound")
    results = list(classifier.classify([wav("a.wav"), bad, wav("b.wav", seed=3)]))
    assert [bool(result.error) for result in results] == [False, True, False]
    assert str(bad) in results[1].error
    assert results[1].label == ""
    assert results[2].label in LABELS
    with pytest.raises(AudioError, match=r"bad\.wav"):
        classifier.predict([bad])


def test_the_margin_is_the_distance_to_the_runner_up(classifier: Classifier, wav: WriteWav) -> None:
    [result] = classifier.classify([wav()])
    assert result.scores is not None
    ordered = sorted(result.scores, reverse=True)
    assert result.margin == pytest.approx(ordered[0] - ordered[1])
    assert [score for _, score in result.ranking] == ordered
    assert result.seconds == pytest.approx(3.0)


@given(st.lists(st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0]), min_size=1, max_size=6))
def test_the_best_two_are_the_first_of_the_ranking_ties_in_the_order_of_the_labels(
    scores: list[float],
) -> None:
    labels = tuple("abcdef"[: len(scores)])
    result = Result("", labels, np.array(scores))
    slow = sorted(zip(labels, scores, strict=True), key=lambda pair: -pair[1])
    assert result.ranking == slow
    [quick] = results_of(labels, [""], np.array([scores]))
    assert list(quick.best_two()) == slow[:2]
    assert (quick.label, quick.margin) == (result.label, result.margin)
    assert result.label == slow[0][0]
    assert result.margin == (slow[0][1] - slow[1][1] if len(slow) > 1 else np.inf)
    assert result.above(0.0) == [label for label, score in slow if score >= 0]
    failed = Result("", labels, error="it failed")
    assert (failed.label, failed.ranking, failed.above(0)) == ("", [], [])
    bad, good = results_of(labels, ["a", "b"], np.array([scores]), [0.0, 1.0], ["it failed", ""])
    assert (bad.source, bad.error, bad.label, bad.ranking) == ("a", "it failed", "", [])
    assert (good.source, good.seconds, good.ranking) == ("b", 1.0, slow)


def test_predict_labels_returns_every_label_at_or_above_the_threshold(
    fake: Backbone, wav: WriteWav
) -> None:
    file = wav()
    scores = Classifier(LABELS, backbone=fake).scores([file])[0]
    cut = float(np.median(scores))
    found = Classifier(LABELS, backbone=fake, threshold=cut).predict_labels([file])
    assert found == [[LABELS[c] for c in np.argsort(-scores) if scores[c] >= cut]]


def test_predict_is_for_one_label_and_predict_labels_for_several(
    fake: Backbone, wav: WriteWav
) -> None:
    """Each has one type of result, and says which of them to use instead."""
    best = Classifier(LABELS, backbone=fake).predict([wav(), wav()])
    assert isinstance(best, np.ndarray)
    assert best.shape == (2,)
    several = Classifier(LABELS, backbone=fake, threshold=-2).predict_labels([wav()])
    assert [sorted(labels) for labels in several] == [sorted(LABELS)]
    with pytest.raises(UsageError, match="use predict_labels"):
        Classifier(LABELS, backbone=fake, threshold=0.1).predict([wav()])
    with pytest.raises(UsageError, match="use predict_labels"):
        Classifier(LABELS, backbone=fake, threshold=0.1).score([wav()], ["siren"])
    with pytest.raises(UsageError, match="needs a threshold"):
        Classifier(LABELS, backbone=fake).predict_labels([wav()])


def test_one_label_is_allowed_everywhere_but_in_predict(fake: Backbone, wav: WriteWav) -> None:
    classifier = Classifier(["dog"], backbone=fake)
    assert classifier.scores([wav()]).shape == (1, 1)
    assert [result.label for result in classifier.classify([wav()])] == ["dog"]
    assert list(classifier.events(wav())) == []
    with pytest.raises(UsageError, match="leaves nothing to choose between"):
        classifier.predict([wav()])
    assert classifier.set_params(threshold=-1).predict_labels([wav()]) == [["dog"]]


def test_embeddings_take_the_place_of_recordings(
    classifier: Classifier, fake: Backbone, wav: WriteWav
) -> None:
    files = [wav(f"{seed}.wav", seed=seed) for seed in range(3)]
    rows = np.stack([one.embedding for one in classifier.embed(files)])
    np.testing.assert_array_equal(classifier.scores(embeddings=rows), classifier.scores(files))
    np.testing.assert_array_equal(
        classifier.decision_function(embeddings=rows), classifier.scores(files)
    )
    assert classifier.predict(embeddings=rows).tolist() == classifier.predict(files).tolist()
    results = list(classifier.classify(embeddings=rows))
    assert [one.source for one in results] == ["0", "1", "2"]
    assert [one.ranking for one in results] == [one.ranking for one in classifier.classify(files)]
    several = Classifier(LABELS, backbone=fake, threshold=-2).predict_labels(embeddings=rows)
    assert [len(labels) for labels in several] == [3, 3, 3]
    assert classifier.scores(embeddings=rows[:0]).shape == (0, 3)
    with pytest.raises(MismatchError, match="they come from different models"):
        classifier.predict(embeddings=rows[:, :5])
    with pytest.raises(UsageError, match="not both"):
        classifier.scores(files, embeddings=rows)
    with pytest.raises(UsageError, match="Give recordings, or embeddings"):
        classifier.scores()


def test_no_recordings_give_no_predictions(classifier: Classifier) -> None:
    assert classifier.scores([]).shape == (0, 3)
    assert classifier.predict([]).shape == (0,)
    assert list(classifier.classify([])) == []


def test_settings_and_rule_are_used(fake: Backbone, wav: WriteWav) -> None:
    file = wav()

    def scores(**arguments: Any) -> Any:
        return Classifier(LABELS, backbone=fake, **arguments).scores([file])

    cosine = scores(rule="cosine")
    np.testing.assert_array_equal(scores(settings={"beta": 0}), cosine)
    assert not np.array_equal(scores(settings={"beta": 0.5}), cosine)


def test_an_unknown_parameter_is_refused(fake: Backbone) -> None:
    with pytest.raises(UsageError, match="did you mean 'settings'"):
        Classifier(LABELS, backbone=fake).set_params(setings={"beta": 0.1})
    with pytest.raises(UsageError, match="No setting called 'standardised'"):
        Classifier(LABELS, backbone=fake, rule="das", settings={"standardised": False}).fit()


@pytest.fixture
def own_preset(tmp_path: Path) -> Path:
    """Return a preset file with another beta and another prompt."""
    path = tmp_path / "own.toml"
    path.write_text(
        '[own.prompts]\nprompt = "a recording of {c}"\n[own.rules.das]\nbeta = 0.6\n',
        encoding="utf-8",
    )
    return path


def test_the_beta_of_a_preset_reaches_classifier_and_compile_head_alike(
    fake: Backbone, own_preset: Path, wav: WriteWav
) -> None:
    bank = build_bank(LABELS, fake, preset=own_preset)
    head = compile_head(bank, "das", preset=own_preset)
    classifier = Classifier(LABELS, backbone=fake, preset=own_preset).fit()
    assert head.made_by["settings"]["beta"] == 0.6
    assert head.made_by == classifier.head_.made_by
    assert bank.made_by["prompt"] == "a recording of {c}"
    np.testing.assert_array_equal(classifier.head_.weights, head.weights)
    explicit = Classifier(LABELS, backbone=fake, preset=own_preset, settings={"beta": 0.25}).fit()
    assert explicit.head_.made_by["settings"]["beta"] == 0.25
    assert not np.array_equal(explicit.scores([wav()]), classifier.scores([wav()]))


def test_prompts_take_the_place_of_those_of_the_preset(fake: Backbone, own_preset: Path) -> None:
    prompts = PromptSettings(prompt="noise of {c}", direction="svd", pack="generic5")
    classifier = Classifier(LABELS, backbone=fake, preset=own_preset, prompts=prompts).fit()
    bank = build_bank(LABELS, fake, settings=prompts)
    expected = compile_head(bank, "das", beta=0.6)
    np.testing.assert_array_equal(classifier.head_.weights, expected.weights)


def test_rules_that_need_noise_take_recordings_or_their_embeddings(
    fake: Backbone, wav: WriteWav
) -> None:
    noise = [wav("n1.wav", seed=5), wav("n2.wav", seed=6)]
    rows = np.stack([embed_recording(file, fake) for file in noise])
    by_file, by_row = (
        Classifier(LABELS, backbone=fake, rule="zs_audio", settings={"noise": given})
        .fit()
        .head_.offsets
        for given in (noise, rows)
    )
    np.testing.assert_array_equal(by_file, by_row)


def scaled(bank: ClassBank, *, factor: float = 2.0) -> Head:
    """Multiply the prototypes: a rule that is not part of driftscore."""
    weights = np.float32(factor) * bank.prototypes
    return Head(bank.labels, weights, np.zeros(len(bank.labels), np.float32))


@pytest.mark.parametrize("rule", [scaled, f"{__name__}:scaled"])
def test_a_function_can_be_the_rule(fake: Backbone, wav: WriteWav, rule: Any) -> None:
    cosine = Classifier(LABELS, backbone=fake, rule="cosine").scores([wav()])
    other = Classifier(LABELS, backbone=fake, rule=rule, settings={"factor": 4}).scores([wav()])
    np.testing.assert_allclose(other, 4 * cosine, rtol=1e-6)


def test_another_rule_drops_the_settings_that_it_does_not_have(
    fake: Backbone, wav: WriteWav
) -> None:
    """`--rule zs_text --set tau=0.3 --compare das` failed: "No setting called 'tau'"."""
    classifier = Classifier(LABELS, backbone=fake, rule="zs_text", settings={"tau": 0.3})
    first, other = classifier.compared_with("das")
    np.testing.assert_array_equal(
        other.scores([wav()]), Classifier(LABELS, backbone=fake).scores([wav()])
    )
    np.testing.assert_array_equal(first.head_.offsets, classifier.fit().head_.offsets)
    _, kept = classifier.compared_with("zs_text")
    np.testing.assert_array_equal(kept.head_.offsets, classifier.head_.offsets)


def test_of_two_rules_only_the_one_that_has_a_setting_gets_it(fake: Backbone) -> None:
    classifier = Classifier(LABELS, backbone=fake, rule="cosine", settings={"beta": 2.0})
    cosine, das = classifier.compared_with("das")
    assert (cosine.settings, das.settings) == ({}, {"beta": 2.0})
    with pytest.raises(UsageError, match="beta"):
        classifier.compared_with("zs_text")


def test_a_compiled_head_has_no_other_rule(classifier: Classifier, fake: Backbone) -> None:
    compiled = Classifier(backbone=fake, head=classifier.fit().head_)
    with pytest.raises(UsageError, match="compiled head"):
        compiled.compared_with("cosine")


def test_a_compiled_head_takes_the_place_of_the_labels(
    classifier: Classifier, fake: Backbone, wav: WriteWav, tmp_path: Path
) -> None:
    classifier.fit().head_.save(tmp_path / "head.safetensors")
    other = Classifier(backbone=fake, head=tmp_path / "head.safetensors")
    np.testing.assert_array_equal(other.scores([wav()]), classifier.scores([wav()]))
    with pytest.raises(MismatchError, match="The head was made with fake"):
        Classifier(backbone=load_backbone("fake", seed=3), head=classifier.head_).fit()
    assert isinstance(other.head_, Head)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "No labels given"),
        ({"labels": []}, "No labels given"),
        ({"labels": {"dog": ["barking"]}}, "not a mapping"),
        ({"labels": "dog, cat"}, "not one string"),
        ({"labels": LABELS, "rule": "dass"}, "did you mean 'das'"),
        ({"labels": LABELS, "settings": {"beta": "x"}}, "must be a number"),
        ({"labels": LABELS, "settings": {"bet": 1}}, "did you mean 'beta'"),
        ({"labels": LABELS, "threshold": "x"}, "must be a number"),
        ({"labels": LABELS, "backbone": "fakee"}, "did you mean 'fake'"),
        ({"labels": LABELS, "preset": "das2025"}, "did you mean 'das2026'"),
    ],
)
def test_bad_arguments_are_refused_in_words(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Classifier(**{"backbone": "fake", **arguments}).fit()


def test_one_path_instead_of_a_list_is_noticed(classifier: Classifier, wav: WriteWav) -> None:
    with pytest.raises(UsageError, match="Expected a list of recordings"):
        classifier.predict(wav())


def test_the_texts_are_listed_without_a_model() -> None:
    classifier = Classifier(LABELS, backbone="a model that does not exist")
    texts = classifier.texts()
    assert len(texts) == 3 * 209
    assert "the sound of sea waves" in texts
    assert "siren with mains hum in the background" in texts
    # no rule pays for drifts that it does not read
    assert len(classifier.set_params(rule="zs_text").texts()) == 3 + 3


@pytest.mark.parametrize("method", ["predict", "scores", "classify"])
def test_progress_shows_a_bar_for_audio(
    fake: Backbone, wav: WriteWav, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    files = [wav(f"{seed}.wav", seed=seed) for seed in range(4)]
    list(getattr(Classifier(LABELS, backbone=fake, progress=True).fit(), method)(files))
    bars = capsys.readouterr()
    assert "Embedding" in bars.err
    assert "4/4" in bars.err
    assert bars.out == ""
    list(getattr(Classifier(LABELS, backbone=fake, progress=False).fit(), method)(files))
    assert capsys.readouterr() == ("", "")


def test_what_a_user_needs_is_exported() -> None:
    names = {
        "Audio", "Backbone", "ClassBank", "Classifier", "Detection", "Detector", "Embedded",
        "Embedder", "Event", "Head", "PromptSettings", "Result", "Calibration", "WatchList",
        "WatchedLabel", "__version__", "build_bank", "compile_head", "load_backbone",
        "pipeline",
    }  # fmt: skip
    errors = {
        "AudioError", "DownloadError", "DriftscoreError", "FormatError", "MismatchError",
        "MissingExtraError", "UsageError", "WriteError",
    }  # fmt: skip
    assert set(driftscore.__all__) == names | errors
    assert dir(driftscore) == sorted(driftscore.__all__)
    assert all(hasattr(driftscore, name) for name in driftscore.__all__)


def test_each_error_has_its_exit_status() -> None:
    for error in vars(driftscore.errors).values():
        if isinstance(error, type) and issubclass(error, driftscore.DriftscoreError):
            assert error.exit_status == (2 if issubclass(error, UsageError) else 1)
