"""Which trials can train together as one program, a stack, and what a trial's place in it takes."""

import json
from collections.abc import Mapping
from math import prod

from torch import nn

from trainables.config import TrialConfig
from trainables.loading.cache import Prepared
from trainables.models.shared.whole_module import network_of
from trainables.plain import Plain
from trainables.plugins import name_of

# Settings in which the trials of a stack may differ; and those of the optimizer, of which `clip`
# may, if it is a number.
OWN = ("method", "number")
OPTIMIZER = ("lr", "momentum", "weight_decay", "schedule", "steps", "factor", "warmup")
# Of each weight: itself, its gradient, and of the two a copy in a step.
COPIES = 4


def why_alone(config: TrialConfig) -> str | None:
    """Why a trial like this trains by itself; None: it can train in a stack."""
    method = name_of(type(config.method))
    if not config.model.stackable:
        return f"{name_of(type(config.model))} has no stacked form"
    if config.record is not None:
        return f"record: {config.record}"
    if config.diagnostics:
        return "diagnostics: true"
    if config.compile:
        return "compile: true"
    if config.method.needs_meta:
        return f"{method} needs a meta split"
    if hook := config.method.alone_by:
        return f"{method} has {HOOKS[hook]} of its own"
    if not config.method.stackable:
        return f"{method} does not set `stackable = True`"
    return None


HOOKS = {
    "step": "a training step",
    "order": "an order",
    "observe": "a state",
    "measured": "measurements",
}


def likeness(mapping: Mapping[str, Plain]) -> str:
    """A key, equal for trials that may share a stack. mapping: as of `TrialConfig.to_mapping`."""
    kept = {key: value for key, value in mapping.items() if key not in OWN}
    optimizer = kept["optimizer"]
    assert isinstance(optimizer, Mapping)
    kept["optimizer"] = {
        key: value is None if key == "clip" else value
        for key, value in optimizer.items()
        if key not in OPTIMIZER
    }
    return json.dumps(kept, sort_keys=True)


def row_bytes(config: TrialConfig, prepared: Prepared) -> int:
    """The memory that one more trial takes in a stack: its weights and moments, two batches with
    what the network makes of them, and its predictions on validation."""
    network = network_of(config.model, prepared.input_shape, prepared.num_classes)
    weights = sum(each.numel() for each in network.parameters())
    moments = config.optimizer.moments
    widths = [each.out_features for each in network.modules() if isinstance(each, nn.Linear)]
    batch = config.batch_size * (prod(prepared.input_shape) + 2 * sum(widths))
    # In float32; an epoch's metrics are computed in float64.
    predictions = 3 * prepared.sizes["validation"] * prepared.num_classes
    return 4 * ((COPIES + moments) * weights + 2 * batch + predictions)
