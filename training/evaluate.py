"""How well the audio tower does: `python -m training.evaluate`.

Zero-shot accuracy (tag space, text side MiniLM, "the sound of {label}") and the mean cosine to
the teacher, for two sets of clips that never train:

- held-out: the clips of `train/esc50` whose licence keeps them out of training. Choices are
  made on these.
- events: `../shared/audio/events`. Reported, never chosen by.

With `--prepare`, before training: writes `validation.npz` (the held-out clips' log-mels, teacher
logits and labels) and `text_rows.npz` (label names in tag space) to `training/work/`.
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime

from driftscore.backbones import mini_frontend
from training.collect import ROOT, SHARED, WORK, decode, is_free, shared_rows
from training.teacher import tagger

MODEL = ROOT.parent / "src" / "driftscore" / "models" / "mini" / "audio.onnx"
Matrix = npt.NDArray[np.float32]


def held_out_clips() -> list[tuple[Path, str]]:
    """Return (file, label) of the clips of `train/esc50` that are kept out of training."""
    rows = [r for r in shared_rows() if not is_free(r) and "/esc50/" in r["file"]]
    return [(SHARED / "audio" / r["file"], r["label"]) for r in rows]


def event_clips() -> list[tuple[Path, str]]:
    """Return (file, label) of the clips of `events`."""
    return [(p, p.parent.name) for p in sorted((SHARED / "audio" / "events").glob("*/*.ogg"))]


def hear(clips: list[tuple[Path, str]]) -> tuple[list[Matrix], Matrix]:
    """Return the student's log-mels and the teacher's logits of whole clips."""
    mels, logits = [], []
    for path, _ in clips:
        samples = decode(path.read_bytes())
        mels.append(mini_frontend.log_mel(samples))
        logits.append(tagger().logits(samples))
    return mels, np.stack(logits)


def embed(model: Path, mels: list[Matrix]) -> Matrix:
    """Return the tower's embeddings, one clip at a time."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"log_mel": m[None, None]})[0] for m in mels])


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a share."""
    z, share = 1.96, hits / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count**2))
    return middle - half / (1 + z * z / count), middle + half / (1 + z * z / count)


def unit(rows: Matrix) -> Matrix:
    """Return rows of length one."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def report(name: str, rows: Matrix, clips: list[tuple[Path, str]]) -> str:
    """Return one line: accuracy with its interval."""
    with np.load(WORK / "text_rows.npz") as file:
        labels, text = file["esc_names"].tolist(), file["esc_rows"]
    right = (rows @ text.T).argmax(axis=1) == [labels.index(label) for _, label in clips]
    low, high = wilson(int(right.sum()), len(right))
    return f"{name}: {right.mean():.1%} ({low:.1%} to {high:.1%}, n = {len(right)})"


def weakest(rows: Matrix, clips: list[tuple[Path, str]], limit: float = 0.5) -> str:
    """Return the classes of which at most a share `limit` is right, worst first."""
    with np.load(WORK / "text_rows.npz") as file:
        labels, text = file["esc_names"].tolist(), file["esc_rows"]
    guesses = [labels[index] for index in (rows @ text.T).argmax(axis=1)]
    truth = [label for _, label in clips]
    right = {c: [g == c for g, t in zip(guesses, truth, strict=True) if t == c] for c in labels}
    few = sorted((sum(r) / len(r), c) for c, r in right.items() if r)
    shown = [f"{c} {sum(right[c])}/{len(right[c])}" for share, c in few if share <= limit]
    return f"  weakest classes: {', '.join(shown)}"


def make_text_rows() -> None:
    """Write `text_rows.npz`: label names in tag space, for the loss and for scoring ESC-50."""
    from driftscore.backbones.minilm import load_encoder
    from driftscore.backbones.tagspace import load_space

    space, encoder = load_space(), load_encoder()
    words: set[str] = {name.lower() for name in space.names}
    for corpus in ("VGGSound", "FSD50k"):
        listed = json.loads((SHARED / "text" / f"{corpus}_class_labels_indices.json").read_text())
        words |= {name.replace("_", " ").lower() for name in listed}
    names, labels = sorted(words), sorted({label for _, label in event_clips()})

    def rows(texts: list[str]) -> Matrix:
        prompts = [f"the sound of {text.replace('_', ' ')}" for text in texts]
        return space.embed_sentences(encoder.encode(prompts))

    np.savez(
        WORK / "text_rows.npz",
        names=names,
        rows=rows(names),
        esc_names=labels,
        esc_rows=rows(labels),
    )


def make_validation() -> None:
    """Write `validation.npz`: the held-out clips as the two models hear them."""
    clips = held_out_clips()
    labels = np.load(WORK / "text_rows.npz")["esc_names"].tolist()
    mels, logits = hear(clips)
    answers = [labels.index(label) for _, label in clips]
    np.savez(WORK / "validation.npz", mel=np.stack(mels), logits=logits, answers=answers)


def main() -> None:
    """Report on held-out clips and on events."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--prepare", action="store_true", help="write what training needs")
    settings = parser.parse_args()
    if settings.prepare:
        make_text_rows()
        make_validation()
        return
    with np.load(WORK / "teacher.npz") as file:
        mu, sigma = file["mu"], file["sigma"]
    for name, clips in (("held-out", held_out_clips()), ("events", event_clips())):
        mels, logits = hear(clips)
        teacher, student = unit((logits - mu) / sigma), embed(settings.model, mels)
        print(f"{name}: cosine to the teacher {np.mean(np.sum(teacher * student, axis=1)):.4f}")
        for side, rows in (("mini", student), ("mn04", teacher)):
            print(report(f"  {name}, {side}", rows, clips))
            if name == "events":
                print(weakest(rows, clips))


if __name__ == "__main__":
    main()
