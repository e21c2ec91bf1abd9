"""One trial: a model trained by one calibration method. Only `training/trainable.py` uses Ray.

What an extension may import is here (`from trainables import Method, number`) and loaded when it is
asked for; `__init__.pyi` has the same for type checkers. Every other module is internal.
"""

from importlib import import_module

_NAMES = {
    "dataset": ("Dataset", "Header", "RawData", "RawSplit", "Samples", "Words"),
    "fields": ("choice", "number", "numbers", "setting", "text"),
    "method": (
        *("AuxiliaryMethod", "Batch", "Method", "Mixed", "State", "Step", "Task", "Trainer"),
        *("Wrapper", "require_labels"),
    ),
    "methods.brier": ("brier_loss",),
    "methods.cross_entropy": ("CrossEntropy", "cross_entropy_loss"),
    "methods.focal": ("focal_loss",),
    "methods.label_smoothing": ("label_smoothing_loss",),
    "methods.mbls": ("mbls_loss",),
    "metrics.shared.post_hoc": ("fit_temperature",),
    "model": ("Model", "Network"),
    "outputs.predictions": ("Predictions",),
    "problems": ("FieldError",),
    "seeding": ("stream",),
    "training.trainable": ("trainable_for",),
}


def __getattr__(name: str) -> object:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"trainables.{module}"), name)
    raise AttributeError(f"module 'trainables' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(sum(_NAMES.values(), ()))
