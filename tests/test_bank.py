import sqlite3
import warnings

import numpy as np
import pytest

from driftscore import ClassBank, build_bank, compile_head, load_backbone
from driftscore.bank import VanishingDriftWarning
from driftscore.errors import FormatError, MismatchError, UsageError
from driftscore.prompts import load_pack
from driftscore.textcache import TextCache, TextEncoder

from .conftest import LABELS

WORDS = ("dog bark", "sea waves", "siren")


def reference(backbone, words, beta, direction):
    """DAS by the paper's formulas, class by class."""

    def E(text):
        return backbone.embed_text([text])[0].astype(np.float64)

    rows = []
    for c in words:
        clean = E(f"the sound of {c}")
        drifts = np.array([E(t.format(c=c, p=p)) - clean for t in load_pack("das4").texts
                           for p in load_pack("das52").texts])  # fmt: skip
        mean = drifts.mean(axis=0)
        if direction == "svd":
            top = np.linalg.eigh(drifts.T @ drifts)[1][:, -1]
            mean = top * np.sign(top @ mean)
        rows.append(clean + beta * mean / np.linalg.norm(mean))
    return np.array(rows)


@pytest.mark.parametrize("direction", ["mean", "svd"])
@pytest.mark.parametrize("beta", [0.1, 0.25, 0.5])
def test_das_equals_the_papers_formula(fake, rng, beta, direction):
    head = compile_head(build_bank(LABELS, fake, direction=direction), "das", beta=beta)
    expected = reference(fake, WORDS, beta, direction)
    np.testing.assert_allclose(head.weights, expected, atol=1e-6)
    z = fake.embed_audio([(rng.standard_normal(9000).astype(np.float32), 16_000)])
    np.testing.assert_allclose(head.scores(z), z @ expected.T, atol=1e-6)


def test_das_interpolates_between_the_prompt_and_the_mean_noisy_prompt(bank):
    share = (0.25 / bank.radii)[:, None]
    expected = (1 - share) * bank.prototypes + share * bank.noisy_means
    np.testing.assert_allclose(compile_head(bank, "das").weights, expected, atol=1e-6)


