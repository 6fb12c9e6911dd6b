"""A search as JSON: everything that decides which events there are, besides the head."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from driftscore.events import Criteria, Detection
from driftscore.eventstream import Search
from driftscore.head import Head
from driftscore.reading import reading
from driftscore.schema import count, items, number, optional, table, text, validate
from driftscore.vectors import Scores

_NUMBERS = items(number())
_FILE = table(
    {
        "labels": items(text, fewest=1),
        "negatives": items(text),
        "multiples": items(number(1e-9, 1e9)),
        "min_durations_s": _NUMBERS,
        "opposed": items(items(count)),
        "settings": table(
            {
                "gap_s": number(0, 1e9),
                "leave": number(0, 1),
                "hold_s": number(0, 1e9),
                "threshold": optional(number(1e-9, 1e9)),
            }
        ),
        "window_s": number(1e-3, 1e6),
        "hop_s": number(1e-3, 1e6),
        "prior": optional(_NUMBERS),
        "spreads": optional(items(number(1e-12, 1e12))),
    }
)


def search_text(search: Search) -> str:
    """Return a search as JSON, always the same for the same search."""
    criteria, settings = search.criteria, search.settings
    content = {
        "labels": list(criteria.labels),
        "negatives": list(criteria.negatives),
        "multiples": criteria.thresholds.tolist(),
        "min_durations_s": criteria.min_durations_s.tolist(),
        "opposed": [np.flatnonzero(row).tolist() for row in criteria.opposed],
        "settings": {
            name: getattr(settings, name) for name in ("gap_s", "leave", "hold_s", "threshold")
        },
        "window_s": search.window_s,
        "hop_s": search.hop_s,
        "prior": None if search.prior is None else search.prior.tolist(),
        "spreads": None if search.spreads is None else search.spreads.tolist(),
    }
    return json.dumps(content, sort_keys=True)


def search_of(written: str, head: Head, path: Path) -> Search:
    """Return the search that a text of `path` describes, with its head."""
    with reading(path, "search of an audit"):
        found: dict[str, Any] = json.loads(written)
        validate(found, _FILE, where=str(path))
        opposed = np.zeros((len(found["opposed"]), len(found["negatives"])), np.bool_)
        for row, words in zip(opposed, found["opposed"], strict=True):
            row[words] = True
        criteria = Criteria(
            tuple(found["labels"]),
            np.array(found["multiples"]),
            np.array(found["min_durations_s"]),
            tuple(found["negatives"]),
            opposed,
        )
        words = (*criteria.labels, *criteria.negatives)
        prior, spreads = (_numbers(found[name], len(words)) for name in ("prior", "spreads"))
        lengths = {len(criteria.thresholds), len(criteria.min_durations_s), len(opposed)}
        if head.labels != words or lengths != {len(criteria.labels)}:
            raise ValueError("its labels are not those of the head")
        settings = Detection(**found["settings"])
        return Search(head, criteria, settings, found["window_s"], found["hop_s"], prior, spreads)


def _numbers(values: list[float] | None, length: int) -> Scores | None:
    if values is None:
        return None
    if len(values) != length:
        raise ValueError(f"expected {length} numbers, got {len(values)}")
    return np.array(values, np.float64)
