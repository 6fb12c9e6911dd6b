"""The order of the house: what may import what, and what an import costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import driftscore

SOURCE = Path(driftscore.__file__).parent
LAYERS = [  # a module may import from its own layer and from those above it
    {"errors"},
    {"audio", "vectors", "files", "plugins", "progress"},
    {"prompts", "presets", "tensorfile", "embeddings", "backbones"},
    {"textcache", "audiocache"},
    {"engines"},
    {"bank"},
    {"head"},
    {"rules"},
    {"timeline", "result", "classifier"},
    {"pipeline", "formats"},
    {"lab", "service"},
    {"cli", "cli_options", "cli_rows"},
]
HEAVY = {"torch", "transformers", "onnxruntime", "onnx", "openvino", "scipy", "matplotlib",
         "sklearn", "ray", "fsspec"}  # fmt: skip
FILES = sorted(SOURCE.rglob("*.py"))


def layer_of(name: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if name in layer)


def imports(path: Path, *, top_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names if node.module == "driftscore" else {node.module}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    own = path.relative_to(SOURCE).with_suffix("").parts[0]
    if own == "__init__":
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "driftscore" and parts[1] != "__version__":
            assert layer_of(parts[1]) <= layer_of(own), f"{own} imports {parts[1]}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_heavy_libraries_are_imported_only_where_they_are_used(path):
    tops = {name.split(".")[0] for name in imports(path, top_only=True)}
    assert not tops & HEAVY


def test_import_loads_nothing_heavy():
    code = (
        "import sys, driftscore; "
        f"print([m for m in {sorted(HEAVY)!r} + ['rich', 'typer'] if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_public_names_are_there():
    for name in ("Audio", "load_backbone", "build_bank", "ClassBank", "compile_head", "Head",
                 "Classifier", "pipeline"):  # fmt: skip
        assert hasattr(driftscore, name)


def test_no_file_is_past_four_hundred_lines():
    long = [str(p) for p in FILES if len(p.read_text(encoding="utf-8").splitlines()) > 400]
    assert not long
