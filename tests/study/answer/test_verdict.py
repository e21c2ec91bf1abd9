"""The verdict's sentence: every word, each with its metrics."""

import pytest

from study.answer.verdict import verdict

A, B, W, N = "as good", "better", "worse", "undecided"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            (A, N, A, A),
            "undecided",
            "Not shown to beat default cross-entropy: as good in accuracy, NLL and Brier score,"
            " undecided in ECE.",
        ),
        (
            (N, N, N, N),
            "undecided",
            "Not shown to beat default cross-entropy: undecided in accuracy, ECE, NLL and"
            " Brier score.",
        ),
        (
            (A, A, A, A),
            "as_good",
            "No better than default cross-entropy: as good in accuracy, ECE, NLL and Brier score.",
        ),
        (
            (N, N, B, B),
            "better",
            "Better than default cross-entropy in NLL and Brier score, undecided in accuracy"
            " and ECE.",
        ),
        (
            (B, B, B, B),
            "better",
            "Better than default cross-entropy in accuracy, ECE, NLL and Brier score.",
        ),
        (
            (A, N, W, N),
            "worse",
            "Worse than default cross-entropy in NLL, as good in accuracy, undecided in ECE"
            " and Brier score.",
        ),
        (
            (W, N, B, A),
            "better_and_worse",
            "Better than default cross-entropy in NLL, worse in accuracy, as good in Brier score,"
            " undecided in ECE.",
        ),
    ],
)
def test_it_says_every_word(words: tuple[str, ...], code: str, said: str) -> None:
    metrics = ("accuracy", "ts_ece", "ts_nll", "ts_brier")
    assert verdict(dict(zip(metrics, words, strict=True)), False, "") == (code, said)


@pytest.mark.parametrize(
    ("is_default", "why_not", "found"),
    [
        (True, "", ("is_default", "It is default cross-entropy.")),
        (False, "x", ("not_compared", "Not compared with default cross-entropy: x.")),
        (False, "", ("not_compared", "")),
    ],
)
def test_without_words_it_says_why(is_default: bool, why_not: str, found: tuple[str, str]) -> None:
    assert verdict({}, is_default, why_not) == found