def test_rows_are_unit_and_shapes_agree(bank, fake):
    assert bank.labels == LABELS
    assert bank.prototypes.shape == bank.drifts.shape == (3, fake.dim)
    assert bank.radii.shape == (3,)
    np.testing.assert_allclose(np.linalg.norm(bank.prototypes, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(bank.drifts, axis=1), 1, atol=1e-6)


def test_a_class_does_not_depend_on_its_neighbours(bank, fake):
    alone = build_bank(["siren"], fake)
    np.testing.assert_array_equal(alone.drifts[0], bank.drifts[2])
    np.testing.assert_array_equal(alone.prototypes[0], bank.prototypes[2])


def test_the_matched_reference_subtracts_the_template_without_its_noise(fake):
    bank = build_bank(["siren"], fake, reference="matched", pack="generic5")
    drifts = [
        fake.embed_text([t.text.format(c="siren", p=p)])[0]
        - fake.embed_text([t.matched.format(c="siren")])[0]
        for p in load_pack("generic5").texts
        for t in load_pack("das4").entries
    ]
    mean = np.mean(drifts, axis=0)
    np.testing.assert_allclose(bank.drifts[0], mean / np.linalg.norm(mean), atol=1e-5)
    assert bank.radii[0] == pytest.approx(np.linalg.norm(mean), rel=1e-5)


class Deaf:
    """A model whose text side ignores all but the class: no drift at all."""

    name, fingerprint, dim, rate, seconds = "deaf", "deaf/1", 8, 8000, 1.0

    def embed_text(self, texts):
        return np.tile(np.eye(8, dtype=np.float32)[0], (len(texts), 1))

    def embed_audio(self, clips):
        raise NotImplementedError


def test_a_vanishing_drift_gives_no_bonus_and_a_warning_that_names_the_class():
    with pytest.warns(VanishingDriftWarning, match="'siren' vanishes"):
        bank = build_bank(["siren"], Deaf())
    assert not bank.drifts.any()
    np.testing.assert_array_equal(compile_head(bank, "das").weights, bank.prototypes)


class Counting:
    """The fake model, counting the texts that it encodes."""

    def __init__(self, inner):
        self.inner, self.texts = inner, []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def embed_text(self, texts):
        self.texts += texts
        return self.inner.embed_text(texts)


def test_adding_one_label_to_fifty_encodes_one_labels_209_texts(fake, tmp_path):
    labels = [f"sound {number}" for number in range(50)]
    model, cache = Counting(fake), TextCache(tmp_path / "texts.sqlite")
    build_bank(labels, model, cache=cache)
    assert len(model.texts) == 50 * 209
    model.texts.clear()
    bank = build_bank([*labels, "siren"], model, cache=cache)
    assert len(model.texts) == 209
    assert all("siren" in text for text in model.texts)
    np.testing.assert_array_equal(bank.drifts[50], build_bank(["siren"], fake).drifts[0])


def test_texts_are_encoded_in_order_of_length(fake):
    model = Counting(fake)
    TextEncoder(model)(["a longer text", "short", "the longest text of all"])
    assert model.texts == sorted(model.texts, key=len)


def test_another_model_has_vectors_of_its_own(fake, tmp_path):
    cache = TextCache(tmp_path / "texts.sqlite")
    build_bank(LABELS, fake, cache=cache)
    other = load_backbone("fake", seed=1)
    np.testing.assert_array_equal(
        build_bank(LABELS, other, cache=cache).prototypes, build_bank(LABELS, other).prototypes
    )


def test_a_damaged_cache_is_told_and_done_without(fake, bank, tmp_path):
    path = tmp_path / "texts.sqlite"
    path.write_bytes(b"not a database" * 100)
    with pytest.warns(UserWarning, match="cannot be used"):
        found = build_bank(LABELS, fake, cache=TextCache(path))
    np.testing.assert_array_equal(found.drifts, bank.drifts)


def test_the_cache_is_one_sqlite_file_that_two_users_share(fake, tmp_path):
    path = tmp_path / "deep" / "texts.sqlite"
    one, two = (TextEncoder(fake, cache=TextCache(path)) for _ in range(2))
    one(["a", "b"])
    two(["b", "c"])
    with sqlite3.connect(path) as db:
        assert sorted(row[0] for row in db.execute("SELECT text FROM texts")) == ["a", "b", "c"]


def test_a_bank_is_saved_with_all_that_made_it(bank, fake, tmp_path):
    path = tmp_path / "city.safetensors"
    bank.save(path)
    found = ClassBank.load(path, fake)
    assert found.labels == bank.labels
    assert found.made_by == bank.made_by
    for name in ("prototypes", "drifts", "radii", "noisy_means"):
        np.testing.assert_array_equal(getattr(found, name), getattr(bank, name))
    assert found.made_by["fingerprint"] == fake.fingerprint
    assert len(found.made_by["phrases"]) == 52
    assert found.made_by["template_texts"] == list(load_pack("das4").texts)
    assert found.made_by["prompt"] == "the sound of {c}"


def test_the_same_bank_makes_the_same_bytes(bank, fake, tmp_path):
    bank.save(tmp_path / "one.safetensors")
    build_bank(LABELS, fake).save(tmp_path / "two.safetensors")
    assert (tmp_path / "one.safetensors").read_bytes() == (
        tmp_path / "two.safetensors"
    ).read_bytes()


def test_a_bank_of_another_model_is_refused_in_words(bank, tmp_path):
    bank.save(tmp_path / "city.safetensors")
    with pytest.raises(
        MismatchError, match=r"city\.safetensors was made with fake .* not with fake"
    ):
        ClassBank.load(tmp_path / "city.safetensors", load_backbone("fake", seed=7))


def test_what_is_not_a_bank_is_refused(bank, tmp_path):
    with pytest.raises(FormatError, match="There is no bank"):
        ClassBank.load(tmp_path / "absent")
    (tmp_path / "text").write_text("no")
    with pytest.raises(FormatError, match="not a whole bank"):
        ClassBank.load(tmp_path / "text")
    compile_head(bank, "cosine").save(tmp_path / "head.safetensors")
    with pytest.raises(FormatError, match=r"not a driftscore bank \(it is: head\)"):
        ClassBank.load(tmp_path / "head.safetensors")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompt": "the sound"}, "lacks its placeholder"),
        ({"reference": "none"}, "reference is prompt or matched"),
        ({"direction": "pca"}, "direction is mean or svd"),
        ({"pack": "das25"}, "did you mean 'das52'"),
        ({"templates": "clean8"}, r"lacks its placeholder \{p\}"),
        ({"preset": "das2025"}, "did you mean 'das2026'"),
    ],
)
def test_bad_settings_are_refused_in_words(fake, settings, message):
    with pytest.raises(UsageError, match=message):
        build_bank(LABELS, fake, **settings)


def test_presets_fix_the_prompts_of_the_papers(fake):
    assert build_bank(LABELS, fake).made_by["prompt"] == "the sound of {c}"
    acevedo = build_bank(LABELS, fake, preset="acevedo2025")
    assert acevedo.made_by["prompt"] == "This is a sound of {c}"
    np.testing.assert_array_equal(
        acevedo.prototypes, fake.embed_text([f"This is a sound of {w}" for w in WORDS])
    )


def test_a_bank_is_built_without_warnings(fake):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_bank(LABELS, fake)
