"""mteb in both directions: its models as backbones, and a classifier as one of its models."""

import pickle
import random
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from driftscore import Audio, Classifier, Embedder, load_backbone
from driftscore.backbones.mteb import Mteb, load
from driftscore.errors import DownloadError, FormatError, MissingExtraError, UsageError
from driftscore.mteb_model import MtebModel, labels_of
from driftscore.text.presets import PromptSettings

from .conftest import Lazily, noise_clip

mteb = Lazily("mteb")
torch = Lazily("torch")
small_mteb = Lazily("tests.small_mteb", library="mteb")

CLIPS = [noise_clip(1.0, seed=seed) for seed in range(6)]
CANDIDATES = ["a sound of rain here", "a sound of dog here", "a sound of siren here"]


@pytest.fixture(scope="module")
def model() -> Mteb:
    return load(small_mteb.register())


def task() -> Any:
    """Return a zero-shot audio task of mteb over the clips above."""
    from datasets import Dataset, DatasetDict, Features, Sequence, Value
    from mteb.abstasks import AbsTaskZeroShotClassification
    from mteb.abstasks.task_metadata import TaskMetadata

    class SmallZeroshot(AbsTaskZeroShotClassification):
        metadata = TaskMetadata(
            name="SmallZeroshot", description="Six clips of noise.", reference=None,
            dataset={"path": "none/none", "revision": "1"}, type="AudioZeroshotClassification",
            category="a2t", modalities=["audio", "text"], eval_splits=["test"],
            eval_langs=["zxx-Zxxx"], main_score="accuracy", date=None, domains=None,
            task_subtypes=None, license=None, annotations_creators=None, dialect=None,
            sample_creation=None, bibtex_citation=None,
        )  # fmt: skip
        input_column_name = "audio"
        label_column_name = "target"

        def load_data(self, num_proc: int | None = None, **_: Any) -> None:
            sound = {"array": Sequence(Value("float32")), "sampling_rate": Value("int64")}
            rows = {
                "audio": [{"array": c.samples, "sampling_rate": c.rate} for c in CLIPS],
                "target": [0, 1, 2, 0, 1, 2],
            }
            content = Dataset.from_dict(rows, Features({"audio": sound, "target": Value("int64")}))
            self.dataset = DatasetDict({"test": content.with_format("numpy")})
            self.data_loaded = True

        def get_candidate_labels(self) -> list[str]:
            return CANDIDATES

    return SmallZeroshot()


def evaluated(entrant: Any) -> Any:
    """Return the scores that mteb measures for a model in the task."""
    result = mteb.evaluate(entrant, task(), cache=None, co2_tracker=False, show_progress_bar=False)
    return result.task_results[0].scores["test"][0]


def test_embeddings_equal_those_of_the_encoder(model: Mteb) -> None:
    encoder = small_mteb.SmallEncoder(small_mteb.NAME, None)
    np.random.seed(0)  # noqa: NPY002
    expected = encoder._audio(CLIPS[0].samples).numpy()
    row = model.embed_audio([CLIPS[0]])[0]
    np.testing.assert_allclose(row, expected / np.linalg.norm(expected), atol=1e-6)
    expected = encoder._text("rain").numpy()
    np.testing.assert_allclose(
        model.embed_text(["rain"])[0], expected / np.linalg.norm(expected), atol=1e-6
    )


