"""The weights that a study's trials start from: had on this machine, and always the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

import torch
from optuna.distributions import CategoricalDistribution

from study.schema.errors import SpecError, located, under
from study.schema.spec import StudySpec
from trainables.dataset import Dataset
from trainables.fields import Settings
from trainables.inputs import Inputs
from trainables.loading.frozen import refuse_augmentation
from trainables.model import Model, Origin
from trainables.plain import Value

Part = TypeVar("Part", bound=Settings)


def check_weights(spec: StudySpec, inputs: Inputs, file_name: str) -> None:
    """Raise SpecError if a trial's weights cannot be had, or not be used on such images."""
    with located(file_name):
        found = models_and_data(spec)
    for model, data in found:
        with located(file_name):
            if model.frozen:
                refuse_augmentation(data)
        with located(file_name, "model"):
            origin = model.origin()
            if model.frozen:
                model.backbone(inputs)
            elif origin is not None:  # a file of anybody's: what is no weights shows as it is read
                with torch.random.fork_rng(devices=[]):
                    model.build(inputs, num_classes=2)


def weights_of(spec: StudySpec) -> dict[str, str]:
    """The names of the weights that trials start from, by their sha256."""
    return {origin.sha256: origin.name for origin in _origins(spec)}


def refuse_other_weights(
    spec: StudySpec, began_with: dict[str, str] | None, file_name: str
) -> None:
    """Raise SpecError if a study that has begun would go on with other weights.

    began_with: as in `weights_of`; None: an older version recorded none.
    """
    if began_with is None:
        return
    for origin in _origins(spec):
        if origin.sha256 not in began_with:
            found = f"the weights of {origin.name} have changed since '{spec.name}' was started"
            raise SpecError(
                file_name,
                "model.weights",
                f"{found}, sha256 {origin.sha256[:12]}",
                "Restore the file, or rename the study.",
            )


def _origins(spec: StudySpec) -> list[Origin]:
    found = (model.origin() for model, _ in models_and_data(spec))
    return [origin for origin in found if origin is not None]


def models_and_data(spec: StudySpec) -> list[tuple[Model, Dataset]]:
    """Each network that is trained, by whichever method, with the data it is trained on.

    No name is looked up: the extensions in use may be those of the study as it is stored. Raises
    FieldError.
    """
    found: list[tuple[Model, Dataset]] = []
    for variant in spec.variants:
        searched = {
            path: entry.choices
            for path, entry in variant.space.distributions.items()
            if isinstance(entry, CategoricalDistribution) and path.startswith(("model.", "data."))
        }
        for values in product(*searched.values()):
            chosen = {**variant.space.pins, **dict(zip(searched, values, strict=True))}
            pair = (_part(spec.model, "model", chosen), _part(spec.data, "data", chosen))
            if pair not in found:
                found.append(pair)
    return found


def _part(settings: Part, part: str, values: Mapping[str, Value]) -> Part:
    """The settings of a part with those of the values that are of it."""
    before = f"{part}."
    own = {
        path.removeprefix(before): value
        for path, value in values.items()
        if path.startswith(before)
    }
    with under(part):
        return _with(settings, own)


def _with(settings: Part, values: Mapping[str, Value]) -> Part:
    """The settings with these values by their paths, all at once: some fit only together."""
    own: dict[str, Any] = {}
    inner: dict[str, dict[str, Value]] = {}
    for path, value in values.items():
        name, _, rest = path.partition(".")
        if rest:
            inner.setdefault(name, {})[rest] = value
        else:
            own[name] = value
    for name, those in inner.items():
        own[name] = _with(getattr(settings, name), those)
    return replace(settings, **own)
