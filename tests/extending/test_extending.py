"""docs/how-to/bring-a-*.md, and an extension that imports all that it may, and trains."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trainables
from study.schema.reading import spec_from_mapping
from tests.study.command_line import here, write_spec
from trainables import at_once, data, methods, metrics, models, vectorized
from trainables.config import TrialConfig
from trainables.loading.trial_data import trial_data
from trainables.models.shared.whole_module import network_of
from trainables.plugins import use_extensions
from trainables.problems import FieldError
from trainables.training.learner import Learner

ROOT = Path(__file__).parents[2]
EXTENSION = Path(__file__).with_name("listed")
STUB = Path(trainables.__file__).with_suffix(".pyi")  # what the reference lists
KINDS = ("data-set", "method", "metric", "network")
PAGES = {kind: (ROOT / f"docs/how-to/bring-a-{kind}.md").read_text() for kind in KINDS}
GATED = """
from dataclasses import dataclass
from torch import nn
from trainables import Model, Network

@dataclass(frozen=True)
class Gated(Model):
    takes = ("features",)

    def build(self, input_shape, num_classes):
        (columns,) = input_shape
        return Network(nn.Sequential(nn.Linear(columns, 128), nn.GLU()), nn.Linear(64, num_classes))
"""


@pytest.fixture(autouse=True)
def own_names_only() -> Iterator[None]:
    yield
    use_extensions(None)


def listed() -> set[str]:
    """The names that an extension may import."""
    return {name for _, name in imported(STUB)}


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


def test_what_is_listed_is_what_there_is_and_what_an_extension_imports() -> None:
    assert set(dir(trainables)) == listed()
    assert imported(*EXTENSION.rglob("*.py")) == {("trainables", name) for name in listed()}


def test_former_names_of_modules_that_copies_of_our_methods_import_still_work() -> None:
    assert at_once.mean is vectorized.mean and at_once.for_each is vectorized.for_each
    assert at_once.cross_entropy is vectorized.cross_entropy


def test_examples_import_nothing_else() -> None:
    found = imported(*(ROOT / "examples").rglob("*.py"))
    assert found and found <= {("trainables", name) for name in listed()}


def test_each_name_has_a_docstring() -> None:
    """tests/test_layers.py loads one when it is asked for."""
    assert not [name for name in listed() if not getattr(trainables, name).__doc__]
    with pytest.raises(AttributeError, match="'trainables' has no attribute 'Methods'"):
        trainables.Methods  # noqa: B018


def test_it_is_found() -> None:
    use_extensions(EXTENSION)
    for folder in (methods, models, data):
        assert "listed" in folder.names()
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
def test_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    plain = {
        "data": "listed",
        "model": "listed",
        "method": "listed",
        "epochs": 2,
        "batch_size": 8,
        "extensions": str(EXTENSION),
    }
    config = TrialConfig.from_mapping(plain)
    learner = Learner(config, trial_data(config, torch.device("cpu")), torch.device("cpu"))
    losses = [learner.train_epoch()["train_loss"] for _ in range(2)]
    assert losses[1] < losses[0]
    assert TrialConfig.from_mapping(config.to_mapping()) == config


def written_out(folder: Path) -> None:
    """The pages' examples, which begin with the name of their file, and a network for rows."""
    file = r"^```(?:python|yaml)\n# mine/([^\n]+)\n(.*?)^```"
    found = re.findall(file, "\n".join(PAGES.values()), re.M | re.S)
    assert len(found) == 5
    for place, code in [*found, ("models/gated.py", GATED)]:
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(code)


def readings(folder: Path) -> dict[str, str]:
    """The rows of the page's data set, which a line parts, nearly."""
    random = np.random.default_rng(0)
    labels = np.arange(300) % 2
    columns = [random.normal(20 + 4 * labels), random.normal(1e5, 1e3, 300), labels]
    np.save(folder / "readings.npy", np.stack(columns, axis=1))
    return {"name": "readings", "path": str(folder / "readings.npy")}


