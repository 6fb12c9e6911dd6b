"""One contract over all datasets, on small folders in the official layout."""

import shutil
from pathlib import Path

import pytest

from driftscore.errors import FormatError, UsageError
from driftscore.lab.corpora import datasets, download
from driftscore.lab.corpora.about import Clip
from driftscore.system import plugins

from .small_lab import WriteWav

Built = tuple[list[Clip], tuple[str, ...]]
"""The clips and labels of a folder that a test has built."""


def table(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def build_esc50(home: Path, wav: WriteWav) -> Built:
    for name in ("1-100032-A-0", "2-82274-B-10"):
        wav(home / "ESC-50-33c8ce9" / "audio" / f"{name}.wav")
    table(
        home / "ESC-50-33c8ce9" / "meta" / "esc50.csv",
        "filename,fold,target,category,esc10,src_file,take",
        "2-82274-B-10.wav,2,10,rain,True,82274,B",
        "1-100032-A-0.wav,1,0,dog,True,100032,A",
    )
    audio = home / "ESC-50-33c8ce9" / "audio"
    return [
        Clip(audio / "2-82274-B-10.wav", ("rain",), "2", "2-82274-B-10"),
        Clip(audio / "1-100032-A-0.wav", ("dog",), "1", "1-100032-A-0"),
    ], ("dog", "rain")


def build_esc50_public(home: Path, wav: WriteWav) -> Built:
    """Two clips that are tested, and one that something was made from."""
    folder = home / "ESC-50-33c8ce9"
    for name in ("1-104089-A-22", "1-100032-A-0", "1-104089-B-22"):
        wav(folder / "audio" / f"{name}.wav")
    table(
        folder / "meta" / "esc50.csv",
        "filename,fold,target,category,esc10,src_file,take",
        "1-104089-A-22.wav,1,22,clapping,False,104089,A",
        "1-100032-A-0.wav,1,0,dog,True,100032,A",
        "1-104089-B-22.wav,1,22,clapping,False,104089,B",
    )
    names = ("1-104089-A-22", "1-104089-B-22")
    clips = [Clip(folder / "audio" / f"{n}.wav", ("clapping",), "1", n) for n in names]
    return clips, ("dog", "clapping")


def build_urbansound8k(home: Path, wav: WriteWav) -> Built:
    audio = home / "UrbanSound8K" / "audio"
    wav(audio / "fold5" / "100032-3-0-0.wav")
    wav(audio / "fold10" / "100648-1-0-0.wav")
    table(
        home / "UrbanSound8K" / "metadata" / "UrbanSound8K.csv",
        "slice_file_name,fsID,start,end,salience,fold,classID,class",
        "100032-3-0-0.wav,100032,0.0,0.317551,1,5,3,dog_bark",
        "100648-1-0-0.wav,100648,4.823402,5.471927,2,10,1,car_horn",
    )
    return [
        Clip(audio / "fold5" / "100032-3-0-0.wav", ("dog_bark",), "5", "100032-3-0-0"),
        Clip(audio / "fold10" / "100648-1-0-0.wav", ("car_horn",), "10", "100648-1-0-0"),
    ], ("car_horn", "dog_bark")


def build_fsd50k(home: Path, wav: WriteWav) -> Built:
    audio = home / "FSD50K.eval_audio"
    wav(audio / "37199.wav")
    wav(audio / "175151.wav")
    table(
        home / "FSD50K.ground_truth" / "eval.csv",
        "fname,labels,mids",
        '37199,Electric_guitar,"/m/02sgy"',
        '175151,"Bark,Dog,Animal","/m/05tny_,/m/0bt9lr,/m/0jbk"',
    )
    table(
        home / "FSD50K.ground_truth" / "vocabulary.csv",
        "0,Animal,/m/0jbk",
        "1,Bark,/m/05tny_",
        "2,Dog,/m/0bt9lr",
        "3,Electric_guitar,/m/02sgy",
        "4,Rain,/m/06mb1",
    )
    return [
        Clip(audio / "37199.wav", ("Electric_guitar",), None, "37199"),
        Clip(audio / "175151.wav", ("Bark", "Dog", "Animal"), None, "175151"),
    ], ("Animal", "Bark", "Dog", "Electric_guitar", "Rain")


def build_sonyc_ust(home: Path, wav: WriteWav) -> Built:
    wav(home / "audio" / "00_010346.wav")
    wav(home / "audio-0" / "01_000001.wav")
    wav(home / "audio-0" / "01_000002.wav")
    table(
        home / "annotations.csv",
        "split,sensor_id,audio_filename,annotator_id,1-1_small-sounding-engine_presence,"
        "1_engine_presence,2_machinery-impact_presence,8_dog_presence",
        # Verified: annotator 0 alone decides.
        "test,0,00_010346.wav,12,1,1,1,1",
        "test,0,00_010346.wav,13,1,1,1,1",
        "test,0,00_010346.wav,0,0,0,1,0",
        # Majority: engine 2 of 3, machinery 1 of 2 (a -1 is no answer), dog 1 of 3.
        "train,1,01_000001.wav,5,0,1,1,0",
        "train,1,01_000001.wav,6,0,1,0,1",
        "train,1,01_000001.wav,7,0,0,-1,0",
        # Nothing heard.
        "validate,1,01_000002.wav,5,0,0,0,0",
    )
    return [
        Clip(home / "audio" / "00_010346.wav", ("machinery-impact",), "test", "00_010346"),
        Clip(home / "audio-0" / "01_000001.wav", ("engine",), "train", "01_000001"),
        Clip(home / "audio-0" / "01_000002.wav", (), "validate", "01_000002"),
    ], ("engine", "machinery-impact", "dog")


def build_tut2016(home: Path, wav: WriteWav) -> Built:
    dev, test = (home / f"TUT-acoustic-scenes-2016-{p}" for p in ("development", "evaluation"))
    wav(dev / "audio" / "b020_90_120.wav")
    wav(dev / "audio" / "a001_0_30.wav")
    wav(test / "audio" / "0.wav")
    table(dev / "meta.txt", "audio/b020_90_120.wav\tbeach", "audio/a001_0_30.wav\tcity_center")
    table(dev / "evaluation_setup" / "fold3_evaluate.txt", "audio/a001_0_30.wav\tcity_center")
    table(dev / "evaluation_setup" / "fold3_train.txt", "audio/b020_90_120.wav\tbeach")
    table(test / "meta.txt", "audio/0.wav\tcafe/restaurant")
    return [
        Clip(dev / "audio" / "b020_90_120.wav", ("beach",), "development", "b020_90_120"),
        Clip(dev / "audio" / "a001_0_30.wav", ("city_center",), "3", "a001_0_30"),
        Clip(test / "audio" / "0.wav", ("cafe/restaurant",), "evaluation", "0"),
    ], ("beach", "cafe/restaurant", "city_center")


def build_folder(home: Path, wav: WriteWav) -> Built:
    wav(home / "siren" / "b.wav")
    wav(home / "dog bark" / "deep" / "a.WAV")
    table(home / "dog bark" / "notes.txt", "not a sound")
    return [
        Clip(home / "dog bark" / "deep" / "a.WAV", ("dog bark",), None, "dog bark/deep/a.WAV"),
        Clip(home / "siren" / "b.wav", ("siren",), None, "siren/b.wav"),
    ], ("dog bark", "siren")


BUILDERS = {
    "esc50": build_esc50,
    "esc50_public": build_esc50_public,
    "folder": build_folder,
    "fsd50k": build_fsd50k,
    "sonyc_ust": build_sonyc_ust,
    "tut2016": build_tut2016,
    "urbansound8k": build_urbansound8k,
}
every_dataset = pytest.mark.parametrize("name", plugins.names(datasets.KIND))


@pytest.fixture
def wav(write_wav: WriteWav) -> WriteWav:
    return lambda path: write_wav(path, seconds=0.01)


def test_every_dataset_is_in_the_contract() -> None:
    assert sorted(BUILDERS) == list(plugins.names(datasets.KIND))


@every_dataset
def test_clips_and_labels_are_those_of_the_official_files(
    name: str, tmp_path: Path, wav: WriteWav
) -> None:
    expected, labels = BUILDERS[name](tmp_path / "home", wav)
    dataset = datasets.find_dataset(name, tmp_path / "home")
    assert dataset.clips() == expected
    assert datasets.find_dataset(name, str(tmp_path / "home")).clips() == expected
    assert dataset.labels() == labels
    assert download.find_corpus(name, tmp_path / "home").missing() == []
    assert all(clip.path.is_file() for clip in expected)
    assert len({clip.id for clip in expected}) == len(expected)
    assert {label for clip in expected for label in clip.labels} <= set(labels)


@every_dataset
def test_licence_citation_and_sums_are_stated(name: str) -> None:
    about = datasets.find_dataset(name).about
    assert about.title
    assert about.licence
    assert about.citation
    for remote in about.files:
        assert remote.url.startswith("https://")
        assert len(remote.md5) == 32 or "zenodo.org" in remote.url


# Without a csv no file of `folder` can be missing; the csv has a test of its own.
@pytest.mark.parametrize("name", sorted(set(BUILDERS) - {"folder"}))
def test_everything_that_is_missing_is_listed_at_once(
    name: str, tmp_path: Path, wav: WriteWav
) -> None:
    home = tmp_path / "home"
    expected, _ = BUILDERS[name](home, wav)
    gone = [clip.path for clip in expected[1:]]
    for path in gone:
        path.unlink()
    missing = datasets.find_dataset(name, home).missing()
    assert [Path(line).name for line in missing] == [path.name for path in gone]
    with pytest.raises(UsageError, match="incomplete; missing:") as caught:
        datasets.find_dataset(name, home).clips()
    for path in gone:
        assert path.name in str(caught.value)


@every_dataset
def test_what_an_empty_or_absent_folder_lacks_is_listed(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for home in (tmp_path / "empty", tmp_path / "nowhere"):
        dataset = datasets.find_dataset(name, home)
        assert dataset.missing()
        with pytest.raises(UsageError, match="incomplete; missing:"):
            dataset.clips()


def test_a_long_list_of_missing_files_is_cut_in_the_message_but_not_in_the_check(
    tmp_path: Path, wav: WriteWav
) -> None:
    home = tmp_path / "home"
    build_esc50(home, wav)
    rows = [f"{n}.wav,1,0,dog,True,1,A" for n in range(40)]
    table(home / "ESC-50-33c8ce9" / "meta" / "esc50.csv", "filename,fold,target,category", *rows)
    assert len(download.find_corpus("esc50", home).missing()) == 40
    with pytest.raises(UsageError, match="and 28 more"):
        datasets.find_dataset("esc50", home).clips()


def test_a_table_without_its_columns_is_refused_by_name(tmp_path: Path, wav: WriteWav) -> None:
    build_esc50(tmp_path, wav)
    table(tmp_path / "ESC-50-33c8ce9" / "meta" / "esc50.csv", "filename,fold", "a.wav,1")
    with pytest.raises(FormatError, match="lacks the column target, category"):
        datasets.find_dataset("esc50", tmp_path).clips()
    table(
        tmp_path / "ESC-50-33c8ce9" / "meta" / "esc50.csv", "filename,fold,target,category", "a,1"
    )
    with pytest.raises(FormatError, match="line 2: fewer fields"):
        datasets.find_dataset("esc50", tmp_path).clips()


def test_the_official_folder_may_be_the_home_itself(tmp_path: Path, wav: WriteWav) -> None:
    build_esc50(tmp_path / "a", wav)
    shutil.move(tmp_path / "a" / "ESC-50-33c8ce9", tmp_path / "flat")
    assert [clip.id for clip in datasets.find_dataset("esc50", tmp_path / "flat").clips()] == [
        "2-82274-B-10",
        "1-100032-A-0",
    ]


def test_a_label_outside_fsd50ks_vocabulary_is_refused(tmp_path: Path, wav: WriteWav) -> None:
    build_fsd50k(tmp_path, wav)
    table(tmp_path / "FSD50K.ground_truth" / "vocabulary.csv", "0,Animal,/m/0jbk")
    with pytest.raises(FormatError, match="labels that are not in the vocabulary"):
        datasets.find_dataset("fsd50k", tmp_path).clips()


def test_a_folder_with_a_csv_takes_files_labels_and_folds_from_it(
    tmp_path: Path, wav: WriteWav
) -> None:
    for name in ("a.wav", "sub/b.wav"):
        wav(tmp_path / name)
    table(
        tmp_path / "labels.csv",
        "file,labels,fold",
        'a.wav,"dog bark, siren",1',
        "sub/b.wav,rain;x,",
    )
    expected = [
        Clip(tmp_path / "a.wav", ("dog bark", "siren"), "1", "a.wav"),
        Clip(tmp_path / "sub/b.wav", ("rain", "x"), None, "sub/b.wav"),
    ]
    folder = datasets.find_dataset("folder", tmp_path)
    assert folder.clips() == expected
    assert datasets.find_dataset("folder", tmp_path / "labels.csv").clips() == expected
    table(tmp_path / "labels.csv", "file,labels", "a.wav,dog", "gone.wav,dog", "lost.wav,dog")
    assert folder.missing() == ["gone.wav", "lost.wav"]
    table(tmp_path / "labels.csv", "file,labels", "a.wav, ;")
    with pytest.raises(FormatError, match=r"a\.wav has no label"):
        folder.clips()


def test_the_shared_events_are_fifty_classes_of_eight(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTSCORE_SHARED", str(shared))
    events = datasets.find_dataset("training.corpora:shared_events")
    found = events.clips()
    assert len(found) == 400
    assert len(events.labels()) == 50
    counts = {label: sum(clip.labels == (label,) for clip in found) for label in events.labels()}
    assert set(counts.values()) == {8}
    assert {clip.fold for clip in found} == set("1234")


def test_without_the_shared_recordings_the_message_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTSCORE_SHARED", str(tmp_path))
    with pytest.raises(UsageError, match="set DRIFTSCORE_SHARED"):
        datasets.find_dataset("training.corpora:shared_events").complete()


def test_corpora_are_stored_in_the_data_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    esc50 = datasets.find_dataset("esc50")
    assert esc50.folder == tmp_path / "cache" / "data" / "esc50"
    monkeypatch.setenv("DRIFTSCORE_DATA", str(tmp_path / "elsewhere"))
    assert esc50.folder == tmp_path / "elsewhere" / "esc50"


def test_an_unknown_dataset_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="No dataset called 'ecs50'; did you mean 'esc50'"):
        datasets.find_dataset("ecs50")


def test_a_dataset_from_outside_is_found_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wav: WriteWav
) -> None:
    (tmp_path / "outside_data.py").write_text(
        "from driftscore.lab.corpora.datasets import folder as mine\nclass half: clips = None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    wav(tmp_path / "home" / "dog" / "a.wav")
    found = datasets.find_dataset("outside_data:mine", tmp_path / "home")
    assert [clip.labels for clip in found.clips()] == [("dog",)]
    with pytest.raises(UsageError, match=r"must define ABOUT, clips\(home\)"):
        datasets.find_dataset("outside_data:half")


def test_a_home_may_name_the_corpus_of_another_module(tmp_path: Path, wav: WriteWav) -> None:
    dataset = datasets.find_dataset("own", "training.corpora:shared_events")
    assert (dataset.name, dataset.about.title) == ("own", "Shared events")
    with pytest.raises(UsageError, match=r"No dataset called .training_"):
        datasets.find_dataset("own", "training_.corpora:shared_events")
    wav(tmp_path / "C:x" / "dog" / "a.wav")  # one letter is a drive
    assert datasets.find_dataset("own", tmp_path / "C:x").clips()
