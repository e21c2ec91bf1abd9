"""Texts: studies of words, from the file to the audit.

    python -m benchmarks.texts newsgroups 20newsgroups.parquet DIRECTORY   # 4 methods x 3 seeds
    python -m benchmarks.texts sentences text-small.parquet DIRECTORY      # cross-entropy, 3 seeds

`newsgroups` takes 20 Newsgroups by date with the columns split, class and text, and leaves the
headers out; `sentences` takes the rows of SST-2 with the columns dataset, split, class and text.
Both write a study's file and its data, and run the study's commands one after another.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from benchmarks.rows import run_commands

NEWSGROUPS = """
name: newsgroups
data: {{name: text, path: {path}, text: text, label: class, validation: 0.1, length: 400}}
model: bag_of_words
methods:
  - {{label: cross_entropy, name: cross_entropy}}
  - {{label: focal, name: focal, gamma: 3.0}}
  - {{label: label_smoothing, name: label_smoothing, epsilon: 0.05}}
  - {{label: mbls, name: mbls, margin: 10.0, weight: 0.1}}
trials: 3
epochs: 12
batch_size: 128
optimizer: {{name: adam, lr: 0.01, weight_decay: 0.0}}
"""
SENTENCES = """
name: sentences
data: {{name: text, path: {path}, text: text, label: class, length: 56}}
model: bag_of_words
methods: [cross_entropy]
trials: 3
epochs: 8
batch_size: 128
optimizer: {{name: adam, lr: 0.003, weight_decay: 0.0}}
"""


def newsgroups(texts: Path, folder: Path) -> None:
    """Their bodies: the headers name the group."""
    found = pd.read_parquet(texts)
    bodies = found["text"].str.partition("\n\n")[2]
    _run("newsgroups", NEWSGROUPS, found[["split", "class"]].assign(text=bodies), folder)


def sentences(texts: Path, folder: Path) -> None:
    """The sentences of SST-2."""
    found = pd.read_parquet(texts)
    of_sst = found[found["dataset"] == "sst2"]
    _run("sentences", SENTENCES, of_sst[["split", "class", "text"]], folder)


def _run(name: str, study: str, table: pd.DataFrame, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table.to_parquet(folder / f"{name}.parquet", index=False)
    (folder / f"{name}.yaml").write_text(study.format(path=f"{name}.parquet").lstrip())
    run_commands(folder, name, "confirm", name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    for name in ("newsgroups", "sentences"):
        part = parts.add_parser(name)
        part.add_argument("texts", type=Path)
        part.add_argument("folder", type=Path)
    options = parser.parse_args()
    {"newsgroups": newsgroups, "sentences": sentences}[options.part](options.texts, options.folder)


if __name__ == "__main__":
    main()
