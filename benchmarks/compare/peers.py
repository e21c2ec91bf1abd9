"""What the packages compute, each by its own door: from logits [N, K] float64 and
labels [N] to a number."""

from __future__ import annotations

import calibration
import numpy as np
import probmetrics.metrics
import relplot
import torch
from netcal.metrics import ACE, ECE, MCE, MMCE
from netcal.regularization import DCAPenalty, MMCEPenalty
from netcal.scaling import TemperatureScaling
from probmetrics.calibrators.logistic import SMSCalibrator, SVSCalibrator
from probmetrics.calibrators.temperature_scaling import TemperatureScalingCalibrator
from probmetrics.distributions import CategoricalLogits
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from torch_uncertainty.losses.classification import (
    ConfidencePenaltyLoss,
    CrossEntropyMaxSupLoss,
    FocalLoss,
)
from torch_uncertainty.metrics.classification import (
    FPR95,
    AdaptiveCalibrationError,
    BrierScore,
    CategoricalNLL,
    ClasswiseCalibrationError,
    SmoothCalibrationError,
)
from torch_uncertainty.post_processing import TemperatureScaler, VectorScaler
from torchmetrics.functional.classification import (
    binary_auroc,
    multiclass_accuracy,
    multiclass_calibration_error,
)
from uncertainty_metrics.numpy import gce

BINS = 15


def probabilities(logits: Tensor) -> Tensor:
    return logits.softmax(dim=-1)


def _top(logits: Tensor, labels: Tensor) -> tuple[np.ndarray, np.ndarray]:
    confidence, predicted = probabilities(logits).max(dim=-1)
    return confidence.numpy(), (predicted == labels).double().numpy()


# ---- torchmetrics --------------------------------------------------------------------------------


def torchmetrics_calibration(
    logits: Tensor, labels: Tensor, norm: str = "l1", bins: int = BINS
) -> float:
    return float(
        multiclass_calibration_error(probabilities(logits), labels, logits.shape[1], bins, norm)
    )


def torchmetrics_accuracy(logits: Tensor, labels: Tensor, top_k: int = 1) -> float:
    return float(multiclass_accuracy(logits, labels, logits.shape[1], average="micro", top_k=top_k))


def torchmetrics_auroc(inside: Tensor, outside: Tensor) -> float:
    target = torch.cat([torch.zeros(len(inside)), torch.ones(len(outside))]).long()
    return float(binary_auroc(torch.cat([inside, outside]), target))


# ---- torch-uncertainty ---------------------------------------------------------------------------


def _updated(metric: torch.nn.Module, *values: Tensor) -> float:
    metric.update(*values)
    return float(metric.compute())


def torch_uncertainty_adaptive(logits: Tensor, labels: Tensor) -> float:
    metric = AdaptiveCalibrationError(task="multiclass", num_classes=logits.shape[1], num_bins=BINS)
    return _updated(metric, probabilities(logits), labels)


def torch_uncertainty_classwise(logits: Tensor, labels: Tensor) -> float:
    return _updated(ClasswiseCalibrationError(logits.shape[1], BINS), probabilities(logits), labels)


def torch_uncertainty_smooth(logits: Tensor, labels: Tensor) -> float:
    # float64 is refused.
    return _updated(SmoothCalibrationError("reflected"), probabilities(logits).float(), labels)


def torch_uncertainty_brier(logits: Tensor, labels: Tensor) -> float:
    return _updated(BrierScore(logits.shape[1]), probabilities(logits), labels)


def torch_uncertainty_nll(logits: Tensor, labels: Tensor) -> float:
    return _updated(CategoricalNLL(), probabilities(logits), labels)


def torch_uncertainty_fpr95(inside: Tensor, outside: Tensor) -> float:
    target = torch.cat([torch.zeros(len(inside)), torch.ones(len(outside))]).long()
    return _updated(FPR95(pos_label=1), torch.cat([inside, outside]), target)


def _fitted(scaler: torch.nn.Module, logits: Tensor, labels: Tensor) -> torch.nn.Module:
    scaler.fit(
        DataLoader(TensorDataset(logits.float(), labels), batch_size=len(labels)), progress=False
    )
    return scaler


def torch_uncertainty_temperature(logits: Tensor, labels: Tensor) -> Tensor:
    """Calibrated logits."""
    return _fitted(TemperatureScaler(), logits, labels)(logits.float()).double()


def torch_uncertainty_vector(logits: Tensor, labels: Tensor) -> Tensor:
    """Calibrated logits. (Their vector scaling has no bias.)"""
    return _fitted(VectorScaler(num_classes=logits.shape[1]), logits, labels)(
        logits.float()
    ).double()


def torch_uncertainty_focal(logits: Tensor, labels: Tensor, gamma: float) -> float:
    return float(FocalLoss(gamma)(logits, labels))


def torch_uncertainty_confidence_penalty(logits: Tensor, labels: Tensor, weight: float) -> float:
    """Less the constant log K, which has no gradient."""
    return float(ConfidencePenaltyLoss(weight)(logits, labels)) - weight * float(
        np.log(logits.shape[1])
    )


def torch_uncertainty_max_sup(logits: Tensor, labels: Tensor, weight: float) -> float:
    return float(CrossEntropyMaxSupLoss(max_sup=weight)(logits, labels))


# ---- netcal --------------------------------------------------------------------------------------


