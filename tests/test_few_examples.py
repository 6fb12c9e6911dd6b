"""Words and a few examples: the algebra, the estimator, the command line, watch lists, heads."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import soundfile

from driftscore import (
    Audio,
    Backbone,
    Calibration,
    Classifier,
    Head,
    MismatchError,
    UsageError,
    WatchedLabel,
    WatchList,
)
from driftscore.engines.examples import example_files, sounding_part
from driftscore.errors import AudioError, FormatError
from driftscore.scoring.examples import NOT, Example, Examples, discriminant_metric, learnt
from driftscore.scoring.head import join_heads

from .conftest import LABELS, Run, WriteWav

RATE = 32_000


def tone(frequency: float, seconds: float = 1.5, seed: int = 0) -> Audio:
    """Return a decaying tone in faint noise."""
    time = np.arange(round(seconds * RATE)) / RATE
    rng = np.random.default_rng(seed)
    sound = 0.5 * np.exp(-2 * time) * np.sin(2 * np.pi * frequency * time)
    return Audio((sound + 1e-3 * rng.standard_normal(len(time))).astype(np.float32), RATE)


@pytest.fixture(scope="module")
def bells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bells")
    for number in range(6):
        sound = tone(640 + 8 * number, seed=number)
        soundfile.write(folder / f"bell{number}.wav", sound.samples, RATE)
    rng = np.random.default_rng(9)
    soundfile.write(folder / "hiss.wav", 0.2 * rng.standard_normal(2 * RATE), RATE)
    return folder


def rows(count: int, dim: int = 8, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((count, dim))
    unit: np.ndarray = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return unit


def test_a_learnt_prototype_is_the_minimum_of_its_ridge_regression() -> None:
    words, examples, metric = rows(1)[0], rows(3, seed=1), np.diag(np.linspace(0.5, 2, 8))
    row = learnt(words.astype(np.float32), examples, rows(0), metric=metric, ridge=3.0)

    def cost(vector: np.ndarray) -> float:
        moved = vector - words
        errors = examples @ vector - 1
        return float(errors @ errors + 3.0 * moved @ np.linalg.solve(metric, moved))

    # The function returns a unit vector: its length before is found along the line.
    lengths = np.linspace(0.2, 3, 400)
    best = min(lengths, key=lambda length: cost(length * row))
    for direction in np.eye(8):
        for step in (-1e-2, 1e-2):
            assert cost(best * row + step * direction) >= cost(best * row) - 1e-4


def test_more_examples_bring_a_prototype_nearer_to_them() -> None:
    words, target = rows(1)[0].astype(np.float32), rows(1, seed=5)[0]
    cosines = [
        float(learnt(words, np.tile(target, (n, 1)), rows(0), metric=None, ridge=1.0) @ target)
        for n in (0, 1, 3, 10)
    ]
    assert cosines == sorted(cosines)
    assert cosines[-1] > cosines[0] + 0.5


def test_a_negative_example_pushes_away_and_an_unlike_one_changes_nothing() -> None:
    words = rows(1)[0].astype(np.float32)
    near = words + 0.3 * rows(1, seed=2)[0]
    near = (near / np.linalg.norm(near))[None]
    none = rows(0)
    pushed = learnt(words, none, near, metric=None, ridge=1.0)
    assert float(near[0] @ pushed) < float(near[0] @ words) - 0.1
    np.testing.assert_allclose(learnt(words, none, -near, metric=None, ridge=1.0), words, atol=1e-6)


def test_a_label_without_words_is_a_linear_discriminant(mini: Backbone) -> None:
    calibration = Calibration.load(str(mini.calibration_file), mini)
    metric = discriminant_metric(calibration)
    example = rows(1, mini.dim)[0]
    row = learnt(
        np.zeros(mini.dim, np.float32), example[None], rows(0, mini.dim), metric=metric, ridge=3.0
    )
    expected = metric @ example
    np.testing.assert_allclose(row, expected / np.linalg.norm(expected), atol=1e-5)


def test_fit_without_recordings_learns_nothing(fake: Backbone) -> None:
    words = Classifier(LABELS, backbone=fake).fit()
    rng = np.random.default_rng(0)
    examples = rng.standard_normal((2, fake.dim))
    learnt_from = Classifier(LABELS, backbone=fake).fit(examples, LABELS[:2])
    assert not np.allclose(learnt_from.head_.weights, words.head_.weights)
    np.testing.assert_array_equal(learnt_from.fit().head_.weights, words.head_.weights)
    with pytest.raises(UsageError, match="label of each recording"):
        words.fit(examples)
    with pytest.raises(UsageError, match="2 recordings and 3 labels"):
        words.fit(examples, LABELS[:3])


@pytest.mark.parametrize("name", ["fake", "mini"])
def test_embeddings_of_another_model_are_refused(name: str) -> None:
    rows_of_another = np.random.default_rng(0).standard_normal((2, 100))
    with pytest.raises(MismatchError, match="100 dimensions, the model"):
        Classifier(LABELS, backbone=name).fit(rows_of_another, LABELS[:2])


def test_examples_bring_a_label_to_its_own_sound(mini: Backbone, bells: Path) -> None:
    files = [bells / f"bell{n}.wav" for n in range(1, 6)]
    labels = ["dog bark", "siren", "rain"]
    before = Classifier([*labels, "doorbell"], backbone=mini).scores([bells / "bell0.wav"])[0]
    classifier = Classifier([*labels, "doorbell"], backbone=mini).fit(files, ["doorbell"] * 5)
    after = classifier.scores([bells / "bell0.wav"])[0]
    assert after[3] > before[3] + 0.1
    np.testing.assert_allclose(after[:3], before[:3], atol=1e-6)
    alone = Classifier(labels, backbone=mini).fit(files, ["ding dong"] * 5)
    assert list(alone.classes_) == [*labels, "ding dong"]
    assert alone.predict([bells / "bell0.wav"])[0] == "ding dong"
    only = Classifier(backbone=mini).fit([*files, bells / "hiss.wav"], ["bell"] * 5 + ["hiss"])
    assert only.predict([bells / "bell0.wav"])[0] == "bell"


def test_the_head_records_examples_by_their_sum_and_nothing_else(
    mini: Backbone, bells: Path, tmp_path: Path
) -> None:
    import hashlib

    files = [bells / "bell1.wav", bells / "hiss.wav"]
    plain = Classifier(["doorbell"], backbone=mini).fit().head_
    head = Classifier(["doorbell"], backbone=mini).fit(files, ["doorbell", NOT]).head_
    sums = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    assert head.made_by["bank"]["examples"] == {"doorbell": sums[:1]}
    assert head.made_by["bank"]["not"] == {NOT: sums[1:]}
    assert "bell1" not in json.dumps(head.made_by)
    assert head.weights.shape == plain.weights.shape


def test_an_example_unlike_the_others_is_named(mini: Backbone, bells: Path) -> None:
    files = [*sorted(bells.glob("bell[1-4].wav")), bells / "hiss.wav"]
    with pytest.warns(UserWarning, match=r"hiss.wav is unlike the other 4 of 'doorbell'"):
        Classifier(backbone=mini).fit(files, ["doorbell"] * 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Classifier(backbone=mini).fit(files[:4], ["doorbell"] * 4)


def test_only_the_part_that_sounds_is_used() -> None:
    sound = tone(700, 1.0)
    silence = 1e-4 * np.random.default_rng(0).standard_normal(3 * RATE).astype(np.float32)
    long = Audio(np.concatenate([silence, sound.samples, silence]), RATE)
    part = sounding_part(long)
    assert 0.8 <= part.seconds <= 1.8
    assert np.abs(part.samples).max() == np.abs(long.samples).max()
    steady = Audio(np.random.default_rng(0).standard_normal(2 * RATE).astype(np.float32), RATE)
    assert sounding_part(steady) is steady


def test_a_silent_example_is_an_error(mini: Backbone) -> None:
    with pytest.raises(AudioError, match=r"silent|nothing sounds"):
        Classifier(backbone=mini).fit([Audio(np.zeros(RATE, np.float32), RATE)], ["bell"])


def test_without_a_calibration_a_warning_says_so(fake: Backbone) -> None:
    classifier = Classifier(LABELS, backbone=fake, calibration=None)
    with pytest.warns(UserWarning, match="no calibration"):
        classifier.fit(np.random.default_rng(0).standard_normal((2, fake.dim)), LABELS[:2])


def test_the_mean_of_examples_takes_the_place_of_a_calibration() -> None:
    first, second = rows(2).astype(np.float32)
    examples = Examples({"a": [Example("1", first, "1")], "b": [Example("2", second, "2")]})
    np.testing.assert_allclose(examples.mean(None), (first + second) / 2, atol=1e-6)
    assert not Examples({"a": [Example("1", first, "1")]}).mean(None).any()


def test_a_label_that_is_a_file_is_refused(
    bells: Path, monkeypatch: pytest.MonkeyPatch, fake: Backbone
) -> None:
    monkeypatch.chdir(bells)
    for label, what in (
        ("bell1.wav", "is a file"),
        ("bell*.wav", "is a pattern of files"),
        ("./", "is a folder"),
    ):
        with pytest.raises(UsageError, match=f"{what}; give it with --examples"):
            Classifier([label], backbone=fake).fit()
    Path("rain").mkdir(exist_ok=True)  # a folder of this name is no reason to refuse a word
    Classifier(["rain"], backbone=fake).fit()


def test_examples_are_files_of_a_label_or_a_folder_per_label(bells: Path, tmp_path: Path) -> None:
    pairs = example_files([f"doorbell={bells}/bell[12].wav", f"not={bells}/hiss.wav"])
    assert [Path(file).name for file in pairs["doorbell"]] == ["bell1.wav", "bell2.wav"]
    assert [Path(file).name for file in pairs[NOT]] == ["hiss.wav"]
    for label in ("dog_bark", "not"):
        (tmp_path / label).mkdir()
        (tmp_path / label / "a.wav").write_bytes((bells / "bell1.wav").read_bytes())
    assert set(example_files([str(tmp_path)])) == {"dog bark", NOT}
    with pytest.raises(UsageError, match='--examples "doorbell='):
        example_files([str(bells / "bell1.wav")])
    with pytest.raises(UsageError, match="No file matches"):
        example_files([f"doorbell={bells}/gong*.wav"])


def test_a_watch_list_has_examples_relative_to_its_file(bells: Path, mini: Backbone) -> None:
    text = (
        'not = ["hiss.wav", "wind"]\n[[label]]\nname = "bell"\nwordings = []\n'
        'examples = ["bell[1-5].wav"]\n[[label]]\nname = "hond"\nwordings = ["dog barking"]'
    )
    (bells / "watch.toml").write_text(text, encoding="utf-8")
    watch = WatchList.load(bells / "watch.toml")
    assert watch.texts == ("dog barking",)
    assert "wind" in watch.competing
    assert not any("hiss" in word for word in watch.competing)
    own, negative = watch.example_files()
    assert len(own["bell"]) == 5
    assert [Path(file).name for file in negative[NOT]] == ["hiss.wav"]
    detector = Classifier(backbone=mini).detector(watch)
    assert detector.watch.names == ("bell", "hond")
    words = Classifier(["dog barking"], backbone=mini).detector(WatchList.of(["dog barking"]))
    np.testing.assert_allclose(  # but for the negative example, that label is its words
        Classifier(backbone=mini).detector(WatchList.of({"hond": ["dog barking"]})).head.weights[0],
        words.head.weights[0], atol=1e-6,
    )  # fmt: skip
    (bells / "watch.toml").write_text('[[label]]\nname = "bell"\nwordings = []', encoding="utf-8")
    with pytest.raises(FormatError, match="neither words nor examples"):
        WatchList.load(bells / "watch.toml")


def test_a_bell_is_found_in_noise_by_its_examples(mini: Backbone, bells: Path) -> None:
    rng = np.random.default_rng(3)
    noise = 0.02 * rng.standard_normal(60 * RATE)
    noise[30 * RATE : 30 * RATE + len(tone(650).samples)] += tone(650, seed=11).samples
    watch = WatchList((WatchedLabel("bell", (), examples=(f"{bells}/bell*.wav",)),))
    recording = Audio(noise.astype(np.float32), RATE)
    [event] = Classifier(backbone=mini).detector(watch).events(recording)
    assert event.label == "bell"
    assert event.start_s <= 31.0 <= event.end_s + 1


def test_heads_of_one_model_are_joined(fake: Backbone, mini: Backbone, wav: WriteWav) -> None:
    first = Classifier(["siren", "rain"], backbone=fake).fit().head_
    second = Classifier(["dog bark"], backbone=fake).fit().head_
    both = join_heads([first, second])
    assert both.labels == ("siren", "rain", "dog bark")
    z = np.random.default_rng(0).standard_normal((3, fake.dim))
    expected = np.concatenate([first.scores(z), second.scores(z)], axis=1)
    np.testing.assert_allclose(both.scores(z), expected, atol=1e-6)
    with pytest.raises(UsageError, match="'siren'"):
        join_heads([first, first])
    with pytest.raises(MismatchError, match="two models"):
        join_heads([first, Classifier(["dog"], backbone=mini).fit().head_])


def test_a_rule_that_ignores_prototypes_refuses_examples(fake: Backbone) -> None:
    examples = np.random.default_rng(0).standard_normal((1, fake.dim))
    with pytest.raises(UsageError, match="'prompt_ensemble' makes prototypes of its own"):
        Classifier(LABELS, backbone=fake, rule="prompt_ensemble").fit(examples, LABELS[:1])


@pytest.mark.parametrize("rule", ["cosine", "das", "whiten", "denoise", "anchor", "noisy_ensemble"])
def test_examples_work_with_every_rule_that_reads_prototypes(
    rule: str, mini: Backbone, bells: Path
) -> None:
    labels = ["dog bark", "doorbell"]
    files = [bells / f"bell{n}.wav" for n in range(1, 4)]
    words = Classifier(labels, backbone=mini, rule=rule).fit().head_
    head = Classifier(labels, backbone=mini, rule=rule).fit(files, ["doorbell"] * 3).head_
    assert isinstance(head, Head)
    np.testing.assert_allclose(head.weights[0], words.weights[0], atol=1e-5)
    z = next(iter(Classifier(labels, backbone=mini).embed([bells / "bell0.wav"]))).embedding
    gain = (head.scores(z) - words.scores(z))[0]
    assert gain[1] > gain[0] + 0.05


def test_the_command_learns_from_examples(run: Run, bells: Path, tmp_path: Path) -> None:
    bell, examples = str(bells / "bell0.wav"), f"doorbell={bells}/bell[1-5].wav"
    for more in ((), ("--or-none",)):
        _, out, _ = run("classify", bell, "-l", "dog bark, siren", "--examples", examples, *more,
                        "-f", "json")  # fmt: skip
        assert json.loads(out)[0]["label"] == "doorbell"
    both = [tmp_path / name for name in ("a.safetensors", "b.safetensors", "both.json")]
    assert run("head", "--examples", examples, "--out", both[0])[0] == 0
    assert run("head", "-l", "dog bark", "--out", both[1])[0] == 0
    status, _, err = run("head", *both[:2], "--out", both[2])
    assert status == 0
    assert "2 labels" in err
    assert Head.load(both[2]).labels == ("doorbell", "dog bark")
    assert "not both" in run("head", *both[:2], "-l", "rain", "--out", both[2])[2]
    status, _, err = run("classify", bell, "-l", bell)
    assert status == 2
    assert "is a file; give it with --examples" in err
    _, _, err = run("classify", bell, "--head", both[2], "--examples", examples)
    assert "A compiled head learns nothing" in err
