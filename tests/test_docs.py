"""What the documents name exists: targets of links, files and words. Examples: test_examples.py."""

import re
from pathlib import Path

import pytest

from .conftest import PROJECT

DOCUMENTS = [
    *sorted(path for path in PROJECT.glob("*.md")),
    *sorted((PROJECT / "docs").rglob("*.md")),
]
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def links(path: Path) -> list[tuple[str, str]]:
    """Return the targets of a document's links to files: the path and the anchor, or neither."""
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", path.read_text(encoding="utf-8")))
    found = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", prose)
    targets = [first or second for first, second in found]
    return [
        (target.partition("#")[0], target.partition("#")[2])
        for target in targets
        if not re.match(r"\w+:", target)
    ]


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub and the site make them."""
    prose = FENCE.sub("", path.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", title.lower()).strip() for title in titles]
    return {re.sub(r"\s", "-", title) for title in plain}


def test_the_documents_link_to_each_other() -> None:
    assert sum(len(links(path)) for path in DOCUMENTS) > 80


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_to_files_and_headings_that_exist(path: Path) -> None:
    for target, anchor in links(path):
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


def test_every_page_is_linked_from_the_readme() -> None:
    readme = PROJECT / "README.md"
    linked = {(PROJECT / target).resolve() for target, _ in links(readme)}
    pages = set((PROJECT / "docs").glob("*.md")) - {PROJECT / "docs" / "index.md"}
    assert not pages - linked


def test_the_readme_fits_one_screen_plus_links() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 110


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_that_the_documents_name_exist(name: str) -> None:
    """Names in backticks such as `rules/das.py` are files of the package or of the project."""
    text = (PROJECT / name).read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for shown in re.findall(r"`([\w./-]+\.(?:py|toml|md)|[\w./-]+/)`", prose):
        assert any((home / shown).exists() for home in (PROJECT, PROJECT / "src/driftscore")), shown


def test_the_glossary_defines_every_word_of_the_vocabulary() -> None:
    text = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    glossary = text.partition("## Glossary")[2].partition("\n## ")[0]
    for word in ("recording", "clip", "window", "embedding", "label", "phrase", "prompt", "bank",
                 "head", "rule", "backbone", "calibration", "score", "event", "condition", "cell",
                 "row"):  # fmt: skip
        assert f"| {word} |" in glossary


def test_no_path_of_a_machine_is_in_the_repository() -> None:
    names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"]
    for name in names:
        assert not re.search(r"/(work|root|opt)/", (PROJECT / name).read_text(encoding="utf-8"))


def test_no_file_has_a_merge_that_was_left_open() -> None:
    folders = (PROJECT / name for name in ("src", "tests", "docs", "bench", "training", "scripts"))
    texts = {".md", ".py", ".toml", ".yml", ".js", ".css", ".html", ".cff"}
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in texts]
    files += [path for path in PROJECT.iterdir() if path.is_file() and path.suffix in texts]
    mark = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    assert [path for path in files if mark.search(path.read_text(encoding="utf-8"))] == []
