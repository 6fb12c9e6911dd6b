"""The order of the code: what may import what, what an import costs, docstrings and names."""

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import driftscore

from .conftest import PROJECT

SOURCE = Path(driftscore.__file__).parent
HEAVY = {"torch", "transformers", "onnxruntime", "onnx", "scipy", "matplotlib",
         "sklearn", "ray", "fsspec", "mteb", "datasets", "huggingface_hub",
         "pyarrow", "pandas", "duckdb"}  # fmt: skip
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}

BANNED = re.compile(r"\b(hear|heard|ears|hearing|cellar|hands|lanes)\b", re.IGNORECASE)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def where(path: Path, node: ast.AST | None = None, name: str = "") -> str:
    line = f":{node.lineno}" if isinstance(node, ast.stmt | ast.expr | ast.arg) else ""
    return f"{path.relative_to(SOURCE.parent)}{line} {name}".rstrip()


def report(found: Collection[str] | Mapping[str, object]) -> str:
    """Return everything that was found, one per line: pytest would shorten it."""
    lines = [f"{k}: {v}" for k, v in found.items()] if isinstance(found, Mapping) else found
    return "\n".join(lines)


def functions() -> Iterator[tuple[Path, Function]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield path, node


def public_definitions(path: Path) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Yield the public functions, classes and methods of a file that is not private itself."""
    if path.name.startswith("_") and path.name != "__init__.py":
        return
    for node in TREES[path].body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, Function) and (
                        not inner.name.startswith("_") or inner.name == "__init__"
                    ):
                        yield f"{node.name}.{inner.name}", inner


def test_imports_keep_the_contracts_of_pyproject() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    if not program.is_file():
        pytest.skip("import-linter is not installed: make setup")
    done = subprocess.run(
        [str(program), "--no-cache"], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[done.stdout.find("Contracts") :] + done.stderr


BY_NAME = {"driftscore/system/plugins.py", "driftscore/__init__.py", "driftscore/cli/app.py",
           "driftscore/cli/listing.py"}  # fmt: skip
"""Plug-ins; public names, whose imports the contracts also see; commands, the topmost layer."""


def test_our_modules_are_imported_by_name_only_in_few_places() -> None:
    """Another `import_module` could hide a cycle from the contracts; libraries are no matter."""
    found = [
        where(path, node)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("import_module", "__import__"))
        and not re.match(r"'(?!driftscore)", ast.unparse(node.args[0]))
        and str(path.relative_to(SOURCE.parent)) not in BY_NAME
    ]
    assert not found, report(found)


def test_heavy_libraries_are_imported_only_where_they_are_used() -> None:
    imports = [
        (path, module.split(".")[0])
        for path, tree in TREES.items()
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    ]
    heavy = [f"{where(path)} {module}" for path, module in imports if module in HEAVY]
    assert not heavy, report(heavy)


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, driftscore; "
        f"print([m for m in {sorted(HEAVY)!r} + ['rich', 'typer', 'numpy'] if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in ("Audio", "load_backbone", "build_bank", "ClassBank", "compile_head", "Head",
                 "Classifier", "pipeline", "Embedder", "Event", "Result"):  # fmt: skip
        assert name in driftscore.__all__
    assert all(hasattr(driftscore, name) for name in driftscore.__all__)


def test_the_version_is_that_of_the_package() -> None:
    from driftscore.version import __version__

    assert driftscore.__version__ == __version__
    assert 'path = "src/driftscore/version.py"' in (PROJECT / "pyproject.toml").read_text("utf-8")


def test_no_entry_point_of_our_own_is_needed() -> None:
    """Built-in plug-ins are files; entry points are for other packages."""
    groups = [group for group in entry_points().groups if group.startswith("driftscore.")]
    ours = [
        point.value
        for group in groups
        for point in entry_points(group=group)
        if point.dist is not None and point.dist.name == "driftscore"
    ]
    assert not ours, report(ours)


def annotations(node: Function) -> Iterator[ast.expr]:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs,
             arguments.vararg, arguments.kwarg]  # fmt: skip
    yield from (one.annotation for one in every if one is not None and one.annotation is not None)
    if node.returns is not None:
        yield node.returns


def test_no_public_signature_has_any() -> None:
    found = [
        where(path, node, name)
        for path in FILES
        for name, node in public_definitions(path)
        if isinstance(node, Function)
        and "cli" not in path.parts  # click passes the values of options on by name
        and any(re.search(r"\bAny\b", ast.unparse(note)) for note in annotations(node))
    ]
    assert not found, report(found)


def test_every_public_definition_has_a_docstring() -> None:
    bare = [where(path) for path in FILES if not ast.get_docstring(TREES[path])]
    bare += [
        where(path, node, name)
        for path in FILES
        for name, node in public_definitions(path)
        if not name.endswith("__init__") and not ast.get_docstring(node)
    ]
    assert not bare, report(bare)


def test_no_text_uses_words_of_hearing_for_embedding() -> None:
    files = [
        path
        for folder in ("src", "bench", "demo")
        for path in sorted((PROJECT / folder).rglob("*"))
        if path.suffix in (".py", ".toml", ".css", ".html", ".md") and "packs" not in path.parts
    ]
    found = [
        f"{path.relative_to(PROJECT)}:{number} {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if BANNED.search(line)
    ]
    assert not found, report(found)


def test_two_public_types_never_share_a_name() -> None:
    """A `Row` of the lab and a `Row` of an output format would be taken for the same thing."""
    homes: dict[str, dict[str, str]] = {}
    for path in FILES:
        for node in TREES[path].body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, {})[where(path, node)] = where(path)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and _is_type_alias(node):
                # The same alias twice is the same type.
                meaning = "" if node.value is None else ast.unparse(node.value)
                homes.setdefault(_target(node), {})[meaning] = where(path, node)
    shared = {
        name: sorted(set(places.values())) for name, places in homes.items() if len(places) > 1
    }
    assert not shared, report(shared)


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else ""


def _is_type_alias(node: ast.Assign | ast.AnnAssign) -> bool:
    """Return whether a public type is assigned, as in `Matrix = NDArray[np.float32]`."""
    is_variable = node.value is not None and "TypeVar" in ast.unparse(node.value)
    return re.fullmatch(r"[A-Z][a-z]\w*", _target(node)) is not None and not is_variable
