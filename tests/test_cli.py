"""The command from outside: what it prints, where, and with which exit status."""

import csv
import io
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import soundfile

from driftscore import Backbone, ClassBank, Classifier, Detection, Head, load_backbone
from driftscore.backbones.stored import EmbeddingFile
from driftscore.cli.app import COMMANDS, Command, all_commands, app
from driftscore.errors import AudioError, DriftscoreError, UsageError, WriteError

from .conftest import LABELS, Run, WriteWav
from .test_events import place

ASK = ["--labels", ", ".join(LABELS), "--backbone", "fake"]


def test_a_table_names_the_best_label_of_each_file(run: Run, wav: WriteWav, fake: Backbone) -> None:
    files = [wav("a.wav"), wav("b.wav", seed=3)]
    status, out, err = run("classify", *files, *ASK)
    assert (status, err) == (0, "")
    for file, label in zip(files, Classifier(LABELS, backbone=fake).predict(files), strict=True):
        assert next(line for line in out.splitlines() if file in line).split()[1] in label


def test_csv_and_jsonl_hold_the_scores_of_the_library(
    run: Run, wav: WriteWav, fake: Backbone
) -> None:
    files = [wav("a.wav"), wav("b.wav", seed=3)]
    expected = list(Classifier(LABELS, backbone=fake).classify(files))
    rows = list(csv.DictReader(io.StringIO(run("classify", *files, *ASK, "-f", "csv")[1])))
    lines = [json.loads(s) for s in run("classify", *files, *ASK, "-f", "jsonl")[1].splitlines()]
    for found in (rows, lines):
        for row, result in zip(found, expected, strict=True):
            assert row["file"] == result.source
            assert row["label"] == result.label
            assert float(row["score"]) == pytest.approx(result.ranking[0][1], abs=1e-6)
            assert float(row["margin"]) == pytest.approx(result.margin, abs=1e-6)
            assert row["runner_up"] == result.ranking[1][0]


def test_multi_shows_every_score_and_threshold_the_labels_above(
    run: Run, wav: WriteWav, fake: Backbone
) -> None:
    file = wav()
    scores = Classifier(LABELS, backbone=fake).scores([file])[0]
    row = json.loads(run("classify", file, *ASK, "--multi", "-f", "jsonl")[1])
    assert list(row["scores"].values()) == pytest.approx(list(scores), abs=1e-6)
    cut = float(np.sort(scores)[-2]) - 1e-9
    row = json.loads(run("classify", file, *ASK, "-t", cut, "-f", "jsonl")[1])
    assert row["labels"] == [LABELS[c] for c in np.argsort(-scores)[:2]]


def test_compare_sets_two_rules_side_by_side(run: Run, wav: WriteWav, fake: Backbone) -> None:
    file = wav()
    row = json.loads(
        run("classify", file, *ASK, "-r", "cosine", "--compare", "das", "-f", "jsonl")[1]
    )
    for rule in ("cosine", "das"):
        assert row[rule] == Classifier(LABELS, backbone=fake, rule=rule).predict([file])[0]
    assert row["same"] == ("yes" if row["cosine"] == row["das"] else "NO")


def test_a_timeline_is_written_as_events_windows_audacity_and_raven(
    run: Run, tmp_path: Path, fake: Backbone
) -> None:
    file = tmp_path / "place.wav"
    audio = place()
    soundfile.write(file, audio.samples, audio.rate, subtype="FLOAT")
    ask = ["detect", file, *ASK, "--threshold", "0.02", "--window", "1"]
    found = Detection(threshold=0.02, window_s=1.0)
    events = list(Classifier(LABELS, backbone=fake).events(file, settings=found))
    assert events
    rows = [json.loads(line) for line in run(*ask, "-f", "jsonl")[1].splitlines()]
    assert [(r["start_s"], r["end_s"], r["label"]) for r in rows] == [
        (e.start_s, e.end_s, e.label) for e in events
    ]
    status, out, err = run("detect", file, *ASK, "--windows", "--window", 2, "-f", "jsonl")
    assert (status, err) == (0, "")
    assert len(out.splitlines()) == 39  # half of a window is the hop
    assert len(run(*ask, "-f", "audacity")[1].splitlines()) == len(events)
    table = run(*ask, "-f", "raven")[1].splitlines()
    assert table[0].startswith("Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)")
    assert len(table) == 1 + len(events)


