"""Which trials can train together as one program, a stack."""

import json

import torch

from trainables.config import TrialConfig, to_plain
from trainables.plain import Plain, without_numbers
from trainables.plugins import name_of

# Settings of the optimizer in which the trials of a stack may differ; `clip` may if it is a number.
OPTIMIZER = ("lr", "momentum", "weight_decay", "schedule", "steps", "factor", "warmup")


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


def likeness(config: TrialConfig) -> str:
    """A key, equal for trials that may share a stack: beside their methods and trial numbers, they
    differ in numbers of the optimizer alone."""
    optimizer: dict[str, Plain] = {
        key: value is None if key == "clip" else value
        for key, value in to_plain(config.optimizer).items()
        if key not in OPTIMIZER
    }
    kept = {**config.to_mapping(), "method": None, "optimizer": optimizer, "number": None}
    return json.dumps(kept, sort_keys=True)


def loss_key(config: TrialConfig) -> str:
    """A key, equal for trials whose losses differ in numbers alone."""
    drawn = sorted(config.method.draw(1, 2, torch.Generator()))
    return json.dumps([without_numbers(to_plain(config.method)), drawn], sort_keys=True)
