"""Losses and gradients against what the released code of methods since 2019 gave."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from pytest import approx
from torch import Tensor

from tests.golden_since_2019 import GOLDEN, INPUTS
from trainables.methods.acls import acls_loss
from trainables.methods.cross_entropy import cross_entropy_loss
from trainables.methods.dca import confidence_difference
from trainables.methods.dual_focal import dual_focal_loss
from trainables.methods.esd import expected_squared_difference
from trainables.methods.inverse_focal import inverse_focal_loss
from trainables.methods.logit_norm import logit_norm_loss
from trainables.methods.mbls import mbls_loss
from trainables.methods.mdca import multiclass_difference


def _with_dca(logits: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy_loss(logits, labels) + 10.0 * confidence_difference(logits, labels)


def _acls(weight: float, negative: float, margin: float) -> Callable[[Tensor, Tensor], Tensor]:
    return partial(acls_loss, weight=weight, positive=1.0, negative=negative, margin=margin)


ROWS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{f"dual_focal g={gamma}": partial(dual_focal_loss, gamma=gamma) for gamma in (1, 3, 5)},
    **{
        f"inverse_focal g={gamma} (no released code)": partial(inverse_focal_loss, gamma=gamma)
        for gamma in (1, 2)
    },
    "mdca term": multiclass_difference,
    "dca term": confidence_difference,
    "ce + 10 dca (FOURM-LAB default)": _with_dca,
    "acls m=10 a=.1 pos=1 neg=.1 (released defaults)": _acls(0.1, 0.1, 10.0),
    "acls m=2 a=.1 pos=1 neg=.1": _acls(0.1, 0.1, 2.0),
    "acls m=2 a=1 pos=1 neg=1": _acls(1.0, 1.0, 2.0),
    "logitnorm t=.04": partial(logit_norm_loss, temperature=0.04),
    "logitnorm t=1": partial(logit_norm_loss, temperature=1.0),
    "esd term": expected_squared_difference,
    "maxsup w=.1 (torch-uncertainty)": partial(mbls_loss, margin=0.0, weight=0.1),
}
# Their code counts hits in float32.
IN_FLOAT32 = {"mdca term": 5e-8, "dca term": 5e-8, "ce + 10 dca (FOURM-LAB default)": 5e-7}


def gradient(row: str, logits: Tensor, labels: Tensor) -> Tensor:
    leaf = logits.clone().requires_grad_()
    (found,) = torch.autograd.grad(ROWS[row](leaf, labels), leaf)
    return found


def test_every_row_has_a_loss() -> None:
    assert sorted(ROWS) == sorted(GOLDEN["losses"]["S"])


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("row", ROWS)
def test_value_and_gradient(name: str, row: str) -> None:
    logits, labels, tolerance = INPUTS[name]
    tolerance = IN_FLOAT32.get(row, tolerance)
    expected = GOLDEN["losses"][name][row]
    assert ROWS[row](logits, labels).item() == approx(expected["released"], rel=0, abs=tolerance)
    found = gradient(row, logits, labels)
    assert found.norm().item() == approx(expected["grad_l2"], rel=0, abs=tolerance)
    assert found[0].tolist() == approx(expected["grad_first_row"], rel=0, abs=tolerance)


@pytest.mark.parametrize("row", ROWS)
def test_whole_gradient_on_s(row: str) -> None:
    logits, labels, tolerance = INPUTS["S"]
    found = gradient(row, logits, labels).flatten().tolist()
    expected = [value for sample in GOLDEN["gradients"][row] for value in sample]
    assert found == approx(expected, rel=0, abs=IN_FLOAT32.get(row, tolerance))


@pytest.mark.parametrize("name", INPUTS)
def test_acls_changes_when_a_constant_is_added(name: str) -> None:
    logits, labels, tolerance = INPUTS[name]
    loss = _acls(0.1, 0.1, 2.0)
    found = [loss(logits, labels).item(), loss(logits + 5, labels).item()]
    assert found == approx(GOLDEN["shifted"][name], rel=0, abs=10 * tolerance)
