"""The weights that a study's trials start from: had on this machine, and always the same."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from optuna.distributions import CategoricalDistribution

from study.schema.errors import SpecError, located
from study.schema.spec import StudySpec
from study.schema.variant import with_pins
from trainables.config import TrialConfig
from trainables.inputs import Inputs
from trainables.loading.frozen import refuse_augmentation
from trainables.model import Origin


def check_weights(spec: StudySpec, inputs: Inputs, file_name: str) -> None:
    """Raise SpecError if a trial's weights cannot be had, or not be used on such images."""
    for trial in _trials(spec):
        with located(file_name):
            if trial.model.frozen:
                refuse_augmentation(trial.data)
        with located(file_name, "model"):
            trial.model.origin()
            if trial.model.frozen:
                trial.model.backbone(inputs)


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
    found = (trial.model.origin() for trial in _trials(spec))
    return [origin for origin in found if origin is not None]


def _trials(spec: StudySpec) -> Iterator[TrialConfig]:
    """One trial of each network that is trained, by whichever method."""
    known = []
    for variant in spec.variants:
        searched = {
            path: entry.choices
            for path, entry in variant.space.distributions.items()
            if isinstance(entry, CategoricalDistribution) and path.startswith(("model.", "data."))
        }
        for values in product(*searched.values()):
            trial = with_pins(spec.trial(variant.label), dict(zip(searched, values, strict=True)))
            if (trial.model, trial.data) not in known:
                known.append((trial.model, trial.data))
                yield trial