def test_mtebs_own_wrapper_of_clap_gives_the_embeddings_of_our_clap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the same small checkpoint; mteb rounds samples to 16 bits, we do not."""
    pytest.importorskip("transformers", reason="TRANSFORMERS IS NOT INSTALLED")
    from mteb.models.model_implementations.clap_models import ClapZeroShotWrapper

    from .small_clap import save_clap

    # Only its resampling is used, which windows at the wrapper's rate do not need.
    monkeypatch.setitem(sys.modules, "torchaudio", ModuleType("torchaudio"))
    home = save_clap(tmp_path / "clap", fused=False)

    def loader(name: str, revision: str, device: str | None = None, **_: Any) -> Any:
        wrapper: Any = ClapZeroShotWrapper
        return wrapper(str(home), None, device)

    theirs = load(small_mteb.register("mteb/baseline-clap", loader=loader))
    ours = load_backbone(home, runtime="torch")
    assert (theirs.rate, theirs.seconds, theirs.dim) == (ours.rate, ours.seconds, ours.dim)
    texts = ["rain", "a dog barks", "siren"]
    np.testing.assert_allclose(theirs.embed_text(texts), ours.embed_text(texts), atol=1e-5)
    clips = [noise_clip(3.0, rate=48_000), noise_clip(14.0, rate=44_100, seed=1)]
    found, expected = theirs.embed_audio(clips), ours.embed_audio(clips)
    assert (found * expected).sum(axis=1).min() > 0.9999


def test_the_rate_and_the_window_are_those_of_the_wrapper(model: Mteb) -> None:
    assert (model.rate, model.seconds, model.dim) == (16_000, 2.0, small_mteb.DIM)
    other = load(small_mteb.NAME, seconds=1.5)
    assert (other.rate, other.seconds) == (16_000, 1.5)
    assert other.fingerprint != model.fingerprint
    with pytest.raises(UsageError, match="must be positive"):
        load(small_mteb.NAME, seconds=-1.0)


def test_no_part_of_a_long_clip_is_dropped(model: Mteb) -> None:
    quiet = noise_clip(2.0, seed=1).samples
    loud = Audio(np.concatenate([quiet, 3 * noise_clip(2.0, seed=5).samples]), 16_000)
    first = model.embed_audio([Audio(quiet, 16_000)])
    assert np.abs(model.embed_audio([loud]) - first).max() > 1e-3


def test_random_crops_are_the_same_every_time_and_no_global_state_changes(model: Mteb) -> None:
    np.random.seed(7)  # noqa: NPY002
    torch.manual_seed(7)
    random.seed(7)
    before: Any = np.random.get_state()  # noqa: NPY002
    states = random.getstate(), torch.get_rng_state()
    first = model.embed_audio(CLIPS)
    after: Any = np.random.get_state()  # noqa: NPY002
    np.testing.assert_array_equal(after[1], before[1])
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    np.random.seed(8)  # noqa: NPY002
    np.testing.assert_array_equal(model.embed_audio(CLIPS[::-1])[::-1], first)


def test_the_fingerprint_depends_on_the_weights(
    model: Mteb, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(small_mteb.NAME).fingerprint == model.fingerprint
    first = small_mteb.SmallEncoder.__init__

    def other(self: Any, *arguments: Any, **options: Any) -> None:
        first(self, *arguments, **options)
        with torch.no_grad():
            self.model["audio"].weight[0, 0] += 1

    monkeypatch.setattr(small_mteb.SmallEncoder, "__init__", other)
    assert load(small_mteb.NAME).fingerprint != model.fingerprint


def test_a_copy_loads_the_model_again(model: Mteb) -> None:
    content = pickle.dumps(model)
    assert len(content) < 1000
    again: Mteb = pickle.loads(content)
    np.testing.assert_array_equal(again.embed_text(["rain"]), model.embed_text(["rain"]))


def test_the_command_finds_a_model_by_its_name_in_mteb(model: Mteb) -> None:
    assert load_backbone(f"mteb:{small_mteb.NAME}").fingerprint == model.fingerprint
    prompts = PromptSettings(pack="generic5")
    name = f"mteb:{small_mteb.NAME}"
    classifier = Classifier(["rain", "dog"], backbone=name, rule="das", prompts=prompts)
    assert classifier.predict(CLIPS[:1])[0] in ("rain", "dog")


def test_an_unknown_model_is_named_with_the_nearest() -> None:
    small_mteb.register()
    with pytest.raises(UsageError, match="did you mean 'microsoft/msclap-2023'"):
        load("microsoft/msclap-2024")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"framework": ["API"]}, "your recordings would be sent"),
        ({"loader_kwargs": {"trust_remote_code": True}}, "runs code from its repository"),
        ({"loader_kwargs": {"model_kwargs": {"trust_remote_code": True}}}, "runs code"),
        ({"model_type": ["cross-encoder"]}, "is a cross-encoder model"),
    ],
)
def test_models_that_must_not_be_loaded_unasked_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    name = small_mteb.register("mteb/baseline-refused", **changes)
    with pytest.raises(UsageError, match=message):
        load(name)


def test_code_from_a_repository_runs_only_if_it_is_asked_for() -> None:
    name = small_mteb.register("mteb/baseline-trusted", loader_kwargs={"trust_remote_code": True})
    assert load(name, remote_code=True).dim == small_mteb.DIM


def test_real_models_behind_a_web_service_are_refused() -> None:
    with pytest.raises(UsageError, match="web service"):
        load("google/gemini-embedding-2")


def test_what_a_model_needs_besides_is_named() -> None:
    if find_spec("msclap") is not None:
        pytest.skip("msclap is installed")
    with pytest.raises(MissingExtraError, match=r"pip install 'mteb\[msclap,audio\]'"):
        load("microsoft/msclap-2023")


def test_a_model_that_the_hub_does_not_give_fails_at_once_with_what_to_do() -> None:
    def loader(name: str, **_: Any) -> Any:
        transformers = pytest.importorskip("transformers", reason="NO TRANSFORMERS")
        return transformers.ClapModel.from_pretrained("some/model")

    name = small_mteb.register("mteb/baseline-absent", loader=loader)
    with pytest.raises(DownloadError, match=r"mteb cannot load .*hf download mteb/baseline-absent"):
        load(name)


def test_a_model_that_fails_to_load_is_named() -> None:
    def loader(name: str, **_: Any) -> Any:
        raise AttributeError("config has no attribute 'x'")

    with pytest.raises(FormatError, match=r"cannot load .*: AttributeError: config has no"):
        load(small_mteb.register("mteb/baseline-broken", loader=loader))


@pytest.mark.parametrize("rule", ["cosine", "das", "auto"])
def test_mteb_measures_what_the_classifier_measures(rule: str) -> None:
    found = evaluated(MtebModel("mini", rule=rule))
    labels = ["rain", "dog", "siren"]
    classifier = Classifier(labels, backbone="mini", rule=rule)
    truth = [labels[i] for i in (0, 1, 2, 0, 1, 2)]
    assert found["accuracy"] == pytest.approx(classifier.score(CLIPS, truth))


def test_the_similarity_of_candidates_is_the_score_of_the_rule() -> None:
    entrant = MtebModel("mini", rule="das", settings={"beta": 0.4}, standardised=False)
    sounds, candidates = _encoded(entrant)
    classifier = Classifier(
        ["rain", "dog", "siren"], backbone="mini", rule="das",
        settings={"beta": 0.4}, standardised=False,
    )  # fmt: skip
    np.testing.assert_allclose(entrant.similarity(sounds, candidates), classifier.scores(CLIPS))
    np.testing.assert_allclose(entrant.similarity(sounds, sounds).diagonal(), 1, atol=1e-5)
    np.testing.assert_allclose(entrant.similarity_pairwise(sounds, sounds), 1, atol=1e-5)


def _encoded(entrant: MtebModel) -> tuple[Any, Any]:
    options: Any = {"task_metadata": task().metadata, "hf_split": "test", "hf_subset": "default"}
    sounds = [{"audio": [{"array": c.samples, "sampling_rate": c.rate}]} for c in CLIPS]
    return entrant.encode(sounds, **options), entrant.encode([{"text": CANDIDATES}], **options)


def test_a_model_of_mteb_with_the_cosine_scores_as_mteb_scores_it(model: Mteb) -> None:
    entrant = MtebModel(Embedder(model), rule="cosine", prompts=PromptSettings(prompt="{c}"))
    sounds, candidates = _encoded(entrant)
    texts = model.embed_text(["rain", "dog", "siren"])
    np.testing.assert_allclose(entrant.similarity(sounds, candidates), sounds @ texts.T, atol=1e-5)


def test_the_results_name_the_model_and_the_rule() -> None:
    about = MtebModel("mini", rule="das", settings={"beta": 0.1}).mteb_model_meta
    assert about.name == "driftscore/mini-das"
    assert about.embed_dim == 527
    assert "beta" in str(about.experiment_kwargs)
    assert isinstance(MtebModel("fake"), mteb.models.EncoderProtocol)


def test_words_that_all_candidates_share_are_not_part_of_the_labels() -> None:
    assert labels_of(CANDIDATES) == ("rain", "dog", "siren")
    assert labels_of(["rain", "dog"]) == ("rain", "dog")
    assert labels_of(["a sound of rain", "a sound of heavy rain"]) == ("rain", "heavy rain")
    assert labels_of(["the sound of rain"]) == ("the sound of rain",)
    esc50 = labels_of(mteb.get_task("ESC50_Zeroshot").get_candidate_labels())
    assert len(esc50) == 50
    assert esc50[:2] == ("dog", "rooster")
