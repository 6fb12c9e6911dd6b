"""Accuracy of an exported audio tower on `../shared/audio/events`: `python -m training.evaluate`.

Zero-shot accuracy (tag space, prompt "the sound of {label}", text side of the model that ships) and
the mean cosine to the teacher, mn04, on clean clips that are never trained on. Reported; nothing is
chosen by it. Choices are made on the validation sets (`python -m training.validation --home ...`),
and `training.promise` reports on label sets in noise.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime

from training.collect import SHARED, WORK, decode
from training.product import MODEL_HOME, load_space, log_mel, tagger

Matrix = npt.NDArray[np.float32]


def event_clips() -> list[tuple[Path, str]]:
    """Return (file, label) of the clips of `events`."""
    return [(p, p.parent.name) for p in sorted((SHARED / "audio" / "events").glob("*/*.ogg"))]


def embed(home: Path, mels: list[Matrix]) -> Matrix:
    """Return the embeddings of clips given by their log-mels."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    audio, pool = (
        onnxruntime.InferenceSession(home / name, options, providers=["CPUExecutionProvider"])
        for name in ("audio.onnx", "pool.onnx")
    )
    features = [audio.run(None, {"log_mel": m[None, None]})[0] for m in mels]
    return np.concatenate([pool.run(None, {"features": f})[0] for f in features])


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a share."""
    z, share = 1.96, hits / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count**2))
    return middle - half / (1 + z * z / count), middle + half / (1 + z * z / count)


def accuracy(name: str, right: npt.NDArray[np.bool_]) -> str:
    """Return one line: accuracy with its interval."""
    low, high = wilson(int(right.sum()), len(right))
    return f"  {name}: {right.mean():.1%} ({low:.1%} to {high:.1%}, n = {len(right)})"


def weakest(guesses: list[str], truth: list[str], limit: float = 0.5) -> str:
    """Return the classes of which at most a share `limit` is right, worst first."""
    right = {c: [g == c for g, t in zip(guesses, truth, strict=True) if t == c] for c in set(truth)}
    few = sorted((sum(r) / len(r), c) for c, r in right.items())
    shown = [f"{c} {sum(right[c])}/{len(right[c])}" for share, c in few if share <= limit]
    return f"  weakest classes: {', '.join(shown)}"


def report_events(home: Path, text: Matrix, labels: list[str]) -> None:
    """Print the accuracy on the clean clips of `events`, of the student and of the teacher."""
    clips = event_clips()
    samples = [decode(path.read_bytes()) for path, _ in clips]
    student = embed(home, [log_mel(s) for s in samples])
    teacher = load_space().embed_logits(np.stack([tagger().logits(s) for s in samples]))
    print(f"events: cosine to the teacher {np.sum(student * teacher, axis=1).mean():.4f}")
    truth = [label for _, label in clips]
    for name, rows in (("mini", student), ("mn04", teacher)):
        guesses = [labels[index] for index in (rows @ text.T).argmax(axis=1)]
        right = np.array([g == t for g, t in zip(guesses, truth, strict=True)])
        print(accuracy(f"{name}, clean", right))
        print(weakest(guesses, truth))


def main() -> None:
    """Report on events."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--home", type=Path, default=MODEL_HOME, help="folder of the exported model"
    )
    home = parser.parse_args().home
    with np.load(WORK / "text_rows.npz") as file:
        labels, text = file["esc50_names"].tolist(), file["esc50_rows"]
    report_events(home, text, labels)


if __name__ == "__main__":
    main()
