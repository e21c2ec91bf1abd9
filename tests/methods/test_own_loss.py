"""A loss of one's own that is no loss: the file, its line, what it gave and what to return."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from trainables import methods
from trainables.method import check_loss
from trainables.methods.mmce import Mmce
from trainables.plugins import use_extensions
from trainables.problems import FieldError

METHOD = """from dataclasses import dataclass
from trainables import CrossEntropy

@dataclass(frozen=True)
class Mine(CrossEntropy):
    def loss(self, logits, targets, progress):
        return RESULT
"""
DETACHED = "Compute it from the logits, without .detach(), .item() and torch.no_grad()."


@pytest.fixture(autouse=True)
def own_names_only() -> Iterator[None]:
    yield
    use_extensions(None)


@pytest.mark.parametrize(
    ("result", "got", "mend"),
    [
        ("None", "None", "Return a tensor, such as cross_entropy_loss(logits, targets) gives."),
        ("logits.mean().item()", "float", "Return the tensor itself, without .item() or float()."),
        ("logits.mean().detach()", "a tensor without a gradient", DETACHED),
        ("logits.sum(dim=1)", "a tensor [4]", "Return the mean over the batch."),
    ],
)
def test_what_is_no_loss_is_said_with_its_line(
    result: str, got: str, mend: str, tmp_path: Path
) -> None:
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "mine.py").write_text(METHOD.replace("RESULT", result))
    use_extensions(tmp_path)
    mine = methods.find("mine")()
    logits = torch.zeros(4, 3, requires_grad=True)
    labels = torch.zeros(4, dtype=torch.int64)
    with pytest.raises(FieldError) as refused:
        check_loss(mine, mine.loss(logits, labels, 0.0))
    place = "extensions: methods/mine.py, line 6, in loss"
    said = f"{place}: a loss is one number that depends on the logits, got {got}. {mend}"
    assert str(refused.value) == said
    if got in ("None", "float"):  # ours around it names it too
        with pytest.raises(FieldError) as refused:
            check_loss(wrapped := Mmce(base=mine), wrapped.loss(logits, labels, 0.0))
        assert str(refused.value) == said


def test_a_mean_of_the_logits_is_a_loss() -> None:
    logits = torch.zeros(4, 3, requires_grad=True)
    check_loss(methods.find("cross_entropy")(), logits.mean())
