"""The kinds of samples, and what people call them. Light: readers of a study use it too."""

import re
from typing import Literal, get_args

Kind = Literal["image", "features", "words", "trees"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FEWEST = 10  # samples, or groups of them, that a resample says something of
NOUNS: dict[str, str] = {
    "image": "images",
    "features": "rows",
    "words": "texts",
    "trees": "trees",
}


def unit_of(column: str) -> str:
    """What the groups of a column are called: `patients` of `patient`, or of `PatientID`."""
    word = re.sub(r"(?<=[a-z])(_id|Id|ID|_ID)$", "", column).lower()
    if not re.fullmatch("[a-z]+", word):
        return "groups"
    if re.search("[^siu]s$", word):  # it is a plural
        return word
    if re.search("[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"


def too_few(number: int, unit: str) -> str:
    """Why there are no intervals: `7 patients are too few to resample`; empty where there are."""
    if number >= FEWEST:
        return ""
    found = f"{count_of(number, unit)} {'is' if number == 1 else 'are'} too few to resample"
    return f"{found}; {FEWEST} are needed"


def singular(unit: str) -> str:
    """One of a unit: `patient` of `patients`."""
    if unit.endswith("ies"):
        return f"{unit[:-3]}y"
    if unit.endswith(("sses", "xes", "ches", "shes")):
        return unit[:-2]
    return unit.removesuffix("s")


def count_of(number: int, unit: str) -> str:
    """`1 patient`, `1,214 patients`."""
    return f"{number:,} {singular(unit) if number == 1 else unit}"
