"""Ask a tagger what the computed sounds are: `python demo/check_sounds.py` (status 1: one fails).

The tagger is mn04 (EfficientAT), trained by others on AudioSet; `mini` learned from its answers on
other recordings, and neither was trained on these sounds. Weights: those of the backbone `mn04`
($DRIFTSCORE_MN04, or a download). A sound passes if one of its accepted tags is among the first
three of AudioSet's 527.
"""

import sys
from pathlib import Path

import numpy as np

from driftscore.audio.recordings import read
from driftscore.backbones.mn04.tagger import RATE, load_tagger

SOUNDS = Path(__file__).resolve().parent / "sounds"
FIRST = 3
ACCEPTED: dict[str, dict[int, str]] = {
    "siren": {396: "Siren", 323: "Police car (siren)", 322: "Emergency vehicle"},
    "church_bell": {201: "Church bell", 200: "Bell"},
    "alarm_clock": {395: "Alarm clock", 388: "Alarm"},
    "ticking_clock": {408: "Tick-tock", 407: "Tick", 406: "Clock"},
    "rain": {289: "Rain", 290: "Raindrop", 291: "Rain on surface"},
    "thunder": {287: "Thunder", 286: "Thunderstorm"},
    "helicopter": {339: "Helicopter"},
    "engine": {343: "Engine", 352: "Idling", 348: "Medium engine (mid frequency)"},
    "knocking": {359: "Knock"},
    "footsteps": {53: "Walk, footsteps"},
    "crickets": {127: "Cricket"},
    "birds": {111: "Bird", 113: "Chirp, tweet", 112: "Bird vocalization, bird call, bird song"},
    "speech": {0: "Speech"},
}
"""The tags of AudioSet, by their numbers, that say what each sound is."""


def main() -> int:
    """Print the best accepted tag of each sound, and return the exit status."""
    tagger, failures = load_tagger(), 0
    for name, tags in ACCEPTED.items():
        logits = tagger.logits(read(SOUNDS / f"{name}.flac", rate=RATE).samples)
        order = np.argsort(-logits).tolist()
        best = min(tags, key=order.index)
        rank, probability = order.index(best) + 1, 1 / (1 + np.exp(-logits[best]))
        failures += rank > FIRST
        verdict = "ok" if rank <= FIRST else "FAILS"
        print(f"{verdict:6}{name:15}tag {rank} of {len(logits)}: {tags[best]} ({probability:.2f})")
    print(f"{len(ACCEPTED) - failures} of {len(ACCEPTED)} sounds are recognised")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
