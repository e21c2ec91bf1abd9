"""Ours beside the public packages, on random and adversarial inputs: who
agrees, who does not, and why.

    make compare        # an environment of its own; a minute

Each row is a quantity, ours and a package's, over all inputs. Values agree within 1e-5
(float32 inside some packages) of 1 or of the value. Where they do not, the row must say why
for that input; a difference that nobody explains ends in exit code 1.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from torch import Tensor

from benchmarks.compare import peers
from benchmarks.compare.conventions import CONVENTIONS
from benchmarks.compare.inputs import INPUTS, Case
from trainables.methods import brier, confidence_penalty, dca, focal, label_smoothing, mbls, mmce
from trainables.metrics import binned, classwise, kernel, out_of_distribution, scores, smooth
from trainables.metrics.shared import post_hoc

TOLERANCE = 1e-5
Quantity = Callable[[Tensor, Tensor], float | Tensor]


class Row(NamedTuple):
    """`differs` gives the reason for each input on which the two part; `*` stands for any, if
    they stay within .01."""

    name: str
    peer: str
    ours: Quantity
    theirs: Quantity
    differs: dict[str, str] = {}  # noqa: RUF012


def convention(name: str) -> Quantity:
    return lambda logits, labels: CONVENTIONS[name].value(logits, labels, 15)


def gain(theirs: Callable[[Tensor, Tensor], Tensor], ours: post_hoc.Fit) -> Quantity:
    """How much lower than with our fit the NLL of the fitted set is with
    theirs; 0 where it is not."""

    def value(logits: Tensor, labels: Tensor) -> Tensor:
        nll = scores.negative_log_likelihood
        return (
            nll(ours(logits, labels)(logits), labels) - nll(theirs(logits, labels), labels)
        ).clamp(min=0)

    return value


def fitted_nll(form: str) -> Quantity:
    """The NLL of the fitted set, calibrated."""

    def value(logits: Tensor, labels: Tensor) -> Tensor:
        calibrate = post_hoc.FITS[form](logits, labels)
        return scores.negative_log_likelihood(calibrate(logits), labels)

    return value


def none(logits: Tensor, labels: Tensor) -> float:
    return 0.0


APART = {
    name: "a confidence of exactly 1.0 in a bin of its own"
    for name in ("certain", "a few certain", "underflow")
}
EDGES = {name: "[lo, hi): a confidence on an edge goes up" for name in ("edges", "two samples")}
CELLS = {"*": "put into cells, normalised by a density, the width searched to .001"}
ALONE = {"two samples": "bins of one sample have no variance to subtract: no answer of ours"}
POSITION = {name: "ties as the rows come" for name in ("edges", "ties")}
EMPTY = {"two samples": "its empty bins are 0 / 0"}
QUANTILES = {name: "its edges tie: ours is NaN" for name in ("certain", "edges", "ties")}
OF_PROBABILITIES = {
    name: "from probabilities, the label's being 0" for name in ("certain", "a few certain")
}
MISSING = {name: "drops classes without a label" for name in ("absent class", "ties")}
BINARY = {
    name: "of two classes, bins p of the second"
    for name in ("random 500x2", "edges", "two samples")
}
SIGMOID = {name: "takes entropies above 1 for logits: their sigmoid ties"
           for name in ("certain", "a few certain", "underflow")}  # fmt: skip
UNBOUNDED = {name: "no finite minimum: ours stops at .01 or 1000"
             for name in ("all right", "all wrong", "underflow", "two samples")}  # fmt: skip
NEGATIVE = {
    name: "a negative temperature: the classes turned round"
    for name in ("all wrong", "two samples")
}
SEEN = {
    **{name: "refused: a label for each class is needed" for name in ("ties", "absent class")},
    "two samples": "refused: five are needed",
    **{name: UNBOUNDED[name] for name in ("all right", "all wrong", "underflow")},
}
CUT = {
    **{name: "cuts probabilities off at 1e-16" for name in (*APART,)},
    **{"all right": UNBOUNDED["all right"], **NEGATIVE},
}
SHORT = {
    "*": "its fit, in float32, stops short of the optimum",
    **UNBOUNDED,
    **{name: "cuts log-probabilities off at -87" for name in (*APART,)},
}
ONE_SIDED = {
    name: "ours is 0 where all are right or all wrong" for name in ("all right", "all wrong")
}

METRICS = [
    Row("accuracy", "torchmetrics", scores.accuracy, peers.torchmetrics_accuracy),
    Row("ece", "torchmetrics", binned.expected_calibration_error, peers.torchmetrics_calibration,
        {**APART, **EDGES}),
    Row("ece, its convention", "torchmetrics", convention("torchmetrics"),
        peers.torchmetrics_calibration),
    Row("mce", "torchmetrics", binned.maximum_calibration_error,
        partial(peers.torchmetrics_calibration, norm="max"), {**APART, **EDGES}),
    Row("rmsce", "torchmetrics", binned.root_mean_square_calibration_error,
        partial(peers.torchmetrics_calibration, norm="l2"), {**APART, **EDGES}),
    Row("ece", "netcal", binned.expected_calibration_error, peers.netcal_ece, EDGES),
    Row("ece, its convention", "netcal", convention("netcal"), peers.netcal_ece),
    Row("mce", "netcal", binned.maximum_calibration_error, peers.netcal_mce, EDGES),
    Row("ace_unweighted", "netcal", binned.average_calibration_error, peers.netcal_ace, EDGES),
    Row("adaptive_ece, its convention", "netcal", convention("netcal_adaptive"),
        peers.netcal_adaptive, QUANTILES),
    Row("mmce", "netcal", kernel.maximum_mean_calibration_error, peers.netcal_mmce),
    Row("ece", "uncertainty-calibration", binned.expected_calibration_error, peers.kumar_ece),
    Row("classwise_ece", "uncertainty-calibration", classwise.classwise_calibration_error,
        partial(peers.kumar_ece, mode="marginal")),
    Row("adaptive_ece", "uncertainty-calibration", binned.adaptive_calibration_error,
        partial(peers.kumar, power=1, debias=False)),
    Row("l2", "uncertainty-calibration", binned.l2_calibration_error, partial(peers.kumar, power=2,
        debias=False)),
    Row("debiased_l2", "uncertainty-calibration", binned.debiased_l2_calibration_error,
        partial(peers.kumar, power=2, debias=True), ALONE),
    Row("debiased_l2_marginal", "uncertainty-calibration", classwise.debiased_l2_marginal_error,
        partial(peers.kumar, power=2, debias=True, mode="marginal"), ALONE),
    Row("adaptive_ece, its convention", "uncertainty-metrics", convention("google_adaptive"),
        peers.google_adaptive),
    Row("thresholded_classwise_ece, its convention", "uncertainty-metrics",
        convention("google_tace"), peers.google_tace),
    Row("adaptive_ece", "torch-uncertainty", binned.adaptive_calibration_error,
        peers.torch_uncertainty_adaptive, {**POSITION, **EMPTY}),
    Row("adaptive_ece, its convention", "torch-uncertainty",
        convention("torch_uncertainty_adaptive"), peers.torch_uncertainty_adaptive, EMPTY),
    Row("classwise_ece", "torch-uncertainty", classwise.classwise_calibration_error,
        peers.torch_uncertainty_classwise, APART),
    Row("brier", "torch-uncertainty", scores.brier_score, peers.torch_uncertainty_brier),
    Row("nll", "torch-uncertainty", scores.negative_log_likelihood, peers.torch_uncertainty_nll,
        OF_PROBABILITIES),
    Row("smooth_ece", "torch-uncertainty", smooth.smooth_calibration_error,
        peers.torch_uncertainty_smooth, CELLS),
    Row("smooth_ece", "relplot", smooth.smooth_calibration_error, peers.relplot_smooth, CELLS),
    Row("smooth_ece at .1", "relplot", partial(smooth.smooth_calibration_error_at, sigma=0.1),
        partial(peers.relplot_smooth_at, sigma=0.1), CELLS),
    Row("ece, its convention", "relplot", convention("google"), peers.relplot_binned),
    Row("nll", "probmetrics", scores.negative_log_likelihood, partial(peers.probmetrics_metric,
        name="logloss")),
    Row("brier", "probmetrics", scores.brier_score,
        partial(peers.probmetrics_metric, name="brier")),
    Row("ece", "probmetrics", binned.expected_calibration_error,
        partial(peers.probmetrics_metric, name="ece-15"), {**APART, **EDGES, **BINARY, **MISSING}),
]  # fmt: skip
POST_HOC = [
    Row("temperature", "probmetrics", post_hoc.fit_temperature_by_nll,
        peers.probmetrics_temperature, UNBOUNDED),
    Row("NLL that its temperature gains on ours", "torch-uncertainty", none,
        gain(peers.torch_uncertainty_temperature, post_hoc.temperature_by_nll), NEGATIVE),
    Row("NLL that its temperature gains on ours", "scikit-learn", none,
        gain(peers.scikit_learn_temperature, post_hoc.temperature_by_nll), SEEN),
    Row("NLL that its temperature gains on ours", "netcal", none,
        gain(peers.netcal_temperature, post_hoc.temperature_by_nll), CUT),
    *(Row(f"nll after {form}", "probmetrics", fitted_nll(form),
        partial(peers.probmetrics_structured, kind=kind), SHORT)
      for form, kind in (("structured_vector", "svs"), ("structured_matrix", "sms"))),
    Row("NLL that its vector scaling gains on ours", "torch-uncertainty", none,
        gain(peers.torch_uncertainty_vector, partial(post_hoc.fit_vector_scaling, prior=0)),
        {name: "its fit ends in NaN" for name in ("certain", "a few certain")}),
]  # fmt: skip
LOSSES = [
    *(Row(f"focal {gamma:g}", "torch-uncertainty", partial(focal.focal_loss, gamma=gamma),
          partial(peers.torch_uncertainty_focal, gamma=gamma)) for gamma in (0.5, 1.0, 3.0)),
    Row("brier", "probmetrics", brier.brier_loss, partial(peers.probmetrics_metric, name="brier")),
    Row("label_smoothing .1", "torch", partial(label_smoothing.label_smoothing_loss, epsilon=0.1),
        partial(peers.torch_label_smoothing, epsilon=0.1)),
    Row("confidence_penalty .1", "torch-uncertainty",
        partial(confidence_penalty.confidence_penalty_loss, weight=0.1),
        partial(peers.torch_uncertainty_confidence_penalty, weight=0.1)),
    Row("mmce penalty", "netcal", partial(mmce.mmce_penalty, kernel_width=0.4),
        peers.netcal_mmce_penalty, ONE_SIDED),
    Row("dca", "netcal", dca.confidence_difference, peers.netcal_dca_penalty),
    Row("mbls, margin 0 (MaxSup) .1", "torch-uncertainty",
        partial(mbls.mbls_loss, margin=0.0, weight=0.1),
        partial(peers.torch_uncertainty_max_sup, weight=0.1)),
]  # fmt: skip


def strange(score: Callable[[Tensor], Tensor]) -> Callable[[Quantity], Quantity]:
    """A measure of how well that score tells a case's logits from the same at
    a third of their scale."""
    return lambda measure: lambda logits, labels: measure(score(logits), score(logits / 3))


OOD = [
    Row(
        f"{name} {key}",
        peer,
        strange(score)(ours),
        strange(score)(theirs),
        SIGMOID if name == "auroc" else {},
    )
    for key, score in out_of_distribution.SCORES.items()
    for name, peer, ours, theirs in (
        ("auroc", "torchmetrics", out_of_distribution.auroc, peers.torchmetrics_auroc),
        (
            "fpr95",
            "torch-uncertainty",
            out_of_distribution.fpr_at_95,
            peers.torch_uncertainty_fpr95,
        ),
    )
]


def value(quantity: Quantity, case: Case) -> float | str:
    """A number, or the name of the error it ends with."""
    logits, labels = case
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return float(quantity(logits.clone(), labels.clone()))
        except Exception as error:  # whatever a package makes of it
            return type(error).__name__


def same(ours: float | str, theirs: float | str) -> bool:
    if isinstance(ours, str) or isinstance(theirs, str):
        return False
    return abs(ours - theirs) <= TOLERANCE * max(1.0, abs(ours)) or (
        math.isnan(ours) and math.isnan(theirs)
    )


def near(ours: float | str, theirs: float | str) -> bool:
    return not isinstance(ours, str) and not isinstance(theirs, str) and abs(ours - theirs) <= 0.01


def compared(rows: Iterable[Row]) -> bool:
    """Print a table; whether every difference is explained."""
    explained = True
    for row in rows:
        pairs = {
            name: (value(row.ours, case), value(row.theirs, case)) for name, case in INPUTS.items()
        }
        apart = {name: pair for name, pair in pairs.items() if not same(*pair)}
        print(
            f"| {row.name} | {row.peer} | {len(pairs) - len(apart)} of {len(pairs)} |"
            f" {len(apart) or ''} |"
        )
        for name, (ours, theirs) in apart.items():
            why = row.differs.get(name) or (row.differs.get("*") if near(ours, theirs) else None)
            explained &= why is not None
            print(
                f"|   | {name}: {_text(ours)}, theirs {_text(theirs)} | |"
                f" {why or 'NOT EXPLAINED'} |"
            )
    return explained


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def main() -> int:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    explained = True
    for title, rows in {
        "Metrics": METRICS,
        "Strange samples": OOD,
        "Post-hoc": POST_HOC,
        "Losses": LOSSES,
    }.items():
        print(f"\n| {title} | package | agrees on | differs on |\n|---|---|---|---|")
        explained &= compared(rows)
    print(
        "\nevery difference is explained." if explained else "\nsome differences are not explained."
    )
    return 0 if explained else 1


if __name__ == "__main__":
    sys.exit(main())
