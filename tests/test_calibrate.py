"""Making a calibration from recordings, adapting it to a place, and the rule that follows."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from driftscore import Backbone, Classifier, Embedder
from driftscore.audio.noise import SYNTHETIC, add_at_snr, excerpt, synthetic
from driftscore.audio.recordings import Audio, read
from driftscore.backbones.vectors import unit as unit_rows
from driftscore.calibrate import adapt, make_calibration
from driftscore.errors import AudioError, UsageError
from driftscore.scoring.calibration import Calibration
from driftscore.scoring.rules import choose_rule

from .conftest import Run, noise_clip

LABELS = ["dog bark", "siren", "rain"]
CLIPS = [noise_clip(1.0 + (seed % 3), seed=seed) for seed in range(24)]


@pytest.fixture(scope="module")
def calibration(fake: Backbone) -> Calibration:
    return make_calibration(Embedder(fake, text_cache=False), CLIPS)[0]


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_noise_has_its_level_and_depends_on_its_generator(name: str) -> None:
    first, same = (synthetic(name, 16_000, 16_000, np.random.default_rng(1)) for _ in range(2))
    other = synthetic(name, 16_000, 16_000, np.random.default_rng(2))
    assert first.dtype == np.float32
    assert np.sqrt(np.mean(np.square(first))) == pytest.approx(0.1, rel=1e-3)
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_noise_is_added_at_the_power_ratio_over_the_active_part(rng: np.random.Generator) -> None:
    clip = np.zeros(8_000, np.float32)
    clip[2_000:4_000] = rng.standard_normal(2_000)
    noise = rng.standard_normal(8_000).astype(np.float32)
    added = add_at_snr(clip, noise, 6.0) - clip
    ratio = np.mean(np.square(clip[2_000:4_000])) / np.mean(np.square(added))
    assert 10 * np.log10(ratio) == pytest.approx(6.0, abs=1e-3)
    with pytest.raises(AudioError, match="must not be silent"):
        add_at_snr(np.zeros(10, np.float32), noise[:10], 0.0)


def test_an_excerpt_lies_inside_and_short_noise_is_repeated(rng: np.random.Generator) -> None:
    long = np.arange(100, dtype=np.float32)
    part = excerpt(long, 10, rng)
    np.testing.assert_array_equal(np.diff(part), 1)
    assert len(excerpt(long[:7], 30, rng)) == 30


def test_a_calibration_has_a_pair_for_each_recording(
    calibration: Calibration, fake: Backbone
) -> None:
    assert calibration.clean.shape == calibration.noisy.shape == (24, fake.dim)
    np.testing.assert_array_equal(calibration.clean[0], fake.embed_audio([CLIPS[0]])[0])
    assert not np.allclose(calibration.clean, calibration.noisy)
    assert calibration.made_by["fingerprint"] == fake.fingerprint
    assert calibration.made_by["noises"] == list(SYNTHETIC)
    assert calibration.default_rule == "anchor"
    assert calibration.settings == {}
    assert "nothing was chosen for this model" in str(calibration.made_by["default_why"])


def test_the_same_recordings_give_the_same_calibration(
    calibration: Calibration, fake: Backbone
) -> None:
    again, _ = make_calibration(Embedder(fake, threads=3), CLIPS)
    assert again.digest == calibration.digest
    other, _ = make_calibration(Embedder(fake), CLIPS, seed=1)
    assert other.digest != calibration.digest


def test_noise_recordings_take_the_place_of_synthetic_noise(
    calibration: Calibration, fake: Backbone, tmp_path: Path
) -> None:
    path = tmp_path / "fan.wav"
    soundfile.write(path, noise_clip(3, seed=99).samples, 16_000)
    made, problems = make_calibration(Embedder(fake), CLIPS, [path])
    assert not problems
    assert made.made_by["noises"] == [str(path)]
    np.testing.assert_array_equal(made.clean, calibration.clean)
    assert not np.array_equal(made.noisy, calibration.noisy)


def test_a_noise_is_read_once_while_it_is_in_use(
    fake: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fan.wav"
    soundfile.write(path, noise_clip(3, seed=99).samples, 16_000)
    reads: list[object] = []

    def counted(recording: object, **settings: object) -> Audio:
        reads.append(recording)
        return read(recording, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr("driftscore.calibrate.read", counted)
    make_calibration(Embedder(fake), CLIPS, [path])
    assert reads.count(path) == 1


def test_bad_recordings_are_reported_and_the_others_used(fake: Backbone, tmp_path: Path) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_bytes(b"no sound")
    silent = Audio(np.zeros(16_000, np.float32), 16_000)
    made, problems = make_calibration(Embedder(fake), [bad, *CLIPS, silent, tmp_path / "none.wav"])
    assert len(made.clean) == 24
    assert len(problems) == 3
    with pytest.raises(AudioError, match="at least 20 clips, and 0 of 25"):
        make_calibration(Embedder(fake), [bad] * 25)


def test_of_many_recordings_a_random_part_is_used(fake: Backbone) -> None:
    made, _ = make_calibration(Embedder(fake), [*CLIPS, *CLIPS], most=20)
    assert len(made.clean) == 20
    with pytest.raises(UsageError, match="at least 20"):
        make_calibration(Embedder(fake), CLIPS, most=3)


def test_an_interrupted_run_continues_from_the_audio_cache(
    fake: Backbone, calibration: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_calibration(Embedder(fake, audio_cache=True), CLIPS)

    def encode(self: object, features: object) -> object:
        raise AssertionError("everything is in the cache")

    monkeypatch.setattr(type(fake), "encode", encode)
    again, _ = make_calibration(Embedder(fake, audio_cache=True), CLIPS)
    assert again.digest == calibration.digest


def test_a_calibration_is_adapted_to_a_place(calibration: Calibration, fake: Backbone) -> None:
    place = [noise_clip(4, seed=seed) for seed in (50, 51)]
    adapted, problems = adapt(calibration, Embedder(fake), [*place, "none.wav"], weight=1.0)
    assert len(problems) == 1
    rows = np.concatenate([e.rows for e in Embedder(fake).embed(place)])
    np.testing.assert_allclose(adapted.mean, rows.mean(axis=0, dtype=np.float64), atol=1e-6)
    with pytest.raises(AudioError, match="None of the 1 recordings"):
        adapt(calibration, Embedder(fake), ["none.wav"])


def test_the_automatic_rule_is_that_of_the_calibration(
    calibration: Calibration, fake: Backbone
) -> None:
    assert choose_rule(None)[0] == "das"
    plain = Classifier(LABELS, backbone=fake).fit()
    assert plain.rule_.name == "das"
    assert "paper" in plain.why_
    assert not plain.head_.standardised
    calibrated = Classifier(LABELS, backbone=fake, calibration=calibration).fit()
    assert calibrated.rule_.name == calibration.default_rule
    assert calibrated.head_.unit == "cosine"
    assert "calibration" not in choose_rule(calibration)[1]


def test_das_and_the_presets_of_papers_stay_as_they_are(
    calibration: Calibration, fake: Backbone
) -> None:
    def weights(**settings: object) -> bytes:
        made = Classifier(LABELS, backbone=fake, **settings)  # type: ignore[arg-type]
        return made.fit().head_.weights.tobytes()

    paper = weights(rule="das", calibration=None)
    assert weights(rule="das", calibration=calibration) == paper
    assert weights(preset="das2026", calibration=calibration) == paper
    standard = weights(rule="das", calibration=calibration, standardised=True)
    assert standard != paper


def test_labels_are_compared_by_cosine_and_judged_one_by_one_in_standard_deviations(
    calibration: Calibration, fake: Backbone
) -> None:
    def unit(**settings: object) -> str:
        made = Classifier(LABELS, backbone=fake, rule="cosine", **settings)  # type: ignore[arg-type]
        return made.fit().head_.unit

    assert unit(calibration=calibration) == "cosine"
    assert unit(calibration=calibration, threshold=2.0) == "sd"
    assert unit(calibration=calibration, standardised=True) == "sd"
    assert unit(calibration=calibration, threshold=2.0, standardised=False) == "cosine"
    assert unit(calibration=None, threshold=2.0) == "cosine"


def test_events_and_fits_use_the_spread_of_each_label_whatever_the_unit_of_the_scores(
    calibration: Calibration, fake: Backbone, rng: np.random.Generator
) -> None:
    classifier = Classifier(LABELS, backbone=fake, calibration=calibration)
    events, one = classifier.detector(), classifier.detector(one_label=True)
    assert (events.head.unit, one.head.unit) == ("sd", "cosine")
    rows = unit_rows(rng.standard_normal((40, fake.dim)).astype(np.float32))
    chosen = classifier.predict(embeddings=rows)
    for row, label in zip(rows, chosen, strict=True):
        apart, together = events.label_or_none("x", row), one.label_or_none("x", row)
        assert apart.fits == together.fits
        assert together.ranking[0][0] == label
        if together.fits is not None and together.fits[LABELS.index(label)]:
            assert together.label == label


def test_a_compiled_head_is_judged_one_by_one_by_the_calibration_that_it_was_made_with(
    calibration: Calibration, fake: Backbone
) -> None:
    head = Classifier(LABELS, backbone=fake, calibration=calibration).fit().head_
    again = Classifier(backbone=fake, head=head, calibration=calibration, threshold=2.0).fit()
    same = Classifier(LABELS, backbone=fake, calibration=calibration, threshold=2.0).fit()
    np.testing.assert_allclose(again.head_.weights, same.head_.weights, rtol=1e-5)
    assert (
        Classifier(backbone=fake, head=head, calibration=calibration).detector().head.unit == "sd"
    )


def test_a_calibration_is_taken_by_its_path(
    calibration: Calibration, fake: Backbone, tmp_path: Path
) -> None:
    path = tmp_path / "cal.safetensors"
    calibration.save(path)
    made = Classifier(LABELS, backbone=fake, calibration=path).fit()
    assert made.head_.made_by["calibration"] == Calibration.load(path).digest


def test_the_command_makes_a_calibration_and_adapts_it_to_a_place(
    run: Run, tmp_path: Path, calibration: Calibration
) -> None:
    for number, clip in enumerate(CLIPS):
        (tmp_path / "any").mkdir(exist_ok=True)
        soundfile.write(tmp_path / "any" / f"{number:02}.wav", clip.samples, clip.rate)
    made, yard = tmp_path / "cal.safetensors", tmp_path / "yard.safetensors"
    status, out, err = run("calibrate", tmp_path / "any", "-b", "fake", "--out", made)
    assert (status, out) == (0, "")
    assert "Calibration of fake from 24 clips" in err
    assert Calibration.load(made).clean.shape == calibration.clean.shape
    update = ("calibrate", "--update", tmp_path / "any", "-b", "fake", "--out", yard)
    status, _, err = run(*update, "--calibration", made, "--weight", 0.25)
    assert status == 0
    assert "windows of the site" in err
    adapted = Calibration.load(yard)
    assert adapted.site_weight == 0.25
    assert len(adapted.site) >= 24
    labels = ("--labels", "dog bark, siren", "-b", "fake", "-f", "csv")
    status, out, _ = run("classify", tmp_path / "any", *labels, "--calibration", yard)
    assert status == 0
    assert ",cosine," in out
    classify = ("classify", tmp_path / "any", *labels, "--calibration", yard)
    for options, expected in (
        (("--multi",), ",cosine,"), (("-t", 1), ",sd,"),
        (("-t", 0.1, "--set", "standardised=no"), ",cosine,"),
        (("--rule", "das"), ",raw,"),
    ):  # fmt: skip
        assert expected in run(*classify, *options)[1], options


def test_the_command_makes_a_calibration_of_stored_embeddings(
    run: Run, tmp_path: Path, calibration: Calibration, fake: Backbone
) -> None:
    np.save(tmp_path / "clean.npy", calibration.clean)
    np.savez(
        tmp_path / "noisy.npz",
        files=[str(n) for n in range(len(calibration.noisy))],
        audio_embeddings=2 * calibration.noisy,
        model="my-clap",
    )
    out = tmp_path / "mine.safetensors"
    files = ("--clean", tmp_path / "clean.npy", "--noisy", tmp_path / "noisy.npz")
    status, _, err = run("calibrate", *files, "--out", out)
    assert status == 0, err
    assert "nothing was chosen for this model" in err
    made = Calibration.load(out)
    assert made.made_by["fingerprint"] == "my-clap"
    assert (made.clean * calibration.clean).sum(axis=1).min() > 0.999
    texts = Classifier(LABELS, rule="cosine").texts()
    rows = fake.embed_text(texts)
    np.savez(tmp_path / "texts.npz", texts=texts, text_embeddings=rows, model="my-clap")
    words = ("--labels", ", ".join(LABELS), "--calibration", out)
    head = tmp_path / "head.npz"
    stored = ("--text-embeddings", tmp_path / "texts.npz", "--out", head)
    status, _, err = run("head", *words, *stored, "--rule", "anchor")
    assert status == 0, err
    assert "rule anchor, scores in cosine" in err
    status, _, err = run("head", *words, *stored, "--rule", "anchor", "--set", "standardised=yes")
    assert "rule anchor, scores in sd" in err
    assert "with --noisy" in run("calibrate", "--clean", tmp_path / "clean.npy", "--out", out)[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give RECORDINGS to make a calibration, --clean FILE"),
        (["a.wav", "--update", "b.wav"], "Give RECORDINGS to make a calibration, --clean"),
        (["--update", "a.wav"], "fake comes without a calibration"),
        (["a.wav", "--weight", "much"], "--weight must be a number"),
    ],
)
def test_wrong_use_of_calibrate_is_a_sentence(
    run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    status, _, err = run(
        "calibrate", *arguments, "-b", "fake", "--out", tmp_path / "cal.safetensors"
    )
    assert status == 2
    assert message in err
