"""docs/bench.md, made from bench.json alone.

First a table of every bar with what was measured, then a section a part.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.pictures import pictures_of

Results = Mapping[str, Mapping[str, Any]]
"""What bench.json holds: parts by name, each with its figures or an error."""

_INTRO = """# Benchmarks

Written by `make bench` from [bench.json](bench.json); do not edit. Ours and the peer's work run
in turns on the same machine and the same input; a ratio is the median of the turns with its
middle half in brackets, and says how many times as fast ours is. Runs of one measurement have no
spread."""
_TRIAL = "**A trial with `--quick`: small sizes, few turns. These are not the figures.**"


def write_page(results: Results, path: Path) -> None:
    """Write the page."""
    path.write_text(page(results), encoding="utf-8")


def page(results: Results) -> str:
    """Return the page as Markdown."""
    blocks = [_INTRO]
    if any(part["quick"] for part in results.values()):
        blocks.append(_TRIAL)
    shown = [f"![{picture.title}]({picture.name})" for picture in pictures_of(results)]
    blocks += [
        "## Bars",
        _table(("work", "peer", "bar", "measured", ""), _bar_rows(results)),
        *shown,
    ]
    blocks += ["## Where it was measured", _places(results)]
    for part in results.values():
        blocks += _section(part)
    return "\n\n".join(blocks) + "\n"


def _bar_rows(results: Results) -> Iterator[tuple[str, ...]]:
    for part in results.values():
        if part["error"]:
            yield part["title"], "", "", f"could not run: {part['error']}", "NOT MEASURED"
        for figure in part["figures"]:
            if figure["bar"]:
                yield (
                    figure["work"],
                    figure["peer"],
                    figure["bar"],
                    times(figure["ratio"]) if figure["ratio"] else amount(figure, "ours"),
                    _VERDICTS[figure["met"]],
                )


_VERDICTS = {True: "met", False: "**NOT MET**", None: "reported"}


def _section(part: Mapping[str, Any]) -> list[str]:
    blocks = [f"## {part['title']}"]
    blocks += [part["about"]] if part["about"] else []
    if part["error"]:
        return [*blocks, f"Could not run: {part['error']}."]
    rows = [
        (
            figure["work"],
            amount(figure, "ours"),
            figure["peer"],
            amount(figure, "theirs") if figure["theirs"] else "",
            times(figure["ratio"]) if figure["ratio"] else "",
        )
        for figure in part["figures"]
    ]
    blocks.append(_table(("work", "ours", "peer", "the peer's", "times as fast"), rows))
    notes = [
        f"- {figure['work']}: {figure['note']}" for figure in part["figures"] if figure["note"]
    ]
    blocks += ["\n".join(notes)] if notes else []
    trial = ", `--quick`" if part["quick"] else ""
    return [*blocks, f"`{part['command']}`{trial}: {part['seconds']:.0f} s, {_threads(part)}."]


def _threads(part: Mapping[str, Any]) -> str:
    if part["threads"] is None:
        return f"threads as each library chooses them on {part['machine']['cores']} cores"
    return "one thread" if part["threads"] == 1 else f"{part['threads']} threads"


def _places(results: Results) -> str:
    """Say on what each part ran, once for those that ran on the same."""
    names: dict[str, list[str]] = {}
    for name, part in results.items():
        machine = part["machine"]
        versions = ", ".join(f"{key} {value}" for key, value in part["versions"].items())
        where = (
            f"{machine['cpu']}, {machine['cores']} cores, {machine['ram_gb']:g} GB, "
            f"{machine['os']}; {versions}; {part['date']}, commit {part['commit'] or 'unknown'}"
        )
        names.setdefault(where, []).append(name)
    if len(names) == 1:
        return f"{next(iter(names))}."
    return "\n".join(f"- {', '.join(parts)}: {where}." for where, parts in names.items())


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def times(ratio: Mapping[str, float]) -> str:
    """Return a ratio with its middle half: 10.4x (10.1 to 10.9)."""
    digits = 3 if abs(ratio["median"] - 1) < 0.1 else None
    middle, low, high = (number(ratio[key], digits) for key in ("median", "low", "high"))
    return f"{middle}x" + (f" ({low} to {high})" if ratio["turns"] > 1 else "")


def amount(figure: Mapping[str, Any], whose: str) -> str:
    """Return a measured value with its unit and middle half."""
    spread = figure[whose]
    middle, low, high = (number(spread[key]) for key in ("median", "low", "high"))
    return f"{middle} {figure['unit']}".strip() + (
        f" ({low} to {high})" if spread["turns"] > 1 else ""
    )


def number(value: float, digits: int | None = None) -> str:
    """Return a number with three figures or so, without an exponent where it can be read."""
    if digits is None:
        size = abs(value)
        digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    if value and abs(value) < 0.001:
        return f"{value:.1e}"
    return f"{value:,.{digits}f}"
