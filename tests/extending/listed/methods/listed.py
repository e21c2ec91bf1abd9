"""Every name an extension's method may import; a few of them make one."""
# ruff: noqa: F401

from dataclasses import dataclass, field

from torch import Tensor

from trainables.config import TrialConfig
from trainables.fields import FieldError, Settings, choice, nearest, number, numbers, text
from trainables.learner import Diverged, Learner
from trainables.loading.batches import augment_images, crop_images
from trainables.loading.trial_data import trial_data
from trainables.method import (
    AuxiliaryMethod,
    Batch,
    Method,
    Mixed,
    State,
    Step,
    Task,
    Trainer,
    Wrapper,
    require_labels,
)
from trainables.methods import find, names
from trainables.methods.brier import Brier, brier_loss
from trainables.methods.confidence_penalty import (
    ConfidencePenalty,
    confidence_penalty_loss,
    entropy,
)
from trainables.methods.cross_entropy import CrossEntropy, cross_entropy_loss
from trainables.methods.dece import Dece, differentiable_ece, soft_hits
from trainables.methods.focal import Focal, focal_loss
from trainables.methods.focal_sample_dependent import (
    FocalSampleDependent,
    gamma_of_p0,
    sample_gamma,
)
from trainables.methods.focal_scheduled import FocalScheduled, scheduled_gamma
from trainables.methods.gamma_net import GammaNet, learned_gamma
from trainables.methods.label_smoothing import LabelSmoothing, label_smoothing_loss
from trainables.methods.mbls import Mbls, mbls_loss
from trainables.methods.meta_l2 import MetaL2
from trainables.methods.mixup import Mixup, mixed_batch
from trainables.methods.mmce import Mmce, mmce_penalty, weighted_mmce
from trainables.methods.sample_prioritization import SamplePrioritization, highest, priorities
from trainables.methods.sece import Sece, smooth_ece
from trainables.methods.shared.lookahead import Forward, LookaheadMethod, Parameters, adam_step
from trainables.metrics import evaluate
from trainables.metrics import find as find_metric
from trainables.metrics import names as metric_names
from trainables.metrics.binned import expected_calibration_error
from trainables.metrics.scores import accuracy, brier_score, negative_log_likelihood
from trainables.outputs.classifier import Classifier
from trainables.outputs.predictions import Predictions
from trainables.outputs.train_entropy import TrainEntropy
from trainables.plugins import name_of, use_extensions
from trainables.post_hoc import cross_fitted, fit_temperature
from trainables.seeding import seed_of, stream


@dataclass(frozen=True)
class Listed(AuxiliaryMethod):
    """base loss + weight * (focal loss + SECE - entropy)."""

    weight: float = number(0.1, low=0, doc="of the three terms")
    base: Method = field(default_factory=CrossEntropy)

    def prepare(self, batch: Batch, generator):
        return super().prepare(
            batch._replace(images=augment_images(batch.images, "flip", generator)), generator
        )

    def loss(self, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
        labels = require_labels(self, targets)
        terms = (
            focal_loss(logits, labels, 2.0)
            + smooth_ece(logits, labels, 0.1)
            - entropy(logits).mean()
        )
        return super().loss(logits, targets, progress) + self.weight * terms
