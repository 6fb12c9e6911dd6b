"""Teach the exported text tower the lexicon, without forgetting other words.

Each step sees texts of the lexicon with their corrected targets (`training.text_lexicon`) and texts
of the corpus with MiniLM's vectors. Loss: 1 - cosine to the target for all; for lexicon texts the
cross-entropy to the lexicon's tags (composed prompts: 1 - cosine in tag space), for corpus texts
1 - cosine in tag space to what MiniLM and the fitted anchors give. The tower and, at a lower rate,
the anchors are trained; the pieces are not. Texts that contain an entry of the word test are never
used; if the lexicon was prepared with `--without-public`, neither are corpus texts that contain a
label name of a public test set or a synonym of one.

The learning rate depends on the processor time spent (so a busy machine changes nothing) and falls
to zero. A run continues from its checkpoint in WORK/tuned. At the end:
`python -m training.export_text --work WORK/tuned --out FOLDER`.

    python -m training.text_finetune --work WORK --minutes 20
"""

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from training.export_text import OUT, read_exported
from training.lexicon import read_lexicon
from training.text_corpus import WORK
from training.text_lexicon import TAU, TUNED
from training.text_net import Tower
from training.text_tower import SAVE_EVERY_S, Batch, Corpus, load_anchors, rate_at, to_tags
from training.text_vocabulary import unpack
from training.word_lists import LABEL_TEST, WORD_TEST, PhraseFinder, read_entries

RATE_SHARE = 0.4
"""Factor on the learning rate of a training from scratch."""
ANCHOR_SHARE = 0.1
LEXICON_TEXTS = 128
AVERAGE = 0.995
WEIGHTS = {"cosine": 1.0, "tags": 0.3, "lexicon_cosine": 1.0, "lexicon": 0.15, "composed": 0.3}


class LexiconTexts:
    """The texts of `lexicon.npz` as piece ids."""

    def __init__(self, folder: Path) -> None:
        stored = np.load(folder / "lexicon.npz")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.ids = [e.ids for e in tokenizer.encode_batch([str(text) for text in stored["texts"]])]
        self.composed = stored["clean"] >= 0
        self.targets, self.weights = stored["targets"], stored["weights"]
        self.public = bool(stored["public"])
        self.anchors = torch.from_numpy(stored["anchors"])
        first_tags = self.weights.argmax(1)
        share = 1 / np.sqrt(np.bincount(first_tags, minlength=self.weights.shape[1])[first_tags])
        self.share = share / share.sum()  # between equal texts and equal tags

    def batches(self, rng: np.random.Generator) -> Iterator[tuple[Batch, Tensor, Tensor]]:
        """Yield batches of similar length without end, with tag weights and what is composed."""
        while True:
            drawn = rng.choice(len(self.ids), 32 * LEXICON_TEXTS, p=self.share)
            drawn = drawn[np.argsort([len(self.ids[row]) for row in drawn], kind="stable")]
            for part in rng.permutation(drawn.reshape(32, LEXICON_TEXTS)):
                length = max(len(self.ids[row]) for row in part)
                ids = np.zeros((len(part), length), np.int64)
                mask = np.zeros((len(part), length), bool)
                for line, row in enumerate(part):
                    ids[line, : len(self.ids[row])] = self.ids[row]
                    mask[line, : len(self.ids[row])] = True
                target = torch.from_numpy(self.targets[part].astype(np.float32))
                none = torch.full((len(part),), -1)
                batch = Batch(torch.from_numpy(ids), torch.from_numpy(mask), target, none)
                weights = torch.from_numpy(self.weights[part].astype(np.float32))
                yield batch, weights, torch.from_numpy(self.composed[part])


