"""Calibration, studied and measured: `import calstudy` is all that a script needs.

`calstudy.evaluate` measures the predictions of any model; `calstudy.Study` runs and reads a study;
`calstudy.losses` and `calstudy.metrics` are plain functions of tensors. Each is loaded when it is
asked for; `__init__.pyi` has the same for type checkers. docs/how-to/use-python.md.
"""

import warnings
from importlib import import_module

from calstudy.command import foreign_package as foreign_package
from calstudy.command import main as main

_PLACES = {
    "CommandFailed": "study.notebook.process",
    "Comparison": "study.evaluation.comparison",
    "Evaluation": "study.evaluation.evaluation",
    "Study": "study.python",
    "TryAgain": "study.schema.errors",
    "UserError": "trainables.problems",
    "encode": "study.registry.encoding",
    "evaluate": "study.evaluation.evaluation",
    "trainable_for": "trainables.training.trainable",
}
_MODULES = ("losses", "metrics")
__all__ = sorted([*_PLACES, *_MODULES])


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'calstudy' has no attribute '{name}'")
    problem = foreign_package()
    if problem is not None:
        raise ImportError(problem)
    if name in _MODULES:
        return import_module(f"calstudy.{name}")
    with warnings.catch_warnings():
        # In a notebook Optuna's progress bars, which nothing here draws, ask for a widget.
        warnings.filterwarnings("ignore", message="IProgress not found")
        return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
