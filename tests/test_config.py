"""TrialConfig: plain values in, checked dataclasses out, one field by its dotted path;
extensions and their clashes."""

from pathlib import Path
from typing import Any

import pytest

from trainables import methods
from trainables.config import TrialConfig, owner_of, value_at
from trainables.methods.focal import Focal
from trainables.methods.sece import Sece
from trainables.plugins import use_extensions
from trainables.problems import FieldError

PLAIN = {"data": "digits", "model": "mlp", "method": "focal"}


def test_values_are_laid_over_by_path() -> None:
    config = TrialConfig.from_mapping(
        {**PLAIN, "method": {"name": "sece", "base": "focal"}},
        {"method.weight": 2, "method.base.gamma": 1.5, "optimizer.lr": 0.2, "model.width": 8},
    )
    assert config.method == Sece(weight=2.0, base=Focal(gamma=1.5))
    assert value_at(config, "optimizer.lr") == 0.2 and value_at(config, "model.width") == 8


def test_plain_values_read_back_as_an_equal_config() -> None:
    config = TrialConfig.from_mapping(
        {**PLAIN, "method": {"name": "sece", "base": {"name": "focal", "gamma": 1}}}
    )
    assert TrialConfig.from_mapping(config.to_mapping()) == config


@pytest.mark.parametrize(
    ("changes", "path", "said"),
    [
        ({"method": "focl"}, "method", "Did you mean 'focal'?"),
        (
            {"method": {"name": "focal", "gama": 1}},
            "method.gama",
            "Focal has no 'gama'. Did you mean 'gamma'?",
        ),
        ({"method": {"name": "focal", "gamma": -1}}, "method.gamma", "must be >= 0, got -1"),
        ({"method": {"name": "focal", "gamma": "3"}}, "method.gamma", "must be a number, got '3'"),
        ({"method": {"name": "focal", "gamma": True}}, "method.gamma", "must be a number"),
        ({"method": {"name": "focal", "gamma": float("nan")}}, "method.gamma", "finite"),
        (
            {"method": {"name": "sece", "base": {"name": "mbl"}}},
            "method.base",
            "Did you mean 'mbls'?",
        ),
        (
            {"method": {"name": "sece", "base": {"name": "sece", "base": 3}}},
            "method.base.base",
            "must be a name",
        ),
        ({"method": {"name": "sece", "hits": "softt"}}, "method.hits", "Did you mean 'soft'?"),
        ({"optimizer": {"lr": 0}}, "optimizer.lr", "must be > 0, got 0"),
        ({"optimizer": 3}, "optimizer", "must be a mapping"),
        ({"epochs": 1.5}, "epochs", "must be a whole number, got 1.5"),
        ({"epoch": 1}, "epoch", "Did you mean 'epochs'?"),
        ({"model": {"width": 3}}, "model", "must be a name, or a mapping with `name`"),
    ],
)
def test_a_value_that_cannot_be_taken_names_its_path(
    changes: dict[str, Any], path: str, said: str
) -> None:
    with pytest.raises(FieldError) as error:
        TrialConfig.from_mapping({**PLAIN, **changes})
    assert error.value.path == path and said in error.value.problem


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("method.gama", "Did you mean 'gamma'?"),
        ("method", "is a group of settings"),
        ("method.gamma.x", "is a value"),
        ("nothing.at.all", "has no 'nothing'"),
    ],
)
def test_a_path_that_leads_nowhere(path: str, said: str) -> None:
    with pytest.raises(FieldError, match=said):
        owner_of(TrialConfig.from_mapping(PLAIN), path)


def extension(folder: Path, name: str, text: str) -> Path:
    (folder / "methods").mkdir(exist_ok=True)
    (folder / "methods" / f"{name}.py").write_text(text)
    return folder


def test_a_folder_of_ones_own_adds_names(tmp_path: Path) -> None:
    text = "from trainables.methods.focal import Focal\n\n\nclass MyLoss(Focal):\n    pass\n"
    folder = extension(tmp_path, "my_loss", text)
    config = TrialConfig.from_mapping(
        {**PLAIN, "method": {"name": "my_loss", "gamma": 1}, "extensions": str(folder)}
    )
    assert type(config.method).__name__ == "MyLoss" and "my_loss" in methods.names()
    assert TrialConfig.from_mapping(config.to_mapping()) == config
    use_extensions(None)
    assert "my_loss" not in methods.names()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("focal", "", "a built-in name"),
        ("mine", "x = 1", "must define the class Mine"),
        ("mine", "import nothing_of_this_name", "nothing_of_this_name"),
        ("mine", "this is no python", "mine.py"),
    ],
)
def test_an_extension_that_cannot_be_used(tmp_path: Path, name: str, text: str, said: str) -> None:
    folder = extension(tmp_path, name, text)
    try:
        with pytest.raises(FieldError, match=said):
            TrialConfig.from_mapping({**PLAIN, "method": name, "extensions": str(folder)})
    finally:
        use_extensions(None)
