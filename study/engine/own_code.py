"""A user's own networks and metrics, checked before anything trains."""

from __future__ import annotations

from contextlib import nullcontext

import torch

from study.engine.weights import models_and_data
from study.schema.errors import located
from study.schema.spec import StudySpec
from trainables import metrics
from trainables.loading.cache import Prepared
from trainables.model import Model
from trainables.models.shared.whole_module import network_of
from trainables.plugins import is_own


def check_own_code(spec: StudySpec, prepared: Prepared, file_name: str) -> None:
    """Raise SpecError if a network of the extensions folder cannot be built for these data, or a
    metric that trials measure cannot be imported; or a network of words for the data's.

    A frozen network takes features, whose shape its backbone tells later.
    """
    with located(file_name):
        metrics.load_own([objective.metric for objective in spec.objectives])
        checked: list[Model] = []
        for model, _ in models_and_data(spec):
            is_checked = is_own(type(model)) or prepared.input_shape.words
            if is_checked and not model.frozen and model not in checked:
                checked.append(model)
                # One of words may need vectors that the data lack.
                under = nullcontext() if is_own(type(model)) else located(file_name, "model")
                with under, torch.random.fork_rng(devices=[]):
                    network_of(model, prepared.input_shape, prepared.num_classes)
