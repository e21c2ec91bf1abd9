"""The tree LSTM against the recursion that the paper defines, one node after another."""

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from study.registry.program import check_program
from trainables.inputs import Inputs
from trainables.model import Network
from trainables.models.tree_lstm import TreeLstm

WORDS, NODES = 50, 25


class Tree(NamedTuple):
    word: int
    children: tuple["Tree", ...] = ()


def random_tree(leaves: int, generator: torch.Generator) -> Tree:
    if leaves == 1:
        return Tree(int(torch.randint(1, WORDS, (), generator=generator)))
    left = int(torch.randint(1, leaves, (), generator=generator))
    return Tree(0, (random_tree(left, generator), random_tree(leaves - left, generator)))


def rows_of(tree: Tree, rows: list[list[int]]) -> int:
    """Append the nodes in post-order; returns the tree's row, from 1."""
    children = [rows_of(child, rows) for child in tree.children]
    left, right = children or (0, 0)
    height = 1 + max(rows[child - 1][3] for child in children) if children else 0
    rows.append([tree.word, left, right, height])
    return len(rows)


def batch_of(trees: list[Tree], nodes: int = NODES) -> Tensor:
    samples = torch.zeros(len(trees), nodes, 4, dtype=torch.int32)
    for sample, tree in zip(samples, trees, strict=True):
        rows: list[list[int]] = []
        rows_of(tree, rows)
        sample[: len(rows)] = torch.tensor(rows)
    return samples


def random_trees(count: int, nodes: int = NODES) -> list[Tree]:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(1, nodes // 2 + 1, (count,), generator=generator).tolist()
    return [random_tree(leaves, generator) for leaves in [1, 2, *sizes[2:]]]


def network_of(output_gate: bool = False, dropout: float = 0.0, nodes: int = NODES) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = TreeLstm(width=7, memory=5, dropout=dropout, output_gate=output_gate)
        return model.build(Inputs((nodes, 4), "trees", words=WORDS), 3)


class Recursion:
    """h and c of a tree by Tai et al. 2015, Eq. 9 to 14, N = 2, no word above the leaves."""

    def __init__(self, network: Network, output_gate: bool) -> None:
        states = network.features
        self.vectors = states.words.weight
        self.of_leaf = states.leaf.weight.chunk(2), states.leaf.bias.chunk(2)
        names = ["u", "i", "f_left", "f_right", "o"][: 5 if output_gate else 4]
        memory = len(states.gates.bias) // len(names)
        self.matrices = dict(zip(names, states.gates.weight.split(memory), strict=True))
        self.offsets = dict(zip(names, states.gates.bias.split(memory), strict=True))
        self.head = network.head.last

    def logits(self, tree: Tree) -> list[Tensor]:
        """Of all nodes in post-order."""
        found: list[Tensor] = []
        self.state(tree, found)
        return found

    def state(self, tree: Tree, found: list[Tensor]) -> tuple[Tensor, Tensor]:
        if tree.children:
            (h_left, c_left), (h_right, c_right) = (
                self.state(child, found) for child in tree.children
            )

            def gate(name: str) -> Tensor:
                left, right = self.matrices[name].chunk(2, dim=1)
                return left @ h_left + right @ h_right + self.offsets[name]

            i, u = torch.sigmoid(gate("i")), torch.tanh(gate("u"))
            c = i * u
            c = c + torch.sigmoid(gate("f_left")) * c_left
            c = c + torch.sigmoid(gate("f_right")) * c_right
            h = torch.tanh(c)
            if "o" in self.matrices:
                h = torch.sigmoid(gate("o")) * h
        else:
            word = self.vectors[tree.word]
            matrices, offsets = self.of_leaf
            c = matrices[0] @ word + offsets[0]
            h = torch.sigmoid(matrices[1] @ word + offsets[1]) * torch.tanh(c)
        found.append(self.head.weight @ h + self.head.bias)
        return h, c


@pytest.mark.parametrize("output_gate", [False, True])
def test_it_is_the_recursion_with_its_gradients(output_gate: bool) -> None:
    trees = random_trees(60)
    network = network_of(output_gate).double()
    reference = [Recursion(network, output_gate).logits(tree) for tree in trees]
    weights = [torch.arange(float(3 * len(each))).sin().view(-1, 3).double() for each in reference]
    parameters = list(network.parameters())
    wanted = torch.autograd.grad(
        sum((torch.stack(each) * own).sum() for each, own in zip(reference, weights, strict=True)),
        parameters,
    )
    for part in (slice(0, 10), slice(10, 60)):  # two sizes of the longest tree
        logits = network.train()(batch_of(trees)[part])
        for found, each in zip(logits, reference[part], strict=True):
            assert_close(found[:, : len(each)].T, torch.stack(each), rtol=0, atol=1e-9)
        roots = network.eval()(batch_of(trees)[part])
        assert_close(roots, torch.stack([each[-1] for each in reference[part]]), rtol=0, atol=1e-9)
    logits = network.train()(batch_of(trees))
    total = sum(
        (found[:, : len(own)].T * own).sum() for found, own in zip(logits, weights, strict=True)
    )
    for found, one in zip(torch.autograd.grad(total, parameters), wanted, strict=True):
        assert_close(found, one, rtol=1e-9, atol=1e-9)


def test_in_float32_it_is_the_recursion_to_1e_6() -> None:
    trees = random_trees(50)
    network = network_of().eval()
    wanted = torch.stack([Recursion(network, False).logits(tree)[-1] for tree in trees])
    assert_close(network(batch_of(trees)), wanted, rtol=0, atol=1e-6)


def test_other_trees_of_a_batch_and_padding_change_nothing() -> None:
    """Nor does a sample without a node, which has no tree to read."""
    trees = batch_of(random_trees(20))
    network = network_of().double().eval()
    alone = torch.cat([network(tree[None]) for tree in trees])
    longer = nn.functional.pad(trees, (0, 0, 0, 9))
    assert_close(network(trees), alone) and assert_close(network(longer), alone)
    assert torch.isfinite(network(torch.zeros_like(trees))).all()


def test_dropout_is_before_the_last_layer_alone() -> None:
    trees = batch_of(random_trees(8))
    network = network_of(dropout=0.5)
    states = network.train().features(trees)
    assert_close(states, network.features(trees), rtol=0, atol=0)
    assert not torch.equal(network.head(states), network.head(states))
    roots = network.eval().features(trees)
    assert_close(network.head(roots), network.head.last(roots))


@pytest.mark.slow
def test_its_graph_gives_the_same_for_any_number_of_trees(tmp_path: Path) -> None:
    trees = batch_of(random_trees(40, nodes=9), nodes=9)
    network = network_of(nodes=9).eval()
    batch = torch.export.Dim("batch")
    program = torch.export.export(network, (trees[:2],), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "model.pt2")
    check_program(tmp_path / "model.pt2")
    graph = torch.export.load(tmp_path / "model.pt2").module()
    for count in (2, 3, 40):
        assert_close(graph(trees[:count]), network(trees[:count]), rtol=0, atol=0)
