"""Treebanks made up for tests."""

import random
from pathlib import Path

FILLERS = 200  # words beside `not`
DEEPEST = 5  # negations in a sentence


def negation(chosen: random.Random, filler: str = "w") -> str:
    """A sentence, positive if its negations are even in number, as is each part of it.

    Half of the sentences have none, half of the others one, and so on: who only sees whether there
    is any is right of .84.
    """

    def word() -> str:
        return f"{filler}{chosen.randrange(FILLERS)}"

    label = 4
    tree = f"({label} (2 {word()}) ({label} {word()}))"
    negations = 0
    while negations < DEEPEST and chosen.random() < 0.5:
        negations += 1
        label = 4 - label
        tree = f"({label} (2 not) {tree})"
        while chosen.random() < 0.3:
            tree = f"({label} (2 {word()}) {tree})"
    return tree


def write_negations(folder: Path, train: int, other: int = 0, filler: str = "w") -> Path:
    """A treebank of nested negations. other: trees of dev.txt and of test.txt. filler: what words
    begin with."""
    chosen = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("dev", other), ("test", other)):
        if count:
            lines = (negation(chosen, filler) + "\n" for _ in range(count))
            (folder / f"{name}.txt").write_text("".join(lines))
    return folder
