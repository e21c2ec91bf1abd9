"""A trial's checkpoint, `last.pt`: what its training goes on from, whole or not at all."""

import hashlib
import io
from dataclasses import fields
from pathlib import Path
from typing import TypedDict

import torch
from torch import Tensor

from trainables.config import TrialConfig, before_there_were, value_in, with_value
from trainables.fields import is_file
from trainables.files.atomic import write_whole
from trainables.files.saved import digested_payload
from trainables.method import State
from trainables.plain import Plain
from trainables.training.learner import Best, Learner
from trainables.training.weights import OptimizerState


class Saved(TypedDict):
    config: dict[str, Plain]
    epoch: int
    history: list[dict[str, float]]
    best: Best | None
    network: dict[str, Tensor]
    optimizer: OptimizerState
    method_state: State
    samples: int
    recorded: Tensor | None
    features: str | None


class OtherFeatures(Exception):
    """A checkpoint of a head that was trained on other outputs of its frozen network."""


def save(learner: Learner, path: Path) -> None:
    """Write its state atomically. Random streams are functions of (seed, trial, epoch)."""
    learner.catch_up()
    state: Saved = {
        "config": learner.config.to_mapping(),
        "epoch": learner.epoch,
        "history": learner.history,
        "best": learner.best,
        "network": learner.network.state_dict(),
        "optimizer": learner.weights.state(),
        "method_state": learner.method_state,
        "samples": learner.samples,
        "recorded": learner.entropies,
        "features": learner.data.prepared.features,
    }
    inner = io.BytesIO()
    torch.save(state, inner)
    content = inner.getbuffer()
    payload = torch.frombuffer(content, dtype=torch.uint8)
    outer = io.BytesIO()
    # A zip's own checksums are not verified on load: the digest detects a corrupted file.
    torch.save({"sha256": hashlib.sha256(content).hexdigest(), "state": payload}, outer)
    write_whole(path, outer.getbuffer(), durable=True)


def load(learner: Learner, path: Path) -> bool:
    """Resume from what `save` wrote; False, with nothing changed, if damaged or another trial's.

    Raises OtherFeatures.
    """
    try:
        payload = digested_payload(path)
        if payload is None:
            return False
        device = learner.device
        state: Saved = torch.load(io.BytesIO(payload), weights_only=True, map_location=device)
        if not _is_of(learner, state):
            return False
    except Exception:
        # Whatever torch raises on a torn file; the trial starts from an older one, or from scratch.
        return False
    if state.get("features") != learner.data.prepared.features:
        raise OtherFeatures
    learner.network.load_state_dict(state["network"])
    learner.weights.load(state["optimizer"])
    learner.method_state = state["method_state"]
    learner.history = state["history"]
    learner.best = state["best"]
    learner.samples = state["samples"]
    learner.entropies = state["recorded"]
    learner.stand_after(state["epoch"])
    return True


def _is_of(learner: Learner, state: Saved) -> bool:
    """Whether a state is of the learner's trial."""
    own = learner.config
    # Where extensions and weights lie, and whether steps are captured, is not of the trial.
    # Settings newer than the file get their defaults, or what was meant before them.
    moved = {**state["config"], "extensions": own.extensions, "capture": own.capture}
    for spec in fields(own.model):
        if is_file(spec, value := getattr(own.model, spec.name)):
            moved = with_value(moved, f"model.{spec.name}", value)
    for path, value in before_there_were(own.method, "method").items():
        if value_in(moved, path) is None:
            moved = with_value(moved, path, value)
    return moved == own.to_mapping() or TrialConfig.from_mapping(moved) == own
