"""Plug-ins of a package outside the repository: one of each kind, through entry points.

The package is installed as pip would leave it: modules and a `.dist-info` folder on the path. Since
entry points are looked up once per process, everything runs in processes of its own.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from .conftest import PROJECT
from .fresh_process import Done, run_steps

RATE = 16_000
ENTRY_POINTS = {
    "rules": "acme_rule = acme.rule",
    "backbones": "acme_model = acme.backbone",
    "engines": "acme_engine = acme.engine",
    "formats": "acme_format = acme.format:write",
    "datasets": "acme_clips = acme.dataset",
    "noises": "acme_hum = acme.noise",
    "mixings": "acme_mix = acme.mixing",
}
SUMMARIES = {
    "rules": "Rank labels by the doubled cosine",
    "backbones": "A model of random projections",
    "engines": "Embed in the calling thread",
    "formats": "Write one line per row",
    "datasets": "Clips of two labels",
    "noises": "A hum",
    "mixings": "Add the noise as it is",
}
FILES = {
    "rule": '''
"""Rank labels by the doubled cosine."""

import numpy as np

from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs

SHORT = "Acme"
NEEDS = Needs.NOTHING


def compile(bank, *, factor: float = 2.0):
    """Return the head."""
    return Head(bank.labels, factor * bank.prototypes, np.zeros(len(bank.labels), np.float32))


def plain(bank, *, factor: float = 3.0):
    """Rank labels by the cosine, as a function."""
    return Head(bank.labels, factor * bank.prototypes, np.zeros(len(bank.labels), np.float32))
''',
    "backbone": '''
"""A model of random projections."""

import hashlib

import numpy as np

from driftscore.backbones.protocol import Backbone
from driftscore.backbones.vectors import unit


class Acme(Backbone):
    """The model."""

    name, fingerprint, dim, rate, seconds = "acme_model", "acme/1", 8, 16_000, 1.0

    def encode(self, features):
        power = np.log(1e-9 + np.abs(np.fft.rfft(features, 4096)) ** 2)
        bands = [band.mean() for band in np.array_split(power, self.dim)]
        return unit(np.array([bands], np.float32) - np.float32(np.mean(bands)))[0]

    def embed_text(self, texts):
        seeds = [hashlib.sha256(text.encode()).digest()[0] for text in texts]
        rows = [np.random.default_rng(seed).standard_normal(self.dim) for seed in seeds]
        return unit(np.array(rows, np.float32))


def load():
    """Return the model."""
    return Acme()
''',
    "engine": '''
"""Embed in the calling thread."""

import numpy as np

from driftscore.audio.recordings import describe, sounding_windows
from driftscore.engines.protocol import Embedded, EmbeddedBlock


class Engine:
    """An engine that says when it is used."""

    def __init__(self, settings):
        self.model = settings.backbone

    def embed(self, recordings):
        for recording in recordings:
            model = self.model
            parts = list(sounding_windows(recording, rate=model.rate, seconds=model.seconds))
            rows = [model.encode(model.features(part.samples)) for part in parts]
            spans = np.array([(part.start_s, part.end_s) for part in parts])
            found = Embedded("acme:" + describe(recording), spans, np.stack(rows))
            yield EmbeddedBlock([found])

    def close(self):
        pass


def open_engine(settings):
    """Return the engine."""
    return Engine(settings)
''',
    "format": '''
"""Output formats."""


def write(rows, out, *, title="", columns=()):
    """Write one line per row."""
    for row in rows:
        out.write("acme " + str(dict(row)) + "\\n")
''',
    "dataset": '''
"""Clips of two labels."""

from pathlib import Path

from driftscore.lab.corpora.about import About, Clip

ABOUT = About(title="Acme clips", page="", licence="none", citation="Acme (2026)")


def clips(home):
    """Return the clips."""
    files = sorted(Path(home).glob("*.wav"))
    return [Clip(path, (path.stem.split("-")[0],), None, path.stem) for path in files]


def labels(home):
    """Return the labels."""
    return tuple(sorted({clip.labels[0] for clip in clips(home)}))


def missing(home):
    """Return what the folder lacks."""
    return [] if clips(home) else ["LABEL-NUMBER.wav"]
''',
    "noise": '''
"""A hum."""

import numpy as np

from driftscore.audio.recordings import Audio
from driftscore.lab.corpora.about import About
from driftscore.lab.corpora.noises.protocol import NoiseRecording
from driftscore.lab.mixing.sounds import Excerpt, Sound

ABOUT = About(title="Acme hum", page="", licence="none", citation="Acme (2026)")


def recordings(home):
    """Return the only recording."""
    return [NoiseRecording("acme_hum:hum", "hum", "a humming machine")]


def missing(home):
    """Return nothing: the hum is computed."""
    return []


def sample(seconds, rate, rng, *, home, avoid=()):
    """Draw an excerpt."""
    frames = round(seconds * rate)
    sound = Sound("acme_hum:hum", make("hum", rate), "a humming machine")
    return Excerpt(sound, int(rng.integers(rate)), frames)


def make(description, rate):
    """Compute the hum."""
    time = np.arange(20 * rate) / rate
    return Audio((0.1 * np.sin(2 * np.pi * 100 * time)).astype(np.float32), rate)
''',
    "mixing": '''
"""Add the noise as it is."""

from driftscore.lab.mixing.record import MixRecord, mix_part


def background_s(event_s):
    """Return the length of the event."""
    return event_s


def draw(event, background, *, snr_db, meter, seed="", rng):
    """Fix the mix; the SNR is only a name."""
    parts = (mix_part("background", background, 0, -snr_db), mix_part("event", event.full, 0, 0.0))
    rate, frames = event.audio.rate, len(event.audio.samples)
    return MixRecord("acme_mix", snr_db, rate, frames, parts, "complete clip", seed=seed)
''',
}
GRID = """
title = "Acme"
datasets = ["acme_clips"]
noises = ["acme_hum"]
mixings = ["acme_mix"]
snrs = ["clean", 0]
backbones = ["acme_model"]
rules = ["cosine", "acme_rule", "acme.rule:plain"]