def test_a_long_recording_is_answered_with_what_to_do_next(run: Run, wav: WriteWav) -> None:
    status, out, err = run("classify", wav("night.wav", seconds=61.0), *ASK, "-f", "csv")
    assert status == 0
    assert len(out.splitlines()) == 2
    for word in (
        "lasts 0:01:01",
        "driftscore detect",
        "--false-alarms",
        "--plot",
        "--format audacity",
    ):
        assert word in err
    assert run("classify", wav("clip.wav", seconds=5.0), *ASK, "-f", "csv")[2] == ""


def test_a_timeline_says_what_decided_it_and_what_was_nearest(run: Run, wav: WriteWav) -> None:
    ask = ["detect", wav("night.wav", seconds=30.0), *ASK, "-f", "csv"]
    err = run(*ask, "--window", "1", "--threshold", "9")[2]
    assert "No events in 0:00:30 of audio, with a threshold of 9" in err
    err = run(*ask, "--false-alarms", "0.25")[2]
    assert "by the calibration" not in err
    assert "with thresholds of raw scores: the model has no calibration" in err
    assert "--false-alarms" not in err.partition("next:")[2]
    hints = run(*ask)[2].partition("next: ")[2].strip()  # without events nothing is exported
    assert hints == "--false-alarms 2 for more events, --plot night.png for a picture"


def test_next_steps_are_those_that_were_not_taken(run: Run, wav: WriteWav, tmp_path: Path) -> None:
    ask = ["detect", wav("night.wav", seconds=30.0), *ASK, "--false-alarms", "1"]
    taken = ["--out", tmp_path / "e.csv", "-f", "csv", "--clips", tmp_path / "clips"]
    assert run(*ask, *taken)[2].partition("next:")[2].strip() == "--plot night.png for a picture"


def test_detect_says_what_can_be_expected_of_each_word_unless_all_are_good(
    run: Run, wav: WriteWav
) -> None:
    night = wav("night.wav", seconds=20.0)
    err = run("detect", night, "--labels", "rooster, street music", "-f", "csv")[2]
    assert "expected: rooster: good; street music: poor, it resembles 'music'" in err
    assert "expected:" not in run("detect", night, "--labels", "rooster", "-f", "csv")[2]


def test_nothing_is_said_about_events_where_nothing_could_be_read(run: Run, tmp_path: Path) -> None:
    status, _, err = run("detect", tmp_path / "none.wav", *ASK, "-f", "csv")
    assert status
    assert "No events" not in err
    assert "next:" not in err


def test_a_workbook_is_refused_by_its_name(run: Run, wav: WriteWav, tmp_path: Path) -> None:
    out = tmp_path / "events.xlsx"
    status, _, err = run("detect", wav("night.wav"), *ASK, "-f", "excel", "--out", out)
    assert status == 2
    assert "name that ends in .csv" in err
    assert not out.exists()


