"""Give words that the lexicon does not contain new rows in the exported text tower.

The tower's layers, its anchors and the rows of all words of the lexicon stay as they are, so that
label names and phrases of known words give what they gave. The other words' rows are computed from
a teacher that reads definitions (`training.text_sounds`): its vectors are mapped to the table by
least squares over the words that have a row already. The pieces are chosen again, and other forms
of a piece share its row (`training.text_exchange`).

    python -m training.text_rows --teacher WORK/sounds.pt --out FOLDER
"""

import argparse
from pathlib import Path

import numpy as np

from training.export_text import OUT, build, read_exported
from training.text_corpus import WORK, fetch_wordnet, words_of
from training.text_distil import read_pieces
from training.text_exchange import exchange, share_rows
from training.text_lexicon import TAU
from training.text_meanings import Dictionary
from training.text_names import read_names
from training.text_sounds import SoundTeacher, define
from training.text_vocabulary import unpack, write_tokenizer

PULL = 2e-4


def map_rows(vectors: np.ndarray, table: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return rows for all vectors, by a linear map fitted to the known rows of the table."""
    given = np.concatenate([vectors, np.ones((len(vectors), 1))], 1).astype(np.float64)
    size = given.shape[1]
    gram = given[known].T @ given[known] + PULL * known.sum() / size * np.eye(size)
    mapped: np.ndarray = given @ np.linalg.solve(gram, given[known].T @ table[known])
    return mapped.astype(np.float32)


def pack(rows: np.ndarray, books: np.ndarray) -> np.ndarray:
    """Return the numbers of the nearest entries of the codebooks, one byte per group of columns."""
    groups, _, columns = books.shape
    codes = np.empty((len(rows), groups), np.uint8)
    for group, book in enumerate(books.astype(np.float32)):
        part = rows[:, columns * group : columns * (group + 1)]
        codes[:, group] = (np.square(book).sum(1) - 2 * part @ book.T).argmin(1)
    return codes


def main() -> None:
    """Write `text.onnx` and `tokenizer.json`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--start", type=Path, default=OUT, help="exported tower to start from")
    parser.add_argument("--teacher", type=Path, required=True, help="of training.text_sounds")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    database = fetch_wordnet(options.work / "wordnet")
    before = read_pieces(options.start)
    pieces = exchange(before, database)
    if not (out / "rows.npy").exists():
        teacher, dictionary = SoundTeacher().eval(), Dictionary(database)
        teacher.read(options.teacher)
        words = [define(dictionary, piece.removeprefix("##")) for piece in pieces]
        np.save(out / "rows.npy", teacher.encode(words))
    weights, tables = read_exported(options.start / "text.onnx")
    table = unpack(tables["packed"], tables["scale"])
    last_fragment = max(n for n, piece in enumerate(pieces) if piece.startswith("##"))
    whole = np.arange(len(pieces)) > last_fragment
    same = np.array([new == old for new, old in zip(pieces, before, strict=True)])
    names, _, _ = read_names(database, public=True)
    listed = {word for name in names for word in words_of(name.text)}
    changed = whole & ~np.array([piece in listed for piece in pieces]) | ~same
    mapped = map_rows(np.load(out / "rows.npy"), table, whole & same)
    packed = tables["packed"].copy()
    packed[changed] = pack(mapped[changed], tables["scale"])
    print(f"{changed.sum()} of {len(pieces)} rows changed")
    model = build(weights, packed, tables["scale"], tables["anchors"], TAU)
    (out / "text.onnx").write_bytes(model.SerializeToString())
    write_tokenizer(out / "tokenizer.json", pieces, share_rows(pieces, database))


if __name__ == "__main__":
    main()
