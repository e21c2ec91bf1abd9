"""Parse trees of sentences, with a label at every node, as of the Stanford Sentiment Treebank.

Socher et al. 2013.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from trainables.data.shared.splits import limited
from trainables.data.shared.trees import Node, TreeError, tree_of
from trainables.dataset import Dataset, Header, RawData, RawSplit, Words
from trainables.fields import choice, number, path_text
from trainables.files.data_files import digest_of, lines_of
from trainables.files.digest import known_digest
from trainables.inputs import NODE
from trainables.kinds import NOUNS
from trainables.loading.vocabulary import FIRST
from trainables.plain import Value
from trainables.problems import FieldError, nearest

FILES = {"train": "train.txt", "validation": "dev.txt", "test": "test.txt"}
NEUTRAL = 2
NAMES = {
    "binary": ("negative", "positive"),
    "five": ("very negative", "negative", "neutral", "positive", "very positive"),
}


@dataclass(frozen=True, kw_only=True)
class TreeBank(Dataset):
    """`path` has train.txt and, if there are such splits, dev.txt and test.txt: a tree a line, such
    as `(3 (2 It) (3 (2 is) (4 great)))`. Labels are 0, very negative, to 4, very positive.

    binary: 0 and 1 are negative, 3 and 4 positive, nodes of 2 have no label, and sentences of 2 are
    left out.
    """

    noun: ClassVar[str] = NOUNS["trees"]

    path: str = path_text(doc="a folder with train.txt, dev.txt and test.txt")
    classes: str = choice("binary", "five", doc="negative and positive, or all five labels")
    vocabulary: int = number(20_000, low=2, doc="words that are known: the most frequent of train")
    vectors: str | None = path_text(
        None, doc="file with vectors of words, as GloVe has: a line for each, word and numbers"
    )
    limit: int | None = number(None, low=1, doc="maximum trees per split, stratified by label")

    def source_digest(self) -> str:
        options: list[object] = [self.classes, self.vocabulary]
        if self.vectors is not None:
            options.append(digest_of("vectors", self._vectors(), known_digest))
        if self.limit is not None:
            options.append({"limit": self.limit})
        digest = hashlib.sha256(json.dumps(options).encode())
        for split, file in self._files().items():
            digest.update(f"{split} {digest_of('path', file)}\n".encode())
        return digest.hexdigest()

    def read(self) -> RawData:
        names = NAMES[self.classes]
        trees = {split: self._read(split, file) for split, file in self._files().items()}
        words: dict[str, int] = {}
        most = max(len(tree) for found in trees.values() for tree in found)
        splits = {split: self._split(found, most, words) for split, found in trees.items()}
        if len(words) < 2:
            found = f"{self.path} has one word alone, '{next(iter(words))}'"
            raise FieldError("path", found, "Are these the trees?")
        vectors = None if self.vectors is None else self._vectors()
        raw = RawData.of(names, splits)
        return replace(raw, words=Words(tuple(words), self.vocabulary, vectors))

    def samples_header(self, where: dict[str, Value] | None = None) -> Header:
        self._refuse_where(where)
        names = dict(enumerate(NAMES[self.classes]))
        shape = (1, NODE)  # trees of any size fit a network
        return Header(self.source_rows(), shape, np.arange(len(names)), names, kind="trees")

    def _read(self, split: str, file: Path) -> list[list[Node]]:
        """The trees of a file whose root has a label. Raises FieldError."""
        names = NAMES[self.classes]
        trees = [tree for tree in _trees(file) if self._label(tree[-1]) is not None]
        labels = np.array([self._label(tree[-1]) for tree in trees], dtype=np.int64)
        if not trees:
            some = " that is positive or negative" if self.classes == "binary" else ""
            raise FieldError("path", f"{file} has no tree{some}", "Write one a line.")
        for label, name in enumerate(names):
            if split == "train" and not (labels == label).any():
                mend = "Write classes: binary, or add some." if len(names) > 2 else "Add some."
                raise FieldError("classes", f"no tree of {file} is {name}", mend)
        return [trees[row] for row in limited(labels, self.limit, split, len(names))]

    def _split(self, trees: list[list[Node]], most: int, words: dict[str, int]) -> RawSplit:
        """Trees as samples of `most` nodes. words: their numbers, which new ones join."""
        samples = np.zeros((len(trees), most, NODE + 1), dtype=np.int32)
        for tree, rows in zip(trees, samples, strict=True):
            for row, node in enumerate(tree):
                word = words.setdefault(node.word, FIRST + len(words)) if node.word else 0
                label = self._label(node)
                mark = 0 if label is None else label + 1
                rows[row] = (word, node.left, node.right, node.height, mark)
        roots = [self._label(tree[-1]) for tree in trees]
        return RawSplit(samples, np.array(roots, dtype=np.int64))

    def _label(self, node: Node) -> int | None:
        """A node's class; None if it has none."""
        if self.classes == "five":
            return node.label
        return None if node.label == NEUTRAL else int(node.label > NEUTRAL)

    def _files(self) -> dict[str, Path]:
        """The file of each split that there is; train always."""
        folder = Path(self.path)
        if not folder.is_dir():
            found = "is not a folder" if folder.exists() else "does not exist"
            raise FieldError("path", f"{folder} {found}", "Give the folder with train.txt.")
        files = {split: folder / name for split, name in FILES.items()}
        if not files["train"].exists():
            others = [file.name for file in folder.iterdir()]
            raise FieldError("path", f"{folder} has no train.txt", nearest("train.txt", others))
        return {split: file for split, file in files.items() if file.exists()}

    def _vectors(self) -> Path:
        file = Path(str(self.vectors))
        if not file.exists():
            raise FieldError("vectors", f"there is no {file}")
        return file


def _trees(file: Path) -> Iterator[list[Node]]:
    """The tree of each line; empty lines are left out. Raises FieldError."""
    for row, line in lines_of("path", file, None):
        try:
            tree = tree_of(line)
        except TreeError as error:
            found = f"{file}, line {row}: {error.found}"
            raise FieldError("path", found, error.mend) from None
        if tree:
            yield tree
