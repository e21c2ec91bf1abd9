"""Texts as the numbers that a registered model of texts takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trainables.data.shared.words import laid_out, words_of
from trainables.files.digest import file_digest
from trainables.files.regular import read_text
from trainables.loading.vocabulary import FIRST, UNKNOWN, read_vocabulary
from trainables.problems import FieldError

MEND = "Give the folder of a registered version's files, as mlflow.artifacts.download_artifacts."


def encode(texts: Sequence[str], directory: str | Path) -> np.ndarray:
    """int32 [N, L]: the numbers of the texts' words, by the vocabulary of a registered model.

    directory: the files of its version. Raises FieldError.
    """
    folder = Path(directory) / "calstudy"
    words = folder / "vocabulary.txt"
    try:
        record = json.loads(read_text(folder / "record.json"))
        digest = file_digest(words)
    except (OSError, ValueError) as error:
        raise FieldError(
            "directory", f"{directory} has no model of texts ({error})", MEND
        ) from None
    if "keep" not in record:
        found = f"the model in {directory} does not take the words that calstudy makes of texts"
        raise FieldError("directory", found, MEND)
    if digest != record["vocabulary_sha256"]:
        found = f"{words} is not the one that was registered"
        raise FieldError("directory", found, "Download it again.")
    if isinstance(texts, str):
        raise FieldError("texts", "is a text, not a list of them", "Write encode([text], ...).")
    known = {word: number for number, word in enumerate(read_vocabulary(words), FIRST)}
    (length,) = record["input_shape"]
    samples = np.zeros((len(texts), length), dtype=np.int32)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise FieldError("texts", f"number {row} is {type(text).__name__}, not text")
        numbers = [known.get(word, UNKNOWN) for word in words_of(text)]
        samples[row] = laid_out(numbers, length, record["keep"])
    return samples
