"""What people forget in an extension's class is said with the file and what to write."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainables import methods, models
from trainables.plugins import use_extensions
from trainables.problems import FieldError

IMPORTS = """from dataclasses import dataclass, field
from typing import ClassVar
from torch import nn
from trainables import CrossEntropy, Method, Model, Wrapper, number

"""
LOSS = "    def loss(self, logits, targets, progress):\n        return logits.mean()\n"
BUILD = "    def build(self, input_shape, num_classes):\n        return nn.Identity()\n"
METHOD = "Write @dataclass(frozen=True) class Mine(Method): ..."
MODEL = "Write @dataclass(frozen=True) class Mine(Model): ..."
RETURNS = " with a build(self, input_shape, num_classes) that returns the nn.Module."


@pytest.fixture(autouse=True)
def own_names_only() -> Iterator[None]:
    yield
    use_extensions(None)


def found(folder: Path, kind: str, text: str) -> type:
    (folder / kind).mkdir()
    (folder / kind / "mine.py").write_text(IMPORTS + text)
    use_extensions(folder)
    made: type = {"methods": methods, "models": models}[kind].find("mine")
    return made


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (
            "methods",
            "class Mine(Method):\n    gamma: float = number(2.0, low=0)\n" + LOSS,
            f"methods/mine.py: Mine declares gamma, but is no dataclass. {METHOD}",
        ),
        (
            "methods",
            "class Mine(CrossEntropy):\n    gamma: float = 2.0\n" + LOSS,
            f"methods/mine.py: Mine declares gamma, but is no dataclass. {METHOD}",
        ),
        (
            "methods",
            "@dataclass\nclass Mine(Method):\n    gamma: float = 2.0\n" + LOSS,
            "methods/mine.py: cannot be imported: TypeError: cannot inherit non-frozen dataclass"
            " from a frozen one. Write @dataclass(frozen=True).",
        ),
        (
            "models",
            "class Mine(Model):\n    def __init__(self, width=64):\n        pass\n" + BUILD,
            "models/mine.py, line 7, in __init__: Mine has an __init__ of its own. Write"
            " @dataclass(frozen=True) class Mine(Model): ..., with a field for each value, such as"
            " `width: int = 64`.",
        ),
        (
            "models",
            "class Net(nn.Module):\n    pass\n",
            "models/mine.py: it must define the class Mine; it has the nn.Module Net."
            f" {MODEL}{RETURNS}",
        ),
        (
            "models",
            "class Mine(nn.Module):\n    pass\n",
            f"models/mine.py: the nn.Module Mine is no Model. {MODEL}{RETURNS}",
        ),
        (
            "methods",
            "@dataclass(frozen=True)\nclass MyLoss(Method):\n" + LOSS,
            f"methods/mine.py: it must define the class Mine; it has the class MyLoss. {METHOD}",
        ),
        (
            "methods",
            "class Mine(Method):\n    def loss(self, logits, targets):\n        return 0\n",
            "methods/mine.py, line 7, in loss: takes (self, logits, targets), but calstudy passes"
            " (logits, targets, progress). Write def loss(self, logits, targets, progress).",
        ),
        (
            "models",
            "class Mine(Model):\n    def build(self, num_classes):\n        return 0\n",
            "models/mine.py, line 7, in build: takes (self, num_classes), but calstudy passes"
            " (input_shape, num_classes). Write def build(self, input_shape, num_classes).",
        ),
    ],
)
def test_what_is_forgotten_is_said(kind: str, text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(FieldError) as refused:
        found(tmp_path, kind, text)
    assert str(refused.value) == f"extensions: {said}"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("methods", "class Mine(CrossEntropy):\n    tensors_only = True\n" + LOSS),
        ("methods", "class Mine(CrossEntropy):\n    tensors_only: bool = True\n" + LOSS),
        ("models", "class Mine(Model):\n    takes: ClassVar = ('features',)\n" + BUILD),
        (
            "models",
            "class Mine(Model):\n    def build(self, shape, k, width=3):\n        return 0\n",
        ),
        ("models", "class Mine(Model):\n    def build(self, *shape):\n        return 0\n"),
        ("models", "@dataclass(frozen=True)\nclass Mine(Model):\n    width: int = 3\n" + BUILD),
        ("models", "@dataclass(frozen=True)\nclass Other(Model):\n" + BUILD + "Mine = Other\n"),
    ],
)
def test_what_python_allows_is_found(kind: str, text: str, tmp_path: Path) -> None:
    assert isinstance(found(tmp_path, kind, text)(), object)
