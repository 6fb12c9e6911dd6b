"""Classifier as an estimator: parameters, copies and pickles, labels of any kind, scikit-learn."""

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score

import driftscore
from driftscore import (
    Backbone,
    Classifier,
    Embedder,
    PromptSettings,
    UsageError,
    load_backbone,
)

from .conftest import LABELS, WriteWav
from .test_classifier import scaled


@pytest.fixture
def classifier(fake: Backbone) -> Classifier:
    return Classifier(LABELS, backbone=fake)


class SeriesLike:
    """Iterable as a pandas Series is: it has no truth value, and `==` gives a list."""

    def __init__(self, values: list[str]) -> None:
        self.values = values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __bool__(self) -> bool:
        raise ValueError("The truth value of a Series is ambiguous")


@pytest.mark.parametrize("form", ["array", "objects", "series", "generator", "dict keys"])
def test_labels_may_be_any_iterable(fake: Backbone, wav: WriteWav, form: str) -> None:
    names = list(LABELS)
    labels: Any = {
        "array": np.array(names),
        "objects": np.array(names, dtype=object),
        "series": SeriesLike(names),
        "generator": (name for name in names),
        "dict keys": dict.fromkeys(names).keys(),
    }[form]
    classifier = Classifier(labels, backbone=fake)
    expected = Classifier(LABELS, backbone=fake)
    assert classifier.texts() == expected.texts()
    np.testing.assert_array_equal(classifier.scores([wav()]), expected.scores([wav()]))
    assert classifier.head_.labels == LABELS
    classifier.set_params(rule="cosine").fit()  # and they can be read again
    assert classifier.head_.labels == LABELS
    assert repr(classifier).startswith("Classifier(labels=")


def test_a_pandas_series_of_labels(fake: Backbone) -> None:
    pandas = pytest.importorskip("pandas", reason="PANDAS IS NOT INSTALLED")
    assert Classifier(pandas.Series(LABELS), backbone=fake).fit().head_.labels == LABELS


@pytest.mark.parametrize("model", ["mini", "fake"])
@pytest.mark.parametrize("form", ["name", "loaded", "embedder"])
def test_a_fitted_classifier_can_be_pickled_and_copied(
    model: str, form: str, mini: Backbone, fake: Backbone, wav: WriteWav
) -> None:
    loaded = {"mini": mini, "fake": fake}[model]
    backbone: Any = {"name": model, "loaded": loaded, "embedder": Embedder(model)}[form]
    prompts = PromptSettings(pack="generic5")
    classifier = Classifier(LABELS, backbone=backbone, prompts=prompts)
    files = [wav(f"{seed}.wav", seed=seed) for seed in range(3)]
    expected = classifier.scores(files)
    for twin in (pickle.loads(pickle.dumps(classifier)), copy.deepcopy(classifier)):
        assert list(twin.predict(files)) == list(classifier.predict(files))
        np.testing.assert_array_equal(twin.scores(files), expected)
        np.testing.assert_array_equal(twin.head_.weights, classifier.head_.weights)


def test_a_pickled_classifier_predicts_the_same_in_another_process(
    classifier: Classifier, wav: WriteWav, tmp_path: Path
) -> None:
    file = wav()
    expected = str(classifier.predict([file])[0])
    (tmp_path / "classifier.pickle").write_bytes(pickle.dumps(classifier))
    code = (
        "import pickle, sys; from pathlib import Path; "
        "print(pickle.loads(Path(sys.argv[1]).read_bytes()).predict([sys.argv[2]])[0])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "classifier.pickle"), file]
    source = str(Path(driftscore.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == expected


def test_it_is_a_scikit_learn_estimator(classifier: Classifier, wav: WriteWav) -> None:
    files = [wav(f"{seed}.wav", seconds=1.0, seed=seed) for seed in range(8)]
    truth = classifier.predict(files)
    assert is_classifier(classifier)
    twin = clone(classifier)
    assert twin is not classifier
    assert twin.get_params() == classifier.get_params()
    assert not hasattr(twin, "head_")
    assert classifier.score(files, list(truth)) == 1.0
    assert accuracy_score(truth, classifier.predict(files)) == 1.0
    assert cross_val_score(twin, files, truth, cv=2).tolist() == [1.0, 1.0]


def test_its_parameters_are_these(classifier: Classifier) -> None:
    assert set(classifier.get_params()) == {
        "labels", "backbone", "rule", "settings", "prompts", "preset", "standardised", "threshold",
        "head", "calibration", "progress",
    }  # fmt: skip


def test_a_grid_search_runs_over_settings_and_rules(fake: Backbone, wav: WriteWav) -> None:
    files = [wav(f"{seed}.wav", seconds=1.0, seed=seed) for seed in range(8)]
    reverse = Classifier(LABELS, backbone=fake, rule=scaled, settings={"factor": -1.0})
    truth = reverse.predict(files)
    grid = [
        {"settings": [{"factor": 1.0}, {"factor": -1.0}]},
        {"rule": ["cosine", "das"], "settings": [None]},
    ]
    search = GridSearchCV(Classifier(LABELS, backbone=fake, rule=scaled), grid, cv=2)
    search.fit(files, truth)
    assert len(search.cv_results_["params"]) == 4
    scores = dict(zip(map(str, search.cv_results_["params"]), search.cv_results_["mean_test_score"],
                      strict=True))  # fmt: skip
    # Each fold learns from the recordings of the others, so nothing else is certain.
    assert all(0 <= score <= 1 for score in scores.values())
    assert search.best_score_ == max(scores.values())
    assert search.best_estimator_.examples_.positive.keys() == set(truth)


def test_changing_a_parameter_compiles_the_head_again(
    classifier: Classifier, wav: WriteWav
) -> None:
    before = classifier.scores([wav()])
    after = classifier.set_params(settings={"beta": 1.0}).scores([wav()])
    assert not np.array_equal(before, after)
    with pytest.raises(UsageError, match="did you mean 'settings'"):
        classifier.set_params(settingz={})


def test_a_loaded_model_is_kept_while_other_parameters_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loads: list[str] = []

    def counted(spec: str, *, runtime: str | None = None) -> Backbone:
        loads.append(spec)
        return load_backbone(spec, runtime=runtime)

    monkeypatch.setattr("driftscore.engines.protocol.load_backbone", counted)
    classifier = Classifier(LABELS, backbone="fake").fit()
    classifier.set_params(settings={"beta": 0.5}).fit()
    classifier.set_params(labels=["a", "b"]).fit()
    assert loads == ["fake"]
    classifier.set_params(backbone="fake").fit()
    assert loads == ["fake", "fake"]
