"""The vocabulary of texts: the most frequent words of train, and the numbers that stand for them.

In samples 0 pads, 1 is a word outside the vocabulary, and n >= 2 is the word n - 2 of it. A cache
keeps the vocabulary in `vocabulary.txt`, a word a line, and vectors of words in `vectors.npy`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from trainables.dataset import RawData, Words
from trainables.files.data_files import MOST_LINE, byte_lines, open_data_file
from trainables.inputs import WORDED, Inputs
from trainables.kinds import Kind
from trainables.loading.splitting import Rows
from trainables.machine import memory
from trainables.plain import Plain
from trainables.problems import FieldError

VOCABULARY = "vocabulary.txt"
VECTORS = "vectors.npy"
FIRST = 2  # the number of the first word
UNKNOWN = 1
FEWEST = 2  # words of a vocabulary
CHUNK = 4096  # samples at a time


def words_in(samples: np.ndarray, kind: Kind) -> np.ndarray:
    """The numbers that are words, a view. samples: [N, ...] of this kind."""
    return samples if kind == "words" else samples[..., 0]


# ---- made of train -------------------------------------------------------------------------------


def frequent(
    numbers: np.ndarray, rows: np.ndarray, words: Sequence[str], most: int
) -> tuple[list[str], np.ndarray]:
    """The vocabulary, the most frequent words of these rows, ties by word; and [W + 2] int32, the
    new number of each old one.

    numbers: int32 [N, ...] of samples, by all W words of the source. Raises FieldError if train has
    fewer than two words.
    """
    counts = np.zeros(len(words) + FIRST, dtype=np.int64)
    for start in range(0, len(rows), CHUNK):
        chunk = numbers[rows[start : start + CHUNK]]
        counts += np.bincount(chunk.reshape(-1), minlength=len(counts))
    there: list[int] = np.flatnonzero(counts[FIRST:]).tolist()
    if len(there) < FEWEST:
        found = "no word" if not len(there) else f"one word alone, '{words[there[0]]}'"
        mend = "Name the column of the texts." if len(there) else "Is this the column of the texts?"
        raise FieldError("text", f"the texts of train have {found}", mend)
    kept = sorted(there, key=lambda place: (-counts[place + FIRST], words[place]))[:most]
    numbering = np.full(len(counts), UNKNOWN, dtype=np.int32)
    numbering[0] = 0
    numbering[np.array(kept) + FIRST] = np.arange(len(kept)) + FIRST
    return [words[place] for place in kept], numbering


def numbering_by(words: Sequence[str], vocabulary: Sequence[str]) -> np.ndarray:
    """[W + 2] int32: the number in a vocabulary for each number of these W words."""
    known = {word: number for number, word in enumerate(vocabulary, FIRST)}
    return np.array([0, UNKNOWN, *(known.get(word, UNKNOWN) for word in words)], dtype=np.int32)


def renumbered(samples: np.ndarray, kind: Kind, numbering: np.ndarray) -> np.ndarray:
    """A copy of the samples, with other numbers for their words."""
    found = samples.copy()
    words_in(found, kind)[...] = numbering[words_in(samples, kind)]
    return found


def unknown_share(numbers: np.ndarray) -> float:
    """The share of words that the vocabulary lacks. numbers: int32, 0 where there is no word."""
    return float((numbers == UNKNOWN).sum() / max(1, (numbers > 0).sum()))


def check_words(raw: RawData, inputs: Inputs) -> None:
    """Raise FieldError unless the samples are numbers of the source's words, if of any."""
    if (raw.words is not None) != (inputs.kind in WORDED):
        found = f"samples are {inputs.shown}, {'with' if raw.words else 'without'} words"
        raise FieldError("", found, "A data set of texts gives RawData.words, another none.")
    if raw.words is None:
        return
    for split in filter(None, (raw.train, raw.validation, raw.test)):
        numbers = words_in(split.images, inputs.kind)
        least, most = int(numbers.min()), int(numbers.max())
        if least < 0 or most >= len(raw.words.all) + FIRST:
            there = f"its words are numbered 0 to {len(raw.words.all) + FIRST - 1}"
            raise FieldError("", f"samples have numbers from {least} to {most}, {there}")


