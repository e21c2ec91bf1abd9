"""docs/extending.md against an extension that imports all it lists, by present and former names, and trains."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from study.schema.spec import spec_from_mapping
from trainables import data, methods, models
from trainables.config import TrialConfig
from trainables.fields import FieldError
from trainables.former_names import FORMER
from trainables.learner import Learner
from trainables.loading.trial_data import trial_data
from trainables.methods.shared.lookahead import LookaheadMethod
from trainables.plugins import use_extensions

ROOT = Path(__file__).parents[2]
EXTENSION = Path(__file__).with_name("listed")
DOCUMENT = (ROOT / "docs" / "extending.md").read_text()


@pytest.fixture(autouse=True)
def own_names_only() -> Iterator[None]:
    yield
    use_extensions(None)


def listed() -> set[tuple[str, str]]:
    """(module, name), by present and by former names."""
    found: set[tuple[str, str]] = set()
    for section in DOCUMENT.split("\n### ")[1:]:
        modules = re.findall(r"`([\w.]+)`", section.partition("\n")[0])
        found |= {
            (module, name)
            for module in modules
            for name in re.findall(r"^- `(\w+)`: ", section, re.MULTILINE)
        }
    return found


def imported(*files: Path) -> set[tuple[str, str]]:
    """(module, name) of ours, as the files import them."""
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    found = {
        (str(node.module), alias.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return {(module, name) for module, name in found if module.partition(".")[0] == "trainables"}


def test_the_extension_imports_what_is_listed_and_nothing_else() -> None:
    assert imported(*EXTENSION.rglob("*.py")) == listed()


def test_the_document_tells_every_former_name() -> None:
    moved = dict(re.findall(r"^### `([\w.]+)` \(formerly `([\w.]+)`\)$", DOCUMENT, re.MULTILINE))
    mentioned = re.findall(r"`([\w.]+)` is\s+`([\w.]+)`", DOCUMENT)
    assert {former: present for present, former in moved.items()} | dict(mentioned) == FORMER


def test_a_former_name_is_the_same_module() -> None:
    use_extensions(EXTENSION)
    assert issubclass(methods.find("listed_formerly"), LookaheadMethod)
    for former, present in FORMER.items():
        assert importlib.import_module(former) is importlib.import_module(present)


def test_our_own_files_use_no_former_name() -> None:
    files = [
        file
        for package in ("trainables", "search_spaces", "study")
        for file in (ROOT / package).rglob("*.py")
    ]
    assert not {module for module, _ in imported(*files)} & set(FORMER)


def test_it_is_found() -> None:
    use_extensions(EXTENSION)
    for folder in (methods, models, data):
        assert {"listed", "listed_formerly"} <= set(folder.names())
        assert folder.find("listed").__name__ == "Listed"
    named = {
        "data": "listed",
        "model": "listed",
        "methods": ["listed"],
        "extensions": str(EXTENSION),
    }
    spec = spec_from_mapping({"name": "theirs", **named}, "theirs.yaml")
    assert list(spec.variant("listed").space.distributions) == ["method.weight"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["listed", "listed_formerly"])
def test_it_trains(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    source = {"path": str(tmp_path)} if name == "listed_formerly" else {}
    for number in range(40 if source else 0):
        shade, kind = (200, "bright") if number % 2 else (50, "dark")
        pixels = np.random.default_rng(number).integers(
            shade - 30, shade + 30, (8, 8), dtype=np.uint8
        )
        Image.fromarray(pixels).save(tmp_path / f"{kind}_{number}.png")
    plain = {
        "data": {"name": name, **source},
        "model": name,
        "method": name,
        "epochs": 2,
        "batch_size": 8,
    }
    config = TrialConfig.from_mapping({**plain, "extensions": str(EXTENSION)})
    learner = Learner(config, trial_data(config, torch.device("cpu")), torch.device("cpu"))
    losses = [learner.train_epoch()["train_loss"] for _ in range(2)]
    assert losses[1] < losses[0]
    assert TrialConfig.from_mapping(config.to_mapping()) == config


NUMBERS = """
from dataclasses import dataclass
import torch
from trainables.fields import number
from trainables.method import Method, Step
from trainables.methods.cross_entropy import cross_entropy_loss

@dataclass(frozen=True)
class Mine(Method):
    share: float = number(0.5, low=0)
    {line}

    def prepare(self, batch, generator):
        return batch._replace(images=batch.images + 0.1 * torch.rand(batch.images.shape, generator=generator))

    def step(self, learner, state, batch):
        given = (self.share, learner.progress, learner.learning_rate)
        assert all(isinstance(value, {kind}) for value in given), given
        logits = learner.network(batch.images)
        loss = self.share * cross_entropy_loss(logits, batch.targets) * (2 - learner.progress)
        learner.update(loss)
        return Step(loss.detach(), logits.detach(), state)
"""


@pytest.mark.parametrize(("line", "kind"), [("", "float"), ("tensors_only = True", "torch.Tensor")])
def test_a_method_gets_numbers_unless_it_takes_tensors(
    line: str, kind: str, tmp_path: Path
) -> None:
    """As extensions were written before a step kept to the device."""
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "mine.py").write_text(NUMBERS.format(line=line, kind=kind))
    plain = {"data": "digits", "model": "mlp", "epochs": 1, "extensions": str(tmp_path)}
    for method in ("mine", {"name": "sample_prioritization", "base": "mine"}):
        config = TrialConfig.from_mapping({**plain, "method": method})
        learner = Learner(config, trial_data(config, torch.device("cpu")), torch.device("cpu"))
        assert learner.train_epoch()["accuracy"] > 0.5


def test_what_is_not_ours_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "methods").mkdir()
    for module in ("trainables.sealed", "trainables.nonsense"):
        (tmp_path / "methods" / "mine.py").write_text(f"from {module} import anything\n")
        use_extensions(tmp_path)
        with pytest.raises(FieldError) as refused:
            methods.find("mine")
        assert str(refused.value) == (
            f"extensions: methods/mine.py: cannot be imported: ModuleNotFoundError: No module named '{module}'."
        )
