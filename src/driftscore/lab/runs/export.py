"""Rows out of the store as a flat table: csv, JSON lines, or parquet where pyarrow is there."""

import csv
import importlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from driftscore.errors import UsageError
from driftscore.files import replacing
from driftscore.lab.grid import Condition, Scoring
from driftscore.lab.store import Row

_OWN = (
    "metric", "value", "n", "failed", "difference", "low", "high", "details", "error", "seconds",
    "made_at", "versions",
)  # fmt: skip


def flat_rows(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield each row as one level of plain values, its key last."""
    for row in rows:
        values: dict[str, Any] = {}
        for part in (row.cell.condition, row.cell.scoring):
            values |= {name: getattr(part, name) for name in part.__slots__}
        values |= {name: getattr(row, name) for name in _OWN}
        values["details"] = json.dumps(dict(row.details), sort_keys=True)
        yield values | {"key": row.cell.key}


def columns() -> tuple[str, ...]:
    """Return the names of the columns."""
    return (*Condition.__slots__, *Scoring.__slots__, *_OWN, "key")


def export(rows: Iterable[Row], path: str | Path) -> int:
    """Write rows in the format that `path` ends with; return how many."""
    target = Path(path)
    if target.suffix.lower() not in _WRITERS:
        raise UsageError(f"Rows are exported as {', '.join(_WRITERS)}; {target.name} is none")
    table = list(flat_rows(rows))
    write = _WRITERS[target.suffix.lower()]
    with replacing(target) as partial:
        write(table, partial)
    return len(table)


def _write_csv(table: list[dict[str, Any]], path: Path) -> None:
    with open(path, "w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, columns(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def _write_jsonl(table: list[dict[str, Any]], path: Path) -> None:
    with open(path, "w", encoding="utf-8") as handle:
        handle.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in table)


def _write_parquet(table: list[dict[str, Any]], path: Path) -> None:
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise UsageError(
            "Parquet needs pyarrow, which is large and not installed: pip install pyarrow, "
            "or export rows.csv or rows.jsonl"
        ) from error
    parquet.write_table(arrow.Table.from_pylist(table), path)


_WRITERS: dict[str, Callable[[list[dict[str, Any]], Path], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}
