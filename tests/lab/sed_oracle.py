"""Detection metrics by pip `sed_eval` and `psds_eval`: run in an environment of its own.

usage: python sed_oracle.py [SEED [CASES]] > tests/lab/golden/detection.json
Writes random cases with what the two packages say about them (make sed-env).
"""

import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import dcase_util
import numpy as np
import pandas as pd
import psds_eval
import sed_eval

Event = dict[str, Any]
LABELS = ("dog", "siren", "rain", "horn")
COLLARS = (0.2, 1.0, 3.0)
THRESHOLDS = (0.0, 0.3, 0.6)
PSDS = (
    {"dtc": 0.1, "gtc": 0.1, "cttc": 0.3, "alpha_ct": 0.5, "alpha_st": 1.0, "most_per_hour": 100.0},
    {"dtc": 0.7, "gtc": 0.7, "cttc": 0.3, "alpha_ct": 0.0, "alpha_st": 1.0, "most_per_hour": 100.0},
    {"dtc": 0.5, "gtc": 0.5, "cttc": 0.3, "alpha_ct": 1.0, "alpha_st": 0.0, "most_per_hour": 400.0},
)


def without_overlap(events: Sequence[Event]) -> list[Event]:
    """Return events in order of time, without those that overlap an earlier one of their label."""
    kept: list[Event] = []
    for event in sorted(events, key=lambda e: float(e["start_s"])):
        if all(k["label"] != event["label"] or k["end_s"] < event["start_s"] for k in kept):
            kept.append(event)
    return kept


def random_case(rng: np.random.Generator) -> dict[str, Any]:
    """Return a recording with true events and found ones, many of them near a true one."""
    seconds = 600.0
    truth: list[Event] = []
    for number in range(int(rng.integers(4, 30))):
        start = round(float(rng.uniform(0, seconds - 10)), 2)
        label = LABELS[number % 4]  # every label has an event
        end = round(start + float(rng.uniform(0.3, 8)), 2)
        truth.append({"label": label, "start_s": start, "end_s": end})
    truth = without_overlap(truth)
    found = []
    for _ in range(int(rng.integers(0, 60))):
        near = truth[int(rng.integers(len(truth)))]
        start = max(0.0, near["start_s"] + float(rng.normal(0, 1.5)))
        if rng.random() < 0.3:
            start = float(rng.uniform(0, seconds - 10))
        label = near["label"] if rng.random() < 0.7 else LABELS[int(rng.integers(4))]
        end = start + float(rng.uniform(0.3, 8))
        score = round(float(rng.random()), 1)  # several events have the same one
        found.append(
            {"label": label, "start_s": round(start, 2), "end_s": round(end, 2), "score": score}
        )
    return {"seconds": seconds, "truth": truth, "found": without_overlap(found)}


def f_measures(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what sed_eval says at some thresholds, collars, and with and without offsets."""

    def container(events: Sequence[Event]) -> Any:
        return dcase_util.containers.MetaDataContainer(
            [
                {
                    "filename": "a",
                    "onset": e["start_s"],
                    "offset": e["end_s"],
                    "event_label": e["label"],
                }
                for e in events
            ]
        )

    results = []
    for threshold in THRESHOLDS:
        found = [e for e in case["found"] if e["score"] >= threshold]
        for collar in COLLARS:
            for offset in (False, True):
                metric = sed_eval.sound_event.EventBasedMetrics(
                    list(LABELS), t_collar=collar, evaluate_offset=offset
                )
                metric.evaluate(container(case["truth"]), container(found))
                counts = metric.overall
                results.append(
                    {
                        "threshold": threshold,
                        "onset_s": collar,
                        "offset": offset,
                        "hits": int(counts["Ntp"]),
                        "true": int(counts["Nref"]),
                        "found": int(counts["Nsys"]),
                        "f1": float(metric.overall_f_measure()["f_measure"]),
                    }
                )
    return results


def psds_values(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the PSDS of every setting, with one operating point per distinct score."""

    def table(events: Sequence[Event]) -> pd.DataFrame:
        rows = [("a", e["start_s"], e["end_s"], e["label"]) for e in events]
        return pd.DataFrame(rows, columns=["filename", "onset", "offset", "event_label"])

    files = pd.DataFrame({"filename": ["a"], "duration": [case["seconds"]]})
    results = []
    for setting in PSDS:
        judge = psds_eval.PSDSEval(
            setting["dtc"],
            setting["gtc"],
            setting["cttc"],
            ground_truth=table(case["truth"]),
            metadata=files,
        )
        for threshold in sorted({e["score"] for e in case["found"]}):
            judge.add_operating_point(table([e for e in case["found"] if e["score"] >= threshold]))
        value = judge.psds(setting["alpha_ct"], setting["alpha_st"], setting["most_per_hour"]).value
        results.append({**setting, "psds": float(value)})
    return results


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    seed, cases = (int(given) for given in [*sys.argv[1:], "1", "12"][:2])
    draws = np.random.default_rng(seed)
    made: list[dict[str, Any]] = []
    while len(made) < cases:
        one = random_case(draws)
        if one["found"]:  # psds_eval needs an operating point
            made.append({**one, "sed_eval": f_measures(one), "psds_eval": psds_values(one)})
    print(json.dumps(made, indent=None, sort_keys=True).replace('}, {"found"', '},\n{"found"'))
