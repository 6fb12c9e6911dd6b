"""Export rows as a flat table: csv, JSON lines, or parquet if pyarrow is installed.

Numbers keep all their digits, which the formats of the command (six decimals) do not.
"""

import csv
import importlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from driftscore.errors import UsageError
from driftscore.formats import cell
from driftscore.lab.conditions import Condition, Row, Scoring
from driftscore.storage.files import replacing

COLUMNS = (
    *Condition.__slots__, *Scoring.__slots__, "metric", "value", "n", "failed", "difference", "low",
    "high", "details", "error", "seconds", "made_at", "versions", "key",
)  # fmt: skip


def flat_row(row: Row) -> dict[str, str | int | float | None]:
    """Return a row as one level of plain values."""
    values = asdict(row.cell.condition) | asdict(row.cell.scoring) | vars(row)
    values |= vars(row.gain) if row.gain is not None else {}
    values["details"] = json.dumps(dict(row.details), sort_keys=True)
    values["key"] = row.cell.key
    return {name: values.get(name) for name in COLUMNS}


def export(rows: Iterable[Row], path: str | Path) -> int:
    """Write rows in the format that the suffix of `path` names; return how many."""
    suffix = Path(path).suffix
    if suffix.lower() not in (".csv", ".jsonl", ".parquet"):
        raise UsageError(f"Unsupported format {suffix!r}: use .csv, .jsonl, .parquet")
    table = [flat_row(row) for row in rows]
    with replacing(path) as partial:
        if suffix.lower() == ".parquet":
            try:
                arrow = importlib.import_module("pyarrow")
                parquet = importlib.import_module("pyarrow.parquet")
            except ImportError as error:
                raise UsageError(
                    "Parquet needs pyarrow, which is not installed: pip install pyarrow, "
                    "or export rows.csv or rows.jsonl"
                ) from error
            parquet.write_table(arrow.Table.from_pylist(table), partial)
            return len(table)
        with open(partial, "w", encoding="utf-8", errors="backslashreplace", newline="") as handle:
            if suffix.lower() == ".jsonl":
                handle.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in table)
            else:
                writer = csv.writer(handle, lineterminator="\n")
                writer.writerow(COLUMNS)
                for row in table:  # a text must not be run as a formula by a spreadsheet
                    writer.writerow([cell(v) if isinstance(v, str) else v for v in row.values()])
    return len(table)
