"""Run the notebooks in docs/ and store their outputs: `python scripts/run_notebooks.py`.

A notebook is JSON, and ours need nothing of Jupyter but cells that run in order: so no kernel is
needed to run them. What a cell prints, the value of its last line, and its figures (png) are kept.
"""

import argparse
import ast
import base64
import io
import json
import sys
from collections.abc import Iterable
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "notebooks"
DPI = 80
Notebook = dict[str, Any]
Output = dict[str, Any]


def run(notebook: Notebook) -> Notebook:
    """Return a notebook with the outputs of its cells, run in order in the current folder."""
    import matplotlib

    matplotlib.use("Agg")
    space: dict[str, Any] = {"__name__": "__main__"}
    cells = []
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            outputs = list(_outputs("".join(cell["source"]), space, number))
            cell = {**cell, "execution_count": number, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(source: str, space: dict[str, Any], number: int) -> Iterable[Output]:
    """Run the source of a cell; yield what it printed, its value and its figures."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        value = _execute(source, space)
    if text := printed.getvalue():
        yield {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        yield {"output_type": "execute_result", "execution_count": number, "data": data,
               "metadata": {}}  # fmt: skip
    for image in _figures():
        yield {"output_type": "display_data", "data": {"image/png": image}, "metadata": {}}


def _execute(source: str, space: dict[str, Any]) -> object:
    """Execute a cell; return the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), space)  # noqa: S102 (our own notebooks)
    if not isinstance(last, ast.Expr):
        return None
    expression = compile(ast.Expression(last.value), "cell", "eval")
    value: object = eval(expression, space)  # noqa: S307 (our own notebooks)
    return None if source.rstrip().endswith(";") else value


def _figures() -> Iterable[str]:
    """Yield the open figures as base64, and close them."""
    from matplotlib import pyplot

    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, format="png", dpi=DPI, metadata={"Software": None})
        yield base64.b64encode(file.getvalue()).decode()
    pyplot.close("all")


def main() -> None:
    """Run every notebook in its own folder and write it back, or into another folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="the folder to write to")
    out = parser.parse_args().out.absolute()
    for path in sorted(FOLDER.glob("*.ipynb")):
        with chdir(path.parent):
            done = run(json.loads(path.read_text(encoding="utf-8")))
        written = json.dumps(done, ensure_ascii=False, indent=1) + "\n"
        (out / path.name).write_text(written, encoding="utf-8")
        print(f"{path.name}: {len(written) / 1000:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main()