[homes]
acme_clips = "clips"
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the installed package, some clips and a grid."""
    home = tmp_path_factory.mktemp("plugins")
    site = home / "site-packages"
    (site / "acme").mkdir(parents=True)
    (site / "acme" / "__init__.py").write_text('"""Plug-ins."""\n', encoding="utf-8")
    for name, content in FILES.items():
        (site / "acme" / f"{name}.py").write_text(content.lstrip(), encoding="utf-8")
    info = site / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n", "utf-8")
    points = "\n".join(f"[driftscore.{kind}]\n{line}" for kind, line in ENTRY_POINTS.items())
    (info / "entry_points.txt").write_text(points + "\n", encoding="utf-8")
    (home / "clips").mkdir()
    rng = np.random.default_rng(0)
    for number, label in enumerate(("siren", "rain")):
        for clip in range(3):
            tone = np.sin(2 * np.pi * 300 * 4**number * np.arange(RATE) / RATE)
            noisy = 0.2 * tone + 0.01 * rng.standard_normal(RATE)
            soundfile.write(home / "clips" / f"{label}-{clip}.wav", noisy, RATE)
    (home / "grid.toml").write_text(GRID, encoding="utf-8")
    return home


CLASSIFY = "driftscore classify clips/siren-0.wav -l 'siren, rain' "
CLASSIFIER = """
import json

from driftscore import Classifier, Embedder
from acme.rule import plain

labels, clips = ["siren", "rain"], ["clips/siren-0.wav", "clips/rain-0.wav"]


def made(rule, **settings):
    embedder = Embedder("acme_model", engine="acme_engine")
    fitted = Classifier(labels, backbone=embedder, rule=rule, settings=settings).fit()
    made_by = fitted.head_.made_by
    scores = fitted.scores(clips).tolist()
    return {"rule": made_by["rule"], "model": made_by["backbone"], "scores": scores,
            "settings": made_by["settings"]}

