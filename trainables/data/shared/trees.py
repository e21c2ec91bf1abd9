"""Parse trees of sentences in the Penn format of the Stanford treebank, as rows of numbers.

`(3 (2 It) (4 (2 's) (4 good)))`: a node is its label and a word, or its label and two nodes.
"""

import re
from typing import NamedTuple

from trainables.problems import UserError

MOST_NODES = 200
LABELS = 5  # very negative, negative, neutral, positive, very positive
NONE = 0  # of what a node may lack: a word, children, a label
BRACKETS = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}
BINARY = (
    "Make the trees binary: put an only child in its parent's place, and of three join two under a"
    " new node, with a label of its own."
)


class Node(NamedTuple):
    """A row of a tree in post-order: children come before their parent, the root is last.

    left, right: the rows of its children, counted from 1; 0 of a leaf, which alone has a word.
    height: 0 of a leaf, else one more than the higher child's.
    """

    word: str
    left: int
    right: int
    height: int
    label: int  # 0 to 4


class TreeError(UserError):
    """A line is no tree of this format."""


class _Open:
    """A node whose bracket is not closed yet."""

    def __init__(self) -> None:
        self.label: int | None = None
        self.words: list[str] = []
        self.children: list[int] = []


def tree_of(line: str) -> list[Node]:
    """The nodes of a line's tree. Raises TreeError."""
    unmatched = "Each ( needs its ), on one line; brackets in the text are -LRB- and -RRB-."
    nodes: list[Node] = []
    opened: list[_Open] = []
    for token in re.findall(r"[()]|[^\s()]+", line, re.ASCII):  # a word may have another space
        if nodes and not opened:
            found = "a bracket closes nothing" if token == ")" else "the tree ends before its line"
            raise TreeError(found, unmatched if token == ")" else "Write one tree a line.")
        if token == "(":
            opened.append(_Open())
        elif not opened:
            raise TreeError(f"it begins with '{token}'", unmatched)
        elif token == ")":
            nodes.append(_closed(opened.pop(), nodes))
            if len(nodes) > MOST_NODES:
                found = f"the tree has more than {MOST_NODES} nodes"
                raise TreeError(found, "Is it one sentence? Split or remove it.")
            if opened:
                opened[-1].children.append(len(nodes))
        elif opened[-1].label is None:
            opened[-1].label = _label(token)
        else:
            opened[-1].words.append(word_of(token))
    if opened:
        count = f"{len(opened)} bracket{'s are' if len(opened) > 1 else ' is'} not closed"
        raise TreeError(count, unmatched)
    return nodes


def _label(token: str) -> int:
    labels = f"Labels are whole numbers from 0, very negative, to {LABELS - 1}."
    if not re.fullmatch("[0-9]{1,9}", token):
        raise TreeError(f"the label '{token}' is no number", labels)
    if int(token) >= LABELS:
        raise TreeError(f"the label is {token}", labels)
    return int(token)


def _closed(node: _Open, nodes: list[Node]) -> Node:
    """The row of a node. nodes: those before it."""
    if node.label is None:
        raise TreeError("a node has no label", "Write (LABEL WORD), or (LABEL NODE NODE).")
    if (node.words and node.children) or len(node.words) > 1:
        found = f"a node has the word '{node.words[-1]}' beside another word or node"
        raise TreeError(found, f"Give each word a node of its own. {BINARY}")
    if node.words:
        return Node(node.words[0], NONE, NONE, 0, node.label)
    if not node.children:
        raise TreeError("a node has no word and no children", "Remove it, or give it its word.")
    if len(node.children) != 2:
        count = len(node.children)
        raise TreeError(f"a node has {count} child{'ren' if count > 1 else ''}, not two", BINARY)
    left, right = node.children
    height = 1 + max(nodes[left - 1].height, nodes[right - 1].height)
    return Node("", left, right, height, node.label)


def word_of(token: str) -> str:
    """The word of a token, in lower case, without the treebank's ways to write brackets, / and
    *."""
    lower = token.lower()
    return BRACKETS.get(lower, lower.replace("\\/", "/").replace("\\*", "*"))