class Student(nn.Module):
    """The text tower and its anchors."""

    def __init__(self, start: Path, anchors: Tensor) -> None:
        super().__init__()
        weights, tables = read_exported(start / "text.onnx")
        self.tower = Tower(unpack(tables["packed"], tables["scale"]))
        self.tower.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
        self.anchors = nn.Parameter(anchors.clone())

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return sentence vectors and log-probabilities of the tags."""
        sentences = self.tower(batch.ids, batch.mask)
        unit = functional.normalize(self.anchors, dim=1)
        return sentences, (TAU * sentences @ unit.T).log_softmax(1)


def excluded_phrases(*, public: bool) -> PhraseFinder:
    """Return a finder of the word test and, without `public`, of names in public test sets."""
    phrases = [entry.phrase for entry in read_entries(WORD_TEST)]
    if not public:
        phrases += [entry.phrase for entry in read_entries(LABEL_TEST)]
        phrases += [key for line in read_lexicon() for key in line.public]
    return PhraseFinder(phrases)


def losses(
    student: Student,
    general: Batch,
    lexicon: tuple[Batch, Tensor, Tensor],
    teacher_anchors: Tensor,
) -> dict[str, Tensor]:
    """Return the parts of the loss and their weighted sum, `all`."""
    sentences, tags = student(general)
    wanted = to_tags(general.target, teacher_anchors, TAU)
    batch, weights, composed = lexicon
    words, word_tags = student(batch)
    entropy = -(weights * word_tags).sum(1)
    in_tags = 1 - functional.cosine_similarity(
        word_tags.exp(), to_tags(batch.target, teacher_anchors, TAU), dim=1
    )
    parts = {
        "cosine": 1 - (sentences * general.target).sum(1).mean(),
        "tags": 1 - functional.cosine_similarity(tags.exp(), wanted, dim=1).mean(),
        "lexicon_cosine": 1 - (words * functional.normalize(batch.target, dim=1)).sum(1).mean(),
        "lexicon": entropy[~composed].sum() / len(composed),
        "composed": in_tags[composed].sum() / len(composed),
    }
    total = sum((WEIGHTS[name] * part for name, part in parts.items()), words.new_zeros(()))
    right = (word_tags.argmax(1) == weights.argmax(1))[~composed].float().mean()
    return {**parts, "right": right, "all": total}


def train(work: Path, tuned: Path, start: Path, minutes: float, threads: int) -> None:
    """Train for `minutes` of processor time, including earlier runs, and write the result."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    texts = LexiconTexts(tuned)
    teacher_anchors = texts.anchors
    corpus = Corpus(work, excluded_phrases(public=texts.public), tuned / "tokenizer.json")
    student = Student(start, load_anchors(tuned)[0])
    tower = [value for name, value in student.named_parameters() if name != "anchors"]
    optimiser = torch.optim.AdamW(
        [{"params": tower, "share": 1.0}, {"params": [student.anchors], "share": ANCHOR_SHARE}],
        lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0,
    )  # fmt: skip
    average = {name: value.clone() for name, value in student.state_dict().items()}
    step, spent = 0, 0.0
    if (path := tuned / "checkpoint.pt").exists():
        state = torch.load(path, weights_only=True)
        student.load_state_dict(state["student"])
        optimiser.load_state_dict(state["optimiser"])
        average, step, spent = state["average"], state["step"], state["spent"]
    rng = np.random.default_rng(step)
    lexicon = texts.batches(rng)
    began, saved = time.process_time() - spent, time.monotonic()
    sums: dict[str, float] = {}
    while spent < 60 * minutes:
        for general in corpus.batches(rng):
            rate = RATE_SHARE * rate_at(spent / (60 * minutes))
            for group in optimiser.param_groups:
                group["lr"] = rate * group["share"]
            parts = losses(student, general, next(lexicon), teacher_anchors)
            optimiser.zero_grad(set_to_none=True)
            parts["all"].backward()
            nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimiser.step()
            step += 1
            with torch.no_grad():
                for name, value in student.state_dict().items():
                    average[name].lerp_(value, 1 - min(AVERAGE, step / (step + 10)))
            spent = time.process_time() - began
            for name, part in parts.items():
                sums[name] = sums.get(name, 0.0) + part.item() / 50
            if step % 50 == 0:
                write_curve(tuned / "curve.csv", step, spent, rate, sums)
                sums = {}
            done = spent >= 60 * minutes
            if done or time.monotonic() - saved > SAVE_EVERY_S:
                saved = time.monotonic()
                state = {"student": student.state_dict(), "average": average, "step": step}
                state |= {"optimiser": optimiser.state_dict(), "spent": spent}
                torch.save(state, path.with_suffix(".partial"))
                path.with_suffix(".partial").rename(path)
            if done:
                break
    write_result(tuned, average)


def write_curve(path: Path, step: int, spent: float, rate: float, sums: dict[str, float]) -> None:
    """Append one line of mean losses."""
    fresh = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(["step", "minutes", "rate", *sums])
        means = [f"{value:.4f}" for value in sums.values()]
        writer.writerow([step, f"{spent / 60:.2f}", f"{rate:.2e}", *means])


def write_result(folder: Path, average: dict[str, Tensor]) -> None:
    """Write the averaged tower and anchors for `training.export_text`."""
    anchors = functional.normalize(average["anchors"], dim=1).numpy()
    np.savez(folder / "anchors.npz", anchors=anchors.astype(np.float16), tau=TAU)
    tower = {name.removeprefix("tower."): v for name, v in average.items() if name != "anchors"}
    torch.save({"average": tower}, folder / "tower.pt")


def main() -> None:
    """Fine-tune, or continue."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--tuned", type=Path, help="folder of lexicon.npz; default: WORK/tuned")
    parser.add_argument("--start", type=Path, default=OUT, help="folder of the exported tower")
    parser.add_argument("--minutes", type=float, default=20.0, help="processor time")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    tuned = options.tuned or options.work / TUNED
    train(options.work, tuned, options.start, options.minutes, options.threads)


if __name__ == "__main__":
    main()
