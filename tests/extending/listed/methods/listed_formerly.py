"""What a method imported from modules that have moved since, by their former names."""
# ruff: noqa: F401, I001

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables.batches import augment_images, crop_images
from trainables.classifier import Classifier
from trainables.lookahead import Forward, LookaheadMethod, Parameters, adam_step
from trainables.method import Task
from trainables.methods.focal import focal_loss
from trainables.naming import name_of, use_extensions
from trainables.predictions import Predictions
from trainables.recording import TrainEntropy
from trainables.trial_data import trial_data


@dataclass(frozen=True)
class ListedFormerly(LookaheadMethod):
    """Focal loss with one gamma, learned."""

    def initial(self, task: Task) -> Parameters:
        return {"log_gamma": torch.zeros((), device=task.device)}

    def training_loss(
        self, head: nn.Module, forward: Forward, labels: Tensor, phi: Parameters
    ) -> Tensor:
        return focal_loss(forward.logits, labels, phi["log_gamma"].exp())
