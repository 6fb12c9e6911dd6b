"""Write docs/bench.md from bench.json: a table of every bar, then one section per part."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.pictures import pictures_of
from bench.records import FigureRecord, PartRecord, Results, SpreadRecord

_INTRO = """# Benchmarks

`make bench` writes this page from [bench.json](bench.json); do not edit it. driftscore and the
peer, another library or method, take turns on the same machine with the same input. A ratio says
how many times as fast driftscore is: the median over the turns, with the middle half in brackets. A
value without brackets was measured once. A bar is the value that we aim at."""
_TRIAL = "**A trial with `--quick`: small sizes and few turns. These are not the figures.**"
_VERDICTS = {True: "met", False: "**NOT MET**", None: "reported"}


def write_page(results: Results, path: Path) -> None:
    """Write the page to a file."""
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
    blocks += ["## Machines and versions", _machines(results)]
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
                    times(figure["ratio"]) or amount(figure["ours"], figure["unit"]),
                    _VERDICTS[figure["met"]],
                )


def _section(part: PartRecord) -> list[str]:
    blocks = [f"## {part['title']}"]
    blocks += [part["about"]] if part["about"] else []
    if part["error"]:
        return [*blocks, f"Could not run: {part['error']}."]
    blocks.append(
        _table(("work", "ours", "peer", "the peer's", "times as fast"), map(_row, part["figures"]))
    )
    notes = [
        f"- {figure['work']}: {figure['note']}" for figure in part["figures"] if figure["note"]
    ]
    blocks += ["\n".join(notes)] if notes else []
    trial = ", `--quick`" if part["quick"] else ""
    return [*blocks, f"`{part['command']}`{trial}: {part['seconds']:.0f} s, {_threads(part)}."]


def _row(figure: FigureRecord) -> tuple[str, ...]:
    unit = figure["unit"]
    ours, theirs = amount(figure["ours"], unit), amount(figure["theirs"], unit)
    return figure["work"], ours, figure["peer"], theirs, times(figure["ratio"])


def figure_line(figure: FigureRecord) -> str:
    """Return a figure as one line: what was measured, the bar, and whether it is met."""
    parts = [f"{figure['work']}: {amount(figure['ours'], figure['unit'])}"]
    if figure["ratio"]:
        parts.append(f"{times(figure['ratio'])} against {figure['peer']}")
    if figure["bar"]:
        parts.append(f"bar: {figure['bar']}: {_VERDICTS[figure['met']].strip('*')}")
    parts += [figure["note"]] if figure["note"] else []
    return "; ".join(parts)


def _threads(part: PartRecord) -> str:
    if part["threads"] is None:
        return f"default threads of each library on {part['machine']['cores']} cores"
    return "one thread" if part["threads"] == 1 else f"{part['threads']} threads"


def _machines(results: Results) -> str:
    """Return the machine and versions of each part; parts that share them share a line."""
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


def times(ratio: SpreadRecord | None) -> str:
    """Return a ratio with its middle half, such as "10.4x (10.1 to 10.9)"; empty if None."""
    if ratio is None:
        return ""
    digits = 3 if abs(ratio["median"] - 1) < 0.1 else None
    return _spread_text(ratio, "x", digits)


def amount(spread: SpreadRecord | None, unit: str) -> str:
    """Return a measured value with its unit and middle half; empty if None."""
    return "" if spread is None else _spread_text(spread, f" {unit}".rstrip())


def _spread_text(spread: SpreadRecord, unit: str, digits: int | None = None) -> str:
    middle, low, high = (
        number(value, digits) for value in (spread["median"], spread["low"], spread["high"])
    )
    return f"{middle}{unit}" + (f" ({low} to {high})" if spread["turns"] > 1 else "")


def number(value: float, digits: int | None = None) -> str:
    """Return a number with about three significant digits, below 0.001 with an exponent."""
    if digits is None:
        size = abs(value)
        digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    if value and abs(value) < 0.001:
        return f"{value:.1e}"
    return f"{value:,.{digits}f}"
