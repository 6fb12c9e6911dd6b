"""One contract over all noises, on small folders in the official layout."""

from pathlib import Path

import numpy as np
import pytest

from driftscore.audio.recordings import Audio
from driftscore.errors import AudioError, FormatError, UsageError
from driftscore.lab.corpora import download, folders, noises
from driftscore.lab.corpora.folders import load
from driftscore.lab.corpora.noises import demand, musan, recorded, synthetic, tau2019
from driftscore.lab.corpora.noises.protocol import NoiseRecording, draw_excerpt
from driftscore.lab.mixing.mixings import additive
from driftscore.lab.mixing.record import MixRecord, mix
from driftscore.lab.mixing.rooms import decay_response
from driftscore.lab.mixing.sounds import Excerpt, Sound
from driftscore.system import plugins
from training.corpora import recorded as shared_noise

from .small_lab import WriteWav

RATE = 16_000


def build_tau2019(home: Path, wav: WriteWav) -> dict[str, str]:
    place = home / "TAU-urban-acoustic-scenes-2019-development"
    names = ["park-lisbon-1-2-a", "street_traffic-paris-3-4-a", "tram-helsinki-5-6-a"]
    for seed, name in enumerate(names):
        wav(place / "audio" / f"{name}.wav", seconds=2, seed=seed)
    lines = ["filename\tscene_label\tidentifier\tsource_label"]
    lines += [f"audio/{name}.wav\t{name.split('-')[0]}\tx\ta" for name in names]
    (place / "meta.csv").write_text("\n".join(lines) + "\n")
    return {"park-lisbon-1-2-a": "park", "street_traffic-paris-3-4-a": "street traffic"}


def build_demand(home: Path, wav: WriteWav) -> dict[str, str]:
    for seed, name in enumerate(demand.ENVIRONMENTS):
        wav(home / name / "ch01.wav", seconds=0.6, seed=seed)
        wav(home / name / "ch02.wav", seconds=0.6, seed=100 + seed)
    return {name: words for name, (words, _) in demand.ENVIRONMENTS.items()}


def build_musan(home: Path, wav: WriteWav) -> dict[str, str]:
    wav(home / "musan" / "noise" / "free-sound" / "noise-free-sound-0000.wav", seconds=2)
    wav(home / "musan" / "noise" / "sound-bible" / "noise-sound-bible-0001.wav", seconds=2)
    wav(home / "musan" / "music" / "fma" / "music-fma-0000.wav", seconds=2)
    return {"noise-free-sound-0000": "noise", "noise-sound-bible-0001": "noise"}


def build_esc50_noise(home: Path, wav: WriteWav) -> dict[str, str]:
    folder = home / "ESC-50-33c8ce9"
    clips = {  # id: fold, class
        "1-17367-A-10": (1, "rain"),
        "2-1-A-16": (2, "wind"),
        "3-1-A-26": (3, "laughing"),
        "4-1-A-24": (4, "coughing"),
        "1-1-A-0": (1, "dog"),
        "5-1-A-10": (5, "rain"),  # fold 5 is left alone
        "1-115545-A-48": (1, "rain"),  # tested
    }
    lines = ["filename,fold,target,category,esc10,src_file,take"]
    for seed, (name, (fold, label)) in enumerate(clips.items()):
        wav(folder / "audio" / f"{name}.wav", seconds=2, seed=seed)
        lines.append(f"{name}.wav,{fold},{name.split('-')[-1]},{label},False,1,A")
    (folder / "meta").mkdir()
    (folder / "meta" / "esc50.csv").write_text("\n".join(lines) + "\n")
    crowds = {f"crowd-{number}": "crowd" for number in range(24)}
    return {"1-17367-A-10": "rain", "2-1-A-16": "wind", **crowds}


def test_noise_of_esc50_is_not_tested_not_of_fold_5_and_not_of_the_class_itself(
    tmp_path: Path, write_wav: WriteWav
) -> None:
    build_esc50_noise(tmp_path, write_wav)
    noise = noises.find_noise("esc50_noise", tmp_path)
    recordings = noise.recordings()
    assert {one.id for one in recordings if one.environment != "crowd"} == {
        "1-17367-A-10",
        "2-1-A-16",
    }
    rng = np.random.default_rng(0)
    drawn = [noise.sample(1.0, RATE, rng, avoid=["rain"]) for _ in range(20)]
    assert {one.sound.label for one in drawn} == {"wind", "crowd"}
    laughing = [noise.sample(1.0, RATE, rng, avoid=["laughing"]) for _ in range(20)]
    assert {one.sound.label for one in laughing} == {"rain", "wind"}


