"""One file makes a method: found by its name, searched and tracked, alone and inside ours."""

from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest

from study.schema.uris import embedded_tracking
from tests.study.command_line import here, here_json, write_spec
from trainables.plugins import use_extensions

pytestmark = pytest.mark.slow

TOY = '''
"""Cross-entropy of logits drawn towards zero. A newcomer, 2026."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from trainables.fields import number
from trainables.method import Method


@dataclass(frozen=True)
class ToyLoss(Method):
    strength: float = number(0.01, low=0, doc="of the pull")

    def loss(self, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
        return F.cross_entropy(logits, targets) + self.strength * logits.square().mean()
'''


@pytest.fixture(autouse=True)
def own_names_only() -> Iterator[None]:
    yield
    use_extensions(None)


def test_a_toy_loss(tmp_path: Path) -> None:
    (tmp_path / "mine" / "methods").mkdir(parents=True)
    (tmp_path / "mine" / "methods" / "toy_loss.py").write_text(TOY)
    inside = {"label": "mixed", "name": "mixup", "alpha": 0.3, "base": "toy_loss"}
    spec = write_spec(
        tmp_path / "study.yaml",
        methods=["toy_loss", inside],
        search_space={
            "method.strength": {"low": 0.001, "high": 1.0, "log": True},
            "method.base.strength": 0.5,
        },
        extensions="mine",
        trials=2,
    )
    here("run", spec, "--storage", tmp_path)
    front = here_json("pareto", "small", "--storage", tmp_path)["front"]
    assert {row["method"] for row in front} <= {"toy_loss", "mixed"}
    runs = mlflow.MlflowClient(embedded_tracking(tmp_path)).search_runs(
        ["1"], "tags.`mlflow.runName` LIKE 'toy_loss/%'"
    )
    strengths = {float(run.data.params["method.strength"]) for run in runs}
    assert len(strengths) == 2 and all(0.001 <= strength <= 1.0 for strength in strengths)
    assert {run.data.params["method"] for run in runs} == {"toy_loss"}