def test_a_recording_that_fails_has_no_times_and_no_score_in_a_timeline(
    run: Run, wav: WriteWav, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_bytes(b"not audio")
    ask = ["detect", bad, wav("a.wav"), *ASK, "--threshold", "9"]
    status, out, _ = run(*ask, "-f", "csv")
    row = next(csv.DictReader(io.StringIO(out)))
    assert (status, row["start_s"], row["end_s"], row["score"]) == (1, "", "", "")
    assert row["error"]
    assert "time" not in run(*ask)[1].split()  # no clock: no column in the table


def test_embed_head_and_score_need_the_model_only_once(
    run: Run, wav: WriteWav, tmp_path: Path, fake: Backbone
) -> None:
    files = [wav("a.wav"), wav("b.wav", seed=3)]
    clips, head = tmp_path / "clips.npz", tmp_path / "head.safetensors"
    assert run("embed", *files, "-o", clips, "-b", "fake")[0] == 0
    assert run("head", *ASK, "-o", head)[0] == 0
    status, out, _ = run("score", clips, "--head", head, "-f", "csv")
    assert status == 0
    assert out == run("classify", *files, *ASK, "-f", "csv")[1]
    assert run("score", clips, *ASK, "-f", "csv")[1] == out


def test_prompts_out_and_vectors_in_give_a_head(
    run: Run, tmp_path: Path, fake: Backbone, bank: ClassBank
) -> None:
    texts = run("prompts", "--labels", ", ".join(LABELS))[1].splitlines()
    assert len(texts) == 3 * 209
    np.savez(tmp_path / "v.npz", texts=texts, text_embeddings=fake.embed_text(texts))
    np.save(tmp_path / "v.npy", fake.embed_text(texts))
    for name in ("v.npz", "v.npy"):
        status, out, err = run("head", *ASK, "--text-embeddings", tmp_path / name, "-o",
                               tmp_path / "h.json")  # fmt: skip
        assert (status, out) == (0, "")
        assert "Head of 3 labels x 64 dimensions, rule das" in err
        expected = bank.prototypes + 0.25 * bank.drifts
        np.testing.assert_allclose(Head.load(tmp_path / "h.json").weights, expected, atol=1e-6)


def test_one_label_is_answered_with_how_to_judge_it(run: Run, wav: WriteWav) -> None:
    ask = ("classify", wav("a.wav"), "-b", "fake", "-l", "dog")
    assert "One label leaves nothing to choose between" in run(*ask)[2]
    for view in (("--multi",), ("-t", "0"), ("-l", "rain")):
        assert "One label" not in run(*ask, *view)[2]


@pytest.mark.parametrize("view", [[], ["--compare", "cosine"]])
def test_the_cache_and_the_number_of_threads_change_no_row(
    run: Run, wav: WriteWav, tmp_path: Path, view: list[str]
) -> None:
    files = [wav(f"{seed}.wav", seconds=3.0 + seed, seed=seed) for seed in range(4)]
    (tmp_path / "bad.wav").write_text("no sound")
    ask = ["classify", *files, tmp_path / "bad.wav", *ASK, *view, "-f", "csv"]
    plain = run(*ask)
    assert plain[0] == 1
    for options in (["--cache"], ["--cache", "--engine", "local:1"], ["--engine", "local:3"]):
        assert run(*ask, *options) == plain


@pytest.mark.parametrize("view", [[], ["--windows"]])
def test_the_cache_changes_no_event(
    run: Run, wav: WriteWav, tmp_path: Path, view: list[str]
) -> None:
    files = [wav(f"{seed}.wav", seconds=3.0 + seed, seed=seed) for seed in range(4)]
    (tmp_path / "bad.wav").write_text("no sound")
    ask = ["detect", *files, tmp_path / "bad.wav", *ASK, *view, "-f", "csv"]
    plain = run(*ask)
    assert plain[0] == 1
    assert run(*ask, "--cache") == run(*ask, "--cache") == plain


def test_embeddings_come_from_the_cache_as_well(run: Run, wav: WriteWav, tmp_path: Path) -> None:
    files = [wav("a.wav"), wav("b.wav", seed=3)]
    for name, options in (("a", []), ("b", ["--cache"]), ("c", ["--cache", "--engine", "local:1"])):
        assert run("embed", *files, "-b", "fake", "-o", tmp_path / f"{name}.npz", *options)[0] == 0
    one, two, three = (EmbeddingFile.load(tmp_path / f"{name}.npz") for name in "abc")
    for other in (two, three):
        assert other.files == one.files
        np.testing.assert_array_equal(other.audio_rows, one.audio_rows)


def test_a_bad_file_is_a_row_the_others_are_done_and_the_status_is_one(
    run: Run, wav: WriteWav, tmp_path: Path
) -> None:
    (tmp_path / "bad.wav").write_text("no sound")
    soundfile.write(tmp_path / "quiet.wav", np.zeros(8000), 8000)
    files = [wav("a.wav"), tmp_path / "bad.wav", tmp_path / "quiet.wav", tmp_path / "gone.wav"]
    status, out, err = run("classify", *files, *ASK, "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert status == 1
    assert [bool(row["error"]) for row in rows] == [False, True, True, True]
    assert "is silent" in rows[2]["error"]
    assert "3 of 4 recordings could not be used" in err
    status, _, err = run("embed", *files, "-b", "fake", "-o", tmp_path / "clips.npz")
    assert status == 1
    assert "skipped: " in err
    assert EmbeddingFile.load(tmp_path / "clips.npz").files == (files[0],)


def test_a_run_that_writes_to_a_file_writes_nothing_to_stdout(
    run: Run, wav: WriteWav, tmp_path: Path
) -> None:
    status, out, _ = run("classify", wav(), *ASK, "-f", "csv", "-o", tmp_path / "deep" / "out.csv")
    assert (status, out) == (0, "")
    assert (tmp_path / "deep" / "out.csv").read_text().startswith("file,label,score")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["classify", "-b", "fake"], 2, "Missing argument 'FILES...'. See: driftscore classify -"),
        (["classify", "a.wav", "-b", "fake"], 2, "No labels given"),
        (["classify", "a.wav", "-b", "fake", "-l", " , "], 2, "No labels given"),
        (["classify", "a.wav", "-b", "fake", "-l", "a_b, A b"], 2, "are the same words"),
        (["classify", "a.wav", *ASK, "--labels-file", "x"], 2, "`--labels sounds.txt` reads"),
        (["classify", "a.wav", *ASK, "--raw"], 2, "`--set standardised=no` gives"),
        (["classify", "a.wav", *ASK, "--set", "standardised=so"], 2, "takes yes or no, not 'so'"),
        (["classify", "a.wav", "-b", "fake", "-l", "x.txt"], 2, "Cannot read the labels"),
        (["classify", "a.wav", *ASK, "--set", "pack=das53"], 2, "did you mean 'das52'"),
        (["classify", "a.wav", *ASK, "--set", "prompt=sound"], 2, "placeholder {c}"),
        (["classify", "a.wav", *ASK, "--set", "beta=much"], 2, "beta"),
        (["classify", "a.wav", *ASK, "--threshold", "nan"], 2, "--threshold must be a number"),
        (["classify", "a.wav", *ASK, "--rule", "cosin"], 2, "did you mean 'cosine'"),
        (["classify", "a.wav", *ASK, "--format", "cvs"], 2, "did you mean 'csv'"),
        (["classify", "a.wav", *ASK, "--set", "tau"], 2, "name=value"),
        (["classify", "a.wav", *ASK, "--set", "tau=1"], 2, "No setting called 'tau'"),
        (["classify", "a.wav", *ASK, "--rule", "zs_audio"], 2, "needs noise"),
        (["classify", "a.wav", "-l", "a, b", "-b", "fakee"], 2, "did you mean 'fake'"),
        (["classify", "a.wav", *ASK, "--compare", "das", "--multi"], 2, "leave out"),
        (["classify", "a.wav", *ASK, "--timeline"], 2, "`driftscore detect` finds events"),
        (["detect", "a.wav", *ASK, "--timeline"], 2, "finds events in long recordings without it"),
        (["classify", "a.wav", *ASK, "--windows"], 2, "`driftscore detect --windows` shows"),
        (["clasify", "a.wav"], 2, "did you mean 'classify'"),
        (["lab", "ruun"], 2, "did you mean 'run'"),
        (["classify", "a.wav", "--lables", "x"], 2, "'--labels'"),
        (["classify", "a.wav", *ASK, "--runtime", "onx"], 2, "did you mean 'onnx'"),
        (["embed", "a.wav"], 2, "--out"),
        (["classify"], 2, "FILES"),
        (["score", "absent.npz", "--head", "x"], 1, "no file of embeddings at absent.npz"),
        (["head", *ASK, "-o", "."], 2, "is a folder"),
        (["classify", "a.wav", *ASK, "--engine", "locale"], 2, "did you mean 'local'"),
        (["classify", "a.wav", *ASK, "--engine", "local:many"], 2, "a whole number"),
        (
            ["embed", "a.wav", "-b", "fake", "-o", "x.npz", "--engine", "local:0"],
            2,
            "threads must be",
        ),
        (["list", "rule"], 2, "did you mean 'rules'"),
    ],
)
def test_bad_input_is_one_sentence_and_a_status(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    status: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    found, out, err = run(*arguments)
    assert (found, out) == (status, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_folder_without_audio_is_reported_before_the_model_is_loaded(
    run: Run, tmp_path: Path
) -> None:
    status, _, err = run("classify", tmp_path, "-l", "a, b", "-b", "fake")
    assert status == 2
    assert "no sound files" in err


@pytest.mark.filterwarnings("ignore:.*are used")
@pytest.mark.parametrize(
    "command",
    [
        ("classify",),
        ("classify", "--compare", "das"),
        ("detect", "--window", "1"),
        ("detect", "--windows", "--window", "1"),
    ],
)
def test_the_row_of_a_cut_file_says_how_much_of_it_was_used(
    run: Run, wav: WriteWav, tmp_path: Path, command: tuple[str, ...]
) -> None:
    cut, whole = tmp_path / "cut.wav", wav("whole.wav", 3.0)
    cut.write_bytes(Path(whole).read_bytes()[:-64_000])
    name, *options = command
    status, out, _ = run(name, cut, whole, "--partial", *options, *ASK, "-f", "jsonl")
    assert status == 0
    rows = [json.loads(line) for line in out.splitlines()]
    errors = [(Path(row["file"]).name, row["error"]) for row in rows if row["error"]]
    assert [name for name, _ in errors] == ["cut.wav"]
    assert re.search(r"64000 bytes .* missing .*; its first [12]\.\d\d s are used", errors[0][1])
    if not options:  # a track has a label with its times, and no place for the reason
        track = run(name, cut, "--partial", *ASK, "-f", "audacity")[1]
        assert len(track.splitlines()) == 1


def test_several_files_do_not_fit_an_audacity_track(run: Run, wav: WriteWav) -> None:
    status, _, err = run("classify", wav("a.wav"), wav("b.wav"), *ASK, "-f", "audacity")
    assert status == 2
    assert "takes one recording, and there are 2" in err


def test_a_list_has_a_line_for_each_choice(run: Run) -> None:
    for what, some in {
        "rules": {"das", "cosine", "tgap"},
        "backbones": {"mini", "fake", "clap"},
        "packs": {"das52", "das4"},
        "presets": {"das2026", "acevedo2025"},
        "engines": {"local", "ray"},
        "formats": {"table", "csv", "json", "jsonl", "audacity", "raven"},
        "datasets": {"esc50", "folder"},
        "noises": {"synthetic", "demand"},
        "mixings": {"scaper", "additive"},
    }.items():
        status, out, _ = run("list", what, "-f", "csv")
        rows = list(csv.DictReader(io.StringIO(out)))
        assert status == 0
        assert some <= {row[what.removesuffix("s")] for row in rows}
        assert all(row["what"] for row in rows)


def test_python_m_driftscore_shows_the_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "driftscore", "--version"], capture_output=True, text=True
    )
    assert done.stdout.startswith("driftscore ")


