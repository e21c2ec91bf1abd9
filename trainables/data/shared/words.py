"""The words of a text."""

import re
import unicodedata
from functools import cache


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