def build_recorded(home: Path, wav: WriteWav) -> dict[str, str]:
    wav(home / "street_tram.wav", seconds=2)
    wav(home / "deep" / "kitchen.wav", seconds=0.5, seed=1)
    (home / "readme.txt").write_text("not a sound")
    return {"deep/kitchen.wav": "kitchen", "street_tram.wav": "street tram"}


def build_synthetic(home: Path, wav: WriteWav) -> dict[str, str]:
    return {
        "white": "white noise",
        "pink": "pink noise",
        "brown": "brown noise",
        "hum": "mains hum",
    }


BUILDERS = {
    "demand": build_demand,
    "esc50_noise": build_esc50_noise,
    "musan": build_musan,
    "recorded": build_recorded,
    "synthetic": build_synthetic,
    "synthetic_room": build_synthetic,
    "tau2019": build_tau2019,
}
every_noise = pytest.mark.parametrize("name", plugins.names(noises.KIND))


def test_every_noise_is_in_the_contract() -> None:
    assert sorted(BUILDERS) == list(plugins.names(noises.KIND))


@every_noise
def test_recordings_are_those_of_the_official_layout(
    name: str, tmp_path: Path, write_wav: WriteWav
) -> None:
    expected = BUILDERS[name](tmp_path, write_wav)
    noise = noises.find_noise(name, tmp_path)
    assert {r.id: r.environment for r in noise.recordings()} == expected
    assert download.find_corpus(name, tmp_path).missing() == []
    assert noise.about.licence
    assert noise.about.citation


@every_noise
@pytest.mark.parametrize("seconds", [0.3, 1.0, 5.0])
def test_a_sample_has_the_requested_length_and_rate_and_a_listed_environment(
    name: str, seconds: float, tmp_path: Path, write_wav: WriteWav
) -> None:
    expected = BUILDERS[name](tmp_path, write_wav)
    noise = noises.find_noise(name, tmp_path)
    for seed in range(3):
        drawn = noise.sample(seconds, 22_050, np.random.default_rng(seed))
        assert drawn.audio.rate == 22_050
        assert len(drawn.audio.samples) == round(seconds * 22_050)
        assert drawn.audio.samples.any()
        assert drawn.sound.label in expected.values()


@every_noise
def test_the_same_generator_draws_the_same_noise_and_another_another(
    name: str, tmp_path: Path, write_wav: WriteWav
) -> None:
    BUILDERS[name](tmp_path, write_wav)
    noise = noises.find_noise(name, tmp_path)

    def drawn(seed: int) -> Excerpt:
        return noise.sample(0.5, RATE, np.random.default_rng(seed))

    np.testing.assert_array_equal(drawn(1).samples, drawn(1).samples)
    assert len({drawn(seed).samples.tobytes() for seed in range(8)}) > 1


@every_noise
def test_a_drawn_excerpt_is_loaded_again_from_its_file_and_position(
    name: str, tmp_path: Path, write_wav: WriteWav
) -> None:
    BUILDERS[name](tmp_path, write_wav)
    drawn = noises.find_noise(name, tmp_path).sample(0.7, RATE, np.random.default_rng(4))
    folders._recent.clear()
    again = Sound(drawn.sound.file, load(drawn.sound.file, RATE))
    assert again.sha256 == drawn.sound.sha256
    np.testing.assert_array_equal(Excerpt(again, drawn.start, drawn.frames).samples, drawn.samples)


@every_noise
def test_an_additive_mix_with_it_is_rebuilt_from_its_record(
    name: str, tmp_path: Path, write_wav: WriteWav
) -> None:
    BUILDERS[name](tmp_path / "noise", write_wav)
    file = str(write_wav(tmp_path / "dog.wav", seconds=0.8, seed=9))
    event = Sound(file, load(file, RATE), "dog")
    noise = noises.find_noise(name, tmp_path / "noise")
    drawn = noise.sample(0.8, RATE, np.random.default_rng(2))
    record = additive.draw(event, drawn, snr_db=6)
    before = mix(record, load).audio.samples
    folders._recent.clear()
    again = mix(MixRecord.from_json(record.to_json()), load).audio.samples
    np.testing.assert_array_equal(again, before)


