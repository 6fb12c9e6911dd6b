"""The examples of the documents: which are run, and which are not, with the reason.

Commands and Python blocks of README.md and docs/ are run in order, in a folder per document with
a few small recordings. A block whose first line names a file (`# city.toml`) is that file. What
cannot be run in a test is listed in NOT_RUN; commands of driftscore are parsed even then.
"""

import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from .conftest import PROJECT
from .small_clap import save_clap
from .small_onnx_clap import save_export

DOCUMENTS = [
    *(PROJECT / name for name in ("README.md", "ARCHITECTURE.md", "SECURITY.md")),
    *sorted((PROJECT / "docs").rglob("*.md")),
]
"""All but CONTRIBUTING.md, which tests/test_recipes.py follows."""
ELSEWHERE = {
    "docs/service.md": "run by tests/service/test_docs.py, with a service",
    "docs/models.md ## Recipes": "run by tests/test_model_recipes.py, with stand-ins",
}
"""Documents, or sections to the end of a document, whose examples another test runs."""
NOT_RUN = {
    r"--engine ray|^ray start": "needs a Ray cluster; tests/test_ray.py starts one",
    r"\bmic\b": "needs a microphone; tests/live runs other sources",
    r"^driftscore doctor .*--mqtt": "needs a broker; tests/live/test_mqtt.py starts one",
    r"^driftscore serve": "ends with Ctrl-C only; tests/service starts it",
    r"^driftscore data (get|check)": "downloads a corpus; tests/lab/test_download.py",
    r"^driftscore lab run (?!.*\.toml)(?!.*--plan)|^driftscore lab run training/": (
        "takes hours, and needs recordings and models"
    ),
    r"^driftscore lab (report|export) (?!.*--store results)": "needs rows; tests/lab runs it",
    r"^driftscore lab soundscape": "takes minutes; tests/lab makes soundscapes",
    r"^driftscore review .*(?<!--answers answers.txt)$": "asks on a terminal; tests/test_review.py",
    r"^driftscore learn ": "needs answers; tests/test_learning.py",
    r"^(pip (wheel|install|uninstall)|sudo apt|python3 -m venv|openssl|export )": (
        "sets up a machine"
    ),
    r"^make ": "the targets of the Makefile; that they exist is tested",
    r"python -m (bench|training)": "takes minutes to hours; that the module exists is tested",
    r"^import numpy as np\nimport ray": "needs a Ray cluster and a bucket; it is parsed",
    r"lake\.parquet|vectors\.npy|--runtime torch:cuda": "needs files of other tools, or a GPU",
    r"import mteb": "needs a dataset of the hub; tests/test_mteb.py runs a small one",
}
"""Commands (one line) and Python blocks that are not run: a pattern, and why not."""
STAND_INS = {
    r"^hf download (\S+) --local-dir (\S+)$": (
        r"""python -c 'from huggingface_hub import snapshot_download; import shutil; """
        r"""shutil.copytree(snapshot_download("\1"), "\2")'"""
    ),
    r"\bs3://": "memory://",
}
"""What is run in place of a part of an example: a pattern, and its replacement."""
MODELS = ("clap-htsat-unfused", "clap-htsat-fused", "larger_clap_general",
          "larger_clap_music_and_speech")  # fmt: skip
"""Models of LAION; a small random one is in the hub's cache in place of each."""
COUNTS = {"archive": 2, "recordings": 24, "noises": 2, "yard": 24, "yard_noise": 2}
"""Folders that the documents name, and how many short recordings are in each."""


@dataclass(frozen=True)
class Example:
    """A command or a Python block of a document, and the lines that its output must have."""

    document: str
    kind: str
    text: str
    output: tuple[str, ...] = ()

    @property
    def reason(self) -> str | None:
        """Why it is not run; None if it is."""
        return next((why for what, why in NOT_RUN.items() if re.search(what, self.text)), None)

    def __str__(self) -> str:
        return f"{self.document}: {self.text.splitlines()[0]}"


