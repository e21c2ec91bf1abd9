"""The networks that a study trains, with the values that its methods set or search."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from optuna.distributions import CategoricalDistribution

from study.engine.weights import models_and_data
from trainables.data.digits import Digits
from trainables.fields import Settings
from trainables.models.torchvision import Torchvision


@dataclass(frozen=True)
class Stem(Settings):
    width: int = 1


@dataclass(frozen=True)
class Nested(Settings):
    stem: Stem = Stem()
    depth: int = 1


def found_in(model: Any, *spaces: tuple[dict[str, Any], dict[str, Any]]) -> Any:
    variants = [
        SimpleNamespace(space=SimpleNamespace(pins=pins, distributions=searched))
        for pins, searched in spaces
    ]
    return models_and_data(SimpleNamespace(model=model, data=Digits(), variants=variants))  # type: ignore[arg-type]


def test_each_network_once_with_what_is_set_and_searched() -> None:
    searched = {"model.depth": CategoricalDistribution([1, 2])}
    found = found_in(Nested(), ({"model.stem.width": 3}, searched), ({}, {}), ({}, {}))
    models = [model for model, _ in found]
    assert models == [Nested(Stem(3), 1), Nested(Stem(3), 2), Nested()]


def test_values_that_fit_only_together() -> None:
    pins = {"model.train": "head", "model.weights": "default", "data.augment": "flip"}
    ((model, data),) = found_in(Torchvision(), (pins, {}))
    assert model.frozen and data == Digits(augment="flip")
