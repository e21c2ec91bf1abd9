"""What a cell defines becomes a file that a process without the notebook can import."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from study import Study
from study.notebook.cells import cells_of, keep, snake_case, source_of
from study.schema.errors import SpecError
from trainables import Method, Model, number, require_labels
from trainables.problems import FieldError

WIDTH = 12
TABLE = OrderedDict(a=1)


def scaled(values: Tensor) -> Tensor:
    return values * math.sqrt(WIDTH)


class Net(nn.Module):
    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, width: int = WIDTH):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), width))
        self.fc = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.fc(scaled(self.body(images)))
        return logits


@dataclass(frozen=True)
class OneLayer(Model):
    width: int = number(8, low=1, doc="units")

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return Net(input_shape, num_classes, self.width)  # type: ignore[arg-type]


@dataclass(frozen=True)
class MyNLL(Method):
    def loss(self, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
        return torch.nn.functional.cross_entropy(logits, require_labels(self, targets))


def my_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(scaled(logits), labels)


def gap(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.argmax(dim=-1) == labels).double().mean()


def reads_a_table(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.mean() * TABLE["a"]


def reads_nothing_known(logits: Tensor, labels: Tensor) -> Tensor:
    return logits * unknown  # type: ignore[name-defined]  # noqa: F821


class AsksForMore(nn.Module):
    def __init__(self, hidden: int, num_classes: int) -> None:
        super().__init__()


class NamesItself(nn.Module):
    def __init__(self) -> None:
        super(NamesItself, self).__init__()  # noqa: UP008


class NoMethod(nn.Module):
    def forward(self, logits: Tensor) -> Tensor:
        return logits


def keys(folder: Path, **other: Any) -> dict[str, Any]:
    given = {"name": "mine", "data": "digits", "model": "mlp", "methods": ["cross_entropy"]}
    return {**given, "epochs": 1, "storage": folder, **other}


def run(text: str) -> dict[str, Any]:
    """The file's names, in a module that has nothing of this one."""
    names: dict[str, Any] = {"__name__": "apart"}
    exec(compile(text, "apart.py", "exec"), names)
    return names


def test_a_source_has_what_it_uses_and_means_the_same() -> None:
    text = source_of(Net)
    assert "import math\n" in text and "from math import prod\n" in text
    assert text.index("WIDTH = 12") < text.index("def scaled") < text.index("class Net")
    made = run(text)["Net"]((1, 8, 8), 10)
    ours = Net((1, 8, 8), 10)
    made.load_state_dict(ours.state_dict())
    images = torch.rand(3, 1, 8, 8)
    assert torch.equal(made(images), ours(images))


@pytest.mark.parametrize(
    ("given", "file", "name"),
    [
        ({"model": Net}, "models/net.py", "Net"),
        ({"model": {"name": OneLayer, "width": 4}}, "models/one_layer.py", "OneLayer"),
        ({"methods": [MyNLL]}, "methods/my_nll.py", "MyNll"),
        ({"methods": [{"name": my_loss, "label": "l"}]}, "methods/my_loss.py", "MyLoss"),
    ],
)
def test_a_file_has_the_class_that_its_name_asks_for(
    given: dict[str, Any], file: str, name: str
) -> None:
    ((found, text),) = cells_of(given).files.items()
    assert found == file
    made = run(text)[name]()
    if file.startswith("models"):
        assert made.build((1, 8, 8), 10)(torch.rand(2, 1, 8, 8)).shape == (2, 10)
    else:
        logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
        factor = math.sqrt(WIDTH) if name == "MyLoss" else 1.0
        expected = nn.functional.cross_entropy(factor * logits, labels)
        assert torch.equal(made.loss(logits, labels, 0.0), expected)


def test_a_metric_has_the_direction_of_its_objective() -> None:
    objectives = ["nll", {"metric": gap, "direction": "maximize"}]
    given: dict[str, Any] = {"objectives": objectives, "matters": {"gap": 0.01}}
    found = cells_of(given)
    assert found.keys["objectives"] == ["nll", {"metric": "gap", "direction": "maximize"}]
    names = run(found.files["metrics/gap.py"])
    assert names["METRICS"] == {"gap": {"function": "gap", "better": "higher"}}


@pytest.mark.parametrize(
    ("given", "where", "said"),
    [
        ({"methods": ["brier", reads_a_table]}, "methods[1]", "'TABLE', a OrderedDict"),
        ({"methods": [reads_nothing_known]}, "methods[0]", "'unknown', which is not defined"),
        ({"methods": [NoMethod]}, "methods[0]", "NoMethod is no Method"),
        ({"model": AsksForMore}, "model", "AsksForMore asks for 'hidden'"),
        ({"model": NamesItself}, "model", "NamesItself uses its own name"),
        ({"model": gap}, "model", "is the function gap"),
        ({"model": dict}, "model", "dict is no Model"),
        ({"objectives": [{"metric": Net}]}, "objectives[0].metric", "is the class Net"),
        ({"objectives": [{"metric": gap}]}, "matters.gap", "Write matters={'gap': 0.01}"),
        ({"methods": [lambda logits, labels: 0]}, "methods[0]", "Define it with `def`"),
    ],
)
def test_what_no_file_can_hold_is_refused_by_name(
    given: dict[str, Any], where: str, said: str
) -> None:
    with pytest.raises(FieldError) as raised:
        cells_of(given)
    assert str(raised.value).startswith(f"{where}: ") and said in str(raised.value)


def test_names() -> None:
    names = {"MyNet": "my_net", "ResNet18": "res_net18", "MyNLL": "my_nll", "HTTPLoss": "http_loss"}
    assert {name: snake_case(name) for name in names} == names


# ---- a study -------------------------------------------------------------------------------------


def test_the_source_is_kept_with_the_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Study.create(**keys(tmp_path, model=Net, methods=["cross_entropy", my_loss]))
    folder = tmp_path / "mine" / "extensions"
    assert capsys.readouterr().out == (
        f"the source of models/net.py is kept in {folder}\n"
        f"the source of methods/my_loss.py is kept in {folder}\n"
    )
    assert made.spec.extensions == str(folder) and (folder / "models" / "net.py").is_file()
    assert "net" in str(made.plan()) and "my_loss" in str(made.plan())
    Study.create(**keys(tmp_path, model=Net, methods=["cross_entropy", my_loss]))
    assert capsys.readouterr().out == ""  # it has not changed


def test_a_definition_of_a_study_that_has_begun_may_not_change(tmp_path: Path) -> None:
    Study.create(**keys(tmp_path, model=Net))
    (tmp_path / "mine" / "study.yaml").touch()
    file = tmp_path / "mine" / "extensions" / "models" / "net.py"
    file.write_text(file.read_text() + "# before\n")
    with pytest.raises(SpecError, match=r"extensions: models/net.py is not what the study 'mine'"):
        Study.create(**keys(tmp_path, model=Net))
    assert file.read_text().endswith("# before\n")
    found = keep({"methods/my_loss.py": "another name"}, tmp_path / "mine")
    assert len(found) == 1 and (tmp_path / "mine/extensions/methods/my_loss.py").is_file()


@pytest.mark.parametrize("wrong", [{"epoch": 3}, {"extensions": "there"}, {"methods": ["focl"]}])
def test_nothing_is_written_for_keys_that_are_wrong(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        Study.create(**keys(tmp_path, **{"model": Net, **wrong}))
    assert not any(tmp_path.iterdir())