def examples(path: Path) -> Iterator[Example]:
    """Yield the examples of a document in order; files that it shows are of the kind `file`."""
    name = path.relative_to(PROJECT).as_posix()
    text = path.read_text(encoding="utf-8")
    for skipped in ELSEWHERE:
        document, _, section = skipped.partition(" ")
        if document == name:
            text = text.partition(f"\n{section}\n")[0] if section else ""
    for kind, body in re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if re.match(r"# [\w./-]+\.\w+\n", body):
            yield Example(name, "file", body)
        elif kind == "python":
            yield Example(name, kind, body)
        elif kind in ("sh", "console", "bash"):
            yield from commands(name, body)


def commands(document: str, body: str) -> Iterator[Example]:
    """Yield the commands of a block; what follows a line with `$` and has none is its output."""
    prompted = body.startswith("$ ")
    command, output = "", list[str]()
    for line in [*body.replace("\\\n", " ").splitlines(), None]:
        begins = line is None or not prompted or line.startswith("$ ")
        if begins and command:
            yield Example(document, "command", command, tuple(output))
        if line is None:
            return
        if begins:
            words = shlex.split(line.removeprefix("$ "), comments=True)
            command, output = without_comment(line.removeprefix("$ ")) if words else "", []
        else:
            output.append(line)


def without_comment(line: str) -> str:
    """Return a line of the shell without its comment and its settings of the environment."""
    while line.count('"') % 2 == 0 and (found := re.search(r"\s#(?=[^\"]*$)", line)):
        line = line[: found.start()]
    return re.sub(r"^([A-Z_]+=\S+ )+", "", line.strip())


def write_models(hub: Path) -> None:
    """Write small random models into a cache of the hub, under the names that documents use."""
    for name in MODELS:
        save_clap(_snapshot(hub, f"laion--{name}"), fused=name.endswith("-fused"))
    save_export(_snapshot(hub, "Xenova--clap-htsat-unfused"), variants=("", "_quantized"))


def _snapshot(hub: Path, name: str) -> Path:
    home = hub / f"models--{name}"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("0" * 40)
    return home / "snapshots" / ("0" * 40)


def write_recordings(home: Path) -> None:
    """Write what the documents name: recordings, folders of them, and a list of labels."""
    sounds = shutil.copytree(PROJECT / "demo" / "sounds", home / "demo" / "sounds")
    for label in ("siren", "church_bell", "speech"):
        (home / "clips" / label).mkdir(parents=True)
        shutil.copy(sounds / f"{label}.flac", home / "clips" / label)
    siren, rate = soundfile.read(sounds / "siren.flac", dtype="float32")
    rng = np.random.default_rng(0)
    night = 0.003 * rng.standard_normal(20 * rate)
    night[8 * rate : 8 * rate + len(siren)] += siren[: 12 * rate]
    (home / "nights").mkdir()
    for number, frequency in enumerate((640, 650, 660), start=1):
        time = np.arange(2 * rate) / rate
        bell = np.exp(-2 * time) * np.sin(2 * np.pi * frequency * time)
        soundfile.write(home / f"bell{number}.wav", 0.5 * bell, rate)
    for name in ("a.wav", "b.flac", "b.wav"):
        soundfile.write(home / name, siren, rate)
    for name in ("night.flac", "night.wav", "nights/20261116_0400.wav", "street.flac"):
        soundfile.write(home / name, night, rate)
    for name in ("quiet.flac", "quiet_night.flac"):
        soundfile.write(home / name, 0.003 * rng.standard_normal(305 * 8000), 8000)
    for folder, count in COUNTS.items():
        (home / folder).mkdir()
        for number in range(count):
            tone = np.sin(np.arange(8000) * (0.1 + 0.02 * number))
            sound = 0.1 * tone + 0.02 * rng.standard_normal(8000)
            soundfile.write(home / folder / f"{number}.flac", sound, 8000)
    (home / "labels.txt").write_text("siren\ndog bark\n", encoding="utf-8")
