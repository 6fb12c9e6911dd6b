"""Build the documentation site: `make docs`, or python scripts/build_docs.py [FOLDER].

Zensical builds what mkdocs.yml describes, in a temporary folder, from pages that this script puts
together:

- the pages in docs/, and ARCHITECTURE.md, CONTRIBUTING.md, CHANGELOG.md and SECURITY.md
- the notebooks in docs/, with the outputs that are stored in them
- one page per command, from the options of the command itself (docs_commands.py)

Links between these files work in the repository and in the site; a link to another file of the
repository becomes plain text. Nothing is downloaded. A warning of Zensical is an error.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from docs_commands import command_pages
from reference import COMMANDS_PART, NAME_PART

PROJECT = Path(__file__).resolve().parent.parent
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "docs/commands.md": "commands/index.md",
}
"""Pages of the site that are elsewhere in the repository; all others are files in docs/."""
INSTEAD = {"README.md": "index.md"}
"""Files of the repository that are not in the site, and the pages that take their place."""
SHIM = ("https://unpkg.com/iframe-worker/shim", "assets/worker.js")
"""The script that Zensical loads for the search in files, and ours in its place."""

_FENCE = re.compile(r"^(```+)(\w*)\n(.*?)^\1\n", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\(([^)#: ]+)(#[^)]*)?\)")
_PICTURE = re.compile(r"(?<=!)\[([^\[\]]*)\]\(([^)#: ]+)(#[^)]*)?\)")


def main() -> None:
    """Build the site in the folder that is given, or in site/."""
    site = Path(sys.argv[1] if len(sys.argv) > 1 else PROJECT / "site").resolve()
    with tempfile.TemporaryDirectory() as work:
        commands = write_pages(Path(work) / "docs")
        settings = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")
        (Path(work) / "mkdocs.yml").write_text(with_commands(settings, commands), "utf-8")
        run_zensical(Path(work))
        replace_shim(Path(work) / "site")
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(Path(work) / "site", site)
    print(f"The site is in {site}: open {site / 'index.html'} in a browser")


def with_commands(settings: str, commands: list[str]) -> str:
    """Add the pages of the commands to the menu, below their overview."""
    entry = re.compile(r"^( *)- Commands: commands/index\.md\n", re.MULTILINE)
    pages = ["commands/index.md", *(f"{name}: commands/{name}.md" for name in commands)]
    menu = "".join(rf"\1    - {page}" + "\n" for page in pages)
    return entry.sub(rf"\1- Commands:\n{menu}", settings)


def write_pages(home: Path) -> list[str]:
    """Write all pages of the site to a folder; return the names of the commands."""
    names = [path.relative_to(PROJECT).as_posix() for path in (PROJECT / "docs").rglob("*.*")]
    for name in {*names, *PAGES} - set(INSTEAD):
        page = home / address(name)
        page.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            text = page_of(PROJECT / name, page.parent.relative_to(home))
            page.write_text(text, encoding="utf-8")
        else:
            shutil.copy(PROJECT / name, page)
    overview, pages = command_pages()
    index = home / "commands" / "index.md"
    index.write_text(COMMANDS_PART.sub(overview, index.read_text("utf-8")), "utf-8")
    for command, text in pages.items():
        (home / "commands" / f"{command}.md").write_text(text, encoding="utf-8")
    return list(pages)


def address(name: str) -> str:
    """Return the path in the site of a file of the repository."""
    page = (PAGES | INSTEAD).get(name, name.removeprefix("docs/"))
    return page.removesuffix(".ipynb") + ".md" if page.endswith(".ipynb") else page


def page_of(path: Path, home: Path) -> str:
    """Return a file of the repository as a page of the site that is in the folder `home`."""

    def link(found: re.Match[str]) -> str:
        target = (path.parent / found[2]).resolve()
        if not target.is_relative_to(PROJECT):
            return found[0]
        name = target.relative_to(PROJECT).as_posix()
        if name in PAGES or name in INSTEAD or name.startswith("docs/"):
            page = os.path.relpath(address(name), home)
            return f"[{found[1]}]({Path(page).as_posix()}{found[3] or ''})"
        return found[1] if target.exists() else found[0]

    def links(prose: str) -> str:
        return _LINK.sub(link, _PICTURE.sub(link, prose))

    text = NAME_PART.sub(r"::: \1", path.read_text(encoding="utf-8"))
    if path.suffix == ".ipynb":
        text = "\n".join(map(cell_of, json.loads(text)["cells"]))
    done, last = "", 0
    for found in _FENCE.finditer(text):
        done += links(text[last : found.start()]) + block_of(found)
        last = found.end()
    return done + links(text[last:])


def cell_of(cell: dict[str, Any]) -> str:
    """Return a cell of a notebook as Markdown: its text, or its code with the stored output."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return f"{source}\n"
    parts = [f"```python\n{source}\n```\n"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            picture = "".join(data["image/png"]).replace("\n", "")
            parts.append(f'<img alt="Output" src="data:image/png;base64,{picture}">\n')
        elif shown := "".join(output.get("text", data.get("text/plain", ""))):
            parts.append(f"```text\n{shown.rstrip()}\n```\n")
    return "\n".join(parts)


def block_of(found: re.Match[str]) -> str:
    """Return a code block of the site: commands that show no output have no `$` to copy."""
    lines = found[3].splitlines()
    if found[2] == "console" and all(line.startswith("$ ") for line in lines):
        return "```sh\n" + "".join(f"{line[2:]}\n" for line in lines) + "```\n"
    return found[0]


def run_zensical(work: Path) -> None:
    """Build the site of a folder; end with what Zensical wrote if it had any warning."""
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=work,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    written = done.stdout + done.stderr
    if done.returncode or re.search("warning", written, re.IGNORECASE):
        sys.exit(f"{written}\nThe site was not built: Zensical gave warnings")


def replace_shim(site: Path) -> None:
    """Load our script where Zensical would load that of another site."""
    for page in site.rglob("*.html"):
        ours = Path(os.path.relpath(site / SHIM[1], page.parent)).as_posix()
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(SHIM[0], ours), encoding="utf-8")


if __name__ == "__main__":
    main()
