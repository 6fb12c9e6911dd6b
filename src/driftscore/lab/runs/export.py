"""Export rows as a flat table: csv, JSON lines, or parquet if pyarrow is installed."""

import csv
import importlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from driftscore.errors import UsageError
from driftscore.files import replacing
from driftscore.formats._values import cell
from driftscore.lab.conditions import Condition, Row, Scoring

_OWN = (
    "metric", "value", "n", "failed", "difference", "low", "high", "details", "error", "seconds",
    "made_at", "versions",
)  # fmt: skip


FlatRow = dict[str, str | int | float | None]


def flat_rows(rows: Iterable[Row]) -> Iterator[FlatRow]:
    """Yield each row as one level of plain values, its key last."""
    for row in rows:
        values: FlatRow = {}
        for part in (row.cell.condition, row.cell.scoring):
            values |= {name: getattr(part, name) for name in part.__slots__}
        values |= {name: getattr(row, name) for name in ("metric", "value", "n", "failed")}
        for name in ("difference", "low", "high"):
            values[name] = None if row.gain is None else getattr(row.gain, name)
        values["details"] = json.dumps(dict(row.details), sort_keys=True)
        values["error"] = row.error
        values |= {name: getattr(row.stamp, name) for name in ("seconds", "made_at", "versions")}
        yield values | {"key": row.cell.key}


def columns() -> tuple[str, ...]:
    """Return the names of the columns."""
    return (*Condition.__slots__, *Scoring.__slots__, *_OWN, "key")


def export(rows: Iterable[Row], path: str | Path) -> int:
    """Write rows in the format that the suffix of `path` names; return how many."""
    target = Path(path)
    if target.suffix.lower() not in _WRITERS:
        known = ", ".join(_WRITERS)
        raise UsageError(f"Unsupported format {target.suffix!r}: use {known}")
    table = list(flat_rows(rows))
    write = _WRITERS[target.suffix.lower()]
    with replacing(path) as partial:
        write(table, partial)
    return len(table)


def _write_csv(table: list[FlatRow], path: Path) -> None:
    with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as handle:
        writer = csv.DictWriter(handle, columns(), lineterminator="\n")
        writer.writeheader()
        # Numbers keep all their digits; a text must not be run as a formula by a spreadsheet.
        writer.writerows({k: cell(v) if isinstance(v, str) else v for k, v in row.items()}
                         for row in table)  # fmt: skip


def _write_jsonl(table: list[FlatRow], path: Path) -> None:
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as handle:
        handle.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in table)


def _write_parquet(table: list[FlatRow], path: Path) -> None:
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise UsageError(
            "Parquet needs pyarrow, which is not installed: pip install pyarrow, "
            "or export rows.csv or rows.jsonl"
        ) from error
    parquet.write_table(arrow.Table.from_pylist(table), path)


_WRITERS: dict[str, Callable[[list[FlatRow], Path], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}
