"""Write the reference into docs/commands.md and docs/api.md: `python scripts/reference.py`.

    --check     ends with status 1 if a page is not what it should be

Commands: what each says about itself, between `<!-- commands -->` and `<!-- /commands -->`. Python:
signature and docstring of each name, between `<!-- ::: NAME -->` and `<!-- /::: -->`. Both can be
read in a checkout; the site (build_docs.py) has a page per command and links in place of them.
"""

import importlib
import inspect
import re
import sys
from pathlib import Path

from docs_commands import command_pages

PROJECT = Path(__file__).resolve().parent.parent
COMMANDS, API = PROJECT / "docs" / "commands.md", PROJECT / "docs" / "api.md"
COMMANDS_PART = re.compile(r"(<!-- commands -->\n).*?(<!-- /commands -->)", re.DOTALL)
NAME_PART = re.compile(r"<!-- ::: ([\w.]+) -->\n.*?<!-- /::: -->", re.DOTALL)
_SECTION = re.compile(r"^(Parameters|Attributes|Returns|Yields):?\n(?:-{3,}\n)?", re.MULTILINE)
_ITEM = re.compile(r"^ {4}(\*{0,2}[\w, ]+): ", re.MULTILINE)
_DEFAULT = re.compile(r"<(?:object object|driftscore[\w.]+|function \w+|class '[\w.]+') ?[^>]*>")


def commands() -> str:
    """Return every command with its usage, examples and options."""
    overview, pages = command_pages()
    overview = re.sub(r"\(([\w-]+)\.md\)", r"(#driftscore-\1)", overview)
    texts = [text.replace("```console", "```text") for text in pages.values()]
    below = [re.sub(r"^(#+) ", r"#\1 ", text, flags=re.MULTILINE).strip() for text in texts]
    return "\n\n".join([overview, *below])


def described(name: str) -> str:
    """Return a public name with its signature and docstring, and those of its methods."""
    module, _, attribute = name.rpartition(".")
    value = getattr(importlib.import_module(module), attribute)
    lines = [f"### {attribute}", "", signature(value, name), "", prose(value)]
    if inspect.isclass(value):
        for method, member in vars(value).items():
            function = (
                member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
            )
            shown = function.fget if isinstance(function, property) else function
            if method.startswith("_") or not inspect.isfunction(shown) or not shown.__doc__:
                continue
            call = "" if isinstance(function, property) else arguments(shown)
            summary = " ".join(inspect.cleandoc(shown.__doc__).split("\n\n")[0].split())
            lines += ["", f"- `{method}{call}`: {summary}"]
    return "\n".join(lines)


def arguments(value: object) -> str:
    """Return the parameters of a callable, without types."""
    try:
        parameters = inspect.signature(value).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
    plain = [one for one in plain if one.name not in ("self", "cls")]
    text = str(inspect.Signature(plain))
    return _DEFAULT.sub("...", text)


def signature(value: object, name: str) -> str:
    """Return how a name is called, or that it is a value."""
    call = arguments(value) if callable(value) else ""
    return f"```text\n{name}{call}\n```"


def prose(value: object) -> str:
    """Return a docstring as Markdown: its sections as lists."""
    text = inspect.getdoc(value) or ""
    text = _SECTION.sub(r"**\1**\n\n", text)
    text = _ITEM.sub(lambda match: f"- `{match[1]}`: ", text)
    return re.sub(r"^ {8}", "  ", text, flags=re.MULTILINE).strip()


def pages() -> dict[Path, str]:
    """Return both pages as they should be."""
    overview = COMMANDS_PART.sub(
        lambda match: f"{match[1]}\n{commands()}\n\n{match[2]}", COMMANDS.read_text("utf-8")
    )
    python = NAME_PART.sub(
        lambda match: f"<!-- ::: {match[1]} -->\n\n{described(match[1])}\n\n<!-- /::: -->",
        API.read_text("utf-8"),
    )
    return {COMMANDS: overview, API: python}


def main() -> int:
    """Write the pages, or compare them."""
    old = [path.name for path, text in pages().items() if path.read_text("utf-8") != text]
    if "--check" in sys.argv:
        if old:
            print(f"run python scripts/reference.py: {', '.join(old)} changed", file=sys.stderr)
        return int(bool(old))
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
