"""The methods' losses as plain functions."""

from trainables.methods.acls import acls_loss as acls
from trainables.methods.brier import brier_loss as brier
from trainables.methods.confidence_penalty import confidence_penalty_loss as confidence_penalty
from trainables.methods.cross_entropy import cross_entropy_loss as cross_entropy
from trainables.methods.dca import confidence_difference as dca
from trainables.methods.dece import differentiable_ece as dece
from trainables.methods.dual_focal import dual_focal_loss as dual_focal
from trainables.methods.esd import expected_squared_difference as esd
from trainables.methods.focal import focal_loss as focal
from trainables.methods.focal_sample_dependent import sample_gamma as sample_gamma
from trainables.methods.focal_scheduled import scheduled_gamma as scheduled_gamma
from trainables.methods.gamma_net import learned_gamma as learned_gamma
from trainables.methods.inverse_focal import inverse_focal_loss as inverse_focal
from trainables.methods.label_smoothing import label_smoothing_loss as label_smoothing
from trainables.methods.logit_norm import logit_norm_loss as logit_norm
from trainables.methods.mbls import mbls_loss as mbls
from trainables.methods.mdca import multiclass_difference as mdca
from trainables.methods.mmce import mmce_penalty as mmce
from trainables.methods.sece import smooth_ece as sece

__all__ = [
    "acls",
    "brier",
    "confidence_penalty",
    "cross_entropy",
    "dca",
    "dece",
    "dual_focal",
    "esd",
    "focal",
    "inverse_focal",
    "label_smoothing",
    "learned_gamma",
    "logit_norm",
    "mbls",
    "mdca",
    "mmce",
    "sample_gamma",
    "scheduled_gamma",
    "sece",
]
