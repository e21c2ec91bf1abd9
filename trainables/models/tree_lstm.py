"""Binary tree LSTM over parse trees. Tai et al. 2015, Eq. 9 to 14 with N = 2."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.fields import number, setting
from trainables.inputs import Inputs
from trainables.kinds import Kind
from trainables.model import Network
from trainables.models.shared.word_vectors import ModelOfWords, NetworkOfWords


class Order(NamedTuple):
    """Where the states of N trees lie among those of a batch: first a state of zeros, then each
    tree's leaves, then its other nodes, both in post-order."""

    leaves: Tensor  # [N, L] int64: words
    children: Tensor  # [N, I, 2] int64: the places of both children of each other node
    places: Tensor  # [N, M] int64: of each row; 0 of one that pads


def order_of(trees: Tensor, leaves: int) -> Order:
    """trees: [N, M, 4]. leaves: as many of each, some of which may pad."""
    words, left, right, _ = trees.long().unbind(dim=2)
    is_leaf = words > 0
    is_inner = left > 0
    places = is_leaf * is_leaf.cumsum(dim=1) + is_inner * (leaves + is_inner.cumsum(dim=1))
    first = _first(is_inner, leaves - 1)
    children = torch.stack([left, right], dim=2)
    children = children.gather(1, first[..., None].expand(-1, -1, 2))  # rows, from 1
    of_rows = F.pad(places, (1, 0))
    children = of_rows.gather(1, children.flatten(1)).view_as(children)
    return Order(words.gather(1, _first(is_leaf, leaves)), children, places)


def _first(chosen: Tensor, count: int) -> Tensor:
    """[N, count]: the rows that are chosen, in order, then others. chosen: [N, M] bool."""
    return torch.argsort((~chosen).to(torch.uint8), dim=1, stable=True)[:, :count]


class TreeStates(nn.Module):
    """The hidden states of all nodes in training, [N, memory, M]; of the root otherwise, [N,
    memory].

    A leaf has c and o from its word. Another node is computed from its children: one step computes
    the next node of every tree. Trees with fewer nodes compute on from zeros, which nothing reads.
    """

    def __init__(self, words: nn.Module, width: int, memory: int, output_gate: bool) -> None:
        super().__init__()
        self.words = words
        self.leaf = nn.Linear(width, 2 * memory)
        gates = 5 if output_gate else 4
        self.gates = nn.Linear(2 * memory, gates * memory)
        # As of two layers, one for each child, which the released code has.
        bound = memory**-0.5
        nn.init.uniform_(self.gates.weight, -bound, bound)
        self._memory = memory

    def forward(self, trees: Tensor) -> Tensor:
        """trees: [N, M, 4] int32, as `RawSplit` has them without labels."""
        most = trees.shape[1] // 2 + 1
        if self.training:  # an exported graph has one size
            most = int((trees[:, :, 0] > 0).sum(dim=1).max())
        order = order_of(trees, most)
        cell, gate = self.leaf(self.words(order.leaves)).chunk(2, dim=2)
        found = torch.cat([gate.sigmoid() * cell.tanh(), cell], dim=2)
        states = F.pad(found, (0, 0, 1, most - 1))
        length = states.shape[1]
        start = length * torch.arange(trees.shape[0], device=trees.device)
        children = (order.children + start[:, None, None]).unbind(dim=1)
        for step, pair in enumerate(children):
            both = states.flatten(0, 1).index_select(0, pair.flatten())
            states[:, 1 + most + step] = self._composed(both.view(-1, 2, 2 * self._memory))
        hidden = states[:, :, : self._memory]
        if self.training:
            places = order.places[..., None].expand(-1, -1, self._memory)
            return hidden.gather(1, places).transpose(1, 2)
        root = (order.places > 0).sum(dim=1, keepdim=True).clamp(min=1) - 1
        places = order.places.gather(1, root)[..., None].expand(-1, -1, self._memory)
        return hidden.gather(1, places).squeeze(1)

    def _composed(self, children: Tensor) -> Tensor:
        """The state of a node, [N, 2 * memory]: h, then c. children: [N, 2, 2 * memory], theirs."""
        hidden, cells = children.chunk(2, dim=2)
        gates = self.gates(hidden.flatten(1)).unflatten(1, (-1, self._memory))
        update = gates[:, 0].tanh()
        opened = gates[:, 1:].sigmoid()
        cell = opened[:, 0] * update + (opened[:, 1:3] * cells).sum(dim=1)
        now = cell.tanh()
        if opened.shape[1] == 4:
            now = opened[:, 3] * now
        return torch.cat([now, cell], dim=1)


class NodeHead(nn.Module):
    """Dropout and the last layer: [N, D] -> logits [N, K]; of every node [N, D, M] -> [N, K, M]."""

    def __init__(self, width: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(width, num_classes)

    def forward(self, states: Tensor) -> Tensor:
        logits: Tensor = self.last(self.dropout(states.movedim(1, -1)))
        return logits.movedim(-1, 1)


@dataclass(frozen=True)
class TreeLstm(ModelOfWords):
    """Its loss in training is over all nodes with a label; it is measured at the root.

    By default h = tanh(c) but at leaves, as in the released code of Mukhoti et al. 2020; with
    `output_gate` as in the equations. Either way a leaf's c is linear in its word, as in the
    released code of both papers, where the equations have a product of i and u.
    """

    takes: ClassVar[tuple[Kind, ...]] = ("trees",)
    per_position: ClassVar[bool] = True

    memory: int = number(150, low=1, doc="numbers of a node's state")
    width: int = number(300, low=1, doc="numbers of a word's vector")
    dropout: float = number(0.5, low=0, below=1, doc="before the last layer")
    output_gate: bool = setting(False, doc="an output gate in all nodes, not at leaves alone")

    def build(self, input_shape: Inputs, num_classes: int) -> Network:
        words = self.vectors(input_shape)
        states = TreeStates(words, self.width, self.memory, self.output_gate)
        return NetworkOfWords(states, NodeHead(self.memory, num_classes, self.dropout))
