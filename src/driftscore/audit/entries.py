"""The entries of an audit log as lines of JSON: written, checked and read.

Each entry has the sha256 of its own content in it. That finds a line that was damaged or edited;
it does not find someone who computes the digest again.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from driftscore.audit.decided import EVENT, LABEL
from driftscore.errors import FormatError, UsageError
from driftscore.reading import is_folder, read_text, reading
from driftscore.schema import (
    anything,
    choice,
    flag,
    items,
    mapping,
    number,
    optional,
    table,
    text,
    validate,
)

FORMAT = 1
Entry = dict[str, object]
PART_BYTES = 16_000_000
"""A file of a day that is larger is followed by another one: 2026-11-16.2.jsonl."""
_MOST_BYTES = 20 * PART_BYTES  # of a file that is read
_PART = re.compile(r"(\d{4}-\d\d-\d\d)(?:\.(\d{1,6}))?\.jsonl")
_OWN = "sha256"
_LATER = ("time", "versions", _OWN)
"""What differs when the same decision is made again."""


_NUMBER = number()
_SPAN = items(_NUMBER, fewest=2, most=2)
_ROWS = items(items(_NUMBER, fewest=1, most=100_000))
_DECIDED = table(
    {
        "label": text,
        "start_s": _NUMBER,
        "end_s": _NUMBER,
        "score": _NUMBER,
        "threshold": optional(_NUMBER),
        "rejected": text,
    }
)
_OUTCOMES = {
    LABEL: table({"labels": items(text)}),
    EVENT: table({"decided": _DECIDED, "reported": flag, "rejected": text}, open_=True),
}
_EVIDENCE = {
    LABEL: table(
        {"scores": mapping(_NUMBER), "threshold": optional(_NUMBER), "fitting": flag},
        {"every": flag},
    ),
    EVENT: table(
        {
            "label": text,
            "multiple": number(1e-9, 1e9),
            "min_duration_s": number(0, 1e9),
            "negatives": items(text),
            "settings": mapping(_NUMBER),
            "hop_s": number(1e-3, 1e6),
            "windows": optional(items(_SPAN)),
            "above": optional(_ROWS),
            "spreads": optional(_ROWS),
            "finished_s": optional(_NUMBER),
        }
    ),
}
_ENTRY = table(
    {
        "time": text,
        "kind": choice(LABEL, EVENT),
        "source": anything,  # a name that is not UTF-8 is no text of valid Unicode
        "outcome": anything,
        "evidence": anything,
        "labels": items(text),
        "prompts_sha256": optional(text),
        "backbone": text,
        "fingerprint": text,
        "rule": text,
        "calibration": optional(text),
        "head_sha256": text,
        "search_sha256": optional(text),
        "recording": table(
            {"name": anything, "sha256": anything, "audio": anything, "complete": flag}
        ),
        "versions": mapping(text),
        _OWN: text,
    },
    open_=True,
)


def written(entry: Mapping[str, object]) -> bytes:
    """Return an entry as the line of a log."""
    line = json.dumps({**entry, _OWN: content_digest(entry)}, ensure_ascii=False, allow_nan=False)
    return (line + "\n").encode("utf-8", "backslashreplace")


def content_digest(entry: Mapping[str, object], without: Sequence[str] = (_OWN,)) -> str:
    """Return the sha256 of the content of an entry, however it was written."""
    kept = {key: value for key, value in entry.items() if key not in without}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def is_intact(entry: Mapping[str, object]) -> bool:
    """Return whether an entry is as it was written."""
    return entry.get(_OWN) == content_digest(entry)


def decision_digest(entry: Mapping[str, object]) -> str:
    """Return what is the same for two records of the same decision."""
    return content_digest(entry, _LATER)


def part_of(name: str) -> tuple[str, int] | None:
    """Return the day and the number of a file of a log; None for any other name."""
    found = _PART.fullmatch(name)
    return None if found is None else (found[1], int(found[2] or 1))


def part_name(day: str, part: int) -> str:
    """Return the name of a file of a log."""
    return f"{day}.jsonl" if part == 1 else f"{day}.{part}.jsonl"


def log_files(folder: Path) -> list[Path]:
    """Return the files of a log in order of time."""
    with reading(folder, "audit folder"):
        found = [(part_of(path.name), path) for path in folder.iterdir()]
        return [path for part, path in sorted(one for one in found if one[0])]


def read_entries(
    folder: str | Path,
    days: Sequence[str] = (),
    *,
    label: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[tuple[str, Entry]]:
    """Yield where each entry is (file:line) and its content, in order of time.

    Only those of some `days` (UTC, as 2026-11-16), those that decided for a `label`, and those of
    a span of time.
    """
    home = Path(folder)
    files = log_files(home) if is_folder(home) else []
    if not files:
        raise UsageError(
            f"{folder} is not an audit folder: it has no file such as 2026-11-16.jsonl"
        )
    first, last = (
        None if time is None else time.isoformat(timespec="milliseconds") for time in (since, until)
    )
    for path in files:
        day, _ = part_of(path.name) or ("", 0)
        if (days and day not in days) or (last and day > last[:10]) or (first and day < first[:10]):
            continue
        for where, entry in _entries(path):
            time = str(entry["time"])
            if (first and time < first) or (last and time >= last):
                continue
            if not label or label in decided_labels(entry):
                yield where, entry


def _entries(path: Path) -> Iterator[tuple[str, Entry]]:
    """Yield the entries of one file; a line without its end was cut by a power failure."""
    lines = read_text(path, "audit log", most=_MOST_BYTES).split("\n")
    for count, line in enumerate(lines[:-1], start=1):
        if line:
            yield f"{path.name}:{count}", _parsed(line, f"{path}:{count}")


def decided_labels(entry: Mapping[str, object]) -> list[str]:
    """Return the labels that an entry decided for, also that of a rejected event."""
    outcome = entry["outcome"]
    assert isinstance(outcome, dict)  # noqa: S101 (checked when it was read)
    if entry["kind"] == EVENT:
        return [outcome["decided"]["label"]]
    labels: list[str] = outcome["labels"]
    return labels


def _parsed(line: str, where: str) -> Entry:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where} is not JSON: {error}") from error
    if not isinstance(entry, dict) or entry.get("format") != FORMAT:
        raise FormatError(f"{where} is not an entry of an audit log of format {FORMAT}")
    validate(entry, _ENTRY, where=where)
    validate(entry["outcome"], _OUTCOMES[entry["kind"]], where=f"{where}: outcome")
    validate(entry["evidence"], _EVIDENCE[entry["kind"]], where=f"{where}: evidence")
    return entry
