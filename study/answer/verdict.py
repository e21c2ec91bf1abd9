"""The model to take beside default cross-entropy: a code and a sentence."""

from __future__ import annotations

from collections.abc import Mapping

from study.answer.phrases import first_upper, label_of, listed
from study.answer.said import IS_DEFAULT, NOT_COMPARED, VERDICTS
from study.uncertainty.words import AS_GOOD, BETTER, UNDECIDED, WORSE, overall

PLAIN = "default cross-entropy"
# How the sentence begins where the model is neither better nor worse.
NEITHER = {
    UNDECIDED: f"Not shown to beat {PLAIN}: ",
    AS_GOOD: f"No better than {PLAIN}: ",
}


def verdict(words: Mapping[str, str], is_default: bool, why_not: str) -> tuple[str, str]:
    """The code, and the sentence.

    words: for the model, by metric; none where it is not compared. why_not: then why, empty
    without default cross-entropy in the study.
    """
    if words:
        return VERDICTS[overall(words)], _compared(words)
    if is_default:
        return IS_DEFAULT, f"It is {PLAIN}."
    return NOT_COMPARED, f"Not compared with {PLAIN}: {why_not}." if why_not else ""


def _compared(words: Mapping[str, str]) -> str:
    """Each word: `Better than default cross-entropy in NLL, undecided in accuracy and ECE.`"""
    begins = NEITHER.get(overall(words), "")
    parts: list[str] = []
    for word in (BETTER, WORSE, AS_GOOD, UNDECIDED):
        if names := [label_of(name) for name, each in words.items() if each == word]:
            than = "" if parts or begins else f" than {PLAIN}"
            parts.append(f"{word}{than} in {listed(names)}")
    return f"{first_upper(begins + ', '.join(parts))}."