def test_labels_may_be_given_again(run: Run, wav: WriteWav) -> None:
    file = wav()
    once = run("classify", file, *ASK, "--multi", "-f", "csv")
    again = [part for label in LABELS for part in ("--labels", label)]
    assert run("classify", file, *again, "-b", "fake", "--multi", "-f", "csv") == once


def test_verbose_reports_what_the_model_itself_says_it_runs_in(run: Run, wav: WriteWav) -> None:
    err = run("classify", wav(), *ASK, "-v")[2]
    assert err.startswith("runtime: ")
    assert "onnxruntime" not in err
    fake = load_backbone("fake")
    assert fake.runtime in err


def test_a_timeline_without_events_still_has_a_header(run: Run, wav: WriteWav) -> None:
    ask = ["detect", wav(), *ASK, "--threshold", 10]
    header = "file,start_s,end_s,time,label,score,threshold,level_db,snr_db,unit,error\n"
    assert run(*ask, "-f", "csv")[:2] == (0, header)
    assert run(*ask, "-f", "jsonl")[:2] == (0, "")
    assert run(*ask, "-f", "json")[:2] == (0, "[]\n")
    assert "start_s" in run(*ask)[1]


def test_no_command_uses_what_is_deprecated(
    run: Run, wav: WriteWav, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        status, _, err = run("classify", wav(), *ASK, "--set", "beta=0.1")
    assert (status, err) == (0, "")


@pytest.mark.parametrize(("error", "status"), [(WriteError, 1), (UsageError, 2), (AudioError, 1)])
def test_the_exit_status_is_that_of_the_error(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: type[DriftscoreError], status: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("the reason")

    monkeypatch.setattr(app, "main", fail)
    assert run() == (status, "", "error: the reason\n")


def test_exporting_a_folder_without_a_checkpoint_is_an_error_in_words(
    run: Run, tmp_path: Path
) -> None:
    status, out, err = run("export", tmp_path)
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {tmp_path} is not a CLAP checkpoint")


def test_every_command_shows_two_examples_and_its_summary_in_the_list() -> None:
    for name, command in all_commands().items():
        assert (command.help or "").split("\n\n")[0] == COMMANDS[name][1]
        for one in (command, *getattr(command, "commands", {}).values()):
            assert isinstance(one, Command)
            assert len(one.examples) == 2, f"{name} {one.name}"


@pytest.mark.parametrize(("name", "most"), [("classify", 25), ("detect", 30), ("listen", 29)])
def test_a_command_has_few_options_and_labels_format_and_output_first(name: str, most: int) -> None:
    flags = [one.opts[0] for one in all_commands()[name].params if one.opts[0].startswith("-")]
    assert len(flags) <= most
    assert flags[0] == "--labels"
    if name != "listen":
        assert {"--format", "--out"} <= set(flags[:6])


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a process has imported when the command is done."""
    code = (
        "import sys\nfrom driftscore.cli.app import main\n"
        f"sys.argv = {['driftscore', *arguments]!r}\n"
        "try:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_a_plain_classify_imports_no_events_no_store_and_no_pictures(wav: WriteWav) -> None:
    modules = loaded_by("classify", wav(), *ASK)
    assert "driftscore.cli.classify" in modules
    for room in ("detector", "events", "decisions", "pictures", "live", "service", "lab"):
        assert not [one for one in modules if f"{one}.".startswith(f"driftscore.{room}.")], room
    others = {f"driftscore.cli.{COMMANDS[name][0].split(':')[0]}" for name in COMMANDS}
    assert modules & others == {"driftscore.cli.classify"}
    assert not modules & {"pydantic", "rich", "typer"}