def _netcal(metric: ECE | MCE | ACE | MMCE, logits: Tensor, labels: Tensor) -> float:
    # Of two classes netcal wants the probability of the second; the top label is
    # then another question.
    confidence, hits = _top(logits, labels)
    return float(metric.measure(confidence, hits.astype(int)))


def netcal_ece(logits: Tensor, labels: Tensor) -> float:
    return _netcal(ECE(BINS), logits, labels)


def netcal_mce(logits: Tensor, labels: Tensor) -> float:
    return _netcal(MCE(BINS), logits, labels)


def netcal_ace(logits: Tensor, labels: Tensor) -> float:
    return _netcal(ACE(BINS), logits, labels)


def netcal_adaptive(logits: Tensor, labels: Tensor) -> float:
    return _netcal(ECE(BINS, equal_intervals=False), logits, labels)


def netcal_mmce(logits: Tensor, labels: Tensor) -> float:
    return float(MMCE().measure(probabilities(logits).numpy(), labels.numpy()))


def netcal_mmce_penalty(logits: Tensor, labels: Tensor) -> float:
    return float(MMCEPenalty()(logits, labels))


def netcal_dca_penalty(logits: Tensor, labels: Tensor) -> float:
    return float(DCAPenalty()(logits, labels))


# ---- uncertainty-metrics -------------------------------------------------------------------------


def google_adaptive(logits: Tensor, labels: Tensor) -> float:
    return float(
        gce(labels.numpy(), probabilities(logits).numpy(), "adaptive", True, False, "l1", BINS)
    )


def google_tace(logits: Tensor, labels: Tensor) -> float:
    return float(
        gce(
            labels.numpy(), probabilities(logits).numpy(), "adaptive", False, True, "l1", BINS, 0.01
        )
    )


# ---- uncertainty-calibration, relplot, probmetrics, torch ----------------------------------------


def kumar(
    logits: Tensor, labels: Tensor, power: int, debias: bool, mode: str = "top-label"
) -> float:
    values = probabilities(logits).numpy(), labels.numpy()
    return float(
        calibration.utils.lower_bound_scaling_ce(
            *values, p=power, debias=debias, num_bins=BINS, mode=mode
        )
    )


def kumar_ece(logits: Tensor, labels: Tensor, mode: str = "top-label") -> float:
    return float(
        calibration.utils.get_ece(
            probabilities(logits).numpy(), labels.numpy(), num_bins=BINS, mode=mode
        )
    )


def relplot_smooth(logits: Tensor, labels: Tensor) -> float:
    return float(relplot.smECE(*_top(logits, labels)))


def relplot_smooth_at(logits: Tensor, labels: Tensor, sigma: float) -> float:
    return float(relplot.smECE_sigma(*_top(logits, labels), sigma))


def relplot_binned(logits: Tensor, labels: Tensor) -> float:
    return float(relplot.metrics.binnedECE(*_top(logits, labels), nbins=BINS))


def probmetrics_metric(logits: Tensor, labels: Tensor, name: str) -> float:
    found = probmetrics.metrics.Metrics.from_names([name]).compute_all_from_labels_logits(
        labels, logits
    )
    return float(found[name])


def probmetrics_temperature(logits: Tensor, labels: Tensor) -> float:
    fitted = TemperatureScalingCalibrator()
    fitted.fit_torch(CategoricalLogits(logits), labels)
    return 1 / float(fitted.invtemp_)


def probmetrics_structured(logits: Tensor, labels: Tensor, kind: str) -> float:
    """The NLL, on what it was fitted to, of svs or sms."""
    calibrator = {"svs": SVSCalibrator, "sms": SMSCalibrator}[kind](print_init_info=False)
    calibrator.fit_torch(CategoricalLogits(logits), labels)
    probs = calibrator.predict_proba_torch(CategoricalLogits(logits)).get_probs()
    return float(torch.nn.functional.nll_loss(probs.double().log(), labels))


def netcal_temperature(logits: Tensor, labels: Tensor) -> Tensor:
    """Calibrated logits."""
    probs = probabilities(logits).numpy()
    is_binary = probs.shape[1] == 2
    given = probs[:, 1] if is_binary else probs
    found = TemperatureScaling().fit(given, labels.numpy()).transform(given)
    both = np.stack([1 - found, found], axis=1) if is_binary else found
    return torch.from_numpy(both.astype(float)).log()


class Scored(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose scores are its samples, the logits."""

    def __init__(self, num_classes: int = 2) -> None:
        self.num_classes = num_classes
        self.classes_ = np.arange(num_classes)

    def fit(self, rows: np.ndarray, labels: np.ndarray) -> Scored:
        return self

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return rows.argmax(axis=1)

    def decision_function(self, rows: np.ndarray) -> np.ndarray:
        return rows[:, 1] - rows[:, 0] if self.num_classes == 2 else rows


def scikit_learn_temperature(logits: Tensor, labels: Tensor) -> Tensor:
    """Calibrated logits."""
    frozen = FrozenEstimator(Scored(logits.shape[1]))
    fitted = CalibratedClassifierCV(frozen, method="temperature")
    fitted.fit(logits.numpy(), labels.numpy())
    return torch.from_numpy(fitted.predict_proba(logits.numpy())).log()


def torch_label_smoothing(logits: Tensor, labels: Tensor, epsilon: float) -> float:
    return float(torch.nn.functional.cross_entropy(logits, labels, label_smoothing=epsilon))