@pytest.mark.parametrize("name", [n for n in plugins.names(noises.KIND) if "synthetic" not in n])
def test_what_an_empty_or_absent_folder_lacks_is_listed(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for home in (tmp_path / "empty", tmp_path / "nowhere"):
        noise = noises.find_noise(name, home)
        assert noise.missing()
        with pytest.raises(UsageError, match="incomplete; missing:"):
            noise.sample(1, RATE, np.random.default_rng(0))


def test_all_that_tau_and_demand_lack_is_listed_at_once(
    tmp_path: Path, write_wav: WriteWav
) -> None:
    build_tau2019(tmp_path / "tau", write_wav)
    for path in (tmp_path / "tau").rglob("*.wav"):
        path.unlink()
    # The tram is not one of the six scenes, so it is not missing.
    assert tau2019.missing(tmp_path / "tau") == [
        "audio/park-lisbon-1-2-a.wav",
        "audio/street_traffic-paris-3-4-a.wav",
    ]
    build_demand(tmp_path / "demand", write_wav)
    for name in ("NPARK", "TMETRO"):
        (tmp_path / "demand" / name / "ch01.wav").unlink()
    assert demand.missing(tmp_path / "demand") == ["NPARK/ch01.wav", "TMETRO/ch01.wav"]


def test_a_recording_that_contains_the_clips_class_is_never_drawn(
    tmp_path: Path, write_wav: WriteWav
) -> None:
    build_tau2019(tmp_path, write_wav)
    noise = noises.find_noise("tau2019", tmp_path)
    for seed in range(10):
        drawn = noise.sample(0.5, RATE, np.random.default_rng(seed), avoid=["Car Horn"])
        assert drawn.sound.label == "park"
    with pytest.raises(UsageError, match="All 2 noise recordings contain wind or siren"):
        noise.sample(0.5, RATE, np.random.default_rng(0), avoid=["wind", "siren"])


def test_a_csv_gives_a_folder_its_environments_and_classes_to_avoid(
    tmp_path: Path, write_wav: WriteWav
) -> None:
    build_recorded(tmp_path, write_wav)
    (tmp_path / "noise.csv").write_text(
        "file,environment,avoid\nstreet_tram.wav,street with trams,car_horn; train\n"
    )
    assert recorded.recordings(tmp_path) == [
        NoiseRecording(
            str(tmp_path / "street_tram.wav"),
            "street_tram.wav",
            "street with trams",
            ("car_horn", "train"),
        )
    ]
    (tmp_path / "noise.csv").write_text("file\na.wav\nb.wav\n")
    assert recorded.missing(tmp_path) == ["a.wav", "b.wav"]


def test_the_shared_noises_are_fifteen_with_their_classes_to_avoid(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTSCORE_SHARED", str(shared))
    found = shared_noise.recordings(shared_noise.default_home())
    assert len(found) == 15
    rain = next(r for r in found if r.environment == "rain")
    assert rain.avoid == ("rain", "thunderstorm")
    for seed in range(5):
        rng = np.random.default_rng(seed)
        drawn = noises.find_noise("training.corpora:recorded").sample(
            10, 32_000, rng, avoid=["rain"]
        )
        assert drawn.sound.label != "rain"
        assert drawn.start + drawn.frames <= len(drawn.sound.audio.samples)


def test_a_long_recording_gives_every_position_and_never_wraps(tmp_path: Path) -> None:
    ramp = Sound("ramp", Audio((np.arange(1, RATE + 1) / RATE).astype(np.float32), RATE))
    starts = {
        draw_excerpt(ramp, (RATE - 2) / RATE, np.random.default_rng(seed)).start
        for seed in range(60)
    }
    assert starts == {0, 1, 2}


def test_a_short_recording_is_repeated_from_its_beginning() -> None:
    ramp = Sound("ramp", Audio((np.arange(1, RATE + 1) / RATE).astype(np.float32), RATE))
    drawn = draw_excerpt(ramp, 2.5, np.random.default_rng(0))
    assert drawn.start == 0
    expected = np.tile(ramp.audio.samples, 3)[: round(2.5 * RATE)]
    np.testing.assert_array_equal(drawn.samples, expected)
    assert draw_excerpt(ramp, 1.0, np.random.default_rng(0)).start == 0


def test_a_silent_or_too_short_recording_is_an_error_with_a_reason(
    tmp_path: Path, write_wav: WriteWav
) -> None:
    write_wav(tmp_path / "silent" / "a.wav", np.zeros(RATE), rate=RATE)
    write_wav(tmp_path / "short" / "a.wav", seconds=0.39, rate=RATE)
    rng = np.random.default_rng(0)
    with pytest.raises(AudioError, match=r"a\.wav is silent"):
        noises.find_noise("recorded", tmp_path / "silent").sample(1, RATE, rng)
    with pytest.raises(AudioError, match=r"0\.390 s long; noise needs at least one loudness block"):
        noises.find_noise("recorded", tmp_path / "short").sample(1, RATE, rng)
    mostly = np.zeros(RATE * 100, np.float32)
    mostly[-1] = 1
    with pytest.raises(AudioError, match="silent in 20 excerpts"):
        draw_excerpt(Sound("mostly", Audio(mostly, RATE)), 0.5, rng)
    with pytest.raises(UsageError, match="seconds must be positive, got 0"):
        draw_excerpt(Sound("x", Audio(mostly + 1, RATE)), 0, rng)


@pytest.mark.parametrize(("kind", "slope"), [("white", 0), ("pink", -3.01), ("brown", -6.02)])
def test_the_power_of_coloured_noise_falls_by_its_definition(kind: str, slope: float) -> None:
    audio = synthetic.make(f"{kind},7,{RATE * 60},300,decay", RATE)
    power = np.abs(np.fft.rfft(audio.samples.astype(float))) ** 2
    hertz = np.fft.rfftfreq(len(audio.samples), 1 / RATE)
    octaves = [(f, 2 * f) for f in (125, 250, 500, 1000, 2000)]
    levels = [10 * np.log10(power[(hertz >= a) & (hertz < b)].mean()) for a, b in octaves]
    assert np.polyfit(range(5), levels, 1)[0] == pytest.approx(slope, abs=0.4)


def test_hum_has_its_power_at_the_harmonics_of_the_mains() -> None:
    audio = synthetic.make(f"hum,3,{RATE * 2},200,decay", RATE)
    power = np.abs(np.fft.rfft(audio.samples.astype(float))) ** 2
    hertz = np.fft.rfftfreq(len(audio.samples), 1 / RATE)
    strongest = hertz[np.argsort(power)[-5:]]
    mains = 50 if np.isclose(strongest % 50, 0).all() else 60
    np.testing.assert_allclose(strongest % mains, 0, atol=1e-9)


def test_synthetic_noise_has_one_level_and_a_decaying_response() -> None:
    for kind in synthetic.KINDS:
        audio = synthetic.make(f"{kind},1,{RATE},500,decay", RATE)
        assert np.sqrt(np.mean(audio.samples.astype(float) ** 2)) == pytest.approx(0.1, rel=1e-5)
    response = decay_response(RATE, 0.5, np.random.default_rng(0))
    assert len(response) == RATE // 2
    energy = [np.sum(part**2) for part in np.split(response[1:][: RATE // 2 // 10 * 10 - 10], 10)]
    fall_db = 10 * np.log10(energy[1] / energy[8])
    assert fall_db == pytest.approx(60 * 0.7, abs=2)


def test_noise_in_a_box_room_has_the_response_of_that_room() -> None:
    found = {
        name: noises.find_noise(name).sample(0.5, RATE, np.random.default_rng(0))
        for name in ("synthetic", "synthetic_room")
    }
    decay, room = (found[name].sound.file for name in ("synthetic", "synthetic_room"))
    assert decay.replace(",decay", ",room") == room
    assert not np.array_equal(found["synthetic"].samples, found["synthetic_room"].samples)


def test_a_name_that_describes_no_synthetic_noise_is_refused() -> None:
    with pytest.raises(FormatError, match="does not describe a noise"):
        load("synthetic:purple,1,100,200,decay", RATE)
    with pytest.raises(FormatError, match="does not describe a noise"):
        load("synthetic:pink", RATE)
    with pytest.raises(FormatError, match="does not describe a noise"):
        load("synthetic:pink,1,100,200,rom", RATE)


def test_the_missing_part_of_musan_is_named(tmp_path: Path, write_wav: WriteWav) -> None:
    build_musan(tmp_path, write_wav)
    (tmp_path / "musan" / "noise" / "sound-bible" / "noise-sound-bible-0001.wav").unlink()
    assert musan.missing(tmp_path) == ["noise/sound-bible/*.wav"]


def test_a_path_with_a_colon_is_still_a_path(tmp_path: Path, write_wav: WriteWav) -> None:
    path = write_wav(tmp_path / "odd:name.wav", seconds=0.5, rate=RATE)
    assert len(load(str(path), RATE).samples) == RATE // 2


def test_sounds_used_last_stay_in_memory_within_their_budget(
    tmp_path: Path, write_wav: WriteWav, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders._recent.clear()
    monkeypatch.setattr(folders, "MAX_CACHED_BYTES", 3 * RATE * 4)
    files = [str(write_wav(tmp_path / f"{n}.wav", seconds=1, rate=RATE, seed=n)) for n in range(5)]
    for file in files:
        load(file, RATE)
    assert load(files[4], RATE) is load(files[4], RATE)
    assert [file for file, _ in folders._recent] == files[2:]


def test_a_noise_from_outside_is_found_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside_noises.py").write_text(
        "from driftscore.lab.corpora.noises import synthetic as hiss\nclass half: sample = None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = noises.find_noise("outside_noises:hiss")
    assert len(found.sample(0.5, RATE, np.random.default_rng(0)).samples) == RATE // 2
    with pytest.raises(UsageError, match="must define ABOUT, recordings"):
        noises.find_noise("outside_noises:half")