def write_words(folder: Path, rows: Rows, kind: Kind, words: Words) -> dict[str, Plain]:
    """Write the vocabulary, the splits numbered by it, and vectors of its words, into a cache.

    Returns what meta.json says of them: the number of `words`, that of `vectors` if there are any,
    and of `texts` how many are cut, how many are empty (without a word), and the share of unknown
    words of train and validation. Raises FieldError.
    """
    train, taken = rows["train"]
    vocabulary, numbering = frequent(words_in(train.images, kind), taken, words.all, words.most)
    facts: dict[str, Plain] = {"cut": words.cut}
    empty = 0
    for name, (split, there) in rows.items():
        numbers = words_in(split.images, kind)
        empty += sum(int((numbers[row] < FIRST).all()) for row in there)
        samples = renumbered(split.images[there], kind, numbering)
        if name != "test":  # it stays sealed
            facts[f"unknown_{name}"] = unknown_share(words_in(samples, kind))
        np.save(folder / f"{name}.npy", samples, allow_pickle=False)
    if 2 * empty > (total := sum(len(there) for _, there in rows.values())):
        found = f"{empty:,} of {total:,} texts have no word"
        raise FieldError("text", found, "Is this the column of the texts?")
    write_vocabulary(folder / VOCABULARY, vocabulary)
    said: dict[str, Plain] = {"words": len(vocabulary) + FIRST, "texts": {**facts, "empty": empty}}
    if words.vectors is not None:
        vectors = vectors_of(words.vectors, vocabulary)
        np.save(folder / VECTORS, vectors, allow_pickle=False)
        said["vectors"] = vectors.shape[1]
    return said


# ---- files ---------------------------------------------------------------------------------------


def write_vocabulary(file: Path, vocabulary: Sequence[str]) -> None:
    file.write_text("".join(f"{word}\n" for word in vocabulary), encoding="utf-8", newline="\n")


def read_vocabulary(file: Path) -> list[str]:
    """The words of the file, by number - 2."""
    return file.read_bytes().decode().split("\n")[:-1]  # other signs may look like ends of lines


def vocabulary_digest(vocabulary: Sequence[str]) -> str:
    """sha256 of the file that `write_vocabulary` writes."""
    return hashlib.sha256("".join(f"{word}\n" for word in vocabulary).encode()).hexdigest()


# ---- vectors -------------------------------------------------------------------------------------


def vectors_of(file: Path, vocabulary: Sequence[str]) -> np.ndarray:
    """float32 [V + 2, D]: the vectors of the words; 0 where the file has none.

    file: text as of GloVe, on each line a word and its D numbers; a first line of two whole
    numbers, as of word2vec, is left out. Raises FieldError.
    """
    known = {word.encode(): number for number, word in enumerate(vocabulary, FIRST)}
    found: np.ndarray | None = None
    taken = 0
    for number, word, numbers in _lines(file):
        place = known.pop(word, None)  # a word's first vector counts
        if place is None:
            continue
        values = numbers.split(b" ")
        if found is None:
            found = _room(file, len(vocabulary) + FIRST, len(values))
        try:
            found[place] = np.array(values, dtype=np.float32)
            is_finite = bool(np.isfinite(found[place]).all())
        except ValueError:
            is_finite = False
        if not is_finite:
            problem = f"the vector of '{word.decode()}' has a value that is no finite number"
            raise FieldError("vectors", f"{file}, line {number}: {problem}")
        taken += 1
    if found is None or not taken:
        mend = "Write a line for each word, in lower case: the word, then its numbers."
        raise FieldError("vectors", f"{file} has no word of train's vocabulary", mend)
    return found


def _lines(file: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """The number of each line, from 1, its word and its numbers; a word may have spaces."""
    width = 0
    with open_data_file("vectors", file) as opened:
        first = opened.readline(MOST_LINE).split()
        has_sizes = len(first) == 2 and all(map(bytes.isdigit, first))
        opened.seek(0)
        for number, line in islice(byte_lines("vectors", file, opened), has_sizes, None):
            line = line.rstrip(b" \r\n")
            spaces = line.count(b" ")
            if not line:
                continue
            if not width:
                width = spaces
                if not width:
                    mend = "Write a word and its numbers, with spaces between."
                    raise FieldError("vectors", f"{file}, line {number} has no numbers", mend)
            if spaces == width:
                word, _, numbers = line.partition(b" ")
                yield number, word, numbers
                continue
            *word_parts, last = line.rsplit(b" ", width)[0].split(b" ")
            if spaces < width or (word_parts and _is_decimal(last)):
                has = f"has {spaces:,} numbers, those before have {width:,}"
                raise FieldError("vectors", f"{file}, line {number} {has}", "Is it whole?")
            numbers = b" ".join(line.rsplit(b" ", width)[1:])
            yield number, b" ".join([*word_parts, last]), numbers


def _is_decimal(text: bytes) -> bool:
    """Whether a text is a number with a fraction, as those of a vector are."""
    try:
        float(text)
    except ValueError:
        return False
    return b"." in text


def _room(file: Path, words: int, width: int) -> np.ndarray:
    needed = words * width * np.dtype(np.float32).itemsize
    if needed > memory():
        found = f"vectors of {width:,} numbers for {words:,} words of {file} take"
        limit = f"this machine's memory has {memory() / 1e9:,.1f} GB"
        mend = "Lower `vocabulary`."
        raise FieldError("vectors", f"{found} {needed / 1e9:,.1f} GB, {limit}", mend)
    return np.zeros((words, width), dtype=np.float32)