print(json.dumps({
    "cosine": made("cosine"),
    "entry point": made("acme_rule"),
    "function": made(plain, factor=5),
    "reference": made("acme.rule:plain"),
}))
"""


COMMANDS = {
    **{kind: f"driftscore list {kind} --format json" for kind in ENTRY_POINTS},
    "classify": CLASSIFY + "-b acme_model --rule acme_rule --set factor=4 --engine acme_engine "
    "--format acme_format",
    "reference": CLASSIFY + "-b acme_model --rule acme.rule:plain --format csv",
    "cannot load": CLASSIFY + "-b acme_model --rule acme.rule:absent",
    "unknown": CLASSIFY + "-b acme_model --rule acme_rul",
    "run": "driftscore lab run grid.toml --store results",
    "export": "driftscore lab export rows.jsonl --store results",
    "report": "driftscore lab report --store results --out report.md",
}


@pytest.fixture(scope="module")
def done(home: Path) -> dict[str, Done]:
    """Run everything in one new process."""
    steps = [*(("command", line) for line in COMMANDS.values()), ("python", CLASSIFIER)]
    paths = (PROJECT / "src", home / "site-packages")
    found = run_steps(steps, cwd=home, paths=paths, cache=home / "cache")
    return dict(zip([*COMMANDS, "classifier"], found, strict=True))


@pytest.mark.parametrize("kind", ENTRY_POINTS)
def test_a_plug_in_is_listed_with_its_summary(kind: str, done: dict[str, Done]) -> None:
    assert done[kind].status == 0, done[kind]
    rows = [list(row.values()) for row in json.loads(done[kind].out)]
    name = ENTRY_POINTS[kind].partition(" = ")[0]
    assert any(row[0] == name and SUMMARIES[kind] in row for row in rows)


def test_the_classifier_takes_a_rule_as_entry_point_function_or_reference(
    done: dict[str, Done],
) -> None:
    assert done["classifier"].status == 0, done["classifier"]
    found = json.loads(done["classifier"].out)
    assert {answer["model"] for answer in found.values()} == {"acme_model"}
    expected = np.array(found["cosine"]["scores"])
    for way, factor in (("entry point", 2.0), ("function", 5.0), ("reference", 3.0)):
        assert found[way]["settings"] == {"factor": factor}
        np.testing.assert_allclose(np.array(found[way]["scores"]), factor * expected, rtol=1e-6)


def test_the_command_uses_rule_backbone_engine_and_format_of_another_package(
    done: dict[str, Done],
) -> None:
    assert done["classify"].status == 0, done["classify"]
    assert done["classify"].out.startswith("acme {")
    assert "acme:clips/siren-0.wav" in done["classify"].out  # the name that the engine gives
    assert done["reference"].status == 0, done["reference"]
    assert "clips/siren-0.wav" in done["reference"].out


def test_the_lab_measures_plug_ins_of_another_package(home: Path, done: dict[str, Done]) -> None:
    for step in ("run", "export"):
        assert done[step].status == 0, done[step]
    rows = [json.loads(line) for line in (home / "rows.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == 6  # two SNRs x three rules
    assert not [row["error"] for row in rows if row["error"]]
    noisy = [row for row in rows if row["snr_db"] == 0]
    for key, value in (
        ("dataset", "acme_clips"), ("noise", "acme_hum"), ("mixing", "acme_mix"),
        ("backbone", "acme_model"),
    ):  # fmt: skip
        assert {row[key] for row in noisy} == {value}
    assert {row["rule"] for row in rows} == {"cosine", "acme_rule", "acme.rule:plain"}


def test_the_report_shows_plug_ins_of_another_package(home: Path, done: dict[str, Done]) -> None:
    assert done["report"].status == 0, done["report"]
    report = (home / "report.md").read_text(encoding="utf-8")
    headings = [line for line in report.splitlines() if line.startswith("|") and "Acme" in line]
    assert headings, "the heading of the rule is in no table"
    for name in ("acme_clips", "acme_hum", "acme_mix", "acme_model"):
        assert name in report


def test_a_plug_in_that_cannot_be_loaded_is_one_sentence(done: dict[str, Done]) -> None:
    assert done["cannot load"].status == 2
    [line] = done["cannot load"].err.splitlines()
    assert "acme.rule:absent" in line


def test_an_unknown_name_offers_the_nearest_plug_in(done: dict[str, Done]) -> None:
    assert done["unknown"].status == 2
    assert "did you mean 'acme_rule'?" in done["unknown"].err
