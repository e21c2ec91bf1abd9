"""A study whose network is a whole module: planned, run, confirmed, exported and verified."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from study.store.study import open_study
from tests.study.command_line import here, here_json, write_spec
from trainables.plugins import use_extensions

MODULE = """
from dataclasses import dataclass
from torch import nn
from trainables import Model, number


class LitModel(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 16), nn.ReLU(), nn.Dropout(0.1))
        self.fc = nn.Linear(16, outputs)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, images):
        return {result}


@dataclass(frozen=True)
class Lit(Model):
    wide: int = number(1, low=1, doc="not used")

    def build(self, input_shape, num_classes):
        return LitModel(64, num_classes)
"""
LOGITS = "self.fc(self.net(images))"


@pytest.fixture(autouse=True)
def own_names_only() -> Iterator[None]:
    yield
    use_extensions(None)


def written(folder: Path, result: str) -> Path:
    (folder / "mine" / "models").mkdir(parents=True)
    (folder / "mine" / "models" / "lit.py").write_text(MODULE.replace("{result}", result))
    keys = {"data": {"name": "digits"}, "model": "lit", "extensions": "mine"}
    return write_spec(folder / "small.yaml", methods=["focal"], trials=1, epochs=1, **keys)


@pytest.mark.slow
def test_from_plan_to_a_verified_model(tmp_path: Path) -> None:
    spec = written(tmp_path, LOGITS)
    where = ("--storage", tmp_path / "studies")
    assert "none of 1 is done" in here("plan", spec, *where)
    here("run", spec, *where)
    study = open_study("small", str(tmp_path / "studies"))
    first = study.records().complete[0]
    weights = torch.load(study.files(first) / "model.pt", weights_only=True)
    assert {"network.features.net.1.weight", "network.head.weight"} <= set(weights)
    here("confirm", "small", "--trial", first.name, "--seeds", 1, *where)
    here("export", "small", "--name", "lit", "--trial", first.name, *where)
    assert here_json("verify", "models:/lit/1", *where)["ok"]


@pytest.mark.parametrize("probe", [(), ("--probe",)])
def test_plan_says_what_to_return(probe: tuple[str, ...], tmp_path: Path) -> None:
    spec = written(tmp_path, f"{LOGITS}.softmax(-1)")
    said = here("plan", spec, *probe, "--storage", tmp_path / "studies", check=2).splitlines()[-1]
    assert said == (
        "small.yaml: extensions: models/lit.py: its forward gives the softmax of the logits. Leave"
        " the softmax out: losses and metrics take logits."
    )


def test_plan_says_where_a_forward_fails(tmp_path: Path) -> None:
    spec = written(tmp_path, "self.fc(images)")
    said = here("plan", spec, "--storage", tmp_path / "studies", check=2).splitlines()[-1]
    assert said.startswith(
        "small.yaml: extensions: models/lit.py, line 15, in forward: its forward fails on a batch"
        " [3, 1, 8, 8]: RuntimeError: "
    )
    assert not (tmp_path / "studies").exists()
