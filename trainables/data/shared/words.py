"""The words of a text, and their numbers as a sample."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np


@cache
def _pattern() -> re.Pattern[str]:
    """A word of letters, with apostrophes inside; a number; or a single sign."""
    # Marks, as the vowels of Hindi are, belong to the letter before them; to `re` they are none.
    signs = map(chr, range(0x10000))  # those beyond are of scripts of the past, and slow
    marks = "".join(sign for sign in signs if unicodedata.category(sign).startswith("M"))
    letters = rf"[^\W\d_]+(?:[{marks}]+[^\W\d_]*)*"
    return re.compile(rf"{letters}(?:'{letters})*|\d+(?:[.,]\d+)*|\S")


def words_of(text: str) -> list[str]:
    """The words of a text in lower case: letters with apostrophes inside, numbers, single signs.

    Signs that look alike are one: composed letters, and both apostrophes.
    """
    plain = text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").lower()
    found: list[str] = _pattern().findall(unicodedata.normalize("NFC", plain))
    return found


def laid_out(numbers: Sequence[int], length: int, keep: str) -> np.ndarray:
    """[length] int32 of a text's words: its first ones, then zeros; or zeros, then its last ones.

    A text without a word has one unknown word, 1.
    """
    found = np.zeros(length, dtype=np.int32)
    if keep == "first":
        kept = numbers[:length] or [1]
        found[: len(kept)] = kept
    else:
        kept = numbers[-length:] or [1]
        found[length - len(kept) :] = kept
    return found
