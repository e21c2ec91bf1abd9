"""The methods' losses as plain functions of logits [N, K] and labels [N], for a training loop of
one's own: each is named as its method. docs/reference/methods.md has their sources.

`focal` takes a gamma for all samples or one each: `scheduled_gamma` is that of `focal_scheduled`,
`sample_gamma` that of `focal_sample_dependent`, `learned_gamma` that of `gamma_net`. `mmce`,
`mdca`, `dca`, `esd`, `dece` and `sece` are terms to be added to a loss, times a weight.
`losses.pyi` has the same for type checkers.
"""

from importlib import import_module

_PLACES = {
    "acls": ("acls", "acls_loss"),
    "brier": ("brier", "brier_loss"),
    "confidence_penalty": ("confidence_penalty", "confidence_penalty_loss"),
    "cross_entropy": ("cross_entropy", "cross_entropy_loss"),
    "dca": ("dca", "confidence_difference"),
    "dece": ("dece", "differentiable_ece"),
    "dual_focal": ("dual_focal", "dual_focal_loss"),
    "esd": ("esd", "expected_squared_difference"),
    "focal": ("focal", "focal_loss"),
    "inverse_focal": ("inverse_focal", "inverse_focal_loss"),
    "label_smoothing": ("label_smoothing", "label_smoothing_loss"),
    "learned_gamma": ("gamma_net", "learned_gamma"),
    "logit_norm": ("logit_norm", "logit_norm_loss"),
    "mbls": ("mbls", "mbls_loss"),
    "mdca": ("mdca", "multiclass_difference"),
    "mmce": ("mmce", "mmce_penalty"),
    "sample_gamma": ("focal_sample_dependent", "sample_gamma"),
    "scheduled_gamma": ("focal_scheduled", "scheduled_gamma"),
    "sece": ("sece", "smooth_ece"),
}
__all__ = [*_PLACES]


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'calstudy.losses' has no attribute '{name}'")
    method, function = _PLACES[name]
    return getattr(import_module(f"trainables.methods.{method}"), function)


def __dir__() -> list[str]:
    return __all__
