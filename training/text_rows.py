"""Give words outside the lexicon the row of a word of the lexicon that sounds alike.

The exported tower's layers, its anchors and the rows of the lexicon's words stay as they are, so
that label names and phrases of known words give what they gave. For other words that can be heard,
and for those that are no piece (`training.text_exchange`), a teacher that reads definitions
(`training.text_sounds`) says what they sound like. Each becomes a further name of the row for which
the tower's answer is nearest to the teacher's, or, for a word that had a row, to the mean of the
teacher's and of the tower's former answer. A name costs about 17 bytes and a row 105 more.

    python -m training.text_rows --teacher WORK/sounds.pt --out FOLDER
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from training.export_text import OUT, build, read_exported
from training.text_corpus import (
    CLEAN,
    SHARED,
    WORK,
    fetch_wordnet,
    read_class_names,
    words_of,
)
from training.text_distil import Student, read_pieces
from training.text_exchange import other_words, share_rows
from training.text_lexicon import TAU
from training.text_meanings import Dictionary
from training.text_names import read_names
from training.text_sounds import SoundTeacher, define
from training.text_vocabulary import build_tokenizer, unpack, write_tokenizer

BATCH = 512


class Answers:
    """What the tower gives for the words of its table, alone in the prompt."""

    def __init__(self, folder: Path, pieces: list[str]) -> None:
        self.weights, tables = read_exported(folder / "text.onnx")
        self.packed, self.books, self.anchors = (tables[k] for k in ("packed", "scale", "anchors"))
        student = Student(unpack(self.packed, self.books), torch.from_numpy(self.anchors)).eval()
        state = {name: torch.tensor(value) for name, value in self.weights.items()}
        student.tower.load_state_dict(state)
        prompt = torch.tensor(build_tokenizer(pieces).encode(CLEAN.format(c="")).ids)
        parts = []
        for numbers in torch.arange(len(pieces)).split(BATCH):
            ids = torch.cat([prompt.expand(len(numbers), -1), numbers[:, None]], 1)
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                sentences, tags = student(ids)
            parts.append(join(sentences.float(), tags.float().exp()))
        self.rows = torch.cat(parts)


def join(vectors: Tensor, tags: Tensor) -> Tensor:
    """Return unit rows of vectors and of the roots of their tags."""
    return torch.cat([functional.normalize(vectors, dim=1), tags.sqrt()], 1) * 0.5**0.5


def nearest(wanted: Tensor, rows: Tensor) -> list[int]:
    """Return the number of the most similar row for each wanted one."""
    return [n for part in wanted.split(BATCH) for n in (part @ rows.T).argmax(1).tolist()]


def main() -> None:
    """Write `text.onnx` and `tokenizer.json`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--start", type=Path, default=OUT, help="exported tower to start from")
    parser.add_argument("--teacher", type=Path, required=True, help="of training.text_sounds")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    database = fetch_wordnet(options.work / "wordnet")
    pieces = read_pieces(options.start)
    trained, _, _ = read_names(database, public=True)
    listed = {word for name in trained for word in words_of(name.text)}
    listed.update(word for name in read_class_names(SHARED / "text") for word in words_of(name))
    whole = {piece: n for n, piece in enumerate(pieces) if not piece.startswith("##")}
    forms = share_rows(pieces, database)
    fixed = {*forms, *(word for word in whole if word in listed)}
    words = [word for word in other_words(whole, database) if word not in fixed]
    shared = [n for n, word in enumerate(words) if word in whole]

    teacher, dictionary = SoundTeacher().eval(), Dictionary(database)
    teacher.read(options.teacher)
    if not (out / "vectors.npy").exists():
        print(f"{len(words)} words, {len(shared)} of them with a row", flush=True)
        np.save(out / "vectors.npy", teacher.encode([define(dictionary, word) for word in words]))
    vectors = torch.from_numpy(np.load(out / "vectors.npy"))
    with torch.no_grad():
        wanted = join(vectors, teacher.tags(vectors).exp())
    answers = Answers(options.start, pieces)
    wanted[shared] += answers.rows[[whole[words[n]] for n in shared]]
    heard = [n for piece, n in whole.items() if piece in listed]
    numbers = [heard[n] for n in nearest(wanted, answers.rows[heard])]
    names = dict(zip(words, numbers, strict=True))
    names |= {name: names.get(pieces[n], n) for name, n in forms.items()}

    kept = [n for n, piece in enumerate(pieces) if piece not in names]
    moved = {old: new for new, old in enumerate(kept)}
    names = {name: moved[old] for name, old in names.items()}
    print(f"{len(kept)} rows, {len(names)} further names, {len(shared)} of them had a row")
    model = build(answers.weights, answers.packed[kept], answers.books, answers.anchors, TAU)
    (out / "text.onnx").write_bytes(model.SerializeToString())
    write_tokenizer(out / "tokenizer.json", [pieces[n] for n in kept], names)


if __name__ == "__main__":
    main()
