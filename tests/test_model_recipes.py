"""The recipes of docs/models.md work as they are written, with stand-ins for the two models."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from .conftest import PROJECT, Lazily
from .fresh_process import Done, run_steps
from .test_recipes import file_of, steps_of

Lazily("torch")  # in the processes of the recipes

TEXT = (PROJECT / "docs" / "models.md").read_text(encoding="utf-8")
RECIPES = {
    title: re.findall(r"```(\w+)\n(.*?)```", content, re.DOTALL)
    for title, content in re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", TEXT, re.DOTALL | re.MULTILINE)
}
STAND_IN = '''
"""A stand-in with the methods of the real model: band energies and letter counts."""
import torch

class Model(torch.nn.Module):
    def __init__(self, *arguments, **options):
        super().__init__()
        torch.manual_seed(0)
        self.audio, self.text = torch.nn.Linear(32, {dim}), torch.nn.Linear(26, {dim})

    def {audio}(self, batch):
        power = torch.fft.rfft(batch).abs() ** 2
        bands = [part.mean(-1) for part in power.tensor_split(32, dim=-1)]
        return self.audio(torch.stack(bands, -1).add(1e-6).log())

    def {text}(self, texts):
        counts = [[float(text.count(chr(97 + i))) for i in range(26)] for text in texts]
        return self.text(torch.tensor(counts))

def glap_inference():
    return Model()

PortableM2D = Model
'''


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Done]]]:
    """Follow the recipes; return the folder and what each step gave."""
    home = tmp_path_factory.mktemp("recipes")
    stand_ins = {"glap_model": (1024, "encode_audio", "encode_text"),
                 "portable_m2d": (768, "encode_clap_audio", "encode_clap_text")}  # fmt: skip
    for module, (dim, audio, text) in stand_ins.items():
        source = STAND_IN.replace("{dim}", str(dim))
        source = source.replace("{audio}", audio).replace("{text}", text)
        (home / f"{module}.py").write_text(source)
    rng = np.random.default_rng(0)
    (home / "clips").mkdir()
    for name, seconds in (("a", 2), ("b", 14)):
        noise = 0.1 * rng.standard_normal(seconds * 8000)
        soundfile.write(home / "clips" / f"{name}.wav", noise, 8000)
    steps = []
    for title, blocks in RECIPES.items():
        for _, body in blocks:
            if (file := file_of(body)) is not None:
                (home / file).write_text(body.partition("\n")[2], encoding="utf-8")
        steps += [(title, kind, text) for kind, text, _ in steps_of(blocks)]
    done = run_steps(
        [(kind, text) for _, kind, text in steps],
        cwd=home,
        paths=(PROJECT / "src", home),
        cache=home / "cache",
    )
    found: dict[str, list[Done]] = {title: [] for title in RECIPES}
    for (title, _, _), result in zip(steps, done, strict=True):
        found[title].append(result)
    return home, found


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_works_as_it_is_written(
    title: str, followed: tuple[Path, dict[str, list[Done]]]
) -> None:
    assert followed[1][title]
    for done in followed[1][title]:
        assert done.status == 0, f"{done.status}\n{done.out}{done.err}"


def test_the_models_that_have_no_adapter_have_a_recipe() -> None:
    assert set(RECIPES) == {"GLAP", "M2D-CLAP"}


def test_both_recipes_label_every_clip(followed: tuple[Path, dict[str, list[Done]]]) -> None:
    rows = list(csv.reader(io.StringIO(followed[1]["M2D-CLAP"][-1].out)))[1:]
    assert [Path(row[0]).name for row in rows] == ["a.wav", "b.wav"]
    assert all({"siren", "rain"} & set(row) for row in rows)
    shown = followed[1]["GLAP"][-1].out
    assert "a.wav" in shown
    assert "b.wav" in shown
