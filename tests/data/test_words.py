"""The words of hard texts, written down by hand, and a text's numbers as a sample."""

import numpy as np
import pytest

from trainables.data.shared.words import laid_out, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop", ["don't", "stop"]),
        ("don\u2019t", ["don't"]),  # the typographic apostrophe is the same word
        ("rock'n'roll 'tis dogs'", ["rock'n'roll", "'", "tis", "dogs", "'"]),
        ("3.14, 1,000. v2.0", ["3.14", ",", "1,000", ".", "v", "2.0"]),
        ("COVID19 a_b", ["covid", "19", "a", "_", "b"]),
        ("Well... :-)", ["well", ".", ".", ".", ":", "-", ")"]),
        ("E\u0301COLE \u00e9cole", ["\u00e9cole", "\u00e9cole"]),  # composed or not: one word
        ("na\u00efve\u2014yes", ["na\u00efve", "\u2014", "yes"]),
        # Vowels of Hindi are marks, no letters.
        ("\u0939\u093f\u0928\u094d\u0926\u0940 x", ["\u0939\u093f\u0928\u094d\u0926\u0940", "x"]),
        ("a\u00a0b\u2028c\x85d\x1ce\n\tf", ["a", "b", "c", "d", "e", "f"]),  # all are spaces
        ("\u2764 \U0001f600x", ["\u2764", "\U0001f600", "x"]),
        ("\u0661\u0662 \u0130", ["\u0661\u0662", "i\u0307"]),
        (" \n ", []),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_no_word_has_a_space_in_it() -> None:
    """So each is a line of the vocabulary's file."""
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000)]))
    assert not any(sign.isspace() for word in words_of(every) for sign in word)
    assert words_of(f"x{every}"[:1]) == ["x"]


@pytest.mark.parametrize(
    ("numbers", "keep", "sample"),
    [
        ([5, 6], "first", [5, 6, 0, 0]),
        ([5, 6], "last", [0, 0, 5, 6]),
        ([2, 3, 4, 5, 6], "first", [2, 3, 4, 5]),
        ([2, 3, 4, 5, 6], "last", [3, 4, 5, 6]),
        ([], "first", [1, 0, 0, 0]),
        ([], "last", [0, 0, 0, 1]),
    ],
)
def test_a_sample_has_the_first_or_the_last_words(numbers, keep, sample) -> None:
    found = laid_out(numbers, 4, keep)
    assert found.dtype == np.int32 and found.tolist() == sample