def shown(page: str) -> list[str]:
    """The lines that a page says are printed."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page, re.M | re.S)
    printed = [text for kind, text in blocks if not kind and not text.startswith("calstudy ")]
    return [line for text in printed for line in text.splitlines()]


def test_the_pages_show_what_is_printed(tmp_path: Path) -> None:
    written_out(tmp_path / "mine")
    sides = {"accuracy": "maximize", "fairness_gap": "minimize"}
    spec = write_spec(
        tmp_path / "mine.yaml",
        name="mine",
        data=readings(tmp_path),
        model="gated",
        methods=["cross_entropy", "soft_focal"],
        objectives=[{"metric": name, "direction": side} for name, side in sides.items()],
        search_space={},
        extensions="mine",
    )
    printed = here("plan", spec, "--storage", tmp_path).splitlines()
    lines = [line for kind in ("data-set", "method", "metric") for line in shown(PAGES[kind])]
    assert len(lines) == 5 and not [line for line in lines if line not in printed]


def test_the_network_of_the_page_without_its_softmax(tmp_path: Path) -> None:
    written_out(tmp_path / "mine")
    model = {"name": "small_net", "width": 8}
    keys: dict[str, Any] = {"name": "mine", "model": model, "extensions": "mine"}
    spec = write_spec(tmp_path / "mine.yaml", **keys)
    here("plan", spec, "--storage", tmp_path)
    file = tmp_path / "mine" / "models" / "small_net.py"
    head = "nn.Linear(self.width, num_classes)"
    file.write_text(file.read_text().replace(head, f"{head}, nn.Softmax(-1)"))
    use_extensions(None)
    printed = here("plan", spec, "--storage", tmp_path, check=2).splitlines()
    assert printed == shown(PAGES["network"])


def test_the_rows_and_the_method_of_the_pages_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    written_out(tmp_path / "mine")
    plain = {"data": readings(tmp_path), "model": "gated", "epochs": 5, "batch_size": 16}
    plain["method"] = {"name": "soft_focal", "share": 0.25}
    config = TrialConfig.from_mapping({**plain, "extensions": str(tmp_path / "mine")})
    made = trial_data(config, torch.device("cpu"))
    inputs = made.prepared.input_shape
    assert (inputs, inputs.kind) == ((2,), "features") and inputs.are_named
    learner = Learner(config, made, torch.device("cpu"))
    while not learner.finished:
        learner.train_epoch()
    # Deviation 1 at distance 4: Phi(2) = .977 of them are on their side.
    assert learner.history[-1]["accuracy"] > 0.9


def test_the_network_and_the_metric_of_the_pages(tmp_path: Path) -> None:
    written_out(tmp_path)
    use_extensions(tmp_path)
    model = models.find("small_net")()
    torch.manual_seed(0)
    made = network_of(model, (1, 32, 32), 4)
    torch.manual_seed(0)
    theirs = model.build((1, 32, 32), 4)
    images = torch.randn(2, 1, 32, 32)
    torch.testing.assert_close(made(images), theirs(images))
    # Of class 0 two of two are right, of class 1 one of three.
    labels = torch.tensor([0, 0, 1, 1, 1])
    logits = torch.eye(2)[torch.tensor([0, 0, 0, 0, 1])]
    assert metrics.find("fairness_gap")(logits, labels).item() == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("digits", "model: gated takes rows, the data are 1x8x8 images. Use a network of images."),
        ({"name": "readings", "path": "/nowhere"}, "data.path: there is no /nowhere."),
    ],
)
def test_what_a_network_for_rows_and_the_rows_of_the_page_refuse(
    data: Any, said: str, tmp_path: Path
) -> None:
    written_out(tmp_path / "mine")
    spec = write_spec(
        tmp_path / "small.yaml", data=data, model="gated", methods=["focal"], extensions="mine"
    )
    shown = here("plan", spec, "--storage", tmp_path, check=2)
    assert shown == f"small.yaml: {said}\n"


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
        noise = torch.rand(batch.images.shape, generator=generator)
        return batch._replace(images=batch.images + 0.1 * noise)

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
        assert (
            str(refused.value)
            == "extensions: methods/mine.py: cannot be imported: ModuleNotFoundError: No module"
            f" named '{module}'."
        )
