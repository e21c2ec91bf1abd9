"""Treebanks: the format of the Stanford treebank, against trees written out by hand."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trainables.data.shared.trees import Node, TreeError, tree_of
from trainables.data.tree_bank import TreeBank
from trainables.dataset import RawData
from trainables.loading.cache import load_split, prepare
from trainables.problems import FieldError

LINE = "(3 (2 (2 The) (2 Rock)) (4 (3 (2 is) (4 great)) (2 .)))"
# The same tree in post-order, by hand.
NODES = [
    Node("the", 0, 0, 0, 2),
    Node("rock", 0, 0, 0, 2),
    Node("", 1, 2, 1, 2),
    Node("is", 0, 0, 0, 2),
    Node("great", 0, 0, 0, 4),
    Node("", 4, 5, 1, 3),
    Node(".", 0, 0, 0, 2),
    Node("", 6, 7, 2, 4),
    Node("", 3, 8, 3, 3),
]


def bank(folder: Path, train: str, dev: str = "", test: str = "", **options: object) -> TreeBank:
    for name, lines in (("train", train), ("dev", dev), ("test", test)):
        if lines:
            (folder / f"{name}.txt").write_text(lines, encoding="utf-8")
    return TreeBank(path=str(folder), **options)


def test_a_line_is_its_nodes_in_post_order() -> None:
    assert tree_of(LINE) == NODES
    assert tree_of("  ( 0 \t Bad )\n") == [Node("bad", 0, 0, 0, 0)]
    assert tree_of("\n") == []


@pytest.mark.parametrize(
    ("token", "word"),
    [
        ("-LRB-", "("),
        ("-rrb-", ")"),
        ("1\\/2", "1/2"),
        ("\\*", "*"),
        ("2\N{NO-BREAK SPACE}1\\/2", "2\N{NO-BREAK SPACE}1/2"),
        ("É", "é"),
        ("0", "0"),
    ],
)
def test_words_are_as_they_are_written_elsewhere(token: str, word: str) -> None:
    assert tree_of(f"(2 {token})")[0].word == word


BAD = {
    "(2 (2 a) (3 b)": ("1 bracket is not closed", "Each ( needs its )"),
    "(2 (2 (2 a)": ("2 brackets are not closed", "Each ( needs its )"),
    "(2 a))": ("a bracket closes nothing", "Each ( needs its )"),
    "a (2 b)": ("it begins with 'a'", "Each ( needs its )"),
    ")": ("it begins with ')'", "Each ( needs its )"),
    "(2 a) (3 b)": ("the tree ends before its line", "Write one tree a line"),
    "(2 a) b": ("the tree ends before its line", "Write one tree a line"),
    "(3 (2 a))": ("a node has 1 child, not two", "put an only child in its parent's place"),
    "(3 (2 a) (2 b) (2 c))": ("a node has 3 children, not two", "join two under a new node"),
    "(3 a b)": ("a node has the word 'b' beside another", "Give each word a node of its own"),
    "(3 a (2 b))": ("a node has the word 'a' beside another", "Give each word a node of its own"),
    "(3)": ("a node has no word and no children", "Remove it"),
    "()": ("a node has no label", "Write (LABEL WORD)"),
    "((2 a) (2 b))": ("a node has no label", "Write (LABEL WORD)"),
    "(good (2 a) (2 b))": ("the label 'good' is no number", "whole numbers from 0, very negative"),
    "(2.5 a)": ("the label '2.5' is no number", "whole numbers from 0"),
    "(-1 a)": ("the label '-1' is no number", "whole numbers from 0"),
    "(5 a)": ("the label is 5", "whole numbers from 0, very negative, to 4"),
}


@pytest.mark.parametrize("line", BAD)
def test_what_is_no_such_tree_is_said_with_its_mend(line: str) -> None:
    found, mend = BAD[line]
    with pytest.raises(TreeError) as error:
        tree_of(line)
    assert found in error.value.found and mend in error.value.mend
    assert "\n" not in str(error.value)


def test_a_tree_has_at_most_200_nodes() -> None:
    def chain(leaves: int) -> str:
        return "(2 w)" if leaves == 1 else f"(2 (2 w) {chain(leaves - 1)})"

    assert len(tree_of(chain(100))) == 199
    with pytest.raises(TreeError, match="more than 200 nodes"):
        tree_of(chain(101))


def test_messages_name_the_file_and_the_line(tmp_path: Path) -> None:
    data = bank(tmp_path, f"{LINE}\n\n(1 (2 not) (3 good)\n", LINE)
    with pytest.raises(FieldError) as error:
        data.read()
    assert error.value.path == "path"
    assert str(error.value.problem).startswith(f"{tmp_path / 'train.txt'}, line 3: 1 bracket")
    (tmp_path / "train.txt").write_bytes(f"{LINE}\n(2 caf\xe9)".encode("latin-1"))
    with pytest.raises(FieldError, match="line 2: it is not UTF-8"):
        data.read()


def test_five_classes_have_a_label_at_every_node(tmp_path: Path) -> None:
    lines = "\n".join(f"({label} w{label})" for label in range(5))
    raw = bank(tmp_path, f"{lines}\n{LINE}\n", "(0 a)\n", "(4 b)\n", classes="five").read()
    assert raw.classes == ("very negative", "negative", "neutral", "positive", "very positive")
    assert raw.train.labels.tolist() == [0, 1, 2, 3, 4, 3]
    assert raw.train.images.shape == (6, 9, 5) and raw.train.images.dtype == np.int32
    assert words_of(raw, raw.train.images[5]) == [node.word for node in NODES]
    assert raw.train.images[5, :, 1:].tolist() == [
        [node.left, node.right, node.height, node.label + 1] for node in NODES
    ]
    assert not raw.train.images[:5, 1:].any()


def test_binary_leaves_neutral_sentences_out_and_neutral_nodes_unlabelled(tmp_path: Path) -> None:
    train = f"{LINE}\n(2 (0 a) (4 b))\n(1 (2 c) (0 d))\n(4 e)\n"
    raw = bank(tmp_path, train, "(0 a)\n(2 b)\n", "(2 b)\n(3 b)\n(4 c)\n").read()
    assert raw.classes == ("negative", "positive")
    assert raw.train.labels.tolist() == [1, 0, 1]
    assert raw.train.images[0, :, 4].tolist() == [0, 0, 0, 0, 2, 2, 0, 2, 2]
    assert raw.train.images[1, :3, 4].tolist() == [0, 1, 1]
    assert raw.validation is not None and raw.test is not None
    assert raw.validation.labels.tolist() == [0] and raw.test.labels.tolist() == [1, 1]


def words_of(raw: RawData, sample: np.ndarray) -> list[str]:
    assert raw.words is not None
    return ["" if number == 0 else raw.words.all[number - 2] for number in sample[:, 0]]


def test_in_the_cache_words_are_those_of_train_by_frequency(tmp_path: Path) -> None:
    """Rows that pad stay 0; links, heights and labels stay as they are."""
    train = f"{LINE}\n(1 (2 is) (0 bad))\n(1 (1 bad) (2 is))\n(3 (2 is) (3 great))\n"
    data = bank(tmp_path, train, "(0 (2 unseen) (1 bad))\n", "(4 great)\n", vocabulary=4)
    prepared = prepare(data, 0)
    folder = prepared.directory
    # is 4; bad and great 2, by word; ., rock, the 1, the first by word
    assert (folder / "vocabulary.txt").read_text().split() == ["is", "bad", "great", "."]
    assert prepared.input_shape == (9, 4) and prepared.input_shape.words == 6
    train_split, validation = (load_split(prepared, name) for name in ("train", "validation"))
    assert validation.images[0, :3].tolist() == [[1, 0, 0, 0], [3, 0, 0, 0], [0, 1, 2, 1]]
    assert validation.marked is not None
    assert validation.marked[0, :, 4].tolist() == [0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert validation.labels.tolist() == [0] and not validation.images[0, 3:].any()
    largest = train_split.images[train_split.images[:, 8, 3] == 3][0]
    assert largest[:, 0].tolist() == [1, 1, 0, 2, 4, 0, 5, 0, 0]
    assert largest[:, 1:].tolist() == [[node.left, node.right, node.height] for node in NODES]
    assert json.loads((folder / "meta.json").read_text())["kind"] == "trees"


def test_what_selects_samples_is_in_the_digest(tmp_path: Path) -> None:
    def digest(**options: object) -> str:
        return bank(tmp_path, f"{LINE}\n(0 a)\n", "(0 a)\n", **options).source_digest()

    found = [digest(), digest(classes="five"), digest(vocabulary=100), digest(limit=100)]
    vectors = tmp_path / "vectors"
    for content in ("a 1.0 2.0\n", "a 1.0 2.5\n"):
        vectors.write_text(content)
        found.append(digest(vectors=str(vectors)))
    (tmp_path / "dev.txt").rename(tmp_path / "test.txt")
    found.append(TreeBank(path=str(tmp_path)).source_digest())
    assert len(set(found)) == len(found)


def test_sources_that_cannot_be_used(tmp_path: Path) -> None:
    def refused(made: Callable[[], TreeBank]) -> str:
        with pytest.raises(FieldError) as error:
            made().read()
        return f"{error.value.path}: {error.value.problem}"

    assert "does not exist. Give the folder" in refused(lambda: TreeBank(path=str(tmp_path / "x")))
    (tmp_path / "trian.txt").write_text(LINE)
    found = refused(lambda: TreeBank(path=str(tmp_path)))
    assert found == f"path: {tmp_path} has no train.txt. Did you mean 'trian.txt'?"
    assert "is not a folder" in refused(lambda: TreeBank(path=str(tmp_path / "trian.txt")))
    found = refused(lambda: bank(tmp_path, f"{LINE}\n(0 bad)\n", "(2 a)\n"))
    assert "dev.txt has no tree that is positive or negative" in found
    found = refused(lambda: bank(tmp_path, "(3 a)\n(0 (0 a) (2 a))\n", "(3 a)\n"))
    assert "has one word alone, 'a'" in found
    found = refused(lambda: bank(tmp_path, f"{LINE}\n(0 b)\n", vectors=str(tmp_path / "no")))
    assert found == f"vectors: there is no {tmp_path / 'no'}."
